"""Prioritize and reprioritize: waiting documents of a queue in a file get another priority."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.core.document import NO_CHECK, WAITING, DocumentRow
from fairlane.engine.codec import encode_check, encode_priority_change
from fairlane.engine.protocol import Reprioritized

from .queries import sql
from .read import decode_document
from .rows import LaneRow
from .settle import change_lane, check_again
from .transaction import Transaction


def prioritize(tx: Transaction, ids: Sequence[str], priority: int, by: str, now_ms: int) -> list[str]:
    """Set the priority of waiting documents by hand; return the ids of those that wait."""
    tx.flush_documents()
    rows = [row for id in ids if (row := tx.execute(sql.read_snapshot, (id,)).fetchone())]
    waiting = [document for document in map(decode_document, rows) if document.state in WAITING]
    seen: set[str] = set()
    for document in waiting:
        if document.id not in seen and (document.priority, document.is_set_by_hand) != (priority, True):
            _change_priority(tx, document, priority, by, now_ms)
        seen.add(document.id)
    return [document.id for document in waiting]


def _change_priority(tx: Transaction, document: DocumentRow, priority: int, by: str | None, now_ms: int) -> None:
    """Move a waiting document to the lane of another priority."""
    tx.execute(sql.write_priority_of_document, (priority, by is not None or document.is_set_by_hand, document.number))
    _move(tx, document, priority)
    note = encode_priority_change(document.priority, priority, by)
    tx.log(now_ms, "prioritized", tx.customer(document.customer).number, document.number, document.token, note)


def _move(tx: Transaction, document: DocumentRow, priority: int) -> None:
    """Take a waiting document from the lane of its priority to that of another one."""
    lane = _leave(tx, document)
    _join(tx, document, change_lane(tx, lane, priority, document))


def _leave(tx: Transaction, document: DocumentRow) -> LaneRow:
    lane = tx.lane(tx.customer(document.customer).number, document.kind, document.priority)
    lane.waiting -= 1
    if document.state == "ready":
        tx.leave_lane(lane, document.number)
    return lane


def _join(tx: Transaction, document: DocumentRow, lane: LaneRow) -> None:
    lane.waiting += 1
    if document.state == "ready":
        tx.join_lane(lane, document.number, document.ready_ms)


def reprioritize(tx: Transaction, customer_id: str, after: int, limit: int, recheck: bool, now_ms: int) -> Reprioritized:
    """Give waiting documents of a customer the priority that they would have now."""
    tx.flush_documents()
    customer = tx.find_customer(customer_id)
    if customer is None:
        return Reprioritized(0, None)
    rows = tx.execute(sql.waiting_documents, (customer.number, after, limit + 1)).fetchall()
    waiting = [decode_document(row) for row in rows]
    changed = sum(
        _reprioritize(tx, document, row[-1], recheck, now_ms) for document, row in zip(waiting[:limit], rows, strict=False)
    )
    return Reprioritized(changed, waiting[limit - 1].number if len(waiting) > limit else None)


def _reprioritize(tx: Transaction, document: DocumentRow, resets: int, recheck: bool, now_ms: int) -> bool:
    customer = tx.customer(document.customer).number
    if recheck and resets != NO_CHECK:
        lane = _leave(tx, document)
        check, priority = check_again(tx, document, now_ms)
        _join(tx, document, change_lane(tx, lane, priority, document))
        note = encode_check(check, document.cost, document.check)
        tx.log(now_ms, "rechecked", customer, document.number, document.token, note)
        return priority != document.priority
    if recheck or document.is_set_by_hand:
        return False
    level = tx.terms(customer).terms.policy(tx.rules.policy).level(document.check.counter_thousandths)
    priority = max(level, document.no_better_than or 1)
    if priority != document.priority:
        _change_priority(tx, document, priority, None, now_ms)
    return priority != document.priority
