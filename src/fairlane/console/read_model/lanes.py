"""Who waits in a priority? How many of whom, the biggest first, and since when the longest.

Laws:
- The biggest are exact. All customers are looked at only when those remembered, and those that moved since, may not be enough.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, nlargest
from typing import Any

from .customers import Row

TOP = 12
REMEMBERED = 100
MOVED_MAX = 2000


class Followed:
    """A document that has not ended."""

    __slots__ = ("id", "is_starved", "number", "priority", "ready_ms", "row", "since_ms", "sort", "state", "worker")

    def __init__(self, id: str, number: int, row: Row, priority: int, ready_ms: int) -> None:
        self.id = id
        self.number = number
        self.row = row
        self.priority = priority
        self.ready_ms = ready_ms
        self.state = ""  # ready, delayed or running; empty: not known yet, or ended
        self.sort = ""  # light, heavy or neither
        self.since_ms = 0
        self.worker = ""
        self.is_starved = False

    def __lt__(self, other: Followed) -> bool:  # a heap may hold a document twice, with the same time
        return self.number < other.number


class Lane:
    """What is ready in one priority."""

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.ready = 0
        self.running = 0
        self._counts: dict[Row, int] = {}
        self._heads: list[tuple[int, int, Followed]] = []  # heap by when they became ready; some may have left
        self._remembered: set[Row] = set()
        self._floor = 0  # no customer that is not remembered has more, unless it moved
        self._moved: set[Row] = set()

    def hold(self, one: Followed) -> None:
        """A document was read and is ready, in whatever order: `held` puts all of them in theirs."""
        self.ready += 1
        self._counts[one.row] = self._counts.get(one.row, 0) + 1
        self._heads.append((one.ready_ms, one.number, one))

    def held(self) -> None:
        """This is what was read, so far."""
        heapify(self._heads)
        self._look_at_all()

    def add(self, one: Followed) -> None:
        """A document is ready."""
        self.ready += 1
        self._counts[one.row] = self._counts.get(one.row, 0) + 1
        self._moved.add(one.row)
        heappush(self._heads, (one.ready_ms, one.number, one))

    def remove(self, one: Followed) -> None:
        """A document is ready no more."""
        self.ready -= 1
        left = self._counts[one.row] - 1
        if left:
            self._counts[one.row] = left
        else:
            del self._counts[one.row]
        if len(self._heads) > 1000 and len(self._heads) > 4 * self.ready:  # most have left: make it anew
            self._heads = sorted(head for head in self._heads if is_head(head))

    def oldest_ms(self) -> int | None:
        """Since when the longest is ready; None: nothing is."""
        heads = self._heads
        while heads and not is_head(heads[0]):
            heappop(heads)
        return heads[0][0] if heads else None

    def top(self) -> list[tuple[Row, int]]:
        """The customers with most documents ready, the biggest first."""
        counts = self._counts
        if len(self._moved) > MOVED_MAX:
            self._look_at_all()
        while True:
            known = [(row, counts[row]) for row in self._remembered | self._moved if row in counts]
            best = sorted(nlargest(TOP, known, key=lambda one: one[1]), key=lambda one: (-one[1], one[0].customer))
            if not self._floor or (len(best) == TOP and best[-1][1] >= self._floor):
                return best
            self._look_at_all()

    def _look_at_all(self) -> None:
        best = nlargest(REMEMBERED, self._counts.items(), key=lambda one: one[1])
        self._remembered = {row for row, _ in best}
        self._floor = best[-1][1] if len(best) == REMEMBERED and len(self._counts) > REMEMBERED else 0
        self._moved = set()

    def told(self, now_ms: int) -> dict[str, Any]:
        """As a frame tells it."""
        top = self.top()
        oldest_ms = self.oldest_ms()
        shown = sum(count for _, count in top)
        return {
            "priority": self.priority,
            "ready": self.ready,
            "running": self.running,
            "oldest_wait": None if oldest_ms is None else max(0, now_ms - oldest_ms) / 1000,
            "top": [{"customer": row.customer, "ready": count} for row, count in top],
            "others": {"customers": len(self._counts) - len(top), "ready": self.ready - shown},
        }


def is_head(head: tuple[int, int, Followed]) -> bool:
    """Whether a document is still ready since then."""
    return head[2].state == "ready" and head[2].ready_ms == head[0]
