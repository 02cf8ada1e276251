"""Calibration of start estimates: the range around a forecast, from what the queue's own past forecasts were off by.

Laws:
- Plain arithmetic: no clock, no store, no randomness. What is learned is a help: without any, or if its text is damaged, the
  range is that of the prior, QUANTILES.
- The range has no fixed confidence level: two levels for each group of priorities follow the share of starts that were missed
  below and above it (adaptive conformal inference), so that in the long run it misses a tenth on each side, whatever comes.
- Its size is bounded: SCORES_MAX scores for each group, and marks that lie further apart the older they are.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from math import exp, log, log2
from typing import Any, NamedTuple

from fairlane.core.document import Outlook, Totals
from fairlane.core.eta import HORIZONS_MS, QUANTILES, Forecast, StartEstimate, forecast
from fairlane.core.policy import LEVELS_MAX

MISS = 0.1  # the share of starts that shall be below the range, and above it
LOW_LEVELS, HIGH_LEVELS = (0.004, 0.3), (0.7, 0.996)  # how far the levels may move
LEARNING_RATE, LEARNING_WEIGHT_MAX = 0.01, 3.0
SCORES_MAX = 300  # for each group
PRIOR_WEIGHTS = (0.8, 1.4, 0.8)  # of the prior's quantiles, in scores: it fades as scores come
DEPTH_SCALE = 1.5  # a score weighs less by e for each so many doublings of the number ahead
ERROR_MAX = 12.0  # a start that is further off counts as this far: a factor of 160,000
WEIGHT_MAX = 100.0
MARK_SPACING = 8  # marks of an age lie at most that age / 8 apart
THOUSANDTHS = 1000
NO_SCORES: tuple[list[int], ...] = ([],) * 3


class Score(NamedTuple):
    """What one forecast was off by."""

    depth: float  # log2(ahead + 1)
    error: float  # log(true / forecast)
    weight: float


class PriorityGroup(NamedTuple):
    """The last scores of some priorities, and the levels of the range's ends."""

    scores: tuple[Score, ...] = ()
    low_level: float = MISS
    high_level: float = 1 - MISS

    def quantiles(self, depth: float) -> tuple[float, float, float]:
        """Return the low, middle and high quantile of the error; scores of about as many ahead weigh more."""
        weighted = [(score.error, score.weight * exp(-abs(score.depth - depth) / DEPTH_SCALE)) for score in self.scores]
        unit = self._mean_weight()
        weighted += [(error, weight * unit) for error, weight in zip(QUANTILES, PRIOR_WEIGHTS, strict=True)]
        weighted.sort()
        sums = list(accumulate(weight for _, weight in weighted))
        low, middle, high = (
            weighted[min(bisect_left(sums, level * sums[-1]), len(sums) - 1)][0]
            for level in (self.low_level, 0.5, self.high_level)
        )
        return low, middle, high

    def learn(self, score: Score, low: float, high: float) -> PriorityGroup:
        """Return the group after a start, for which these quantiles were given."""
        scores = (*self.scores, score)[-SCORES_MAX:]
        grown = self._replace(scores=scores)
        step = LEARNING_RATE * min(LEARNING_WEIGHT_MAX, score.weight / grown._mean_weight())
        low_level = self.low_level + step * (MISS - (score.error < low))
        high_level = self.high_level - step * (MISS - (score.error > high))
        return grown._replace(low_level=_clamp(low_level, LOW_LEVELS), high_level=_clamp(high_level, HIGH_LEVELS))

    def _mean_weight(self) -> float:
        return sum(score.weight for score in self.scores) / len(self.scores) if self.scores else 1.0


class Calibration(NamedTuple):
    """Earlier totals of the queue, oldest first, and what was learned for priority 1, for 2 to 8 and for 9."""

    marks: tuple[Totals, ...] = ()
    groups: tuple[PriorityGroup, ...] = (PriorityGroup(),) * 3

    def forecast(self, outlook: Outlook) -> Forecast | None:
        """Forecast by the model alone when a document will start; None: it is held, or nothing was ever taken."""
        return None if outlook.hold else forecast(outlook.ahead, outlook.priority, outlook.totals, self.marks)

    def quantiles(self, outlook: Outlook) -> tuple[float, float, float]:
        """Return the quantiles of the forecast's error."""
        return self.groups[group_of(outlook.priority)].quantiles(log2(outlook.ahead + 1))

    def estimate(self, outlook: Outlook) -> StartEstimate | None:
        """Estimate when a document will start; None: nobody knows."""
        made = self.forecast(outlook)
        return None if made is None else made.with_quantiles(self.quantiles(outlook))

    def learn(self, group: int, score: Score, low: float, high: float) -> Calibration:
        """Return the calibration after a start, for which these quantiles were given."""
        learned = self.groups[group].learn(score, low, high)
        return self._replace(groups=(*self.groups[:group], learned, *self.groups[group + 1 :]))

    def mark(self, now: Totals) -> Calibration:
        """Return the calibration with a mark at these totals, if the last one is long enough ago; old ones are thinned out."""
        marks = [mark for mark in self.marks if _is_before(mark, now)]  # a restored store may be behind its marks
        if not marks or now.busy_ms - marks[-1].busy_ms >= HORIZONS_MS[0] // MARK_SPACING:
            marks.append(now)
        return self._replace(marks=tuple(_thin(marks, now.busy_ms)))

    def encode(self) -> str:
        """Return it as JSON text, in whole numbers."""
        groups = [
            [
                [round(level * 10**6) for level in (group.low_level, group.high_level)],
                *([round(number * THOUSANDTHS) for number in column] for column in zip(*group.scores, strict=True)),
            ]
            for group in self.groups
        ]
        return json.dumps({"marks": self.marks, "groups": groups}, separators=(",", ":"))


