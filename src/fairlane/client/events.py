"""How are the events of a server followed? One stream, opened again by itself after the last event that was seen.

Laws:
- Each event comes once, in order, whatever happens to connection and server meanwhile.
- A stream on which nothing comes for `SILENT_SECONDS`, not even the server's beat, is given up and opened again.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator

from fairlane.core.errors import BadValue, StoreError

from .models import Event, odd, read
from .retries import Asking, refuse
from .transport import Asked

SILENT_SECONDS = 45.0  # a server says something every 15
LINE_BYTES_MAX = 1024 * 1024
PAUSE_SECONDS = 0.2  # before a stream that ended without an event is opened again


class Events(Iterator[Event]):
    """Events as they happen; ends when it is closed, from any thread."""

    def __init__(self, asking: Asking, after: int | None) -> None:
        self._asked: Asked | None = None
        self._over = threading.Event()
        if after is not None and not (type(after) is int and after >= 0):
            raise BadValue("after", after, "the number of an event, 0 for all that are kept, or None for those from now on")
        self._asking = asking
        self.last = after  # the newest event that was seen; None: from now on

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:  # of a `for` loop that was left, say
        self.close()

    def close(self) -> None:
        """End it; whoever waits for the next event learns that there is none."""
        self._over.set()
        asked, self._asked = self._asked, None
        if asked is not None:
            if asked.connection.sock is not None:
                with contextlib.suppress(OSError):
                    asked.connection.sock.shutdown(socket.SHUT_RDWR)  # wakes the one that reads
            asked.connection.close()

    def __next__(self) -> Event:
        while not self._over.is_set():
            try:
                event = self._next(self._asked or self._open())
            except (OSError, http.client.HTTPException, ValueError, AttributeError):  # lost, or closed under our feet
                event = None
            if event is not None:
                return event
            self._end()
        raise StopIteration

    def _open(self) -> Asked:
        headers = {"Accept": "text/event-stream"}

        def once(_: bool) -> Asked:
            query = "" if self.last is None else f"?after={self.last}"
            with self._asking.line.asked("GET", f"/v1/events{query}", None, headers, SILENT_SECONDS, True) as asked:
                refuse(asked)
            return asked

        try:
            self._asked = self._asking.patiently(once, True, self._over)
        except StoreError:
            if self._over.is_set():
                raise StopIteration from None
            raise
        return self._asked

    def _next(self, asked: Asked) -> Event | None:
        """The next event; None if the stream ended."""
        told, number, is_event = "", self.last, False
        while line := asked.response.readline(LINE_BYTES_MAX):
            name, _, value = line.decode().rstrip("\r\n").partition(":")
            value = value.removeprefix(" ")
            if name == "id" and value.isascii() and value.isdigit():
                number = int(value)
            elif name == "data":
                told, is_event = told + value, True
            elif not name and not value and line.strip() == b"":
                self.last = number
                if is_event and number is not None:
                    return _event(number, told)
        return None

    def _end(self) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.connection.close()
            self._over.wait(PAUSE_SECONDS)


def _event(number: int, told: str) -> Event:
    try:
        return read(Event, json.loads(told), number=number)
    except ValueError:
        raise odd("an event is not JSON") from None
