"""How fast tasks finish, and how many may wait beyond those that run: a few hundredths of a second of work.

That hides the way through the store and the broker while tasks are short. Where they take long, nothing waits.
"""

from __future__ import annotations

import time

AHEAD_SECONDS = 0.05
AHEAD_MAX = 400
SAMPLE_SECONDS = 0.25  # in which finished tasks are counted


class FinishRate:
    """The rate at which tasks finish, over the last second or so."""

    def __init__(self) -> None:
        self.rate = 0.0  # tasks a second
        self._finished = 0
        self._sampled_at = time.monotonic()

    def finished(self, count: int, now: float) -> None:
        """Note that so many tasks have finished."""
        self._finished += count
        if (seconds := now - self._sampled_at) >= SAMPLE_SECONDS:
            self.rate = (self.rate + self._finished / seconds) / 2
            self._finished, self._sampled_at = 0, now

    def ahead(self) -> int:
        """Return how many tasks may wait."""
        return min(AHEAD_MAX, int(self.rate * AHEAD_SECONDS))
