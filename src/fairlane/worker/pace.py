"""How many documents may a worker hold? What it can start at once, and a few hundredths of a second of work more.

Laws:
- Reading ahead is bounded by time, not by a count: documents that wait here no longer take turns with those that arrive.
- It is as long as hides the visits to the store, so that no slot waits for one, and at most AHEAD_SECONDS_MAX of work over
  all slots together.
- Until a run time is known nothing is read ahead.
"""

from __future__ import annotations

AHEAD_SECONDS_LEAST, AHEAD_SECONDS_MAX = 0.03, 0.05
AHEAD_MAX = 400  # documents, however short they are
VISITS = 2  # to hide: one that is under way when a slot runs dry, and the next
SHARE = 0.1  # of the newest value in a moving mean


class Pace:
    """Moving means of run times and of visits to the store, and what follows from them."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._run_seconds: float | None = None
        self._visit_seconds = 0.0

    def ran(self, seconds: float) -> None:
        """A handler took that long."""
        before = seconds if self._run_seconds is None else self._run_seconds
        self._run_seconds = before + SHARE * (seconds - before)

    def visited(self, seconds: float) -> None:
        """A visit to the store took that long."""
        self._visit_seconds += SHARE * (seconds - self._visit_seconds)

    def ahead(self) -> int:
        """How many documents may wait here beyond those that run."""
        if self._run_seconds is None:
            return 0
        hiding = VISITS * self._slots * self._visit_seconds
        seconds = min(AHEAD_SECONDS_MAX, max(AHEAD_SECONDS_LEAST, hiding))
        return min(AHEAD_MAX, int(seconds / max(self._run_seconds, 1e-6)))

    def room(self, held: int) -> int:
        """How many more may be claimed by a worker that holds so many."""
        return max(0, self._slots + self.ahead() - held)
