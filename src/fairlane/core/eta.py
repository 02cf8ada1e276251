"""Start estimates: when a waiting document will start, as a range that holds about eight true starts in ten.

The model: `ahead + 1` documents at the pace at which documents were taken lately, times factors. The factors were fitted to
the simulator's workloads: estimates were made there for waiting documents and compared with their true starts
(`python -m bench ranges`).

Laws:
- Plain arithmetic on an outlook: no clock, no store, no randomness. Without a pace there is no estimate.
- 0 <= low <= likely <= high; more documents ahead never make any of them smaller.
- The pace is itself a range. Few documents make it uncertain. A queue that has waited for less time than the pace was
  measured over may have been idle before, and then it is faster than its pace. In the first minute after two minutes of
  silence it may be slower, because workers claim their first documents all at once.
"""

from __future__ import annotations

from itertools import pairwise
from math import exp, log2, sqrt
from typing import NamedTuple

from .document import Outlook

PACE_MS = 60_000  # the pace is measured over one to two of these

# Documents to be taken, this one included: factors for low, likely and high. Few documents are a matter of chance; among
# many, newcomers certainly pass; among thousands, the pace has time to change.
FACTORS = (
    (1, 0.04, 0.35, 1.15), (2, 0.10, 0.55, 1.20), (4, 0.20, 0.75, 1.40),
    (8, 0.45, 1.00, 1.65), (16, 0.70, 1.15, 1.95), (32, 0.85, 1.25, 2.25),
    (64, 0.92, 1.30, 2.35), (1024, 0.92, 1.25, 2.35), (4096, 0.75, 1.15, 2.20),
)  # fmt: skip
UNCERTAINTY = 0.6  # a pace of few documents widens the range by exp(UNCERTAINTY / sqrt(documents)) on either side
BUSY_SHARE_MIN = 1 / 16  # for `likely`: the queue was busy for at least this share of the measured time


class StartEstimate(NamedTuple):
    """Seconds from now; the true start is in the range about eight times in ten, and as often before `likely` as after."""

    low: float
    likely: float
    high: float

    def delayed_by(self, seconds: float) -> StartEstimate:
        """Return the estimate for a document that is delayed for so long."""
        return StartEstimate(max(self.low, seconds), max(self.likely, seconds), self.high + seconds)


def estimate_start(outlook: Outlook) -> StartEstimate | None:
    """Estimate when a document with this outlook will start; None if that cannot be known."""
    if outlook.blocked or not outlook.dispatches:
        return None
    span_ms, documents = outlook.dispatches_span_ms, outlook.ahead + 1
    busy_ms = 0 if outlook.oldest_ready_ms is None else min(max(outlook.now_ms - outlook.oldest_ready_ms, 0), span_ms)
    middle_ms = sqrt(max(busy_ms, span_ms * BUSY_SHARE_MIN) * span_ms)  # between "all taken while busy" and "evenly"
    silence_ms = 2 * PACE_MS * max(0, 1 - span_ms / PACE_MS) / sqrt(outlook.dispatches)
    spread = exp(UNCERTAINTY / sqrt(outlook.dispatches))
    low, likely, high = (factor * documents / outlook.dispatches / 1000 for factor in interpolate_factors(documents))
    return StartEstimate(low * busy_ms / spread, likely * middle_ms, high * (span_ms + silence_ms) * spread)


def interpolate_factors(documents: int) -> tuple[float, float, float]:
    """Return the factors for that many documents, linear between the rows of FACTORS over the logarithm of documents."""
    for (fewer, *before), (more, *after) in pairwise(FACTORS):
        if documents < more:
            share = log2(documents / fewer) / log2(more / fewer)
            low, likely, high = (start + share * (end - start) for start, end in zip(before, after, strict=True))
            return low, likely, high
    return FACTORS[-1][1:]
