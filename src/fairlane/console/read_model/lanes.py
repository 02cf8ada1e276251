"""The ready documents of one priority: how many of which customer, the biggest first, and the oldest of them.

Laws:
- The biggest are exact. All customers are scanned only when the remembered ones, and those that moved since, may not suffice.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, nlargest
from typing import Any

from .customers import CustomerRow

TOP = 12
REMEMBERED = 100
MOVED_MAX = 2000


class LiveDocument:
    """A document that has not ended."""

    __slots__ = (
        "id", "is_set_by_hand", "is_starved", "number", "priority", "ready_ms", "row", "sender_class", "since_ms", "state",
        "worker",
    )  # fmt: skip

    def __init__(self, id: str, number: int, row: CustomerRow, priority: int, ready_ms: int) -> None:
        self.id = id
        self.number = number
        self.row = row
        self.priority = priority
        self.ready_ms = ready_ms
        self.state = ""  # ready, delayed or running; empty: not known yet, or ended
        self.sender_class = ""  # light, heavy or neither
        self.since_ms = 0
        self.worker = ""
        self.is_starved = False
        self.is_set_by_hand = False  # an operator set its priority

    def __lt__(self, other: LiveDocument) -> bool:  # a heap may hold a document twice, with the same time
        return self.number < other.number


class LaneCounts:
    """The counts of one priority."""

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.ready = 0
        self.running = 0
        self._counts: dict[CustomerRow, int] = {}
        self._heap: list[tuple[int, int, LiveDocument]] = []  # by when they became ready; some may have left the lane
        self._remembered: set[CustomerRow] = set()
        self._floor = 0  # customers that are not remembered have at most this many, unless they moved
        self._moved: set[CustomerRow] = set()

    def load(self, document: LiveDocument) -> None:
        """Add a ready document while the store is read, in any order; `finish_loading` sorts them."""
        self.ready += 1
        self._counts[document.row] = self._counts.get(document.row, 0) + 1
        self._heap.append((document.ready_ms, document.number, document))

    def finish_loading(self) -> None:
        """Put in order what was loaded, all or so far."""
        heapify(self._heap)
        self._rescan()

    def add(self, document: LiveDocument) -> None:
        """Add a document that became ready."""
        self.ready += 1
        self._counts[document.row] = self._counts.get(document.row, 0) + 1
        self._moved.add(document.row)
        heappush(self._heap, (document.ready_ms, document.number, document))

    def remove(self, document: LiveDocument) -> None:
        """Remove a document that is no longer ready."""
        self.ready -= 1
        left = self._counts[document.row] - 1
        if left:
            self._counts[document.row] = left
        else:
            del self._counts[document.row]
        if len(self._heap) > 1000 and len(self._heap) > 4 * self.ready:  # most have left the lane: drop them
            self._heap = sorted(entry for entry in self._heap if self._is_current(entry))

    def oldest_ms(self) -> int | None:
        """Return when the document that is ready longest became ready; None if there is none."""
        heap = self._heap
        while heap and not self._is_current(heap[0]):
            heappop(heap)
        return heap[0][0] if heap else None

    def _is_current(self, entry: tuple[int, int, LiveDocument]) -> bool:
        """Return whether a document is still ready since the time of its entry, and in this lane."""
        ready_ms, _, document = entry
        return document.state == "ready" and document.ready_ms == ready_ms and document.priority == self.priority

    def top(self) -> list[tuple[CustomerRow, int]]:
        """Return the customers with most documents ready, the biggest first."""
        counts = self._counts
        if len(self._moved) > MOVED_MAX:
            self._rescan()
        while True:
            candidates = [(row, counts[row]) for row in self._remembered | self._moved if row in counts]
            biggest = nlargest(TOP, candidates, key=lambda entry: entry[1])
            if not self._floor or (len(biggest) == TOP and biggest[-1][1] >= self._floor):
                return sorted(biggest, key=lambda entry: (-entry[1], entry[0].customer))
            self._rescan()

    def _rescan(self) -> None:
        biggest = nlargest(REMEMBERED, self._counts.items(), key=lambda entry: entry[1])
        self._remembered = {row for row, _ in biggest}
        self._floor = biggest[-1][1] if len(biggest) == REMEMBERED and len(self._counts) > REMEMBERED else 0
        self._moved = set()

    def as_json(self, now_ms: int) -> dict[str, Any]:
        """Return the lane as a frame shows it."""
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
