"""A signed-in HTTP client, and event streams that are read on a thread."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx

from fairlane.console.sessions import COOKIE, CSRF_HEADER
from fairlane.core.document import Claim
from tests.api.running import Server, until

CSRF = CSRF_HEADER.decode()


@contextmanager
def signed_in(server: Server, key: str) -> Iterator[httpx.Client]:
    """A client with a session; it sends the CSRF token with every request."""
    with server.client(None) as client:
        response = client.post("/page/session", json={"key": key})
        assert response.status_code == 200, response.text
        client.headers[CSRF] = response.json()["csrf"]
        yield client


class Stream:
    """The events that a signed-in client receives."""

    def __init__(self, client: httpx.Client, path: str) -> None:
        self._client = httpx.Client(base_url=client.base_url, timeout=60, trust_env=False)
        self._client.cookies.set(COOKIE, client.cookies[COOKIE])
        self._context = self._client.stream("GET", path)  # kept, because it closes the response when it is collected
        self._response = self._context.__enter__()
        assert self._response.status_code == 200, self._response.read()
        self._socket: socket.socket = self._response.extensions["network_stream"].get_extra_info("socket")
        self.text = ""
        self.is_ended = False
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        with suppress(httpx.HTTPError, ValueError, AttributeError, OSError):
            for piece in self._response.iter_text():
                self.text += piece
        self.is_ended = True

    @property
    def events(self) -> list[dict[str, Any]]:
        """Whole events; without the frames of a queue that is still being counted, which a busy machine may send."""
        whole = self.text[: self.text.rfind("\n\n") + 2]
        events = [json.loads(line[6:]) for line in whole.split("\n") if line.startswith("data: ")]
        return [event for event in events if event.get("counted") is None]

    def first(self) -> dict[str, Any]:
        """Wait for the first event."""
        until(lambda: self.events, "the first event")
        return self.events[0]

    def close(self) -> None:
        with suppress(OSError):  # the server may have closed it
            self._socket.shutdown(socket.SHUT_RDWR)  # ends the thread that reads
        self._thread.join(timeout=30)
        self._context.__exit__(None, None, None)  # now, not when it is collected in the middle of another test
        self._client.close()


@contextmanager
def open_stream(client: httpx.Client, path: str = "/page/frames") -> Iterator[Stream]:
    stream = Stream(client, path)
    try:
        yield stream
    finally:
        stream.close()


def newest_change(server: Server) -> int:
    return max(change.number for change in server.queue.changes())


def caught_up(server: Server, stream: Stream) -> dict[str, Any]:
    """Wait for the first frame that holds everything that has happened by now."""
    change = newest_change(server)
    until(lambda: any(frame["change"] >= change for frame in stream.events), "a frame of now")
    return next(frame for frame in stream.events if frame["change"] >= change)


def claim_only(server: Server, *ids: str) -> list[Claim]:
    """Claim these documents, and cancel whatever else was waiting."""
    claims = server.claim(1000)
    server.queue.engine.cancel([claim.id for claim in claims if claim.id not in ids])
    return [claim for claim in claims if claim.id in ids]
