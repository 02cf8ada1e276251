"""How is something asked of a server that may be busy, restarting or cut off? Again, after a while, if that does no harm.

Laws:
- What would do something twice is asked once: it is repeated only if the server surely has not begun it.
- The server's `Retry-After` is waited for; otherwise each wait is longer than the one before, with jitter.
- When patience is spent, the last reason is told, as one of our errors.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from http.client import HTTPMessage
from typing import Any, TypeVar

from fairlane.core.errors import FairlaneError, StoreError
from fairlane.core.retry import Backoff

from .errors import NOTHING_DONE, Refusal, error_of, refusal
from .models import odd
from .transport import Answer, Asked, Body, Line, Lost, json_body

AGAIN = (429, 502, 503, 504)
BACKOFF = Backoff(first_seconds=0.1, ceiling_seconds=5.0)
RETRY_AFTER_MAX = 600.0

T = TypeVar("T")


class Asking:
    """Asks one server, with patience."""

    def __init__(self, line: Line, timeout: float, patience: float) -> None:
        self.line = line
        self.timeout = timeout
        self.patience = patience
        self.is_over = threading.Event()

    def close(self) -> None:
        """Ask nothing any more."""
        self.is_over.set()
        self.line.close()

    def get(self, path: str, seconds: float = 0) -> Any:
        """Look at something; the server may take that many seconds more to answer."""
        return _json(self.answer("GET", path, seconds=seconds))

    def send(self, method: str, path: str, told: Any = None, *, repeats: bool, headers: Mapping[str, str] | None = None) -> Any:
        """Ask for a change, told as JSON; `repeats` if doing it twice is as doing it once."""
        body = None if told is None else json_body(json.dumps(told, allow_nan=False).encode())
        return _json(self.answer(method, path, body, headers, repeats=repeats))

    def answer(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        repeats: bool = True,
        seconds: float = 0,
    ) -> Answer:
        """The answer of the server, or one of our errors."""

        def once(fresh: bool) -> Answer:
            answer = self.line.exchange(method, path, body, headers or {}, self.timeout + seconds, fresh)
            if answer.status >= 300:
                raise _Refused(answer.status, answer.headers, answer.body)
            return answer

        return self.patiently(once, repeats)

    def patiently(self, once: Callable[[bool], T], repeats: bool, over: threading.Event | None = None) -> T:
        """Try until it succeeds, cannot succeed, patience is spent, or it is over."""
        deadline, attempts, fresh = time.monotonic() + self.patience, 0, not repeats
        while True:
            try:
                return once(fresh)
            except Lost as lost:
                error, pause = self._lost(lost, repeats), 0.0
                is_stale = lost.is_sent and not fresh  # it was an old connection: a new one may do at once
            except _Refused as refused:
                error, pause, is_stale = refused.error, refused.retry_after, False
                if not refused.may_be_asked_again(repeats):
                    raise error from None
            fresh = True
            if not is_stale:
                attempts += 1
                pause = max(pause, BACKOFF.delay_ms(attempts, random.random()) / 1000)
            if time.monotonic() + pause > deadline or (over or self.is_over).wait(pause):
                raise error

    def _lost(self, lost: Lost, repeats: bool) -> FairlaneError:
        if lost.is_sent and not repeats:
            raise StoreError(
                f"the server at {self.line.address} was asked, but {lost}: whether it was done is not known; look before you "
                "ask again"
            ) from None
        error = StoreError(f"the server at {self.line.address} cannot be used: {lost}; {lost.advice}")
        if lost.is_final:
            raise error from None
        return error


class _Refused(Exception):
    """The server said no."""

    def __init__(self, status: int, headers: HTTPMessage, body: bytes) -> None:
        self.refusal: Refusal = refusal(status, headers.get("content-type", ""), body)
        super().__init__(self.refusal.sentence)
        told = headers.get("retry-after", "")
        self.retry_after = min(RETRY_AFTER_MAX, float(told)) if told.isascii() and told.isdigit() else 0.0

    @property
    def error(self) -> FairlaneError:
        return error_of(self.refusal)

    def may_be_asked_again(self, repeats: bool) -> bool:
        if self.refusal.status not in AGAIN:
            return False
        return repeats or self.refusal.word in NOTHING_DONE


def refuse(asked: Asked) -> None:
    """Raise what the server says, if it says no to a stream."""
    if asked.response.status >= 300:
        body = asked.response.read(64 * 1024)
        raise _Refused(asked.response.status, asked.response.headers, body)


def _json(answer: Answer) -> Any:
    if not answer.body:
        return None
    try:
        return json.loads(answer.body)
    except ValueError:
        raise odd("it is not JSON") from None
