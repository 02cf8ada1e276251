"""How many documents may a worker hold? What it can start at once, and about 30 ms of work more.

Laws:
- Reading ahead is bounded by time, not by a count: documents that wait here no longer take turns with those that arrive.
- Until a run time is known nothing is read ahead.
"""

from __future__ import annotations

AHEAD_SECONDS = 0.03  # of work, over all slots together; long enough to hide a commit, short enough for priorities to hold
AHEAD_MAX = 400  # however short documents are
SHARE = 0.1  # of the newest run time in the moving mean


class Pace:
    """A moving mean of run times, and what follows from it."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._mean_seconds: float | None = None

    def ran(self, seconds: float) -> None:
        """A handler took that long."""
        before = seconds if self._mean_seconds is None else self._mean_seconds
        self._mean_seconds = before + SHARE * (seconds - before)

    def ahead(self) -> int:
        """How many documents may wait here beyond those that run."""
        if self._mean_seconds is None:
            return 0
        return min(AHEAD_MAX, int(AHEAD_SECONDS / max(self._mean_seconds, AHEAD_SECONDS / AHEAD_MAX)))

    def room(self, held: int) -> int:
        """How many more may be claimed by a worker that holds so many."""
        return max(0, self._slots + self.ahead() - held)
