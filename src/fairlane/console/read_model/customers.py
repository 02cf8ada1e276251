"""Where does every customer stand? A row each, kept by following the feed, and pages of them: sorted, searched, filtered.

Laws:
- Rows are for order and for figures that only a follower knows; what is shown of the few on a page is read from the store.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import Any, NamedTuple

from fairlane.core.policy import Policy, Standing, Terms

from .figures import HEAVY, LIGHT

WAITS_KEPT = 24  # newest waits of a customer, for its percentiles
WINDOW_MS, LIGHT_MAX, HEAVY_MIN = 1_500_000, 3, 22  # what is light and heavy, as the simulator says
TREND_POINTS, TREND_MS = 12, 300_000
WAIT_MAX_MS = 2**32 - 1
DAY_MS = 86_400_000
NOBODY_SPECIAL = Terms()


class Row:
    """A customer."""

    __slots__ = (
        "_day", "_done", "_failed", "_recent", "_trend", "_trend_at", "_waits", "customer", "is_heavy", "running", "standing",
        "terms", "waiting",
    )  # fmt: skip

    def __init__(self, customer: str) -> None:
        self.customer = customer
        self.standing = Standing()
        self.terms = NOBODY_SPECIAL
        self.waiting = 0
        self.running = 0
        self.is_heavy = False
        self._day = self._done = self._failed = 0
        self._recent: array[int] | None = None  # when its newest documents came, within the window
        self._waits: array[int] | None = None
        self._trend: array[int] | None = None
        self._trend_at = 0  # the last point of the trend

    def sent(self, at_ms: int) -> str:
        """A document came; says whether it is a light or a heavy one, or neither."""
        recent = self._recent = self._recent or array("q")
        while recent and at_ms - recent[0] >= WINDOW_MS:
            recent.pop(0)
        recent.append(at_ms)
        del recent[:-HEAVY_MIN]
        self.is_heavy = self.is_heavy or len(recent) >= HEAVY_MIN
        self._turn_trend(at_ms)
        assert self._trend is not None
        if at_ms // TREND_MS == self._trend_at:
            self._trend[-1] += 1
        return LIGHT if len(recent) <= LIGHT_MAX else HEAVY if self.is_heavy else ""

    def _turn_trend(self, now_ms: int) -> None:
        point = now_ms // TREND_MS
        if self._trend is None:
            self._trend, self._trend_at = array("I", [0] * TREND_POINTS), point
        elif point > self._trend_at:
            passed = min(TREND_POINTS, point - self._trend_at)
            self._trend = self._trend[passed:] + array("I", [0] * passed)
            self._trend_at = point

    def waited(self, wait_ms: int) -> None:
        """One of its documents began, after that long."""
        waits = self._waits = self._waits or array("I")
        waits.append(min(WAIT_MAX_MS, wait_ms))
        del waits[:-WAITS_KEPT]

    def ended(self, at_ms: int, is_done: bool) -> None:
        """One of its documents is done or failed."""
        if at_ms // DAY_MS > self._day:
            self._day, self._done, self._failed = at_ms // DAY_MS, 0, 0
        self._done += is_done
        self._failed += not is_done

    def today(self, now_ms: int) -> tuple[int, int]:
        """How many are done and failed since midnight (UTC)."""
        return (self._done, self._failed) if now_ms // DAY_MS == self._day else (0, 0)

    def trend(self, now_ms: int) -> list[int]:
        """How many documents came in each of the last five minutes times twelve."""
        if self._trend is None:
            return [0] * TREND_POINTS
        self._turn_trend(now_ms)
        return list(self._trend)

    def wait(self, percent: int) -> float | None:
        """A percentile of its newest waits, in seconds."""
        if not self._waits:
            return None
        ordered = sorted(self._waits)
        return ordered[max(0, -(-percent * len(ordered) // 100) - 1)] / 1000


class Wanted(NamedTuple):
    """Which rows, in which order."""

    sort: str = "waiting"
    is_falling: bool = True
    search: str = ""
    only: str | None = None
    after: tuple[Any, str] | None = None  # the last row of the page before: what it is sorted by, and its customer
    limit: int = 50


ONLY: dict[str, Callable[[Row, int], bool]] = {
    "paused": lambda row, now_ms: row.terms.paused,
    "waiting": lambda row, now_ms: row.waiting > 0,
    "failing": lambda row, now_ms: row.today(now_ms)[1] > 0,
}


def sorts(policy: Policy, now_ms: int) -> dict[str, Callable[[Row], Any]]:
    """By what rows can be sorted."""

    def own(row: Row) -> Policy:
        return row.terms.policy(policy)

    return {
        "customer": lambda row: 0,  # the customer follows in any case
        "counter": lambda row: row.standing.counter,
        "next_priority": lambda row: own(row).next_priority(row.standing, now_ms, row.terms.weight_thousandths),
        "resets_in": lambda row: own(row).resets_in_ms(row.standing, now_ms),
        "waiting": lambda row: row.waiting,
        "running": lambda row: row.running,
        "done_today": lambda row: row.today(now_ms)[0],
        "failed_today": lambda row: row.today(now_ms)[1],
        "wait_p50": lambda row: row.wait(50) or 0,
        "wait_p95": lambda row: row.wait(95) or 0,
        "trend": lambda row: sum(row.trend(now_ms)),
        "weight": lambda row: row.terms.weight,
    }


SORTS = frozenset(sorts(Policy(), 0))


def page(rows: Iterable[Row], policy: Policy, now_ms: int, wanted: Wanted) -> tuple[list[tuple[Any, Row]], int]:
    """The rows of one page with what they are sorted by, and how many there are on all pages."""
    search = wanted.search.casefold()
    found = [row for row in rows if search in row.customer.casefold()] if search else list(rows)
    if wanted.only is not None:
        fits = ONLY[wanted.only]
        found = [row for row in found if fits(row, now_ms)]
    value = sorts(policy, now_ms)[wanted.sort]
    sign = -1 if wanted.is_falling and wanted.sort != "customer" else 1
    keyed = [(sign * value(row), row.customer, row) for row in found]
    if wanted.sort == "customer" and wanted.is_falling:
        keyed.sort(key=lambda one: one[1], reverse=True)
        if wanted.after is not None:
            last = wanted.after[1]
            keyed = [one for one in keyed if one[1] < last]
        return [(one[0], one[2]) for one in keyed[: wanted.limit]], len(found)
    if wanted.after is not None:
        after = wanted.after
        keyed = [one for one in keyed if one[:2] > after]
    return [(one[0], one[2]) for one in nsmallest(wanted.limit, keyed, key=lambda one: one[:2])], len(found)
