"""Dispatch: the arithmetic of turns, without a clock, a store or an index.

Each priority has a clock, and in it each kind has one. A lane has two tags: its start tag compares it with lanes of its kind,
its cross tag with the first lanes of other kinds.

Laws:
- An ordinary turn moves the clocks, an open turn moves none.
- A lane pays for each of its turns, except for an open turn that finds it more than one turn in debt.
- Whole numbers only; `//` cuts down, below zero too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .policy import STEP, KindLimit, Turns

USUAL_FIRST = 1_000_000  # thousandths of a millisecond: what an attempt takes, before any has ended
USUAL_SHARE, USUAL_SHARE_OF_ALL = 8, 64
KindSet = tuple[str, ...] | None  # the kinds that a worker takes, sorted; None: all kinds


def kind_set(kinds: Iterable[str] | None) -> KindSet:
    """Return kinds as the set under which their dispatches are counted."""
    return None if kinds is None else tuple(sorted(set(kinds)))


def is_open_turn(dispatch_number: int, open_turn_every: int) -> bool:
    """Return whether this dispatch takes the document that has been ready longest."""
    return open_turn_every > 0 and dispatch_number % open_turn_every == 0


def is_blocked(paused: bool, cap: int | None, running: int) -> bool:
    """Return whether a customer's lanes must not compete now."""
    return paused or (cap is not None and running >= cap)


class Payment(NamedTuple):
    """The clocks and a lane's tags after its turn."""

    kind_clock: int
    clock: int
    finish: int
    cross_finish: int
    is_paid: bool


def pay_turn(kind_clock: int, clock: int, start: int, cross: int, price: int, is_open: bool) -> Payment:
    """Charge a lane for its turn; an open turn of a lane that is more than one turn in debt is free."""
    if not is_open:
        kind_clock, clock = start, max(clock, cross)
    is_paid = not (is_open and start > kind_clock + price)
    charge = price if is_paid else 0
    return Payment(kind_clock, clock, start + charge, max(cross, clock) + charge, is_paid)


def turn_price(turns: Turns, step: int, usual: int, weight: int) -> int:
    """Return the price of a turn: the document's step, or the milliseconds that an attempt of its customer usually takes."""
    return step if turns == "documents" else max(1, usual // weight)


def true_up(tag: int, clock: int, delta: int) -> int:
    """Return a tag after a turn cost `delta` more than was paid; less is returned down to the clock, never below it."""
    return max(min(tag, clock + 1), tag + delta)


def next_usual(usual: int | None, taken: int, share: int) -> int:
    """Return what attempts usually take after one more has ended; in thousandths of a millisecond."""
    return taken if usual is None else usual + (taken - usual) // share


class Bucket(NamedTuple):
    """The starts that a kind had left at a moment, in thousandths; the default is a full bucket."""

    tokens: int | None = None
    at_ms: int = 0

    def take(self, limit: KindLimit, now_ms: int) -> Bucket:
        """Return the bucket after one more start."""
        tokens = burst = round(limit.burst * STEP)
        if self.tokens is not None and limit.rate is not None:
            tokens = min(burst, self.tokens + max(0, now_ms - self.at_ms) * round(limit.rate * STEP) // 1000)
        return Bucket(tokens - STEP, max(self.at_ms, now_ms))

    def next_start_ms(self, limit: KindLimit) -> int:
        """Return from when on there is a whole start in it."""
        if self.tokens is None or limit.rate is None or self.tokens >= STEP:
            return 0
        return self.at_ms - (self.tokens - STEP) * 1000 // round(limit.rate * STEP)


def is_kind_blocked(limit: KindLimit, running: int, bucket: Bucket, now_ms: int) -> bool:
    """Return whether the lanes of a kind must not compete now."""
    return (limit.running is not None and running >= limit.running) or now_ms < bucket.next_start_ms(limit)
