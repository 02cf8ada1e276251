"""Pace: how fast documents of a kind come, from two marks that move with time."""

from __future__ import annotations

from typing import NamedTuple

PACE_MS = 60_000  # the pace is measured over one to two of these


class Pace(NamedTuple):
    """How fast documents were taken during the last one to two minutes, from two marks that move with time."""

    from_ms: int = 0
    from_dispatches: int = 0
    mid_ms: int = 0
    mid_dispatches: int = 0

    def advance(self, now_ms: int, dispatches: int) -> Pace:
        """Return the marks after a claim at this moment; `dispatches` is the number before it."""
        age_ms = now_ms - self.mid_ms
        if not 0 <= age_ms <= 2 * PACE_MS:
            return Pace(now_ms, dispatches, now_ms, dispatches)
        if age_ms > PACE_MS:
            return Pace(self.mid_ms, self.mid_dispatches, now_ms, dispatches)
        return self

    def recent(self, now_ms: int, dispatches: int) -> tuple[int, int]:
        """Return how many documents were taken, and in how many milliseconds; (0, 0) if none was taken lately."""
        if not 0 <= now_ms - self.mid_ms <= 2 * PACE_MS:
            return 0, 0
        return dispatches - self.from_dispatches, max(1, now_ms - self.from_ms)
