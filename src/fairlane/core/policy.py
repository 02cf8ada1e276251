"""The policy: how a customer's counter moves, and which priority it gives.

Laws:
- Time is an argument, in whole milliseconds. Nothing here reads a clock.
- A counter is kept in whole thousandths of a step and is never above 0.
- Under `idle` a check moves the counter down, or resets it. Under `sliding` the counter is what was sent within the last
  interval, counted in 16 parts.
- Nothing is changed in place: every function returns a new value.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from typing import Literal, NamedTuple, TypeVar, get_args

from .errors import BadValue

STEP = 1000  # thousandths in one step
COUNTER_FLOOR = -(10**9) * STEP
INTERVAL_MAX_MS = 30 * 24 * 3600 * 1000
TIME_MAX_MS = 2**53 - 1
LEVELS_MAX = 9
PARTS = 16  # of a sliding interval

Reset = Literal["idle", "sliding"]
Dispatch = Literal["fair", "strict"]
Turns = Literal["time", "documents"]
Parts = tuple[tuple[int, int], ...]  # (start of a part of the interval in milliseconds, thousandths sent in it), oldest first
T = TypeVar("T")


def plain_seconds(duration: T | timedelta) -> T | float:
    """Return a timedelta as seconds, and any other value as it is."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def to_milliseconds(name: str, duration: float | timedelta, least_ms: int, most_ms: int) -> int:
    """Return a duration, a number meaning seconds, as whole milliseconds, half of one rounding up; or raise BadValue."""
    seconds = plain_seconds(duration)
    if not isinstance(seconds, bool) and isinstance(seconds, int | float) and abs(seconds) <= TIME_MAX_MS:
        whole = math.floor(seconds * 1000 + 0.5)
        if least_ms <= whole <= most_ms:
            return whole
    raise BadValue(name, duration, f"a number of seconds from {from_thousandths(least_ms):,} to {from_thousandths(most_ms):,}")


def to_thousandths(name: str, value: float, least: float, most: float) -> int:
    """Return a number as whole thousandths; raise BadValue if it is out of range, or finer, instead of rounding it."""
    if not isinstance(value, bool) and isinstance(value, int | float) and least <= value <= most:
        whole = round(value * STEP)
        if math.isclose(value * STEP, whole, rel_tol=0, abs_tol=1e-4):
            return whole
    raise BadValue(name, value, f"a number from {least:,} to {most:,} in whole thousandths")


def from_thousandths(in_thousandths: int) -> int | float:
    """Return thousandths as the number that people read: whole if it is whole."""
    whole, rest = divmod(in_thousandths, STEP)
    return in_thousandths / STEP if rest else whole


