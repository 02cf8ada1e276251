"""What does one connection get away with? Little: headers of a size, within a time, and a body that keeps coming.

uvicorn has no limits on headers with this parser, nor on slow clients; they are added here, around it.

Laws:
- A client that sends too slowly, or headers that are too large, is answered and let go.
- What is left over from a refused request is never read as the next one.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from .limits import Limits
from .problems import Problem


def limited(limits: Limits) -> type[HttpToolsProtocol]:
    """The protocol with these limits."""
    return type("LimitedProtocol", (_Limited,), {"limits": limits, "whole": Whole()})


class _Limited(HttpToolsProtocol):
    limits: Limits
    whole: Whole
    _timer: asyncio.TimerHandle | None = None
    _header_bytes = 0  # since the headers began
    _in_headers = True
    _body_began = 0.0
    _body_bytes = 0
    _body_seen_at = 0.0
    _is_refused = False
    _active: RequestResponseCycle | None = None  # the one that is being answered

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            problem = Problem("overloaded", "too many connections; try again in a moment", retry_after=1, close=True)
            self._refuse(problem)
        else:
            self._timer = self.loop.call_later(self.limits.header_seconds, self._headers_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused or self.transport.is_closing():
            return
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._in_headers and self._header_bytes > self.limits.header_bytes:  # and no end of them in sight
            self._too_many_headers()
        elif self._timer is None and not self._is_refused:  # what came whole needs no clock
            self._begin_to_wait()

    def _begin_to_wait(self) -> None:
        if not self._in_headers:
            self._timer = self.loop.call_later(self.limits.body_idle_seconds, self._look_at_body)
        elif self._header_bytes:
            self._timer = self.loop.call_later(self.limits.header_seconds, self._headers_late)

    # -- what the parser finds -----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers = True

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self.limits.header_bytes:
            self._too_many_headers()

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self._in_headers = False
        self._header_bytes = 0
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if self._is_refused:
            return None
        if size > self.limits.header_bytes or len(self.headers) > self.limits.headers:
            return self._too_many_headers()
        self._body_began = self._body_seen_at = time.monotonic()
        self._body_bytes = 0
        super().on_headers_complete()
        return None

    def on_body(self, body: bytes) -> None:
        if self._is_refused:
            return
        self._body_seen_at = time.monotonic()
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._is_refused:
            return
        self._stop_timer()
        self._in_headers = True
        self._header_bytes = 0
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._active = cycle
        cycle.scope["send_at_once"] = partial(self.whole.sent, cycle)  # type: ignore[typeddict-unknown-key]
        super()._start_asgi_task(cycle, app)

    # -- refusing ------------------------------------------------------------------------------------------------------

    def _headers_late(self) -> None:
        self._timer = None
        if not self._header_bytes:  # it never said anything
            self.transport.close()
        else:
            self._refuse(Problem("too-slow", "the headers took too long to arrive", close=True))

    def _look_at_body(self) -> None:
        """Whether the body still comes, and fast enough."""
        self._timer = None
        if self.transport.is_closing() or self.cycle is None or not self.cycle.more_body:
            return None
        now, limits = time.monotonic(), self.limits
        if self.flow.read_paused:  # we are the slow ones
            self._body_seen_at = now
        late = now - self._body_seen_at >= limits.body_idle_seconds
        allowed = 2 * limits.body_idle_seconds + self._body_bytes / limits.body_bytes_a_second
        if late or now - self._body_began > allowed:
            return self._refuse(Problem("too-slow", "the body took too long to arrive", close=True))
        self._timer = self.loop.call_later(max(0.1, limits.body_idle_seconds / 4), self._look_at_body)
        return None

    def _too_many_headers(self) -> None:
        limits = self.limits
        told = f"at most {limits.headers} headers of {limits.header_bytes:,} bytes in all are taken, with the address"
        self._refuse(Problem("too-many-headers", told, close=True))

    def send_400_response(self, msg: str) -> None:
        self._refuse(Problem("bad-request", "this is not HTTP as it should be", close=True))

    def _refuse(self, problem: Problem) -> None:
        if self._is_refused:
            return
        self._is_refused = True
        self._stop_timer()
        self.pipeline.clear()
        active = self._active
        if active is not None and not active.response_complete:
            if not active.more_body:  # that one arrived whole: its answer is the last one here
                active.keep_alive = False
                return
            active.disconnected = True  # nothing half is taken
            active.message_event.set()
        if not self.transport.is_closing():
            if active is None or active.response_complete or not active.response_started:
                self.transport.write(_raw(problem))
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Whole:
    """Sends an answer in one piece, where the server would take two and look at every letter of the headers again."""

    def __init__(self) -> None:
        self._headers: list[tuple[bytes, bytes]] = []  # those that every answer has; the server makes a new list every second
        self._lines = b""

    def sent(self, cycle: RequestResponseCycle, status: int, headers: bytes, body: bytes) -> bool:
        """Send it, if the connection takes it now; False: it is to be sent as any other."""
        if cycle.flow.write_paused or cycle.disconnected or not cycle.keep_alive or cycle.response_started:
            return False
        if cycle.default_headers is not self._headers:
            self._headers = cycle.default_headers
            self._lines = b"".join(name + b": " + value + b"\r\n" for name, value in self._headers)
        size = b"content-length: %d\r\n\r\n" % len(body)
        cycle.response_started = cycle.response_complete = True
        cycle.transport.write(b"".join((STATUS_LINE[status], self._lines, headers, size, body)))
        cycle.message_event.set()
        cycle.on_response()
        return True


def _raw(problem: Problem) -> bytes:
    body = problem.body()
    lines = [name + b": " + value + b"\r\n" for name, value in problem.headers()]
    return b"".join([STATUS_LINE[problem.status], *lines, b"content-length: %d\r\n\r\n" % len(body), body])
