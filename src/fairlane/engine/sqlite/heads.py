"""Lane heads in the order of turns and by age: of each kind the first, and of all kinds the best of those.

A kind is opened when its entry in the index of kinds may be the best, so a claim for all kinds opens about as many kinds as it
takes documents, however many there are. Its entry can become better when a lane of it is served, in either order, or drops out
because its customer reached its cap: `refresh` is called then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace
from typing import Any

import apsw

from fairlane.core.dispatch import KindSet

from .kinds import StoredKind, heads_in_turn
from .picked import PickedLanes
from .queries import sql
from .rows import LaneKey, LaneRow
from .transaction import Transaction

Entry = tuple[Any, ...]  # what kinds compare by, from the head's number on: customer and priority; or the kind's name


class _Heads(ABC):
    """The best head among some kinds, or among all; nothing is read before the first call."""

    def __init__(self, tx: Transaction, kinds: KindSet, picked: PickedLanes) -> None:
        self._tx = tx
        self._kinds = kinds
        self._picked = picked
        self._cursors: list[apsw.Cursor] = []
        self._closed: Iterator[Entry] | None = None  # kinds that were not opened yet, in order, each as (*entry, kind)
        self._next: Entry | None = None
        self._pending: set[str] = set()  # kinds to be refreshed by the first call
        self._opened: dict[str, Iterator[Entry]] = {}
        self._top: dict[str, Entry | None] = {}  # the current row of an opened kind
        self._rows_picked: dict[str, list[Entry]] = {}  # by kind, a heap of the rows of lanes that had a turn; may be stale
        self._row_picked: dict[LaneKey, Entry | None] = {}  # the row that such a lane has now
        self._best: list[Entry] = []  # heap of (*entry, kind) of opened kinds; may be stale
        self._entry_of: dict[str, Entry] = {}  # the newest entry of a kind there

    def first(self) -> LaneKey | None:
        """Return the lane whose head is the best."""
        if self._closed is None:
            self._closed = self._closed_kinds()
            self._next = next(self._closed, None)
            for kind in self._pending:
                self.refresh(kind)
        best = self._best
        while True:
            while self._next is not None and (not best or self._next < best[0]):
                self.refresh(self._next[-1])
                self._next = next(self._closed, None)
            if not best:
                return None
            kind = best[0][-1]
            if self._entry_of.get(kind) is not best[0]:
                heappop(best)
                continue
            row = None if self._tx.kinds.get(kind).blocked else self._first_of(kind)
            if row is None:
                heappop(best)
                del self._entry_of[kind]
            elif (entry := (*self._entry(row), kind)) != best[0]:
                self._entry_of[kind] = entry
                heapreplace(best, entry)
            else:
                return self._key(row, kind)

    def serve(self, lane: LaneRow) -> None:
        """Follow a lane that had a turn."""
        row = None if lane.head is None else self._row_of(lane)
        self._row_picked[lane.key()] = row
        if row is not None:
            heappush(self._rows_picked.setdefault(lane.kind, []), row)
        self.refresh(lane.kind)

    def refresh(self, kind: str) -> None:
        """Open a kind, or look again at its first head."""
        if self._kinds is not None and kind not in self._kinds:
            return
        if self._closed is None:
            self._pending.add(kind)
            return
        if kind not in self._opened:
            self._opened[kind] = self._rows(self._tx.kinds.get(kind))
            self._top[kind] = next(self._opened[kind], None)
        row = self._first_of(kind)
        if row is not None and (entry := (*self._entry(row), kind)) != self._entry_of.get(kind):
            self._entry_of[kind] = entry
            heappush(self._best, entry)

    def _closed_kinds(self) -> Iterator[Entry]:
        if self._kinds is None:
            cursor = self._tx.execute(self._of_all)
            self._cursors.append(cursor)
            return iter(cursor)
        entries = (self._tx.execute(self._of_one, (kind,)).fetchone() for kind in self._kinds)
        return iter(sorted(entry for entry in entries if entry is not None))

    def _first_of(self, kind: str) -> Entry | None:
        """Return the first row of an opened kind: that of the index, or of a lane that had a turn."""
        row, capped = self._top[kind], self._picked.capped
        while row is not None and self._is_stale(self._key(row, kind)):
            row = self._top[kind] = next(self._opened[kind], None)
        rows = self._rows_picked.get(kind)
        while rows:
            key = self._key(rows[0], kind)
            if key[0] not in capped and self._row_picked[key] is rows[0]:
                return rows[0] if row is None or rows[0] < row else row
            heappop(rows)
        return row

    def _is_stale(self, key: LaneKey) -> bool:
        """Return whether a row of the index must be skipped."""
        return key in self._row_picked or key[0] in self._picked.capped

    def _cursor(self, statement: str, kind: str) -> Iterator[Entry]:
        cursor = self._tx.execute(statement, (kind,))
        self._cursors.append(cursor)
        return iter(cursor)

    def close(self) -> None:
        for cursor in self._cursors:
            cursor.close()
        for rows in self._opened.values():
            if hasattr(rows, "close"):
                rows.close()

    _of_all: str  # statements that read the entries of all kinds, and of one
    _of_one: str

    @abstractmethod
    def _rows(self, kind: StoredKind) -> Iterator[Entry]:
        """Iterate over the heads of a kind in order."""

    @abstractmethod
    def _entry(self, row: Entry) -> Entry:
        """Return what a row is compared by with those of other kinds."""

    @abstractmethod
    def _key(self, row: Entry, kind: str) -> LaneKey:
        """Return the lane of a row."""

    @abstractmethod
    def _row_of(self, lane: LaneRow) -> Entry:
        """Return the row of a lane."""


class HeadsByTurn(_Heads):
    """Heads in the order of ordinary turns; a row is (priority, start tag, cross tag, number, customer)."""

    _of_all, _of_one = sql.kinds_in_turn, sql.kind_in_turn

    def _rows(self, kind: StoredKind) -> Iterator[Entry]:
        return self._cursor(sql.heads_by_turn, kind.kind) if kind.floors is None else heads_in_turn(self._tx.execute, kind)

    def _entry(self, row: Entry) -> Entry:
        return row[0], row[2], row[3]

    def _key(self, row: Entry, kind: str) -> LaneKey:
        return row[4], kind, row[0]

    def _row_of(self, lane: LaneRow) -> Entry:
        cross = self._tx.kinds.get(lane.kind).cross(lane.priority, lane.cross)
        return lane.priority, lane.start, cross, lane.head, lane.customer


class HeadsByAge(_Heads):
    """Heads by age, the longest ready first; a row is (ready since, number, customer, priority)."""

    _of_all, _of_one = sql.kinds_in_age, sql.kind_in_age

    def _rows(self, kind: StoredKind) -> Iterator[Entry]:
        return self._cursor(sql.heads_by_age, kind.kind)

    def _entry(self, row: Entry) -> Entry:
        return row[:2]

    def _key(self, row: Entry, kind: str) -> LaneKey:
        return row[2], kind, row[3]

    def _row_of(self, lane: LaneRow) -> Entry:
        return lane.head_ready_ms, lane.head, lane.customer, lane.priority
