"""How tests look at the page: a browser that has signed in, and streams read on a thread."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx

from fairlane.console.sessions import COOKIE, CSRF_HEADER
from tests.api.running import Server, until

WORD = CSRF_HEADER.decode()


@contextmanager
def signed_in(server: Server, key: str) -> Iterator[httpx.Client]:
    """A browser after signing in; it shows the word with everything."""
    with server.client(None) as client:
        answer = client.post("/page/session", json={"key": key})
        assert answer.status_code == 200, answer.text
        client.headers[WORD] = answer.json()["csrf"]
        yield client


class Stream:
    """What a stream sends to a browser that has signed in."""

    def __init__(self, browser: httpx.Client, path: str) -> None:
        self._client = httpx.Client(base_url=browser.base_url, timeout=60, trust_env=False)
        self._client.cookies.set(COOKIE, browser.cookies[COOKIE])
        self._opened = self._client.stream("GET", path)  # kept, as it closes the answer when it goes
        self._answer = self._opened.__enter__()
        assert self._answer.status_code == 200, self._answer.read()
        self._line: socket.socket = self._answer.extensions["network_stream"].get_extra_info("socket")
        self.text = ""
        self.is_ended = False
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        with suppress(httpx.HTTPError, ValueError, AttributeError, OSError):
            for piece in self._answer.iter_text():
                self.text += piece
        self.is_ended = True

    @property
    def told(self) -> list[dict[str, Any]]:
        """Whole events, as JSON; without frames of a queue that is still being counted, as a busy machine may tell them."""
        whole = self.text[: self.text.rfind("\n\n") + 2]
        told = [json.loads(line[6:]) for line in whole.split("\n") if line.startswith("data: ")]
        return [one for one in told if one.get("counted") is None]

    def first(self) -> dict[str, Any]:
        """The first event, when it has come."""
        until(lambda: self.told, "the first event")
        return self.told[0]

    def close(self) -> None:
        with suppress(OSError):  # the server has closed it
            self._line.shutdown(socket.SHUT_RDWR)  # the thread that reads sees the end
        self._thread.join(timeout=30)
        self._opened.__exit__(None, None, None)  # now, not when it is collected in the middle of another test
        self._client.close()


@contextmanager
def watching(browser: httpx.Client, path: str = "/page/frames") -> Iterator[Stream]:
    stream = Stream(browser, path)
    try:
        yield stream
    finally:
        stream.close()
