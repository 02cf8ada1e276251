"""How many documents a worker may claim: what it can start at once, and a few hundredths of a second of work more.

Laws:
- Prefetching is bounded by time, not by a count: documents that wait here no longer take turns with those that arrive, and
  their customers pay for the time.
- It is AHEAD_SECONDS of work over all slots together, as if each document took as long as the longest one lately; that hides
  the round trips to the store. Where some documents take long, nothing waits here behind them.
- Of what waits here, better priorities begin first.
- Until a run time is known nothing is prefetched, and after a document was split in no time nothing behind its parts.
"""

from __future__ import annotations

from math import exp

AHEAD_SECONDS = 0.05
AHEAD_MAX = 400  # documents, however short they are
FORGET_SECONDS = 30.0  # of running, in each slot, until a long run time counts a third


class Prefetch:
    """The longest run time lately, and the number of claims that follows from it."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._longest_seconds: float | None = None

    def record(self, seconds: float) -> None:
        """Note how long a handler ran."""
        before = self._longest_seconds or 0.0
        self._longest_seconds = max(seconds, before * exp(-seconds / (FORGET_SECONDS * self._slots)))

    def expect_parts(self) -> None:
        """Note that a document was split: its parts will take longer than splitting it did."""
        self.record(AHEAD_SECONDS * 1.5)

    def ahead(self) -> int:
        """Return how many documents may wait here beyond those that run."""
        if self._longest_seconds is None:
            return 0
        return min(AHEAD_MAX, int(AHEAD_SECONDS / max(self._longest_seconds, 1e-6)))

    def room(self, unfinished: int) -> int:
        """Return how many more a worker with so many unfinished documents may claim."""
        return max(0, self._slots + self.ahead() - unfinished)
