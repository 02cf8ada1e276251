"""Shares: who holds what of the service at once, so that one customer cannot take all of it.

Laws:
- All keys of a customer share one share; anybody else has one of its own. Everybody without a key has one together.
- Whoever is at its share is refused with 429, and the others go on; when everything is taken, everybody is with 503.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from .auth import Caller
from .problems import Problem

SERVICE = ""  # the holder of what the service does by itself, which has no share
STRANGERS = "strangers"  # the holder of everything that happens for requests without a key that is known to be valid
HOLDER: ContextVar[str] = ContextVar("holder", default=SERVICE)  # whose request the current task is about
SLOT: ContextVar[RequestSlot | None] = ContextVar("slot", default=None)  # of the request that the current task answers


def holder_of(caller: Caller) -> str:
    """Return whose share a caller uses."""
    return f"caller {caller.id}" if caller.customer is None else f"customer {caller.customer}"


def all_taken(what: str, retry_after: int) -> Problem:
    """Return the problem of everybody when nothing is left."""
    return Problem("overloaded", f"too many {what} at once; try again in a moment", retry_after=retry_after, close=True)


def share_taken(what: str, most: int, retry_after: int) -> Problem:
    """Return the problem of a holder that has its share already."""
    detail = f"more than {most} {what} at once with the keys of one customer; try again in a moment"
    return Problem("too-many-requests", detail, retry_after=retry_after, close=True)


class Share:
    """Counts what is held at once, in all and by each holder."""

    def __init__(self, what: str, at_once: int, a_holder: int, *, retry_after: int = 1) -> None:
        self._what = what
        self._at_once = at_once
        self._a_holder = a_holder
        self._retry_after = retry_after
        self._counts: dict[str, int] = {}
        self.total = 0

    @property
    def is_full(self) -> bool:
        return self.total >= self._at_once

    def refuse_if_full(self, holder: str) -> None:
        """Raise a Problem if the holder cannot have one more."""
        if self.is_full:
            raise all_taken(self._what, self._retry_after)
        if self._counts.get(holder, 0) >= self._a_holder:
            raise share_taken(self._what, self._a_holder, self._retry_after)

    def take(self, holder: str) -> None:
        """Count one more, whether there is one left or not."""
        self._counts[holder] = self._counts.get(holder, 0) + 1
        self.total += 1

    def give_back(self, holder: str) -> None:
        self.total -= 1
        self._counts[holder] -= 1
        if not self._counts[holder]:
            del self._counts[holder]

    @contextlib.contextmanager
    def hold(self, holder: str) -> Iterator[None]:
        """Hold one; raise a Problem if the holder cannot have one more."""
        self.refuse_if_full(holder)
        self.take(holder)
        try:
            yield
        finally:
            self.give_back(holder)


class RequestSlot:
    """The slot of a request: first among those being answered, and while it waits among those that wait.

    A stream that nobody reads to its end may be closed after its request: then there is nothing left to move.
    """

    def __init__(self, share: Share, holder: str) -> None:
        share.refuse_if_full(holder)
        share.take(holder)
        self._share: Share | None = share
        self._holder = holder

    def move(self, share: Share) -> None:
        """Leave one share for another, whether that has room or not."""
        if self._share is not None:
            self._share.give_back(self._holder)
            share.take(self._holder)
            self._share = share

    def end(self) -> None:
        """The request has ended."""
        if self._share is not None:
            self._share.give_back(self._holder)
            self._share = None
