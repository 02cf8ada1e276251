"""Claim: documents in dispatch order, read lazily from the indexes of kinds and of lane heads.

Nothing is written while turns are picked: the heads come from open cursors, lanes that already had a turn in this claim from
a small heap beside them, and the better of the two is taken. So a claim reads in proportion to what it takes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from fairlane.core.dispatch import USUAL_FIRST, KindSet, is_open_turn, kind_set, pay_turn, turn_price
from fairlane.core.document import ATTEMPTS_DEFAULT, Claim
from fairlane.core.policy import step_of, weight_of
from fairlane.engine.protocol import DUE_MAX

from .heads import HeadsByAge, HeadsByTurn
from .kinds import is_blocked_now
from .picked import PickedLanes
from .queries import sql
from .rows import LaneRow
from .transaction import Transaction


class _Taken(NamedTuple):
    """A document that was picked, and what is written of it."""

    lane: LaneRow
    claim: Claim
    paid: int | None


def claim(tx: Transaction, worker: str, limit: int, lease_ms: int, kinds: Mapping[str, int] | None, now_ms: int) -> list[Claim]:
    """Claim up to `limit` documents in dispatch order."""
    tx.flush_documents()
    _ready_due_documents(tx, now_ms)
    for kind in tx.kinds.limited():
        tx.update_kind(kind, now_ms)  # its bucket may have refilled
    tx.flush()
    _count_busy_time(tx, now_ms)
    picker = _TurnPicker(tx, kind_set(kinds), now_ms)
    taken: list[_Taken] = []
    while len(taken) < limit and (lane := picker.next()) is not None:
        attempts_max = ATTEMPTS_DEFAULT if kinds is None else kinds[lane.kind]
        taken.append(picker.take(lane, attempts_max, now_ms + lease_ms))
    picker.close()
    if taken:
        _write(tx, taken, worker, now_ms)
        picker.finish()
    return [each.claim for each in taken]


def _ready_due_documents(tx: Transaction, now_ms: int) -> None:
    """Put delayed documents that are due into their lanes."""
    for number, customer, kind, priority, ready_ms in tx.execute(sql.read_due_documents, (now_ms, DUE_MAX)).fetchall():
        tx.execute(sql.ready_document, (number,))
        tx.join_lane(tx.lane(customer, kind, priority), number, ready_ms)


def _count_busy_time(tx: Transaction, now_ms: int) -> None:
    """Count the time since the last claim during which something could have been taken."""
    row = tx.execute(sql.kinds_in_age).fetchone()
    if row is not None:
        tx.busy_ms += max(0, now_ms - max(tx.ticked_ms, row[0]))
        tx.ticked_ms = max(tx.ticked_ms, now_ms)


def _write(tx: Transaction, taken: list[_Taken], worker: str, now_ms: int) -> None:
    """Write the new states of the claimed documents, and take them out of their lanes."""
    tx.executemany(
        sql.start_document,
        [
            (claim.token, claim.attempts, claim.attempts_max, worker, claim.lease_ms, now_ms, paid, claim.number)
            for _, claim, paid in taken
        ],
    )
    tx.executemany(sql.leave_lane, [(*lane.key(), claim.number) for lane, claim, _ in taken])
    for lane, claim, _ in taken:
        tx.log(now_ms, "claimed", lane.customer, claim.number, claim.token, worker)


class _TurnPicker:
    """Picks the turns of one claim, before anything is written."""

    def __init__(self, tx: Transaction, kinds: KindSet, now_ms: int) -> None:
        self._tx = tx
        self._now_ms = now_ms
        self._picked = PickedLanes(tx)
        self._by_turn = HeadsByTurn(tx, kinds, self._picked)
        self._by_age = HeadsByAge(tx, kinds, self._picked)
        self._set = json.dumps(kinds)
        row = tx.execute(sql.read_dispatches, (self._set,)).fetchone()
        self._dispatches: int = row[0] if row else 0
        self._is_open = False

    def next(self) -> LaneRow | None:
        """Return the lane whose head is served next."""
        rules = self._tx.rules
        self._is_open = rules.dispatch == "fair" and is_open_turn(self._dispatches + 1, rules.open_turn_every)
        key = (self._by_age if self._is_open else self._by_turn).first()
        return None if key is None else self._picked.lane(key)

    def take(self, lane: LaneRow, attempts_max: int, lease_ms: int) -> _Taken:
        """Take the head of a lane, charge the lane for its turn, and count the dispatch."""
        tx, number = self._tx, lane.head
        assert number is not None
        id, customer_id, cost, token, attempts, ready_ms, payload = tx.execute(sql.read_for_claim, (number,)).fetchone()
        self._dispatches += 1
        if self._now_ms > ready_ms:
            tx.priority(lane.priority).taken += 1
        paid = self._pay(lane, cost)
        self._picked.advance(lane)
        self._count(lane)
        self._by_turn.serve(lane)
        self._by_age.serve(lane)
        claim = Claim(
            id, token + 1, number, customer_id, lane.kind, lane.priority, payload, attempts + 1, attempts_max, lease_ms,
            self._dispatches, self._is_open,
        )  # fmt: skip
        return _Taken(lane, claim, paid)

    def _pay(self, lane: LaneRow, cost: int) -> int | None:
        """Charge a lane for its turn; return what it paid, if that is trued up when the attempt ends."""
        tx = self._tx
        if tx.rules.dispatch == "strict":
            return None
        assert lane.start is not None
        kind, row, weight = tx.kinds.get(lane.kind), tx.priority(lane.priority), weight_of(tx.terms(lane.customer).terms)
        usual = next((each for each in (tx.usuals.get(lane.customer), tx.usual_of_all) if each is not None), USUAL_FIRST)
        price = turn_price(tx.rules.turns, step_of(cost, weight), usual, weight)
        clock, cross = kind.clocks[lane.priority - 1], kind.cross(lane.priority, lane.cross)
        kind.clocks[lane.priority - 1], row.clock, lane.finish, lane.cross_finish, is_paid = pay_turn(
            clock, row.clock, lane.start, cross, price, self._is_open
        )
        lane.start, lane.cross = lane.finish, lane.cross_finish
        return price if is_paid and tx.rules.turns == "time" else None

    def _count(self, lane: LaneRow) -> None:
        """Count what runs; note when the customer reaches its cap or the kind its limit."""
        lane.waiting -= 1
        lane.running += 1
        if self._tx.is_blocked(lane.customer):
            self._picked.capped.add(lane.customer)
            for kind_name in {each.kind for each in self._tx.all_lanes(lane.customer) if each.head is not None}:
                self._by_turn.refresh(kind_name)
        kind = self._tx.kinds.get(lane.kind)
        if kind.is_limited:
            kind.running += 1
            kind.bucket = kind.bucket.take(kind.limit, self._now_ms)
            kind.blocked = is_blocked_now(kind, self._now_ms)

    def close(self) -> None:
        """Close the cursors: nothing may be written to the indexes while they are open."""
        self._by_turn.close()
        self._by_age.close()

    def finish(self) -> None:
        """Write the count of dispatches, and take the lanes of customers at their cap out of the competition."""
        self._tx.execute(sql.write_dispatches, (self._set, self._dispatches))
        for customer in self._picked.capped:
            self._tx.update_block(customer)