@lru_cache(maxsize=8)
def decode_calibration(text: str | None) -> Calibration:
    """Parse what `encode` returned; anything else is as if nothing had been learned."""
    try:
        value = json.loads(text or "")
        marks = tuple(_decode_mark(mark) for mark in value["marks"])
        first, second, third = (_decode_group(group) for group in value["groups"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return Calibration()
    is_ordered = all(_is_before(mark, later) for mark, later in pairwise(marks))
    return Calibration(marks, (first, second, third)) if is_ordered else Calibration()


def group_of(priority: int) -> int:
    """Return the index of a priority's group."""
    return 0 if priority == 1 else 2 if priority == LEVELS_MAX else 1


def score_of(made: Forecast, ahead: int, true_seconds: float, weight: float) -> Score:
    """Score a forecast by the true start."""
    slack = made.gap / 4
    error = log((max(0.0, true_seconds) + slack) / (made.seconds + slack))
    return Score(log2(ahead + 1), _clamp(error, (-ERROR_MAX, ERROR_MAX)), _clamp(weight, (1 / THOUSANDTHS, WEIGHT_MAX)))


def whole_numbers(values: Iterable[Any], count: int | None = None) -> list[int]:
    """Return values of a record that must be whole numbers; raise ValueError if they are not."""
    numbers = list(values)
    if set(map(type, numbers)) - {int} or count not in (None, len(numbers)) or max(map(abs, numbers), default=0) > 10**15:
        raise ValueError("damaged")
    return numbers


def _clamp(value: float, bounds: tuple[float, float]) -> float:
    return min(bounds[1], max(bounds[0], value))


def _is_before(mark: Totals, now: Totals) -> bool:
    return mark.busy_ms <= now.busy_ms and all(before <= taken for before, taken in zip(mark.taken, now.taken, strict=True))


def _thin(marks: Sequence[Totals], busy_ms: int) -> list[Totals]:
    """Drop marks that are closer together than their age needs, and those older than the longest horizon, but one."""
    kept: list[Totals] = []
    for mark, later in zip(marks, [*marks[1:], None], strict=True):
        if later is not None and busy_ms - later.busy_ms >= HORIZONS_MS[-1]:
            continue
        spacing_ms = (busy_ms - kept[-1].busy_ms) // MARK_SPACING if kept else 0
        if later is None or not kept or later.busy_ms - kept[-1].busy_ms > spacing_ms:
            kept.append(mark)
    return kept


def _decode_group(value: Any) -> PriorityGroup:
    levels, *columns = value
    low_level, high_level = (level / 10**6 for level in whole_numbers(levels))
    depths, errors, weights = ([number / THOUSANDTHS for number in whole_numbers(column)] for column in (columns or NO_SCORES))
    if depths and not (min(depths) >= 0 and max(depths) <= 64 and max(map(abs, errors)) <= ERROR_MAX):
        raise ValueError("damaged")
    if weights and not 0 < min(weights) <= max(weights) <= WEIGHT_MAX:
        raise ValueError("damaged")
    scores = tuple(map(Score._make, zip(depths, errors, weights, strict=True)))
    return PriorityGroup(scores[-SCORES_MAX:], _clamp(low_level, LOW_LEVELS), _clamp(high_level, HIGH_LEVELS))


def _decode_mark(value: Any) -> Totals:
    busy_ms, taken, ready = value
    (busy_ms,) = whole_numbers([busy_ms])
    mark = Totals(busy_ms, tuple(whole_numbers(taken, LEVELS_MAX)), tuple(whole_numbers(ready, LEVELS_MAX)))
    if min(mark.busy_ms, *mark.taken, *mark.ready) < 0:
        raise ValueError("damaged")
    return mark
