"""How does a queue leave its file for another store, or come into one?

A customer's counts are the sums over its lanes. What has ended elsewhere is counted in a lane of no kind, which never has a
document: no other engine says in which lane it was.
"""

from __future__ import annotations

from typing import Any

from fairlane.core.document import CheckRow, DocumentRow, Record
from fairlane.core.policy import TIME_MAX_MS, Standing
from fairlane.engine.codec import encode_rules
from fairlane.engine.protocol import Packed, PackedCustomer, PackedDocument, PackedLane, PackedQueue
from fairlane.engine.transfer import next_cursor, parse_cursor

from .queries import Execute, sql
from .read import document_of
from .rows import OwnTerms, current_rules, own_terms
from .transaction import Transaction

NO_KIND = ""


def pack(execute: Execute, cursor: str | None, limit: int) -> Packed:
    """Some rows from a cursor on."""
    part, after = parse_cursor(cursor)
    match part:
        case "queue":
            return Packed(next_cursor(part, [], limit), _queue(execute))
        case "customers":
            customers = [_customer(execute, *row) for row in execute(sql.accounts_after, (after or "", limit)).fetchall()]
            return Packed(next_cursor(part, [one.id for one in customers], limit), customers=tuple(customers))
        case "documents":
            documents = [_document(row) for row in execute(sql.pack_documents, (after or 0, limit)).fetchall()]
            return Packed(next_cursor(part, [one.snapshot.number for one in documents], limit), documents=tuple(documents))
        case "lanes":
            lanes = [PackedLane(*row) for row in execute(sql.pack_lanes, (*(after or ("", "", 0)), limit)).fetchall()]
            return Packed(next_cursor(part, [lane[:3] for lane in lanes], limit), lanes=tuple(lanes))
        case _:
            records = [Record(*row) for row in execute(sql.pack_records, (*(after or ("", "")), limit)).fetchall()]
            return Packed(next_cursor(part, [one[:2] for one in records], limit), records=tuple(records))


def _queue(execute: Execute) -> PackedQueue:
    dispatches, last_number, last_change, _, last_record, *_ = execute(sql.read_queue).fetchone()
    clocks = tuple(clock for (clock,) in execute(sql.pack_clocks).fetchall())
    return PackedQueue(current_rules(execute), clocks, dispatches, last_number, last_change, last_record)


def _customer(execute: Execute, number: int, id: str, *standing: int) -> PackedCustomer:
    _, _, done, failed, cancelled, _ = execute(sql.counts_of, (number,)).fetchone()
    version, terms = own_terms(execute, number)
    return PackedCustomer(id, Standing(*standing), terms, version, done, failed, cancelled)


def _document(row: tuple[Any, ...]) -> PackedDocument:
    *snapshot, weight, resets, digest, payload, result = row
    return PackedDocument(document_of(tuple(snapshot)), digest, weight, resets, payload, result)


def unpack(tx: Transaction, packed: Packed) -> None:
    """Write what was packed elsewhere; rows that are already there stay."""
    if packed.queue is not None:
        _unpack_queue(tx, packed.queue)
    for customer in packed.customers:
        _unpack_customer(tx, customer)
    for document in packed.documents:
        _unpack_document(tx, document)
    for one in packed.lanes:
        lane = tx.lane(tx.account(one.customer).number, one.kind, one.priority)
        lane.start, lane.finish = (None if lane.head is None else one.start), one.finish
    for record in packed.records:
        tx.execute(sql.put_record, record)


def _unpack_queue(tx: Transaction, queue: PackedQueue) -> None:
    tx.execute(sql.drop_rules)
    tx.execute(sql.add_rules, (queue.rules.version, 0, encode_rules(queue.rules)))
    tx.rules = queue.rules
    tx.flush()
    tx.execute(sql.trim_changes, (TIME_MAX_MS,))
    for priority, clock in enumerate(queue.clocks, start=1):
        tx.priority(priority).clock = clock
    tx.dispatches, tx.last_number, tx.last_record = queue.dispatches, queue.last_number, queue.last_record
    tx.last_change = tx.changes_floor = queue.last_change


def _unpack_customer(tx: Transaction, customer: PackedCustomer) -> None:
    account = tx.account(customer.id)
    account.standing = customer.standing
    tx.account_changed(account)
    if customer.terms_version and tx.own_terms(account.number).version == 0:
        tx.set_terms(account.number, OwnTerms(customer.terms_version, customer.terms), 0)
    lane = tx.lane(account.number, NO_KIND, 1)
    lane.done, lane.failed, lane.cancelled = customer.done, customer.failed, customer.cancelled


def _unpack_document(tx: Transaction, packed: PackedDocument) -> None:
    told = packed.snapshot
    if tx.execute(sql.one_document, (told.id,)).fetchone() is not None:
        return
    customer = tx.account(told.customer).number
    tx.execute(sql.unpack_document, _document_row(told, customer, packed))
    tx.execute(sql.add_payload, (told.number, packed.payload))
    if packed.result is not None:
        tx.execute(sql.add_result, (told.number, packed.result))
    if told.key is not None:
        tx.execute(sql.add_key, (customer, told.key, told.number, packed.digest))
    if told.state in ("ready", "delayed"):
        lane = tx.lane(customer, told.kind, told.priority)
        lane.waiting += 1
        if told.state == "ready":
            tx.join_lane(lane, told.number, told.ready_ms)


def _document_row(told: DocumentRow, customer: int, packed: PackedDocument) -> tuple[object, ...]:
    check: CheckRow = told.check
    return (
        told.number, told.id, customer, told.customer, told.kind, told.state, check.priority, check.counter_thousandths,
        check.checked_ms, check.policy_version, check.terms_version, packed.weight, packed.resets, told.cost, told.key,
        told.ready_ms, told.attempts, told.attempts_max, told.token, told.worker, told.lease_ms, told.ended_ms, told.reason,
    )  # fmt: skip
