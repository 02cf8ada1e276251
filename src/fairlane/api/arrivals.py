"""Arrivals: connections that were accepted and wait to be opened, so many a second, those of addresses with few of them first.

To open a connection with TLS takes as long as to answer a request. Without a limit, those who open connections over and over
would leave no time for those who send requests, however many of their connections are closed again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from .connection_table import Groups
from .token_buckets import TokenBuckets

ARRIVALS_MAX = 128  # that wait; of more, the oldest of the address with most is turned away
BURST_SHARE = 10  # a tenth of a second's connections may be opened in one go

T = TypeVar("T", bound=Hashable)


class Arrivals(Generic[T]):
    """What has arrived, by address."""

    def __init__(
        self, opened_a_second: int, open_of: Callable[[str], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._open_of = open_of  # how many connections of an address are open already
        self._rate = TokenBuckets(opened_a_second, max(1, opened_a_second // BURST_SHARE), clock)
        self._waiting: Groups[T] = Groups()
        self._groups: dict[T, str] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, group: str, arrival: T) -> T | None:
        """Add an arrival of an address; return one that must go, if there are too many."""
        self._waiting.add(group, arrival)
        self._groups[arrival] = group
        if len(self) <= ARRIVALS_MAX:
            return None
        excess = self._waiting.oldest_of_largest()
        assert excess is not None
        return self._remove(excess)

    def next(self) -> T | None:
        """Return the arrival that may be opened now; None: there is none, or it is too early."""
        if not self._groups or not self._rate.take(""):
            return None
        fewest = min(self._waiting.names(), key=lambda group: self._open_of(group) + self._waiting.count(group))
        return self._remove(self._waiting.oldest_of(fewest))

    def clear(self) -> list[T]:
        """Forget all arrivals, and return them."""
        return [self._remove(arrival) for arrival in list(self._groups)]

    def _remove(self, arrival: T) -> T:
        self._waiting.remove(self._groups.pop(arrival), arrival)
        return arrival
