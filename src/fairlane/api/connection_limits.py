"""Per-connection limits: header size and time, trailers, minimum rates of bodies and responses, requests sent ahead.

uvicorn limits neither headers with this parser nor slow clients; this subclass of its protocol does.

Laws:
- A client that sends too slowly, or headers that are too large, gets a response and is disconnected.
- What is left over from a refused request is never read as the next one.
- Trailers are counted like headers and dropped: nothing that comes after a body changes what its headers said.
- A response that comes before the whole of a long body ends the connection: the rest of it is not read for nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from .connection_table import ConnectionTable
from .limits import ServiceLimits
from .lingering import LingeringTransport
from .logging import Log
from .problems import Problem
from .service import Service
from .token_buckets import TokenBuckets

DROPPED_BYTES_MAX = 64 * 1024  # a body up to this is read to its end, also if nobody needs it
UNSENT_BYTES_MAX = 16 * 1024  # of a response, in memory, before its next piece waits; with TLS it would be 512 kB
FRAMING_FACTOR = 8  # bytes around each byte of a body in chunks: a chunk of one byte has five


def limited_protocol(service: Service, *, is_tls: bool) -> type[LimitedConnection]:
    """Return the protocol class with the limits of a service."""
    members = {
        "limits": service.limits, "table": service.connections, "strangers": service.addresses, "log": service.log,
        "is_tls": is_tls,
    }  # fmt: skip
    return type("LimitedProtocol", (LimitedConnection,), members)


class ParsingEnded(Exception):
    """Nothing more is parsed on this connection."""


class LimitedConnection(HttpToolsProtocol):
    """One connection."""

    limits: ServiceLimits
    table: ConnectionTable
    strangers: TokenBuckets
    log: Log
    is_tls: bool
    group: str  # what it is counted with, by its address; empty: nothing
    opening: asyncio.Task[None] | None = None  # accepts it, and makes the handshake
    is_admitted = True  # False: there are too many, and it is refused
    _timer: asyncio.TimerHandle | None = None
    _header_bytes = 0  # since the headers began
    _in_headers = True
    _body_began = 0.0
    _body_bytes = 0
    _framing_bytes = 0  # of chunks, their extensions, and trailers
    _body_seen_at = 0.0
    _is_refused = False
    _has_shown_key = False
    _active: RequestResponseCycle | None = None  # the request whose response is being made
    _lingering: LingeringTransport | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _quiet_logger()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        self._lingering = LingeringTransport(
            transport, self.limits, self._is_client_sending, lambda: self.table.set_closing(self)
        )
        super().connection_made(self._lingering)  # type: ignore[arg-type]
        if not self.is_admitted:
            self._refuse(too_many())
        else:
            self._timer = self.loop.call_later(self.limits.header_seconds, self._headers_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self.table.remove(self)
        if self._lingering is not None:
            self._lingering.lost()
        super().connection_lost(exc)
        # Break the cycles: the collector comes rarely, and each connection holds some hundred kB, most of it for TLS.
        self.parser = self.cycle = self._active = None  # type: ignore[assignment]
        self.scope, self.headers = {}, []  # type: ignore[typeddict-item]
        self.pipeline.clear()

    def show_key(self, holder: str) -> None:
        """The request that is being answered has a valid key, of this holder."""
        self.table.show_key(self, holder)
        if self.group and not self._has_shown_key:  # no stranger's connection after all
            self.strangers.give_back(self.group)
        self._has_shown_key = True

    def make_room(self) -> None:
        """End for another connection; a client that waits for a response, or sends its first request, gets a reason."""
        active = self._active
        if self._lingering is None and self.opening is not None and not self.is_tls:
            self.is_admitted = False
        elif self._lingering is None or (active is not None and active.response_started and not active.response_complete):
            self.abort()
        elif self.cycle is None or self._is_client_sending() or self._is_answering():
            self._end_request()
            self._refuse(too_many())
        else:
            self.transport.close()

    def abort(self) -> None:
        """End at once."""
        if self._lingering is not None:
            self._lingering.abort()
        elif self.opening is not None:
            self.opening.cancel()

    def has_body_left(self, headers: list[tuple[bytes, bytes]]) -> bool:
        """Whether the body after these headers is still on its way, and long or without a length: not read for nothing."""
        if self._in_headers or headers is not self.headers:
            return False
        length = next((value for name, value in headers if name == b"content-length"), None)
        return length is None or int(length) > DROPPED_BYTES_MAX  # the parser has seen that it is a number

    def _is_client_sending(self) -> bool:
        """Whether the client is in the middle of a request, or of one that was refused."""
        return self._is_refused or not self._in_headers or self._header_bytes > 0

    def _is_answering(self) -> bool:
        return self._active is not None and not self._active.response_complete

    def data_received(self, data: bytes) -> None:
        if self._is_refused or self.transport.is_closing():
            if self._lingering is not None:
                self._lingering.drop(len(data))
            return
        if self._in_headers:
            self._header_bytes += len(data)
        request, body_bytes = self.cycle, self._body_bytes
        super().data_received(data)
        if not self._in_headers and self.cycle is request:
            self._framing_bytes += len(data) - (self._body_bytes - body_bytes)
        if self._is_over():
            self._refuse_headers()
        elif self._timer is None and not self._is_refused:  # a request that arrived whole needs no timer
            self._start_timer()

    def _is_over(self) -> bool:
        """Whether headers that have not ended, or what stands around a body and after it, are larger than allowed."""
        if self._in_headers:
            return self._header_bytes > self.limits.header_bytes
        return self._framing_bytes > self.limits.header_bytes + FRAMING_FACTOR * self._body_bytes

    def _start_timer(self) -> None:
        if not self._in_headers:
            self._timer = self.loop.call_later(self.limits.body_idle_seconds, self._check_body)
        elif self._header_bytes:
            self._timer = self.loop.call_later(self.limits.header_seconds, self._headers_late)

    # -- callbacks ---------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._is_refused:
            raise ParsingEnded  # what came in one go with the refused request is not read
        super().on_message_begin()
        self._in_headers = True
        self.scope["connection"] = self  # type: ignore[typeddict-unknown-key]

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self.limits.header_bytes:
            self._refuse_headers()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_headers:  # else it is a trailer
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self._in_headers = False
        self._header_bytes = 0
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if self._is_refused:
            return None
        if size > self.limits.header_bytes or len(self.headers) > self.limits.headers:
            return self._refuse_headers()
        if len(self.pipeline) >= self.limits.pipelined_requests:
            detail = f"at most {self.limits.pipelined_requests} requests may be sent ahead of their responses"
            return self._refuse(Problem("too-many-requests", detail, retry_after=1, close=True))
        self._body_began = self._body_seen_at = time.monotonic()
        self._body_bytes = self._framing_bytes = 0
        super().on_headers_complete()
        if self.parser.should_upgrade():  # the parser reads no further request after it
            self.cycle.keep_alive = False
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
        else:
            self.table.set_idle(self)
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._lingering is not None:
            self._lingering.watch_writing()

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
        detail = (
            f"the address, headers and trailers may have at most {limits.header_bytes:,} bytes, and {limits.headers} headers"
        )
        self._refuse(Problem("too-many-headers", detail, close=True))

    def send_400_response(self, msg: str) -> None:
        self._refuse(Problem("bad-request", "the request is not valid HTTP/1.1", close=True))

    def _refuse(self, problem: Problem) -> None:
        if self._is_refused:
            return
        self._is_refused = True
        self._stop_timer()
        self.pipeline.clear()
        self.log.refused(client="" if self.client is None else self.client[0], problem=problem.type)
        active = self._active
        if active is not None and not (active.response_complete or active.disconnected):
            if not active.more_body:  # that request arrived whole: its response is the last one on this connection
                active.keep_alive = False
                return
            self._end_request()  # no half of a body is accepted
        if not self.transport.is_closing():
            if active is None or active.response_complete or not active.response_started:
                self.transport.write(encode_response(problem))
            self.transport.close()

    def _end_request(self) -> None:
        """Tell the request whose response is being made that its client is gone."""
        if self._active is not None and not self._active.response_complete:
            self._active.disconnected = True
            self._active.message_event.set()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _quiet_logger() -> logging.Logger:
    """Return the logger of the protocol, without its warnings: what clients send wrong is logged here, within bounds."""
    logger = logging.getLogger("fairlane.http")
    logger.setLevel(logging.ERROR)
    return logger


def too_many() -> Problem:
    """Return the problem of a connection for which there is no room."""
    return Problem("overloaded", "too many connections; try again in a moment", retry_after=1, close=True)


def encode_response(problem: Problem) -> bytes:
    """Encode a problem as a whole response, for where no request is."""
    body = problem.body()
    lines = [name + b": " + value + b"\r\n" for name, value in problem.headers()]
    return b"".join([STATUS_LINE[problem.status], *lines, b"content-length: %d\r\n\r\n" % len(body), body])
