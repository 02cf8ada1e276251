"""Pack and unpack: how a queue in a file is moved to another store, or comes from one.

A customer's counts are the sums over its lanes. Documents that ended in another store are counted in a lane of no kind, which
never has a document: the other engines do not say in which lane they were.
"""

from __future__ import annotations

from typing import Any

from fairlane.core.document import WAITING, DocumentRow, Record
from fairlane.core.policy import TIME_MAX_MS
from fairlane.engine.codec import encode_rules
from fairlane.engine.protocol import Packed, PackedCustomer, PackedDocument, PackedLane, PackedQueue
from fairlane.engine.transfer import next_cursor, parse_cursor

from .queries import Execute, sql
from .read import decode_document
from .rows import StoredCustomer, TermsRow, read_rules, read_terms
from .transaction import Transaction

NO_KIND = ""


def pack(execute: Execute, cursor: str | None, limit: int) -> Packed:
    """Pack one page of rows from a cursor on."""
    part, after = parse_cursor(cursor)
    match part:
        case "queue":
            return Packed(next_cursor(part, [], limit), _pack_queue(execute))
        case "customers":
            rows = execute(sql.read_customers, (after or "", limit)).fetchall()
            customers = tuple(_pack_customer(execute, StoredCustomer(*row)) for row in rows)
            return Packed(next_cursor(part, [customer.id for customer in customers], limit), customers=customers)
        case "documents":
            rows = execute(sql.pack_documents, (after or 0, limit)).fetchall()
            documents = tuple(_pack_document(row) for row in rows)
            return Packed(next_cursor(part, [document.snapshot.number for document in documents], limit), documents=documents)
        case "lanes":
            lanes = [PackedLane(*row) for row in execute(sql.pack_lanes, (*(after or ("", "", 0)), limit)).fetchall()]
            return Packed(next_cursor(part, [lane[:3] for lane in lanes], limit), lanes=tuple(lanes))
        case _:
            records = [Record(*row) for row in execute(sql.pack_records, (*(after or ("", "")), limit)).fetchall()]
            return Packed(next_cursor(part, [record[:2] for record in records], limit), records=tuple(records))


def _pack_queue(execute: Execute) -> PackedQueue:
    dispatches, last_number, last_change, _, last_record, *_ = execute(sql.read_queue).fetchone()
    clocks = tuple(clock for (clock,) in execute(sql.pack_clocks).fetchall())
    return PackedQueue(read_rules(execute), clocks, dispatches, last_number, last_change, last_record)


def _pack_customer(execute: Execute, customer: StoredCustomer) -> PackedCustomer:
    _, _, done, failed, cancelled, *_ = execute(sql.count_documents, (customer.number,)).fetchone()
    version, terms = read_terms(execute, customer.number)
    return PackedCustomer(customer.id, customer.standing, terms, version, done, failed, cancelled)


def _pack_document(row: tuple[Any, ...]) -> PackedDocument:
    *snapshot, weight, resets, digest, payload, result, root, descendants = row
    return PackedDocument(decode_document(tuple(snapshot)), digest, weight, resets, payload, result, root, descendants)


def unpack(tx: Transaction, packed: Packed) -> None:
    """Write a page that was packed elsewhere; rows that already exist stay as they are."""
    if packed.queue is not None:
        _unpack_queue(tx, packed.queue)
    for customer in packed.customers:
        _unpack_customer(tx, customer)
    for document in packed.documents:
        _unpack_document(tx, document)
    for packed_lane in packed.lanes:
        lane = tx.lane(tx.customer(packed_lane.customer).number, packed_lane.kind, packed_lane.priority)
        lane.start, lane.finish = (None if lane.head is None else packed_lane.start), packed_lane.finish
    for record in packed.records:
        tx.execute(sql.write_record, record)


def _unpack_queue(tx: Transaction, queue: PackedQueue) -> None:
    tx.execute(sql.delete_rules)
    tx.execute(sql.add_rules, (queue.rules.version, 0, encode_rules(queue.rules)))
    tx.rules = queue.rules
    tx.flush()
    tx.execute(sql.trim_changes, (TIME_MAX_MS,))
    for priority, clock in enumerate(queue.clocks, start=1):
        tx.priority(priority).clock = clock
    tx.dispatches, tx.last_number, tx.last_record = queue.dispatches, queue.last_number, queue.last_record
    tx.last_change = tx.changes_floor = queue.last_change


def _unpack_customer(tx: Transaction, packed: PackedCustomer) -> None:
    customer = tx.customer(packed.id)
    customer.standing, customer.busy_most = packed.standing, None
    tx.mark_changed(customer)
    if packed.terms_version and tx.terms(customer.number).version == 0:
        tx.add_terms(customer.number, TermsRow(packed.terms_version, packed.terms), 0)
    lane = tx.lane(customer.number, NO_KIND, 1)
    lane.done, lane.failed, lane.cancelled = packed.done, packed.failed, packed.cancelled


def _unpack_document(tx: Transaction, packed: PackedDocument) -> None:
    document = packed.snapshot
    if tx.execute(sql.read_snapshot, (document.id,)).fetchone() is not None:
        return
    customer = tx.customer(document.customer).number
    tx.execute(sql.unpack_document, _document_row(document, customer, packed))
    tx.execute(sql.add_payload, (document.number, packed.payload))
    if packed.result is not None:
        tx.execute(sql.add_result, (document.number, packed.result))
    if document.key is not None:
        tx.execute(sql.add_key, (customer, document.key, document.number, packed.digest))
    if packed.descendants:
        tx.execute(sql.unpack_family, (document.number if packed.root is None else packed.root, packed.descendants))
    lane = tx.lane(customer, document.kind, document.priority)
    lane.documents += 1
    lane.bytes += document.bytes
    if document.state in WAITING:
        lane.waiting += 1
        if document.state == "ready":
            tx.join_lane(lane, document.number, document.ready_ms)


def _document_row(document: DocumentRow, customer: int, packed: PackedDocument) -> tuple[object, ...]:
    check = document.check._replace(checked_ms=document.submitted_ms)
    return (
        document.number, document.id, customer, document.customer, document.kind, document.state, *check[1:], packed.weight,
        packed.resets, *document[6:18], document.check.checked_ms, packed.root,
    )  # fmt: skip
