"""Per-connection limits: number of connections, header size and time, minimum body rate.

uvicorn limits neither headers with this parser nor slow clients; this subclass of its protocol does.

Laws:
- A client that sends too slowly, or headers that are too large, gets a response and is disconnected.
- What is left over from a refused request is never read as the next one.
"""

from __future__ import annotations

import asyncio
import time

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from .limits import ServiceLimits
from .problems import Problem


def limited_protocol(limits: ServiceLimits) -> type[HttpToolsProtocol]:
    """Return the protocol class with these limits."""
    return type("LimitedProtocol", (_LimitedConnection,), {"limits": limits})


class _LimitedConnection(HttpToolsProtocol):
    limits: ServiceLimits
    _timer: asyncio.TimerHandle | None = None
    _header_bytes = 0  # since the headers began
    _in_headers = True
    _body_began = 0.0
    _body_bytes = 0
    _body_seen_at = 0.0
    _is_refused = False
    _active: RequestResponseCycle | None = None  # the request whose response is being made

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(Problem("overloaded", "too many connections; try again in a moment", retry_after=1, close=True))
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
        if self._in_headers and self._header_bytes > self.limits.header_bytes:  # and they have not ended
            self._refuse_headers()
        elif self._timer is None and not self._is_refused:  # a request that arrived whole needs no timer
            self._start_timer()

    def _start_timer(self) -> None:
        if not self._in_headers:
            self._timer = self.loop.call_later(self.limits.body_idle_seconds, self._check_body)
        elif self._header_bytes:
            self._timer = self.loop.call_later(self.limits.header_seconds, self._headers_late)

    # -- callbacks ---------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers = True

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self.limits.header_bytes:
            self._refuse_headers()

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self._in_headers = False
        self._header_bytes = 0
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if self._is_refused:
            return None
        if size > self.limits.header_bytes or len(self.headers) > self.limits.headers:
            return self._refuse_headers()
        self._body_began = self._body_seen_at = time.monotonic()
        self._body_bytes = 0
        super().on_headers_complete()
        if not self.pipeline:  # else it waits for the response before it
            self._active = self.cycle
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

    def on_response_complete(self) -> None:
        if self.pipeline:
            self._active = self.pipeline[-1][0]
        super().on_response_complete()

    # -- refusing ------------------------------------------------------------------------------------------------------

    def _headers_late(self) -> None:
        self._timer = None
        if not self._header_bytes:  # it never sent anything
            self.transport.close()
        else:
            self._refuse(Problem("too-slow", "the headers took too long to arrive", close=True))

    def _check_body(self) -> None:
        """Refuse a body that has stopped coming, or comes too slowly."""
        self._timer = None
        if self.transport.is_closing() or self.cycle is None or not self.cycle.more_body:
            return None
        now, limits = time.monotonic(), self.limits
        if self.flow.read_paused:  # the server is the slow side
            self._body_seen_at = now
        is_late = now - self._body_seen_at >= limits.body_idle_seconds
        allowed_seconds = 2 * limits.body_idle_seconds + self._body_bytes / limits.body_bytes_a_second
        if is_late or now - self._body_began > allowed_seconds:
            return self._refuse(Problem("too-slow", "the body took too long to arrive", close=True))
        self._timer = self.loop.call_later(max(0.1, limits.body_idle_seconds / 4), self._check_body)
        return None

    def _refuse_headers(self) -> None:
        limits = self.limits
        detail = f"the address and headers may have at most {limits.header_bytes:,} bytes, and {limits.headers} headers"
        self._refuse(Problem("too-many-headers", detail, close=True))

    def send_400_response(self, msg: str) -> None:
        self._refuse(Problem("bad-request", "the request is not valid HTTP/1.1", close=True))

    def _refuse(self, problem: Problem) -> None:
        if self._is_refused:
            return
        self._is_refused = True
        self._stop_timer()
        self.pipeline.clear()
        active = self._active
        if active is not None and not active.response_complete:
            if not active.more_body:  # that request arrived whole: its response is the last one on this connection
                active.keep_alive = False
                return
            active.disconnected = True  # no half of a body is accepted
            active.message_event.set()
        if not self.transport.is_closing():
            if active is None or active.response_complete or not active.response_started:
                self.transport.write(_encode_response(problem))
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _encode_response(problem: Problem) -> bytes:
    body = problem.body()
    lines = [name + b": " + value + b"\r\n" for name, value in problem.headers()]
    return b"".join([STATUS_LINE[problem.status], *lines, b"content-length: %d\r\n\r\n" % len(body), body])
