"""When will a waiting document start? A range that holds about eight true starts in ten, from what a store can tell at once.

The model: `ahead + 1` documents at the pace at which documents were taken lately, times factors that were found by asking
about documents in the simulator's workloads and looking when they really started (`python -m bench ranges`).

Laws:
- Plain arithmetic on an outlook: no clock, no store, no chance. Nothing can be expected where no pace was seen.
- 0 <= low <= likely <= high; more documents ahead never make any of them smaller.
- The pace is itself a range: few documents make it vague; a queue that has waited for a shorter time than the pace was
  measured over may have been idle before, so that it is faster; in the first minute after a silence of two, workers that
  take their first documents at once, or take one every few minutes, make it look faster than it is.
"""

from __future__ import annotations

from itertools import pairwise
from math import exp, log2, sqrt
from typing import NamedTuple

from .dispatch import PACE_MS
from .document import Outlook

# Documents to be taken, this one included: by how much low, likely and high differ from that many at the pace. A few are a
# matter of chance; of many it is sure that others come and pass; with thousands, the pace has time to change.
FACTORS = (
    (1, 0.04, 0.35, 1.15),
    (2, 0.10, 0.55, 1.20),
    (4, 0.20, 0.75, 1.40),
    (8, 0.45, 1.00, 1.65),
    (16, 0.70, 1.15, 1.95),
    (32, 0.85, 1.25, 2.25),
    (64, 0.92, 1.30, 2.35),
    (1024, 0.92, 1.25, 2.35),
    (4096, 0.75, 1.15, 2.20),
)
VAGUE = 0.6  # how much a pace of few documents widens the range: exp(VAGUE / sqrt(documents)) on either side
BUSY_LEAST = 1 / 16  # what is likely takes the queue to have been busy for this share of the time, or longer


class StartEstimate(NamedTuple):
    """Seconds from now; the true start is in the range about eight times in ten, and as often before `likely` as after."""

    low: float
    likely: float
    high: float

    def delayed_by(self, seconds: float) -> StartEstimate:
        """The same for a document that is held back for so long."""
        return StartEstimate(max(self.low, seconds), max(self.likely, seconds), self.high + seconds)


def estimate_start(outlook: Outlook) -> StartEstimate | None:
    """When a document with this outlook will start; None if that cannot be known."""
    if outlook.blocked or not outlook.dispatches:
        return None
    span_ms, documents = outlook.dispatches_span_ms, outlook.ahead + 1
    busy_ms = 0 if outlook.oldest_ready_ms is None else min(max(outlook.now_ms - outlook.oldest_ready_ms, 0), span_ms)
    middle_ms = sqrt(max(busy_ms, span_ms * BUSY_LEAST) * span_ms)  # all taken since it is busy, or evenly
    silence_ms = 2 * PACE_MS * max(0, 1 - span_ms / PACE_MS) / sqrt(outlook.dispatches)
    vague = exp(VAGUE / sqrt(outlook.dispatches))
    low, likely, high = (factor * documents / outlook.dispatches / 1000 for factor in interpolate_factors(documents))
    return StartEstimate(low * busy_ms / vague, likely * middle_ms, high * (span_ms + silence_ms) * vague)


def interpolate_factors(documents: int) -> tuple[float, float, float]:
    """What FACTORS says, with straight lines between its rows over the logarithm of documents."""
    for (fewer, *before), (more, *after) in pairwise(FACTORS):
        if documents < more:
            part = log2(documents / fewer) / log2(more / fewer)
            low, likely, high = (one + part * (other - one) for one, other in zip(before, after, strict=True))
            return low, likely, high
    return FACTORS[-1][1:]
