"""Waiting for work: woken by commits of this process and of others, and nearly idle while there are none."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence

from . import read
from .pool import SqlitePool
from .transaction import current_time_ms
from .wal_watch import WalWatch

POLL_SECONDS = 0.002  # where the kernel does not notify, or while a slow commit may be on its way
COMMIT_POLL_SECONDS = 0.0001  # right after a notification, while its commit is on its way to the disk ...
COMMIT_POLL_FOR_SECONDS = 0.005  # ... and for how long: polling so often for a slow commit would waste the processor
SLOW_COMMIT_SECONDS = 0.3  # how long after a notification its commit may still be on its way
IDLE_POLL_SECONDS = 0.25  # otherwise, in case a notification was lost


class WorkWaiter:
    """Waits until a document of some kinds may be ready."""

    def __init__(self, pool: SqlitePool) -> None:
        self._pool = pool
        self._watches = threading.local()

    def wait(self, timeout_seconds: float, kinds: Sequence[str] | None) -> bool:
        """Return True as soon as a document may be ready, or False after the timeout."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            self._pool.arrival.clear()
            watch = self._watch()
            notified = time.monotonic() if watch.drain() else float("-inf")
            version = self._pool.read(read.data_version)
            is_ready, due_in_ms = self._pool.read(lambda execute: read.is_work_ready(execute, kinds, current_time_ms(None)))
            if is_ready:
                return True
            self._await_commit(version, min(deadline, time.monotonic() + due_in_ms / 1000), watch, notified)
            if time.monotonic() >= deadline:
                return False

    def _watch(self) -> WalWatch:
        """Return this thread's watch; a forked child needs another one, as it would take events away from its parent."""
        if getattr(self._watches, "process_id", None) != os.getpid():
            self._pool.read(read.data_version)  # creates the log that is watched
            self._watches.process_id, self._watches.watch = os.getpid(), WalWatch(self._pool.path)
        watch: WalWatch = self._watches.watch
        return watch

    def _await_commit(self, version: int, deadline: float, watch: WalWatch, notified: float) -> None:
        """Wait until this process or another one has committed, or until the deadline."""
        while (left := deadline - time.monotonic()) > 0:
            if not watch.is_active:
                self._pool.arrival.wait(min(left, POLL_SECONDS))
            elif (age := time.monotonic() - notified) < COMMIT_POLL_FOR_SECONDS:
                time.sleep(min(left, COMMIT_POLL_SECONDS))
            elif watch.wait(min(left, POLL_SECONDS if age < SLOW_COMMIT_SECONDS else IDLE_POLL_SECONDS)):
                notified = time.monotonic()
            if self._pool.read(read.data_version) != version:
                return