def step_of(cost: int, weight: int) -> int:
    """Return a document's step; everything in thousandths."""
    return max(1, cost * STEP // weight)


def _set_fields(instance: object, **values: object) -> None:
    """Set fields of a frozen dataclass, while it is made."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


class Standing(NamedTuple):
    """A customer's counter; the default is a customer never seen."""

    counter: int = 0  # thousandths
    updated_ms: int | None = None  # last update; None: never seen
    resets: int = 0  # counted, so that a late correction of a cost is dropped if a reset came between
    parts: Parts = ()  # what was sent lately; empty under `idle`


@dataclass(frozen=True, slots=True, init=False)
class Policy:
    """The check and the table: reset interval in seconds, thresholds in steps, reset rule."""

    reset_interval: float
    thresholds: tuple[float, ...]
    reset: Reset
    _interval_ms: int = field(init=False, repr=False, compare=False)
    _depths: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        reset_interval: float | timedelta = 1500.0,
        thresholds: tuple[float, ...] = (-2, -4, -6, -8, -10, -12, -14, -20),
        reset: Reset = "idle",
    ) -> None:
        if reset not in get_args(Reset):
            raise BadValue("reset", reset, "one of " + ", ".join(get_args(Reset)))
        if not isinstance(thresholds, tuple | list):
            raise BadValue("thresholds", thresholds, "a tuple of numbers, as in (-2, -4, -6)")
        interval_ms = to_milliseconds("reset_interval", reset_interval, 1, INTERVAL_MAX_MS)
        _set_fields(self, reset_interval=plain_seconds(reset_interval), thresholds=tuple(thresholds), reset=reset)
        _set_fields(self, _interval_ms=interval_ms, _depths=self._parse_depths())

    def _parse_depths(self) -> tuple[int, ...]:
        """Return the thresholds as rising depths below zero, in thousandths."""
        if len(self.thresholds) > LEVELS_MAX - 1:
            raise BadValue("thresholds", self.thresholds, f"at most {LEVELS_MAX - 1} numbers, for 1 to 9 priorities")
        depths = tuple(-to_thousandths("thresholds", value, COUNTER_FLOOR // STEP, 0) for value in self.thresholds)
        if any(depth >= next_depth for depth, next_depth in pairwise(depths)):
            raise BadValue("thresholds", self.thresholds, "strictly falling, as in -2, -4, -6")
        return depths

    def check(self, standing: Standing, now_ms: int, step: int = STEP) -> Standing:
        """Return the counter after one check."""
        counter, updated_ms, resets, _ = standing
        above_one = max(0, step - STEP)
        at_ms = now_ms if updated_ms is None else max(updated_ms, now_ms)
        if self.reset == "sliding":
            kept, now_part = self._kept_parts(standing, at_ms), self.part(at_ms)
            counter = -sum(sent for _, sent in kept) - above_one
            in_now = sum(sent for start, sent in kept if start == now_part)
            parts = (*(part for part in kept if part[0] != now_part), (now_part, min(-COUNTER_FLOOR, in_now + step)))
            return Standing(max(COUNTER_FLOOR, counter), at_ms, resets + (updated_ms is None), parts)
        if updated_ms is None or now_ms - updated_ms > self._interval_ms:
            return Standing(max(COUNTER_FLOOR, -above_one), now_ms, resets + 1)
        return Standing(max(COUNTER_FLOOR, counter - step), at_ms, resets)

    def part(self, at_ms: int) -> int:
        """Return the start of the part of a sliding interval that a moment lies in; parts are counted from the epoch."""
        return at_ms - at_ms % self._part_ms

    def _kept_parts(self, standing: Standing, at_ms: int) -> Parts:
        """Return the parts that count at a moment; a customer that comes from `idle` begins with one, of its last update."""
        if standing.updated_ms is None:
            return ()
        parts = standing.parts or ((self.part(standing.updated_ms), STEP - standing.counter),)
        oldest_ms = self.part(at_ms) - PARTS * self._part_ms
        return tuple(part for part in parts if part[0] > oldest_ms)

    @property
    def _part_ms(self) -> int:
        return max(1, self._interval_ms // PARTS)

    def level(self, counter_thousandths: int) -> int:
        """Return the priority of a counter in thousandths: the last line of the table that holds."""
        return 1 + bisect_left(self._depths, -counter_thousandths)

    def priority(self, counter: float) -> int:
        """Return the priority of a counter in steps."""
        return self.level(to_thousandths("counter", counter, COUNTER_FLOOR // STEP, 0))

    def next_priority(self, standing: Standing, now_ms: int, weight: int = STEP) -> int:
        """Return the priority that a check at this moment would give."""
        return self.level(self.check(standing, now_ms, step_of(STEP, weight)).counter)

    def resets_in_ms(self, standing: Standing, now_ms: int) -> int:
        """Return how long until the counter is back at zero if no check comes before."""
        if standing.updated_ms is None:
            return 0
        if self.reset == "idle":
            return max(0, standing.updated_ms + self._interval_ms - now_ms)
        kept = self._kept_parts(standing, max(standing.updated_ms, now_ms))
        return max((start + PARTS * self._part_ms - now_ms for start, _ in kept), default=0)

    def correct(self, standing: Standing, checked_ms: int, resets: int, more: int) -> Standing:
        """Return the counter after a document turned out to be so many thousandths of a step more than its check took;
        unchanged if a reset came between, or its part of a sliding interval no longer counts."""
        if standing.updated_ms is None or standing.resets != resets:
            return standing
        if self.reset == "sliding" and standing.parts:
            sent_then = dict(standing.parts)
            if (part := self.part(checked_ms)) not in sent_then:
                return standing
            sent_then[part] = max(0, min(-COUNTER_FLOOR, sent_then[part] + more))
            standing = standing._replace(parts=tuple(sent_then.items()))
        return standing._replace(counter=max(COUNTER_FLOOR, min(0, standing.counter - more)))


def interval_ms_of(policy: Policy) -> int:
    return policy._interval_ms


def operator_reset(standing: Standing) -> Standing:
    """Return the counter after an operator's reset: as never seen."""
    return Standing(resets=standing.resets)


class CustomerLimits(NamedTuple):
    """The most that a customer may have; None: as everybody in its terms, no limit in everybody's rules."""

    waiting_max: int | None = None  # documents that wait
    descendants_max: int | None = None  # documents that come out of one, archives in archives included
    documents_max: int | None = None  # documents that are kept, in any state
    bytes_max: int | None = None  # of the payloads, results and files that are kept
    retries_max: int | None = None  # of one failed document, by its customer


NO_LIMITS = CustomerLimits()
LIMITS_DEFAULT = CustomerLimits(waiting_max=100_000, descendants_max=10_000, retries_max=3)


@dataclass(frozen=True, slots=True, init=False)
class Terms:
    """One customer's own settings; None stands for those of every customer."""

    weight: float
    cap: int | None
    paused: bool
    reset_interval: float | None
    thresholds: tuple[float, ...] | None
    reset: Reset | None
    limits: CustomerLimits
    cost_min: float  # the least that its keys may give as the cost of a document
    _weight_thousandths: int = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        weight: float = 1,
        cap: int | None = None,
        paused: bool = False,
        reset_interval: float | timedelta | None = None,
        thresholds: tuple[float, ...] | None = None,
        reset: Reset | None = None,
        limits: CustomerLimits = NO_LIMITS,
        cost_min: float = 1,
    ) -> None:
        weight_thousandths = to_thousandths("weight", weight, 0.01, 100)
        if cap is not None and (type(cap) is not int or not 1 <= cap <= 1_000_000):
            raise BadValue("cap", cap, "a whole number from 1 to 1,000,000, or None for no cap")
        if type(paused) is not bool:
            raise BadValue("paused", paused, "True or False")
        _set_fields(self, weight=weight, _weight_thousandths=weight_thousandths, cap=cap, paused=paused, reset=reset)
        to_thousandths("cost_min", cost_min, 0.001, 1)
        _set_fields(self, reset_interval=plain_seconds(reset_interval), thresholds=thresholds, limits=limits, cost_min=cost_min)
        policy = self.policy(Policy())  # raises if a value is wrong
        _set_fields(self, thresholds=None if thresholds is None else policy.thresholds)

    def policy(self, everybody: Policy) -> Policy:
        """Return this customer's policy, with the defaults taken from everybody's."""
        if self.reset_interval is None and self.thresholds is None and self.reset is None:
            return everybody
        return Policy(
            everybody.reset_interval if self.reset_interval is None else self.reset_interval,
            everybody.thresholds if self.thresholds is None else self.thresholds,
            everybody.reset if self.reset is None else self.reset,
        )


def weight_of(terms: Terms) -> int:
    """Return a customer's weight in thousandths."""
    return terms._weight_thousandths


@dataclass(frozen=True, slots=True)
class KindLimit:
    """What all workers together may do with one kind; None: no limit."""

    running: int | None = None  # documents at once
    rate: float | None = None  # starts a second, from a bucket ...
    burst: float = 1  # ... that holds so many

    def __post_init__(self) -> None:
        if self.running is not None and (type(self.running) is not int or not 1 <= self.running <= 1_000_000):
            raise BadValue("running_max", self.running, "a whole number from 1 to 1,000,000, or None for no limit")
        if self.rate is not None:
            to_thousandths("rate", self.rate, 0.001, 1_000_000)
        to_thousandths("burst", self.burst, 1, 1_000_000)


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings of a whole queue; kept in its store, with a version."""

    policy: Policy = Policy()
    dispatch: Dispatch = "fair"
    open_turn_every: int = 16
    version: int = 1
    frozen: str | None = None  # why nothing new may begin here, as in "is being moved to ..."; None: not frozen
    limits: CustomerLimits = LIMITS_DEFAULT
    turns: Turns = "time"  # what turns are paid with: the time that attempts take, or a step for each document

    def __post_init__(self) -> None:
        if self.dispatch not in get_args(Dispatch):
            raise BadValue("dispatch", self.dispatch, "one of " + ", ".join(get_args(Dispatch)))
        if self.turns not in get_args(Turns):
            raise BadValue("turns", self.turns, "one of " + ", ".join(get_args(Turns)))
        every = self.open_turn_every
        if type(every) is not int or not 0 <= every <= 1_000_000:
            raise BadValue("open_turn_every", every, "a whole number from 0 (never) to 1,000,000")
