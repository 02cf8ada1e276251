"""Pack and unpack: how a queue in a file is moved to another store, or comes from one.

A customer's counts are the sums over its lanes. Documents that ended in another store are counted in a lane of no kind, which
never has a document: the other engines do not say in which lane they were.
"""

from __future__ import annotations

import json
from typing import Any

from fairlane.core.dispatch import KindSet
from fairlane.core.document import WAITING, DocumentRow, Record
from fairlane.core.policy import TIME_MAX_MS
from fairlane.engine.codec import encode_rules
from fairlane.engine.protocol import Packed, PackedCustomer, PackedDocument, PackedKind, PackedLane, PackedQueue
from fairlane.engine.transfer import next_cursor, parse_cursor

from .kinds import StoredKind, encode_limit, read_kind
from .queries import Execute, sql
from .read import decode_document, totals
from .rows import StoredCustomer, TermsRow, read_rules, read_terms
from .transaction import Transaction
from .usual import read_usual

NO_KIND = ""


def pack(execute: Execute, cursor: str | None, limit: int) -> Packed:
    """Pack one page of rows from a cursor on."""
    part, after = parse_cursor(cursor)
    match part:
        case "queue":
            return Packed(next_cursor(part, [], limit), _pack_queue(execute))
        case "kinds":
            names = [name for (name,) in execute(sql.pack_kinds, (after or "", limit))]
            return Packed(next_cursor(part, names, limit), kinds=tuple(_pack_kind(read_kind(execute, name)) for name in names))
        case "customers":
            rows = execute(sql.read_customers, (after or "", limit)).fetchall()
            customers = tuple(_pack_customer(execute, StoredCustomer(*row)) for row in rows)
            return Packed(next_cursor(part, [customer.id for customer in customers], limit), customers=customers)
        case "documents":
            rows = execute(sql.pack_documents, (after or 0, limit)).fetchall()
            documents = tuple(_pack_document(row) for row in rows)
            return Packed(next_cursor(part, [document.snapshot.number for document in documents], limit), documents=documents)
        case "lanes":
            clocks = [clock for (clock,) in execute(sql.pack_clocks)]
            rows = execute(sql.pack_lanes, (*(after or ("", "", 0)), limit)).fetchall()
            lanes = [_pack_lane(execute, PackedLane(*row), clocks) for row in rows]
            return Packed(next_cursor(part, [lane[:3] for lane in lanes], limit), lanes=tuple(lanes))
        case _:
            records = [Record(*row) for row in execute(sql.pack_records, (*(after or ("", "")), limit)).fetchall()]
            return Packed(next_cursor(part, [record[:2] for record in records], limit), records=tuple(records))


def _pack_queue(execute: Execute) -> PackedQueue:
    last_number, last_change, _, last_record, _, _, _, ticked_ms, usual = execute(sql.read_queue).fetchone()
    clocks = tuple(clock for (clock,) in execute(sql.pack_clocks).fetchall())
    dispatches = [(_decode_set(kinds), count) for kinds, count in execute(sql.pack_dispatches).fetchall()]
    counts = tuple(sorted(dispatches, key=lambda item: (item[0] is not None, item[0] or ())))
    return PackedQueue(
        read_rules(execute), clocks, counts, usual, totals(execute), ticked_ms, last_number, last_change, last_record
    )


def _decode_set(text: str) -> KindSet:
    kinds = json.loads(text)
    return None if kinds is None else tuple(kinds)


def _pack_kind(kind: StoredKind) -> PackedKind:
    return PackedKind(kind.kind, kind.limit, kind.version, kind.bucket, tuple(kind.clocks))


def _pack_lane(execute: Execute, lane: PackedLane, clocks: list[int]) -> PackedLane:
    """Return a lane's tags as they count, and as they would if its kind were at no limit."""
    kind, clock = read_kind(execute, lane.kind), clocks[lane.priority - 1]
    if lane.start is None:
        lane = lane._replace(cross=0)
    elif kind.blocked:
        lane = lane._replace(cross=max(clock, lane.cross_finish))
    else:
        lane = lane._replace(cross=kind.cross(lane.priority, lane.cross))
    is_level = lane.finish <= kind.clocks[lane.priority - 1] and lane.cross_finish <= clock
    return lane._replace(finish=0, cross_finish=0) if is_level else lane


def _pack_customer(execute: Execute, customer: StoredCustomer) -> PackedCustomer:
    _, _, done, failed, cancelled, *_ = execute(sql.count_documents, (customer.number,)).fetchone()
    version, terms = read_terms(execute, customer.number)
    usual = read_usual(execute, customer.number)
    return PackedCustomer(customer.id, customer.standing, terms, version, done, failed, cancelled, usual)


def _pack_document(row: tuple[Any, ...]) -> PackedDocument:
    *snapshot, weight, resets, digest, payload, result, root, descendants, parts_from = row
    document = decode_document(tuple(snapshot))
    return PackedDocument(document, digest, weight, resets, payload, result, root, descendants, parts_from)


def unpack(tx: Transaction, packed: Packed) -> None:
    """Write a page that was packed elsewhere; rows that already exist stay as they are."""
    if packed.queue is not None:
        _unpack_queue(tx, packed.queue)
    for kind in packed.kinds:
        _unpack_kind(tx, kind)
    for customer in packed.customers:
        _unpack_customer(tx, customer)
    for document in packed.documents:
        _unpack_document(tx, document)
    for packed_lane in packed.lanes:
        lane = tx.lane(tx.customer(packed_lane.customer).number, packed_lane.kind, packed_lane.priority)
        lane.start, lane.cross = (None if lane.head is None else packed_lane.start), packed_lane.cross
        lane.finish, lane.cross_finish = packed_lane.finish, packed_lane.cross_finish
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
        tx.priority(priority).taken = queue.totals.taken[priority - 1]
    for kinds, count in queue.dispatches:
        tx.execute(sql.write_dispatches, (json.dumps(kinds), count))
    tx.usual_of_all, tx.busy_ms, tx.ticked_ms = queue.usual, queue.totals.busy_ms, queue.ticked_ms
    tx.last_number, tx.last_record = queue.last_number, queue.last_record
    tx.last_change = tx.changes_floor = queue.last_change


def _unpack_kind(tx: Transaction, packed: PackedKind) -> None:
    kind = tx.kinds.get(packed.kind)
    kind.clocks = list(packed.clocks)
    if packed.version:
        kind.limit, kind.limits, kind.version = packed.limit, encode_limit(packed.limit), packed.version
        kind.bucket = packed.bucket


def _unpack_customer(tx: Transaction, packed: PackedCustomer) -> None:
    customer = tx.customer(packed.id)
    customer.standing, customer.busy_most = packed.standing, None
    tx.mark_changed(customer)
    tx.usuals.put(customer.number, packed.usual)
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
        document.number, document.id, customer, document.customer, document.kind, document.state, document.priority, *check[2:],
        packed.weight, packed.resets, *document[6:16], check.priority, document.no_better_than, document.is_set_by_hand,
        document.claimed_ms, document.bytes, document.retries, document.check.checked_ms, packed.root,
        document.whole, document.parts, document.parts_left, packed.parts_from,
    )  # fmt: skip
