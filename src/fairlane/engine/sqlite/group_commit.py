"""How do callers that arrive together share one sync?

The first caller leads: it takes everybody who waits into one transaction and commits once. Whoever arrives meanwhile forms
the next group, led by its first. No thread of our own: a lone caller pays for no hand-over.

A leader waits a moment for the callers just served to come back with their next operation, at most as long as the last
transaction took: a larger group is worth more than an earlier one. And callers are woken one by one, each by the one before:
woken all at once they would only fight for the interpreter.
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
PATIENCE_MAX_SECONDS = 0.005
INTERRUPTED = (
    "the commit was interrupted, so whether this call took effect is not known; look, or submit again with the same key"
)


class Ticket(Generic[T]):
    """One caller's operation, and what became of it."""

    def __init__(self, operation: Callable[[Transaction], T]) -> None:
        self.operation = operation
        self.wake = threading.Lock()  # held until it is finished, or its turn to lead has come
        self.wake.acquire()
        self.is_finished = False
        self.is_leader = False
        self.is_woken = False
        self.is_abandoned = False  # its caller was interrupted
        self.following: Ticket[Any] | None = None  # whom its caller wakes
        self._value: T | None = None
        self._error: BaseException | None = None

    def succeed(self, value: T) -> None:
        self._value, self.is_finished = value, True

    def fail(self, error: BaseException) -> None:
        self._error, self.is_finished = error, True

    def outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return cast(T, self._value)


class GroupCommit:
    """Runs operations in shared transactions; `commit` must finish every ticket it is given."""

    def __init__(self, commit: Callable[[list[Ticket[Any]]], None]) -> None:
        self._commit = commit
        self._mutex = threading.Lock()
        self._waiting: list[Ticket[Any]] = []  # the first of them leads, or will
        self._is_led = False
        self._is_gathering = False
        self._gathered = threading.Lock()  # released when as many callers are there as at the last commit
        self._gathered.acquire()
        self._expected = 1
        self._patience_seconds = 0.0

    def run(self, operation: Callable[[Transaction], T]) -> T:
        """Run an operation in a transaction; returns after the commit."""
        ticket = Ticket(operation)
        try:
            if not self._leads_at_once(ticket):
                ticket.wake.acquire()
                if ticket.following is not None:
                    self._wake(ticket.following)
            if not ticket.is_finished:
                self._gather()
                self._lead()
        except BaseException:
            self._abandon(ticket)
            raise
        return ticket.outcome()

    def _leads_at_once(self, ticket: Ticket[Any]) -> bool:
        with self._mutex:
            self._waiting.append(ticket)
            if self._is_gathering and len(self._waiting) >= self._expected:
                self._is_gathering = False
                self._gathered.release()
            ticket.is_leader = not self._is_led
            self._is_led = True
            return ticket.is_leader

    def _gather(self) -> None:
        """Wait a moment for the callers that the last commit served."""
        with self._mutex:
            if len(self._waiting) >= self._expected:
                return
            self._is_gathering = True
        if not self._gathered.acquire(timeout=self._patience_seconds):
            with self._mutex:
                if not self._is_gathering:  # the last one came just now
                    self._gathered.acquire()
                self._is_gathering = False

    def _lead(self) -> None:
        group: list[Ticket[Any]] = []
        began = time.monotonic()
        try:
            with self._mutex:
                group, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
            self._commit(group)
        except BaseException:
            for ticket in group:
                if not ticket.is_finished:
                    ticket.fail(StoreError(INTERRUPTED))
            raise
        finally:
            self._patience_seconds = min(PATIENCE_MAX_SECONDS, time.monotonic() - began)
            self._expected = min(GROUP_MAX, len(group) + len(self._waiting))
            self._pass_on()
            self._wake_all(group[1:])

    def _pass_on(self) -> None:
        """The next group gets a leader, if there is one."""
        with self._mutex:
            self._is_led = bool(self._waiting)
            if self._waiting:
                self._waiting[0].is_leader = True
                self._waiting[0].wake.release()

    def _wake_all(self, tickets: list[Ticket[Any]]) -> None:
        for ticket, following in pairwise(tickets):
            ticket.following = following
        if tickets:
            self._wake(tickets[0])

    def _wake(self, ticket: Ticket[Any]) -> None:
        """Wake a caller, or the next one that still waits."""
        with self._mutex:
            while ticket.is_abandoned and ticket.following is not None:
                ticket = ticket.following
            if not ticket.is_abandoned:
                ticket.is_woken = True
                ticket.wake.release()

    def _abandon(self, ticket: Ticket[Any]) -> None:
        """A caller was interrupted: nobody may wait for it to lead, or to wake others."""
        with self._mutex:
            was_waiting = ticket in self._waiting
            if was_waiting:
                self._waiting.remove(ticket)
            ticket.is_abandoned = True
            self._is_gathering = False
        if was_waiting and ticket.is_leader:
            self._pass_on()
        if ticket.is_woken and ticket.following is not None:
            self._wake(ticket.following)
