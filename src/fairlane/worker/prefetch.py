"""How many documents may a worker hold? What it can start at once, and a few hundredths of a second of work more.

Laws:
- Reading ahead is bounded by time, not by a count: documents that wait here no longer take turns with those that arrive.
- It is AHEAD_SECONDS of work over all slots together, which hides the visits to the store; of what waits here, better
  priorities begin first.
- Until a run time is known nothing is read ahead.
"""

from __future__ import annotations

AHEAD_SECONDS = 0.05
AHEAD_MAX = 400  # documents, however short they are
SHARE = 0.1  # of the newest value in a moving mean


class Pace:
    """The moving mean of run times, and what follows from it."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._run_seconds: float | None = None

    def ran(self, seconds: float) -> None:
        """A handler took that long."""
        before = seconds if self._run_seconds is None else self._run_seconds
        self._run_seconds = before + SHARE * (seconds - before)

    def ahead(self) -> int:
        """How many documents may wait here beyond those that run."""
        if self._run_seconds is None:
            return 0
        return min(AHEAD_MAX, int(AHEAD_SECONDS / max(self._run_seconds, 1e-6)))

    def room(self, held: int) -> int:
        """How many more may be claimed by a worker that holds so many."""
        return max(0, self._slots + self.ahead() - held)
