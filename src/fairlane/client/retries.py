"""Retries: requests to a server that may be busy, restarting or unreachable.

Laws:
- A request that is not idempotent is repeated only if the server certainly has not begun it.
- The server's `Retry-After` is honoured; otherwise each pause is longer than the one before, with jitter.
- One deadline covers all tries. After it the last error is raised.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from http.client import HTTPMessage
from typing import Any, BinaryIO, TypeVar

from fairlane.core.errors import FairlaneError, StoreError
from fairlane.core.retry import Backoff

from .errors import NOT_STARTED, parse_problem, to_error
from .models import unexpected_response
from .transport import BodySource, ConnectionLost, HttpResponse, OpenResponse, Transport, copy_body, json_body

RETRY_STATUSES = (429, 502, 503, 504)
BACKOFF = Backoff(first=0.1, ceiling=5.0)
RETRY_AFTER_MAX = 600.0  # seconds

T = TypeVar("T")


class RetryingTransport:
    """A transport that repeats failed requests for up to `patience` seconds."""

    def __init__(self, transport: Transport, timeout: float, patience: float) -> None:
        self.transport = transport
        self.timeout = timeout
        self.patience = patience
        self.is_closed = threading.Event()

    def close(self) -> None:
        """Close every connection and end every pause."""
        self.is_closed.set()
        self.transport.close()

    def get(self, path: str, seconds: float = 0) -> Any:
        """Get JSON; the server may take that many seconds more than the timeout."""
        return _json(self.request("GET", path, seconds=seconds))

    def send(self, method: str, path: str, payload: Any = None, *, is_idempotent: bool) -> Any:
        """Send JSON and return the JSON of the response; `is_idempotent` if it may be done twice."""
        body = None if payload is None else json_body(json.dumps(payload, allow_nan=False).encode())
        return _json(self.request(method, path, body, is_idempotent=is_idempotent))

    def request(
        self,
        method: str,
        path: str,
        body: BodySource | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        is_idempotent: bool = True,
        seconds: float = 0,
    ) -> HttpResponse:
        """Return the server's response, or raise the FairlaneError that it means."""

        def attempt(fresh: bool) -> HttpResponse:
            response = self.transport.request(method, path, body, headers or {}, self.timeout + seconds, fresh)
            if response.status >= 300:
                raise _ErrorResponse(response.status, response.headers, response.body)
            return response

        return self.retry(attempt, is_idempotent)

    def download(self, path: str, into: BinaryIO, on_piece: Callable[[int], object] = lambda _: None) -> None:
        """Write a response's body into a file, whatever its size; a download that is cut off begins again."""

        def attempt(fresh: bool) -> None:
            into.seek(0)
            into.truncate()
            with self.transport.stream("GET", path, None, {}, self.timeout, fresh) as stream:
                raise_for_status(stream)
                copy_body(stream.response, into, on_piece)
            stream.connection.close()

        self.retry(attempt, is_idempotent=True)
        into.seek(0)

    def retry(self, attempt: Callable[[bool], T], is_idempotent: bool, stop: threading.Event | None = None) -> T:
        """Repeat an attempt until it succeeds, cannot succeed, patience is spent, or `stop` is set."""
        deadline, attempts, fresh = time.monotonic() + self.patience, 0, not is_idempotent
        while True:
            try:
                return attempt(fresh)
            except ConnectionLost as lost:
                error, pause = self._lost_error(lost, is_idempotent), 0.0
                is_stale = lost.is_sent and not fresh  # an idle connection that the server closed: try a new one at once
            except _ErrorResponse as response:
                error, pause, is_stale = to_error(response.problem), response.retry_after, False
                if not response.is_retryable(is_idempotent):
                    raise error from None
            fresh = True
            if not is_stale:
                attempts += 1
                pause = max(pause, BACKOFF.delay_ms(attempts, random.random()) / 1000)
            if time.monotonic() + pause > deadline or (stop or self.is_closed).wait(pause):
                raise error

    def _lost_error(self, lost: ConnectionLost, is_idempotent: bool) -> FairlaneError:
        if lost.is_sent and not is_idempotent:
            raise StoreError(
                f"the request was sent to {self.transport.address}, but {lost}: whether it was done is not "
                "known; check before you repeat it"
            ) from None
        error = StoreError(f"the server at {self.transport.address} cannot be used: {lost}; {lost.advice}")
        if lost.is_final:
            raise error from None
        return error


class _ErrorResponse(Exception):
    """A response with an error status."""

    def __init__(self, status: int, headers: HTTPMessage, body: bytes) -> None:
        self.problem = parse_problem(status, headers.get("content-type", ""), body)
        super().__init__(self.problem.detail)
        header = headers.get("retry-after", "")
        self.retry_after = min(RETRY_AFTER_MAX, float(header)) if header.isascii() and header.isdigit() else 0.0

    def is_retryable(self, is_idempotent: bool) -> bool:
        return self.problem.status in RETRY_STATUSES and (is_idempotent or self.problem.code in NOT_STARTED)


def raise_for_status(stream: OpenResponse) -> None:
    """Raise if the response to a stream's request is an error."""
    if stream.response.status >= 300:
        body = stream.response.read(64 * 1024)
        raise _ErrorResponse(stream.response.status, stream.response.headers, body)


def _json(response: HttpResponse) -> Any:
    if not response.body:
        return None
    try:
        return json.loads(response.body)
    except ValueError:
        raise unexpected_response("it is not JSON") from None
