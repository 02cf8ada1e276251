"""Group commit: operations that arrive together share one transaction, and with it one sync of the disk.

The first caller leads: it runs all waiting operations in one transaction and commits once. Callers that arrive meanwhile form
the next group, led by its first. There is no thread of its own: a lone caller pays for no hand-over.

A leader waits for the callers just served to return with their next operation, at most as long as the last transaction took:
a larger group is worth more than an earlier one. Callers are woken one by one, each by the one before: woken all at once,
they would only compete for the interpreter lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Generic, TypeVar, cast

from fairlane.core.errors import StoreError

from .transaction import Transaction

T = TypeVar("T")
GROUP_MAX = 256
GATHER_SECONDS_MAX = 0.005
INTERRUPTED = (
    "the commit was interrupted, so whether this call took effect is not known; look, or submit again with the same key"
)


class PendingOperation(Generic[T]):
    """One caller's operation, and its result or error after the commit."""

    def __init__(self, operation: Callable[[Transaction], T]) -> None:
        self.operation = operation
        self.wake = threading.Lock()  # released when the operation is finished, or when its caller is to lead
        self.wake.acquire()
        self.is_finished = False
        self.is_leader = False
        self.is_woken = False
        self.is_abandoned = False  # its caller was interrupted
        self.following: PendingOperation[Any] | None = None  # whose caller this caller wakes
        self._result: T | None = None
        self._error: BaseException | None = None

    def succeed(self, result: T) -> None:
        self._result, self.is_finished = result, True

    def fail(self, error: BaseException) -> None:
        self._error, self.is_finished = error, True

    def result(self) -> T:
        """Return the operation's result, or raise its error."""
        if self._error is not None:
            raise self._error
        return cast(T, self._result)


class GroupCommit:
    """Runs operations in shared transactions; `commit` must finish every operation of the group that it gets."""

    def __init__(self, commit: Callable[[list[PendingOperation[Any]]], None]) -> None:
        self._commit = commit
        self._mutex = threading.Lock()
        self.waiting: list[PendingOperation[Any]] = []  # the first of them leads, or will
        self._has_leader = False
        self.is_gathering = False
        self._gathered = threading.Lock()  # released when as many callers wait as the last commit served
        self._gathered.acquire()
        self.expected = 1  # callers that a leader waits for ...
        self.gather_seconds = 0.0  # ... and for how long

    def run(self, operation: Callable[[Transaction], T]) -> T:
        """Run an operation in a transaction; return after the commit."""
        pending = PendingOperation(operation)
        try:
            if not self._enqueue(pending):
                pending.wake.acquire()
                if pending.following is not None:
                    self._wake(pending.following)
            if not pending.is_finished:
                self._gather()
                self._lead()
        except BaseException:
            self._abandon(pending)
            raise
        return pending.result()

    def _enqueue(self, pending: PendingOperation[Any]) -> bool:
        """Add an operation to the next group; return whether its caller leads at once."""
        with self._mutex:
            self.waiting.append(pending)
            if self.is_gathering and len(self.waiting) >= self.expected:
                self.is_gathering = False
                self._gathered.release()
            pending.is_leader = not self._has_leader
            self._has_leader = True
            return pending.is_leader

    def _gather(self) -> None:
        """Wait a moment for the callers that the last commit served."""
        with self._mutex:
            if len(self.waiting) >= self.expected:
                return
            self.is_gathering = True
        if not self._gathered.acquire(timeout=self.gather_seconds):
            with self._mutex:
                if not self.is_gathering:  # the last caller came after the timeout and released the lock
                    self._gathered.acquire()
                self.is_gathering = False

    def _lead(self) -> None:
        group: list[PendingOperation[Any]] = []
        began = time.monotonic()
        try:
            with self._mutex:
                group, self.waiting = self.waiting[:GROUP_MAX], self.waiting[GROUP_MAX:]
            self._commit(group)
        except BaseException:
            for pending in group:
                if not pending.is_finished:
                    pending.fail(StoreError(INTERRUPTED))
            raise
        finally:
            self.gather_seconds = min(GATHER_SECONDS_MAX, time.monotonic() - began)
            self.expected = min(GROUP_MAX, len(group) + len(self.waiting))
            self._appoint_leader()
            self._wake_all(group[1:])

    def _appoint_leader(self) -> None:
        """Let the first caller of the next group lead, if there is one."""
        with self._mutex:
            self._has_leader = bool(self.waiting)
            if self.waiting:
                self.waiting[0].is_leader = True
                self.waiting[0].wake.release()

    def _wake_all(self, group: list[PendingOperation[Any]]) -> None:
        for pending, following in pairwise(group):
            pending.following = following
        if group:
            self._wake(group[0])

    def _wake(self, pending: PendingOperation[Any]) -> None:
        """Wake a caller, or the next one behind it that still waits."""
        with self._mutex:
            while pending.is_abandoned and pending.following is not None:
                pending = pending.following
            if not pending.is_abandoned:
                pending.is_woken = True
                pending.wake.release()

    def _abandon(self, pending: PendingOperation[Any]) -> None:
        """Drop an interrupted caller: no other may wait for it to lead, or to wake others."""
        with self._mutex:
            was_waiting = pending in self.waiting
            if was_waiting:
                self.waiting.remove(pending)
            pending.is_abandoned = True
            self.is_gathering = False
        if was_waiting and pending.is_leader:
            self._appoint_leader()
        if pending.is_woken and pending.following is not None:
            self._wake(pending.following)
