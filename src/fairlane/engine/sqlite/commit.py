"""How do callers that arrive together share one sync?

The first caller leads: it takes everybody who waits into one transaction and commits once. Whoever arrives meanwhile forms
the next group, led by its first. No thread of our own: a lone caller pays for no hand-over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from .transaction import Transaction

T = TypeVar("T")
GROUP_MAX = 256


class Ticket(Generic[T]):
    """One caller's operation, and what became of it."""

    def __init__(self, operation: Callable[[Transaction], T]) -> None:
        self.operation = operation
        self.wake = threading.Lock()
        self.wake.acquire()
        self.is_finished = False
        self.is_leader = False
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

    def __init__(self, commit: Callable[[list[Ticket[object]]], None]) -> None:
        self._commit = commit
        self._mutex = threading.Lock()
        self._waiting: list[Ticket[object]] = []
        self._is_led = False

    def run(self, operation: Callable[[Transaction], T]) -> T:
        """Run an operation in a transaction; returns after the commit."""
        ticket: Ticket[T] = Ticket(operation)
        with self._mutex:
            self._waiting.append(cast("Ticket[object]", ticket))
            ticket.is_leader, self._is_led = not self._is_led, True
        try:
            if not ticket.is_leader:
                ticket.wake.acquire()  # until it is finished, or its turn to lead has come
            if not ticket.is_finished:
                self._lead()
        except BaseException:
            self._withdraw(cast("Ticket[object]", ticket))
            raise
        return ticket.outcome()

    def _lead(self) -> None:
        with self._mutex:
            group, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
        try:
            self._commit(group)
        except BaseException as error:
            for ticket in group:
                if not ticket.is_finished:
                    ticket.fail(error)
            raise
        finally:
            self._pass_on()
            for ticket in group:
                ticket.wake.release()

    def _pass_on(self) -> None:
        """The next group gets a leader, if there is one."""
        with self._mutex:
            self._is_led = bool(self._waiting)
            if self._waiting:
                self._waiting[0].is_leader = True
                self._waiting[0].wake.release()

    def _withdraw(self, ticket: Ticket[object]) -> None:
        """A caller was interrupted while it waited: nobody else may wait for it to lead."""
        with self._mutex:
            if ticket not in self._waiting:
                return
            self._waiting.remove(ticket)
        if ticket.is_leader:
            self._pass_on()
