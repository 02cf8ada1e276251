"""A connection's transport that closes late enough for its last response to arrive, and cuts off clients that do not read.

Laws:
- A response is sent to its end as long as the client reads, at `response_bytes_a_second` or faster; a client that is more than
  `response_idle_seconds` behind that is cut off, be the response in progress or the last one.
- A connection that is closed while its client still sends is read on for LINGER_SECONDS, up to LINGER_BYTES, and what comes is
  dropped. Closed at once, it would be reset, and the client's system may throw the response away.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable

from .limits import ServiceLimits

LINGER_SECONDS = 2.0
LINGER_BYTES = 16 * 1024 * 1024
TLS_CLOSE_SECONDS = 5.0  # for the client's goodbye
TICK_SECONDS = 0.5


class LingeringTransport:
    """Wraps the transport of one connection; has the methods that uvicorn uses."""

    def __init__(
        self, transport: asyncio.Transport, limits: ServiceLimits, is_sending: Callable[[], bool], on_close: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._limits = limits
        self._is_client_sending = is_sending
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closing = False
        self._linger_until = 0.0  # 0: it does not linger
        self._dropped = 0  # bytes, while it lingers
        self._arrears = 0.0  # seconds that the client is behind in reading
        self._written = 0  # bytes, since the last tick
        self._buffered = 0  # bytes, at the last tick
        self._ticked_at = 0.0
        self.get_extra_info = transport.get_extra_info
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def write(self, data: bytes) -> None:
        self._written += len(data)
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._is_closing or self._transport.is_closing()

    # -- reading clients -----------------------------------------------------------------------------------------------

    def watch_writing(self) -> None:
        """Begin to watch whether the client reads: more is to be sent than it takes."""
        if self._timer is None:
            self._buffered, self._written = self._transport.get_write_buffer_size(), 0
            self._ticked_at = self._loop.time()
            self._timer = self._loop.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._timer = None
        buffered, now = self._transport.get_write_buffer_size(), self._loop.time()
        if self._is_behind(buffered, now):
            self.abort()
        elif buffered:
            self._timer = self._loop.call_later(TICK_SECONDS, self._tick)
        elif self._is_closing:
            self._finish(now)

    def _is_behind(self, buffered: int, now: float) -> bool:
        """Whether the client has read too little for too long; reading fast makes up for it."""
        read = self._buffered + self._written - buffered
        behind = now - self._ticked_at - read / self._limits.response_bytes_a_second
        self._arrears = max(0.0, self._arrears + behind)
        self._buffered, self._written, self._ticked_at = buffered, 0, now
        return bool(buffered) and self._arrears > self._limits.response_idle_seconds

    # -- closing -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connection as soon as everything is sent."""
        if self.is_closing():
            return
        self._is_closing = True
        self._on_close()
        if self._is_client_sending():
            self._linger_until = self._loop.time() + LINGER_SECONDS
            self._transport.resume_reading()
            if self._transport.can_write_eof():
                self._transport.write_eof()  # after what is buffered
        if self._transport.get_write_buffer_size():
            self.watch_writing()
        else:
            self._finish(self._loop.time())

    def _finish(self, now: float) -> None:
        """Everything was handed to the system: close, or wait a moment for the client to do so."""
        if now < self._linger_until:
            self._timer = self._loop.call_at(self._linger_until, self._finish, self._linger_until)
        elif self._dropped:
            self.abort()
        else:
            self._transport.close()

    def drop(self, count: int) -> None:
        """So many bytes came after the end."""
        self._dropped += count
        if self._dropped > LINGER_BYTES:
            self.abort()

    def abort(self) -> None:
        """Cut the connection off; what the system has buffered for the client is thrown away."""
        self._is_closing = True
        self._on_close()
        connected = self._transport.get_extra_info("socket")
        if connected is not None:
            with contextlib.suppress(OSError):  # closed meanwhile
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def lost(self) -> None:
        """The connection is closed: stop the timer, and let go of the connection."""
        self._is_closing = True
        self._is_client_sending, self._on_close = _no, _nothing
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _no() -> bool:
    return False


def _nothing() -> None:
    return None
