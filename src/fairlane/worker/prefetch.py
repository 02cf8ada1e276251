"""How many documents a worker may claim: what it can start at once, and a few hundredths of a second of work more.

Laws:
- Prefetching is bounded by time, not by a count: documents that wait here no longer take turns with those that arrive.
- It is AHEAD_SECONDS of work over all slots together, which hides the round trips to the store; of what waits here, better
  priorities begin first.
- Until a run time is known nothing is prefetched.
"""

from __future__ import annotations

AHEAD_SECONDS = 0.05
AHEAD_MAX = 400  # documents, however short they are
NEWEST_SHARE = 0.1  # weight of the newest run time in the moving mean


class Prefetch:
    """The moving mean of run times, and the number of claims that follows from it."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._mean_seconds: float | None = None

    def record(self, seconds: float) -> None:
        """Note how long a handler ran."""
        before = seconds if self._mean_seconds is None else self._mean_seconds
        self._mean_seconds = before + NEWEST_SHARE * (seconds - before)

    def ahead(self) -> int:
        """Return how many documents may wait here beyond those that run."""
        if self._mean_seconds is None:
            return 0
        return min(AHEAD_MAX, int(AHEAD_SECONDS / max(self._mean_seconds, 1e-6)))

    def room(self, unfinished: int) -> int:
        """Return how many more a worker with so many unfinished documents may claim."""
        return max(0, self._slots + self.ahead() - unfinished)
