"""The stream of a server's events, reopened automatically after the last event received.

Laws:
- Each event comes once and in order, across lost connections and restarts of the server.
- A stream that stays silent for `SILENT_SECONDS`, without even the server's keep-alive comment, is closed and opened again.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator

from fairlane.core.errors import BadValue, StoreError
from fairlane.queue.models import Change

from .models import parse, unexpected_response
from .retries import RetryingTransport, raise_for_status
from .transport import OpenResponse

SILENT_SECONDS = 45.0  # the server sends something every 15
LINE_BYTES_MAX = 1024 * 1024
PAUSE_SECONDS = 0.2  # before a stream that ended is opened again


class Events(Iterator[Change]):
    """Events as they happen; ends when it is closed, from any thread."""

    def __init__(self, transport: RetryingTransport, after: int | None) -> None:
        self._stream: OpenResponse | None = None
        self._is_closed = threading.Event()
        if after is not None and not (type(after) is int and after >= 0):
            raise BadValue("after", after, "the number of an event, 0 for all that are kept, or None for those from now on")
        self._transport = transport
        self.last = after  # the number of the newest event received; None: begin now

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:  # after a `break` out of a for loop, for example
        self.close()

    def close(self) -> None:
        """Close the stream; a thread that waits for the next event gets StopIteration."""
        self._is_closed.set()
        stream, self._stream = self._stream, None
        if stream is not None:
            if stream.connection.sock is not None:
                with contextlib.suppress(OSError):
                    stream.connection.sock.shutdown(socket.SHUT_RDWR)  # wakes a thread blocked in recv
            stream.connection.close()

    def __next__(self) -> Change:
        while not self._is_closed.is_set():
            try:
                event = self._next(self._stream or self._open())
            except (OSError, http.client.HTTPException, ValueError, AttributeError):  # lost, or closed by another thread
                event = None
            if event is not None:
                return event
            self._drop_stream()
        raise StopIteration

    def _open(self) -> OpenResponse:
        headers = {"Accept": "text/event-stream"}

        def attempt(_: bool) -> OpenResponse:
            query = "" if self.last is None else f"?after={self.last}"
            path, transport = f"/v1/events{query}", self._transport.transport
            with transport.stream("GET", path, None, headers, SILENT_SECONDS, fresh=True) as stream:
                raise_for_status(stream)
            return stream

        try:
            self._stream = self._transport.retry(attempt, is_idempotent=True, stop=self._is_closed)
        except StoreError:
            if self._is_closed.is_set():
                raise StopIteration from None
            raise
        return self._stream

    def _next(self, stream: OpenResponse) -> Change | None:
        """Return the next event; None if the stream ended."""
        data, number, is_event = "", self.last, False
        while line := stream.response.readline(LINE_BYTES_MAX):
            name, _, value = line.decode().rstrip("\r\n").partition(":")
            value = value.removeprefix(" ")
            if name == "id" and value.isascii() and value.isdigit():
                number = int(value)
            elif name == "data":
                data, is_event = data + value, True
            elif not name and not value and line.strip() == b"":
                self.last = number
                if is_event and number is not None:
                    return _event(number, data)
        return None

    def _drop_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.connection.close()
            self._is_closed.wait(PAUSE_SECONDS)


def _event(number: int, data: str) -> Change:
    try:
        return parse(Change, json.loads(data), number=number)
    except ValueError:
        raise unexpected_response("an event is not JSON") from None
