"""The leases of a run: beats to the heartbeat, and the end of whatever outlives its lease or its time limit.

Laws:
- Nothing is claimed before the heartbeat is up.
- A claim that could not be renewed in time, or that the store refused to renew, is lost: its handler is stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from .claims import ActiveClaim, Claims
from .context import RunContext
from .dispatcher import Dispatcher
from .heartbeat_client import HeartbeatClient
from .outbox import Outbox

TICK_SECONDS_MAX = 0.25


class LeaseMonitor:
    """Watches the leases; receives the events of the heartbeat."""

    def __init__(
        self,
        context: RunContext,
        claims: Claims,
        outbox: Outbox,
        dispatcher: Dispatcher,
        wake: Callable[[], None],
        on_heartbeat_end: Callable[[str], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._hooks = context.hooks
        self._claims = claims
        self._outbox = outbox
        self._dispatcher = dispatcher
        self._wake = wake  # the run loop: it may claim now, or has room for more
        self._client = HeartbeatClient(self._loop, context.heartbeat, self, on_heartbeat_end)
        self._async_seconds_min = context.handlers.async_seconds_min()
        self.is_ready = False  # leases are renewed

    async def watch(self) -> None:
        """Beat, and end what runs longer than it may, nor beyond its lease; for ever."""
        tick = min(TICK_SECONDS_MAX, self._claims.margin / 4)
        while True:
            self._beat()
            now = self._loop.time()
            for active in self._claims.overdue(now):
                self._lose(active, "its lease could not be renewed in time")
            self._dispatcher.end_overdue(now)
            await asyncio.sleep(tick)

    def _beat(self) -> None:
        """Report the claims, and when a silent loop means that a handler hangs on it: never if none runs on the loop."""
        deadline = None
        if self._async_seconds_min is not None:
            next_deadline = self._loop.time() + self._async_seconds_min
            deadline = min(next_deadline, self._dispatcher.async_deadline() or next_deadline)
        self._client.beat(deadline, self._claims)

    def claimed(self, requested_at: float) -> None:
        """Beat at once where a hook, a handler or a signal could keep the loop from beating in time."""
        is_old = self._loop.time() - requested_at > self._claims.margin / 2  # much of the lease has passed on the way
        if self._async_seconds_min is not None or is_old:
            self._beat()

    def _lose(self, active: ActiveClaim, reason: str) -> None:
        is_running = active.outcome is None
        if self._outbox.lose(active, reason) and is_running:
            self._dispatcher.end_handler(active, reason)
        self._wake()

    def close(self) -> None:
        """Close the connection; the heartbeat ends with it."""
        self._client.close()

    # -- what the heartbeat reports

    def heartbeat_ready(self) -> None:
        self.is_ready = True
        self._wake()

    def renewed(self, requested_at: float, last_serial: int, lost: Sequence[int]) -> None:
        self._claims.renew(requested_at, last_serial)
        for serial in lost:
            active = self._claims.get(serial)
            if active is not None and active.outcome is None:  # what is being settled is for the store to decide
                self._lose(active, "its lease had been lost, or it was cancelled")

    def renewal_failed(self, reason: str) -> None:
        self._hooks.emit("store_failed", reason=reason)
