"""The lanes that had a turn in a claim, as they are before anything is written."""

from __future__ import annotations

from .queries import sql
from .rows import LaneKey, LaneRow
from .transaction import Transaction


class PickedLanes:
    """Lanes that had a turn, and customers that reached their cap; indexes still have both as they were before."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self.capped: set[int] = set()
        self._lanes: dict[LaneKey, LaneRow] = {}
        self._readers: dict[LaneKey, _LaneReader] = {}  # the documents behind the heads of those lanes

    def lane(self, key: LaneKey) -> LaneRow:
        return self._lanes.get(key) or self._tx.lane(*key)

    def advance(self, lane: LaneRow) -> None:
        """Advance a lane that had a turn to its next head."""
        key, row = lane.key(), self._tx.priority(lane.priority)
        row.ready -= 1
        if key not in self._lanes:
            self._lanes[key] = lane
            self._readers[key] = _LaneReader(self._tx, lane)
        lane.head, lane.head_ready_ms = self._readers[key].next()
        if lane.head is None:
            lane.start = None
            row.lanes -= 1


class _LaneReader:
    """Reads the documents behind a lane's head: one first, as most lanes have one turn in a claim, then eight times more."""

    def __init__(self, tx: Transaction, lane: LaneRow) -> None:
        self._tx = tx
        self._key = lane.key()
        self._last = lane.head
        self._rows: list[tuple[int, int]] = []
        self._size = 1

    def next(self) -> tuple[int, int] | tuple[None, None]:
        """Return the next document's number and since when it is ready."""
        if not self._rows:
            self._rows = self._tx.execute(sql.next_in_lane, (*self._key, self._last, self._size)).fetchall()
            self._rows.reverse()
            self._size *= 8
        if not self._rows:
            return None, None
        self._last, ready_ms = self._rows.pop()
        return self._last, ready_ms
