"""The connection pool of a store on a server: connections are made on demand, kept for the next call, and given up when lost.

Laws:
- A caller never waits beyond its deadline, whatever the network does: another thread connects, and looks up the name.
- While the server is away one try follows the other, after pauses of a quarter of a second at most, however long that lasts.
  So the first call after its return finds it.
- A caller waits for a server that has just gone away. Once it has been away for as long as a call may take, callers wait for
  one new try only, and at most AWAY_SECONDS.
- One lost connection closes all idle ones: they led to the same server.
- A forked child neither uses nor closes its parent's connections.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from .deadline import Deadline

C = TypeVar("C")

PAUSE_FIRST, PAUSE_LAST = 0.02, 0.25  # between tries to connect
AWAY_SECONDS = 1.0  # how long a call waits for a try to end when the server is known to be away
IDLE_SECONDS = 600.0  # a connection that was not needed for so long is closed

_pools: WeakSet[ConnectionPool[Any]] = WeakSet()
_inherited: list[object] = []  # connections of a parent process, kept so that nothing closes them


class NotConnected(Exception):
    """No connection could be made in time, so nothing was sent."""

    def __init__(self, cause: Exception | None) -> None:
        super().__init__(str(cause or "all connections are in use"))
        self.cause = cause  # the last failure to connect; None: none failed, all connections are in use


class PoolClosed(Exception):
    """The pool was closed."""


class ConnectionPool(Generic[C]):
    """Connections of one process to one server."""

    def __init__(
        self,
        connect: Callable[[], C],
        is_usable: Callable[[C], bool],
        close: Callable[[C], object],
        connections_max: int,
        refusals: tuple[type[Exception], ...] = (),
    ) -> None:
        self.is_patient = False  # until it is set, a failed try is final
        self._connect = connect
        self._is_usable = is_usable
        self._close = close
        self._connections_max = connections_max
        self._refusals = refusals  # failures that another try will not mend
        self._is_closed = False
        self._begin()
        _pools.add(self)

    def _begin(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._idle: list[tuple[float, C]] = []  # since when, the latest last
        self._lent: set[C] = set()
        self._making = 0
        self._waiting = 0
        self._failure_began_at = 0.0
        self._record_success()

    def leave_parents_connections(self) -> None:
        """Begin anew in a forked child."""
        _inherited.append((self._idle, self._lent))
        self._begin()

    def close(self) -> None:
        """Close all idle connections; those in use are closed when they are released."""
        with self._changed:
            self._is_closed = True
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        self._close_all(connection for _, connection in idle)

    # -- taking and giving back ----------------------------------------------------------------------------------------

    def acquire(self, deadline: Deadline) -> C:
        """Take a connection; raise NotConnected if none is free and none can be made in time."""
        asked_at = time.monotonic()
        with self._changed:
            self._waiting += 1
            try:
                while True:
                    if self._is_closed:
                        raise PoolClosed
                    connection = self._take_idle()
                    if connection is not None:
                        self._lent.add(connection)
                        return connection
                    self._try_to_connect()
                    patience = self._patience(asked_at, deadline)
                    if patience <= 0:
                        raise NotConnected(self._failure)
                    pause = self._next_try_at - time.monotonic()
                    self._changed.wait(min(patience, pause) if pause > 0 else patience)
            finally:
                self._waiting -= 1

    def release(self, connection: C) -> None:
        """Give back a connection that can be used again."""
        unused: C | None = connection
        with self._changed:
            if not self._return(connection):
                return
            self._record_success()  # it answered
            if not self._is_closed:
                self._idle.append((time.monotonic(), connection))
                unused = self._take_unneeded()
            self._changed.notify()
        if unused is not None:
            self._close_all([unused])

    def discard(self, connection: C) -> None:
        """Close a connection that was lost, or whose response may still come, and every idle one."""
        with self._changed:
            if not self._return(connection):
                return
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        self._close_all([connection, *(other for _, other in idle)])

    def _return(self, connection: C) -> bool:
        """Strike a connection off those lent; False if it belongs to the parent process."""
        if connection in self._lent:
            self._lent.remove(connection)
            return True
        _inherited.append(connection)
        return False

    def _take_idle(self) -> C | None:
        while self._idle:
            _, connection = self._idle.pop()
            if self._is_usable(connection):
                return connection
            self._close_all([connection])
        return None

    def _take_unneeded(self) -> C | None:
        """Take out the connection that was idle longest, if that is long."""
        since, connection = self._idle[0]
        if since + IDLE_SECONDS < time.monotonic():
            del self._idle[0]
            return connection
        return None

    def _close_all(self, connections: Iterable[C]) -> None:
        for connection in connections:
            with contextlib.suppress(Exception):
                self._close(connection)

    # -- connecting ------------------------------------------------------------------------------------------------------

    def _patience(self, asked_at: float, deadline: Deadline) -> float:
        """Return how long a caller may still wait for a connection."""
        now, left = time.monotonic(), deadline.left()
        if self._failure is None:
            return left
        is_refused = isinstance(self._failure, self._refusals)
        is_known = self._away_since is not None and now - self._away_since > deadline.seconds
        if is_refused or is_known or not self.is_patient:
            if self._failure_began_at >= asked_at:
                return 0.0
            return min(left, asked_at + AWAY_SECONDS - now) if is_known else left
        return left

    def _try_to_connect(self) -> None:
        """Begin to connect if somebody waits for it and the server is not being tried already."""
        is_away = self._away_since is not None
        open_count = len(self._idle) + len(self._lent) + self._making
        if (
            self._making >= (1 if is_away else self._waiting)
            or open_count >= self._connections_max
            or time.monotonic() < self._next_try_at
        ):
            return
        self._making += 1
        try:
            threading.Thread(target=self._make, daemon=True, name="fairlane connects").start()
        except RuntimeError as error:  # the system has no thread left, or the interpreter is ending
            self._record_failure(error, time.monotonic())

    def _make(self) -> None:
        began_at = time.monotonic()
        try:
            connection = self._connect()
        except Exception as error:  # noqa: BLE001 - whatever it was, waiting callers get it
            with self._changed:
                self._record_failure(error, began_at)
            return
        with self._changed:
            self._making -= 1
            self._record_success()
            if not self._is_closed:
                self._idle.append((time.monotonic(), connection))
                self._changed.notify_all()
                return
        self._close_all([connection])

    def _record_success(self) -> None:
        self._away_since: float | None = None
        self._failure: Exception | None = None
        self._pause = PAUSE_FIRST
        self._next_try_at = 0.0

    def _record_failure(self, error: Exception, began_at: float) -> None:
        self._making -= 1
        self._failure, self._failure_began_at = error, began_at
        if self._away_since is None:
            self._away_since = began_at
        self._next_try_at = time.monotonic() + random.uniform(0.5, 1) * self._pause
        self._pause = min(PAUSE_LAST, 2 * self._pause)
        self._changed.notify_all()


def _leave_parents_connections() -> None:
    for pool in list(_pools):
        pool.leave_parents_connections()


os.register_at_fork(after_in_child=_leave_parents_connections)
