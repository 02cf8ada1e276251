"""Claim: documents in dispatch order, read lazily from the index of lane heads.

Nothing is written while turns are picked: the heads come from open cursors, lanes that already had a turn in this claim from
a small heap beside them, and the better of the two is taken. So a claim reads in proportion to what it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush, merge

import apsw

from fairlane.core.dispatch import is_open_turn, pay_turn
from fairlane.core.document import ATTEMPTS_DEFAULT, Claim
from fairlane.core.policy import step_of, weight_of
from fairlane.engine.protocol import DUE_MAX

from .queries import sql
from .rows import LaneKey, LaneRow
from .transaction import Transaction


def claim(tx: Transaction, worker: str, limit: int, lease_ms: int, kinds: Mapping[str, int] | None, now_ms: int) -> list[Claim]:
    """Claim up to `limit` documents in dispatch order."""
    tx.flush_documents()
    _ready_due_documents(tx, now_ms)
    tx.flush()
    dispatches_before = tx.dispatches
    picker = _TurnPicker(tx, kinds)
    claimed: list[tuple[LaneRow, Claim]] = []
    while len(claimed) < limit and (lane := picker.next()) is not None:
        claimed.append((lane, _claim_head(tx, picker, lane, now_ms + lease_ms, kinds)))
    picker.close()
    if claimed:
        tx.pace = tx.pace.advance(now_ms, dispatches_before)
        _write(tx, claimed, worker, now_ms)
        for customer in picker.capped:
            tx.update_block(customer)
    return [claim for _, claim in claimed]


def _ready_due_documents(tx: Transaction, now_ms: int) -> None:
    """Put delayed documents that are due into their lanes."""
    for number, customer, kind, priority, ready_ms in tx.execute(sql.read_due_documents, (now_ms, DUE_MAX)).fetchall():
        tx.execute(sql.ready_document, (number,))
        tx.join_lane(tx.lane(customer, kind, priority), number, ready_ms)


def _claim_head(tx: Transaction, picker: _TurnPicker, lane: LaneRow, lease_ms: int, kinds: Mapping[str, int] | None) -> Claim:
    number = lane.head
    assert number is not None
    id, customer_id, cost, token, attempts, payload = tx.execute(sql.read_for_claim, (number,)).fetchone()
    turn, is_open = tx.dispatches, picker.is_open
    picker.pay(lane, step_of(cost, weight_of(tx.terms(lane.customer).terms)))
    attempts_max = ATTEMPTS_DEFAULT if kinds is None else kinds[lane.kind]
    return Claim(
        id, token + 1, number, customer_id, lane.kind, lane.priority, payload, attempts + 1, attempts_max, lease_ms, turn,
        is_open,
    )  # fmt: skip


def _write(tx: Transaction, claimed: list[tuple[LaneRow, Claim]], worker: str, now_ms: int) -> None:
    """Write the new states of the claimed documents, and take them out of their lanes."""
    tx.executemany(
        sql.start_document,
        [(claim.token, claim.attempts, claim.attempts_max, worker, claim.lease_ms, claim.number) for _, claim in claimed],
    )
    tx.executemany(sql.leave_lane, [(*lane.key(), claim.number) for lane, claim in claimed])
    for lane, claim in claimed:
        tx.log(now_ms, "claimed", lane.customer, claim.number, claim.token, worker)


class _TurnPicker:
    """Picks the turns of one claim, before anything is written."""

    def __init__(self, tx: Transaction, kinds: Iterable[str] | None) -> None:
        self.tx = tx
        self.is_open = False
        self.capped: set[int] = set()  # customers that reached their cap
        self._kinds = None if kinds is None else list(kinds)
        self._served: dict[LaneKey, LaneRow] = {}  # lanes that had a turn
        self._followers: dict[LaneKey, _LaneReader] = {}  # the documents behind the heads of those lanes
        self._served_heads: list[tuple[int, int, int, int, str]] = []  # heap of their next heads, as heads_by_turn has them
        self._cursors: list[apsw.Cursor] = []
        self._turns = self._open_cursors(sql.heads_by_turn, sql.heads_by_turn_of_all)
        self._turn = next(self._turns, None)
        self._oldest_heads: Iterator[tuple[int, int, int, str, int]] | None = None
        self._oldest: tuple[int, int, int, str, int] | None = None

    def _open_cursors(self, statement: str, statement_of_all: str) -> Iterator[tuple[int, int, int, int, str]]:
        if self._kinds is None:
            cursors = [self.tx.execute(statement_of_all)]
        else:
            cursors = [self.tx.execute(statement, (kind,)) for kind in self._kinds]
        self._cursors += cursors
        return iter(cursors[0]) if len(cursors) == 1 else merge(*cursors)

    def next(self) -> LaneRow | None:
        """Return the lane whose head is served next, and count the dispatch."""
        rules = self.tx.rules
        self.is_open = rules.dispatch == "fair" and is_open_turn(self.tx.dispatches + 1, rules.open_turn_every)
        key = self._longest_ready() if self.is_open else self._first_in_turn()
        if key is None:
            return None
        self.tx.dispatches += 1
        return self._served.get(key) or self.tx.lane(*key)

    def _first_in_turn(self) -> LaneKey | None:
        while self._turn is not None and self._is_stale(self._turn[3], self._turn[4], self._turn[0]):
            self._turn = next(self._turns, None)
        while self._served_heads and not self._is_current(*self._served_heads[0]):
            heappop(self._served_heads)
        if self._turn is None and not self._served_heads:
            return None
        if self._turn is None or (self._served_heads and self._served_heads[0] < self._turn):
            priority, _, _, customer, kind = self._served_heads[0]
        else:
            priority, _, _, customer, kind = self._turn
        return customer, kind, priority

    def _longest_ready(self) -> LaneKey | None:
        if self._oldest_heads is None:
            self._oldest_heads = self._open_cursors(sql.heads_by_age, sql.heads_by_age_of_all)  # type: ignore[assignment]
            assert self._oldest_heads is not None
            self._oldest = next(self._oldest_heads, None)
        while self._oldest is not None and self._is_stale(*self._oldest[2:]):
            self._oldest = next(self._oldest_heads, None)
        heads = [
            (lane.head_ready_ms or 0, lane.head, lane.customer, lane.kind, lane.priority)
            for lane in self._served.values()
            if lane.head is not None and lane.customer not in self.capped
        ]
        best = min([*heads, self._oldest] if self._oldest is not None else heads, default=None)
        return None if best is None else best[2:]

    def _is_stale(self, customer: int, kind: str, priority: int) -> bool:
        """Return whether a head of the index must be skipped: its lane had a turn here, or its customer is at its cap."""
        return (customer, kind, priority) in self._served or customer in self.capped

    def _is_current(self, priority: int, start: int, head: int, customer: int, kind: str) -> bool:
        lane = self._served[customer, kind, priority]
        return lane.head == head and lane.start == start and customer not in self.capped

    def pay(self, lane: LaneRow, step: int) -> None:
        """Charge the lane for its turn and advance it to its next head; note when the customer reaches its cap."""
        key = lane.key()
        row = self.tx.priority(lane.priority)
        assert lane.start is not None
        row.clock, lane.finish, start = pay_turn(self.tx.rules.dispatch, row.clock, lane.start, lane.finish, step)
        row.ready -= 1
        if key not in self._served:
            self._served[key] = lane
            self._followers[key] = _LaneReader(self.tx, lane)
        lane.head, lane.head_ready_ms = self._followers[key].next()
        lane.start = None if lane.head is None else start
        if lane.head is None:
            row.lanes -= 1
        else:
            heappush(self._served_heads, (lane.priority, start, lane.head, lane.customer, lane.kind))
        lane.waiting -= 1
        lane.running += 1
        if self.tx.is_blocked(lane.customer):
            self.capped.add(lane.customer)

    def close(self) -> None:
        """Close the cursors: nothing may be written to the index while they are open."""
        for cursor in self._cursors:
            cursor.close()


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
