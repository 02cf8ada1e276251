"""Who is served next? The dispatch order read lazily from the index of lane heads.

Nothing is written while a round picks: the heads come from open cursors, lanes that were already served in this round from
a small heap beside them, and the better of the two is taken. So a claim reads in proportion to what it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush, merge

import apsw

from fairlane.core.dispatch import is_open_turn, pay_turn
from fairlane.core.document import ATTEMPTS_DEFAULT, Claim
from fairlane.core.policy import step_of
from fairlane.engine.protocol import DUE_MAX

from .queries import sql
from .rows import Lane, competing_kinds
from .transaction import Transaction

LaneName = tuple[int, str, int]  # customer, kind, priority


def claim(tx: Transaction, worker: str, limit: int, lease_ms: int, kinds: Mapping[str, int] | None, now_ms: int) -> list[Claim]:
    """Up to `limit` documents in dispatch order."""
    tx.flush_documents()
    ready_what_is_due(tx, now_ms)
    tx.flush()
    wanted = competing_kinds(tx.execute) if kinds is None else list(kinds)
    dispatches_before = tx.dispatches
    picks = _Round(tx, wanted)
    taken: list[tuple[Lane, Claim]] = []
    while len(taken) < limit and (lane := picks.next()) is not None:
        taken.append((lane, _take(tx, picks, lane, now_ms + lease_ms, kinds)))
    picks.close()
    if taken:
        tx.pace = tx.pace.advance(now_ms, dispatches_before)
        _write(tx, taken, picks, worker, now_ms)
    return [one for _, one in taken]


def ready_what_is_due(tx: Transaction, now_ms: int) -> None:
    """Delayed documents whose time has come take their place."""
    for number, customer, kind, priority, ready_ms in tx.execute(sql.due_documents, (now_ms, DUE_MAX)).fetchall():
        tx.execute(sql.ready_document, (number,))
        tx.join_lane(tx.lane(customer, kind, priority), number, ready_ms)


def _take(tx: Transaction, picks: _Round, lane: Lane, lease_ms: int, kinds: Mapping[str, int] | None) -> Claim:
    number = lane.head
    assert number is not None
    id, customer_id, cost, token, attempts, payload = tx.execute(sql.read_for_claim, (number,)).fetchone()
    turn, is_open = tx.dispatches, picks.is_open
    picks.pay(lane, step_of(cost, tx.own_terms(lane.customer).terms.weight_thousandths))
    attempts_max = ATTEMPTS_DEFAULT if kinds is None else kinds[lane.kind]
    return Claim(
        id, token + 1, number, customer_id, lane.kind, lane.priority, payload, attempts + 1, attempts_max, lease_ms, turn,
        is_open,
    )  # fmt: skip


def _write(tx: Transaction, taken: list[tuple[Lane, Claim]], picks: _Round, worker: str, now_ms: int) -> None:
    """The states of the claimed documents, and the lanes of customers that reached their cap."""
    tx.executemany(
        sql.start_document,
        [(one.token, one.attempts, one.attempts_max, worker, one.lease_ms, one.number) for _, one in taken],
    )
    tx.executemany(sql.leave_lane, [(*lane.name(), one.number) for lane, one in taken])
    for lane, one in taken:
        tx.log(now_ms, "claimed", lane.customer, one.number, one.token, worker)
    for customer in picks.capped:
        tx.gate(customer)


class _Round:
    """The turns of one claim, before anything is written."""

    def __init__(self, tx: Transaction, kinds: Iterable[str]) -> None:
        self.tx = tx
        self.is_open = False
        self.capped: set[int] = set()
        self._kinds = list(kinds)
        self._served: dict[LaneName, Lane] = {}  # lanes that had a turn in this round
        self._behind: dict[LaneName, _Behind] = {}  # what follows in them
        self._again: list[tuple[int, int, int, int, str]] = []  # heap of their next heads, as heads_by_turn gives them
        self._cursors: list[apsw.Cursor] = []
        self._turns = self._stream(sql.heads_by_turn)
        self._turn = next(self._turns, None)
        self._opens: Iterator[tuple[int, int, int, str, int]] | None = None
        self._open: tuple[int, int, int, str, int] | None = None

    def _stream(self, statement: str) -> Iterator[tuple[int, int, int, int, str]]:
        cursors = [self.tx.execute(statement, (kind,)) for kind in self._kinds]
        self._cursors += cursors
        return iter(cursors[0]) if len(cursors) == 1 else merge(*cursors)

    def next(self) -> Lane | None:
        """The lane whose head is served next; counts the dispatch."""
        rules = self.tx.rules
        self.is_open = rules.dispatch == "fair" and is_open_turn(self.tx.dispatches + 1, rules.open_turn_every)
        name = self._longest_ready() if self.is_open else self._first_in_turn()
        if name is None:
            return None
        self.tx.dispatches += 1
        return self._served.get(name) or self.tx.lane(*name)

    def _first_in_turn(self) -> LaneName | None:
        while self._turn is not None and self._is_out(self._turn[3], self._turn[4], self._turn[0]):
            self._turn = next(self._turns, None)
        while self._again and not self._is_next(*self._again[0]):
            heappop(self._again)
        if self._turn is None and not self._again:
            return None
        if self._turn is None or (self._again and self._again[0] < self._turn):
            priority, _, _, customer, kind = self._again[0]
        else:
            priority, _, _, customer, kind = self._turn
        return customer, kind, priority

    def _longest_ready(self) -> LaneName | None:
        if self._opens is None:
            self._opens = self._stream(sql.heads_by_age)  # type: ignore[assignment]
            assert self._opens is not None
            self._open = next(self._opens, None)
        while self._open is not None and self._is_out(*self._open[2:]):
            self._open = next(self._opens, None)
        heads = [
            (lane.head_ready_ms or 0, lane.head, lane.customer, lane.kind, lane.priority)
            for lane in self._served.values()
            if lane.head is not None and lane.customer not in self.capped
        ]
        best = min([*heads, self._open] if self._open is not None else heads, default=None)
        return None if best is None else best[2:]

    def _is_out(self, customer: int, kind: str, priority: int) -> bool:
        """Whether a head of the index is out of date: its lane was served in this round, or may not be."""
        return (customer, kind, priority) in self._served or customer in self.capped

    def _is_next(self, priority: int, start: int, head: int, customer: int, kind: str) -> bool:
        lane = self._served[customer, kind, priority]
        return lane.head == head and lane.start == start and customer not in self.capped

    def pay(self, lane: Lane, step: int) -> None:
        """The lane's turn is paid for, its next head moves up, and the customer may reach its cap."""
        name = lane.name()
        row = self.tx.priority(lane.priority)
        assert lane.start is not None
        row.clock, lane.finish, start = pay_turn(self.tx.rules.dispatch, row.clock, lane.start, lane.finish, step)
        row.ready -= 1
        if name not in self._served:
            self._served[name] = lane
            self._behind[name] = _Behind(self.tx, lane)
        lane.head, lane.head_ready_ms = self._behind[name].next()
        lane.start = None if lane.head is None else start
        if lane.head is None:
            row.lanes -= 1
        else:
            heappush(self._again, (lane.priority, start, lane.head, lane.customer, lane.kind))
        lane.waiting -= 1
        lane.running += 1
        if self.tx.is_blocked(lane.customer):
            self.capped.add(lane.customer)

    def close(self) -> None:
        """Let go of the cursors before anything is written."""
        for cursor in self._cursors:
            cursor.close()


class _Behind:
    """What follows in a lane: one document first, as most lanes are served once in a round, then more and more at once."""

    def __init__(self, tx: Transaction, lane: Lane) -> None:
        self._tx = tx
        self._name = lane.name()
        self._last = lane.head
        self._rows: list[tuple[int, int]] = []
        self._size = 1

    def next(self) -> tuple[int, int] | tuple[None, None]:
        """The next document's number and since when it is ready."""
        if not self._rows:
            self._rows = self._tx.execute(sql.next_in_lane, (*self._name, self._last, self._size)).fetchall()
            self._rows.reverse()
            self._size *= 8
        if not self._rows:
            return None, None
        self._last, ready_ms = self._rows.pop()
        return self._last, ready_ms
