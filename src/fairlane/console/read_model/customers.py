"""A row for each customer, kept up to date from the feed, and pages of rows: sorted, searched, filtered.

Laws:
- Rows decide the order and hold figures that only the feed has; the standing shown on a page is read from the store.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import Any, NamedTuple

from fairlane.core.policy import Policy, Standing, Terms, weight_of

from .figures import HEAVY, LIGHT

WAITS_MAX = 24  # newest waits of a customer, for its percentiles
WINDOW_MS, LIGHT_MAX, HEAVY_MIN = 1_500_000, 3, 22  # light and heavy senders, as in the simulator
TREND_POINTS, TREND_MS = 12, 300_000
WAIT_MAX_MS = 2**32 - 1
DAY_MS = 86_400_000
DEFAULT_TERMS = Terms()


class CustomerRow:
    """A customer with its counts, waits and trend."""

    __slots__ = (
        "_day", "_done", "_failed", "_recent", "_trend", "_trend_point", "_waits", "customer", "is_heavy", "running",
        "standing", "terms", "waiting",
    )  # fmt: skip

    def __init__(self, customer: str) -> None:
        self.customer = customer
        self.standing = Standing()
        self.terms = DEFAULT_TERMS
        self.waiting = 0
        self.running = 0
        self.is_heavy = False
        self._day = self._done = self._failed = 0
        self._recent: array[int] | None = None  # when its newest documents were submitted, within the window
        self._waits: array[int] | None = None
        self._trend: array[int] | None = None
        self._trend_point = 0  # the number of the trend's last point

    def record_submission(self, at_ms: int) -> str:
        """Count a submitted document; return its class of sender: light, heavy or empty."""
        recent = self._recent = self._recent or array("q")
        while recent and at_ms - recent[0] >= WINDOW_MS:
            recent.pop(0)
        recent.append(at_ms)
        del recent[:-HEAVY_MIN]
        self.is_heavy = self.is_heavy or len(recent) >= HEAVY_MIN
        trend = self._advance_trend(at_ms)
        if at_ms // TREND_MS == self._trend_point:
            trend[-1] += 1
        return LIGHT if len(recent) <= LIGHT_MAX else HEAVY if self.is_heavy else ""

    def _advance_trend(self, now_ms: int) -> array[int]:
        point = now_ms // TREND_MS
        if self._trend is None:
            self._trend, self._trend_point = array("I", [0] * TREND_POINTS), point
        elif point > self._trend_point:
            passed = min(TREND_POINTS, point - self._trend_point)
            self._trend = self._trend[passed:] + array("I", [0] * passed)
            self._trend_point = point
        return self._trend

    def record_wait(self, wait_ms: int) -> None:
        """Remember how long a document waited before a worker claimed it."""
        waits = self._waits = self._waits or array("I")
        waits.append(min(WAIT_MAX_MS, wait_ms))
        del waits[:-WAITS_MAX]

    def record_end(self, at_ms: int, is_done: bool) -> None:
        """Count a document that is done or failed."""
        if at_ms // DAY_MS > self._day:
            self._day, self._done, self._failed = at_ms // DAY_MS, 0, 0
        self._done += is_done
        self._failed += not is_done

    def today(self, now_ms: int) -> tuple[int, int]:
        """Return how many documents are done and failed since midnight (UTC)."""
        return (self._done, self._failed) if now_ms // DAY_MS == self._day else (0, 0)

    def trend(self, now_ms: int) -> list[int]:
        """Return how many documents were submitted in each five minutes of the last hour."""
        return [0] * TREND_POINTS if self._trend is None else list(self._advance_trend(now_ms))

    def wait(self, percent: int) -> float | None:
        """Return a percentile of the newest waits, in seconds."""
        if not self._waits:
            return None
        ordered = sorted(self._waits)
        return ordered[max(0, -(-percent * len(ordered) // 100) - 1)] / 1000


class CustomerQuery(NamedTuple):
    """The filter, order and position of a page of customers."""

    sort: str = "waiting"
    is_falling: bool = True
    search: str = ""
    filter: str | None = None
    after: tuple[Any, str] | None = None  # sort value and customer of the last row of the page before
    limit: int = 50


FILTERS: dict[str, Callable[[CustomerRow, int], bool]] = {
    "paused": lambda row, now_ms: row.terms.paused,
    "waiting": lambda row, now_ms: row.waiting > 0,
    "failing": lambda row, now_ms: row.today(now_ms)[1] > 0,
}


def sort_keys(policy: Policy, now_ms: int) -> dict[str, Callable[[CustomerRow], Any]]:
    """Return the sort key of every column."""

    def own(row: CustomerRow) -> Policy:
        return row.terms.policy(policy)

    return {
        "customer": lambda row: 0,  # rows with equal keys are sorted by customer
        "counter": lambda row: row.standing.counter,
        "next_priority": lambda row: own(row).next_priority(row.standing, now_ms, weight_of(row.terms)),
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


SORTS = frozenset(sort_keys(Policy(), 0))


def customer_page(
    rows: Iterable[CustomerRow], policy: Policy, now_ms: int, query: CustomerQuery
) -> tuple[list[tuple[Any, CustomerRow]], int]:
    """Return the rows of a page with their sort values, and the number of rows on all pages."""
    search = query.search.casefold()
    matching = [row for row in rows if search in row.customer.casefold()] if search else list(rows)
    if query.filter is not None:
        fits = FILTERS[query.filter]
        matching = [row for row in matching if fits(row, now_ms)]
    key = sort_keys(policy, now_ms)[query.sort]
    sign = -1 if query.is_falling and query.sort != "customer" else 1
    keyed = [(sign * key(row), row.customer, row) for row in matching]
    if query.sort == "customer" and query.is_falling:
        keyed.sort(key=lambda entry: entry[1], reverse=True)
        if query.after is not None:
            last = query.after[1]
            keyed = [entry for entry in keyed if entry[1] < last]
        page = keyed[: query.limit]
    else:
        if query.after is not None:
            after = query.after
            keyed = [entry for entry in keyed if entry[:2] > after]
        page = nsmallest(query.limit, keyed, key=lambda entry: entry[:2])
    return [(value, row) for value, _, row in page], len(matching)
