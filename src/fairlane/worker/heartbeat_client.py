"""The worker's connection to its heartbeat: sends beats, receives renewals.

Laws:
- A beat carries the claims that were added and dropped since the last one, without their payloads: a lease needs none.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Protocol

from fairlane.procs.ipc import FrameStream, Message

from .claims import Claims

ENDED = "the heartbeat process ended; it was killed from outside, or memory ran out"


class LeaseEvents(Protocol):
    """Receiver of what the heartbeat reports."""

    def heartbeat_ready(self) -> None:
        """From now on leases are renewed."""

    def renewed(self, requested_at: float, last_serial: int, lost: Sequence[int]) -> None:
        """The claims up to that serial number were renewed, except those that were lost."""

    def renewal_failed(self, reason: str) -> None:
        """The store could not be reached; the heartbeat tries again."""


class HeartbeatClient:
    """The worker's end of the socket to its heartbeat."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: socket.socket,
        events: LeaseEvents,
        on_end: Callable[[str], None],
    ) -> None:
        self._events = events
        self._stream = FrameStream(loop, connection, self._received, lambda _: on_end(ENDED))

    def beat(self, deadline: float | None, claims: Claims) -> None:
        """Report that the loop is well, and what changed; if it is silent beyond the deadline, a handler hangs on it."""
        added, dropped = claims.take_changes()
        self._stream.send(["beat", deadline, [[active.serial, active.claim._replace(payload="")] for active in added], dropped])

    def _received(self, message: Message) -> None:
        word, *values = message
        match word:
            case "ready":
                self._events.heartbeat_ready()
            case "renewed":
                self._events.renewed(*values)
            case "failed":
                self._events.renewal_failed(*values)

    def close(self) -> None:
        """Close the socket; the heartbeat ends with it."""
        self._stream.close()
