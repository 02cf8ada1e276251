"""Start estimates: when a waiting document will start, as a range that holds about eight true starts in ten.

The model: `ahead + 1` documents at the rate at which documents were taken, less the rate at which better ones came and
passed; measured on a clock that runs only while something waits, over a horizon about as long as the answer.

Laws:
- Plain arithmetic on totals: no clock, no store, no randomness. Where nothing was ever taken there is no estimate.
- 0 <= low <= likely <= high; more documents ahead never make any of them smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import NamedTuple

from .document import Totals

HORIZONS_MS = tuple(120_000 * 4**power for power in range(7))  # of busy time: two minutes to some days
TAKEN_MIN = 4  # fewer say little, unless they are all that were ever taken
PASSED_MAX = 0.75  # at most this share of what is taken is thought to pass in future too
QUANTILES = (-1.9, -0.4, 0.6)  # of log(true / estimated), before the queue has learned its own


class StartEstimate(NamedTuple):
    """Seconds from now; the true start is in the range about eight times in ten, and as often before `likely` as after."""

    low: float
    likely: float
    high: float

    def delayed_by(self, seconds: float) -> StartEstimate:
        """Return the estimate for a document that is delayed for so long."""
        return StartEstimate(max(self.low, seconds), max(self.likely, seconds), self.high + seconds)


class Forecast(NamedTuple):
    """The seconds until a start by the model alone, and the seconds from one start to the next."""

    seconds: float
    gap: float

    def with_quantiles(self, quantiles: Sequence[float]) -> StartEstimate:
        """Return the range in which the start is, by the quantiles of log(true / estimated)."""
        slack = self.gap / 4  # so that a true start at once has a logarithm
        low, likely, high = (max(0.0, exp(quantile) * (self.seconds + slack) - slack) for quantile in quantiles)
        return StartEstimate(low, likely, high)


def estimate_ahead(before: int, others: int, other_lanes: int, own_before: int) -> int:
    """Estimate how many documents go first: all of lower priority numbers, and one of each other lane for each own turn."""
    return before + min(others, other_lanes * (own_before + 1)) + own_before


def forecast(ahead: int, priority: int, now: Totals, marks: Sequence[Totals] = ()) -> Forecast | None:
    """Forecast the start of a document with so many ahead; `marks` are earlier totals, oldest first. None: nobody knows."""
    first = Totals(0, (0,) * len(now.taken), (0,) * len(now.ready))
    made, least_ms = None, 0
    for horizon_ms in HORIZONS_MS:
        mark = next((mark for mark in reversed(marks) if mark.busy_ms <= now.busy_ms - horizon_ms), first)
        taken, span_ms = sum(now.taken) - sum(mark.taken), now.busy_ms - mark.busy_ms
        if span_ms <= 0 or taken < (1 if mark is first else TAKEN_MIN):
            continue
        passed = sum((*now.taken[: priority - 1], *now.ready[: priority - 1]))
        passed -= sum((*mark.taken[: priority - 1], *mark.ready[: priority - 1]))
        remaining = max(taken - passed, taken * (1 - PASSED_MAX)) if passed > 0 else taken
        wait_ms = max(least_ms, (ahead + 1) * span_ms / remaining)
        made = Forecast(wait_ms / 1000, span_ms / taken / 1000)
        if wait_ms <= span_ms or mark is first:
            break
        least_ms = span_ms  # it was more than that, whatever a longer horizon says
    return made
