"""Transfer: pack a queue for another store, and unpack one that comes from another store."""

from __future__ import annotations

import json

from fairlane.core.dispatch import Bucket
from fairlane.core.document import DocumentRow, Record, Totals
from fairlane.core.policy import STEP, KindLimit, Rules, Standing, interval_ms_of
from fairlane.engine.codec import decode_terms, encode_rules, encode_terms
from fairlane.engine.protocol import Packed, PackedCustomer, PackedDocument, PackedKind, PackedLane, PackedQueue
from fairlane.engine.queries import Queries
from fairlane.engine.transfer import next_cursor, parse_cursor

from .migrate import depths_of, terms_columns
from .pool import Row, Statements
from .read import document_from_row, limit_from_row, parts_from_row

SNAPSHOT_COLUMNS = 31  # of the view `snapshots`, the customer's number included


def pack(pool: Statements, sql: Queries, rules: Rules, cursor: str | None, limit: int) -> Packed:
    """Pack some rows from a cursor on; documents that have arrived join their lanes first."""
    part, after = parse_cursor(cursor)
    match part:
        case "queue":
            pool.write(sql.absorb_arrivals)
            return Packed(next_cursor(part, [], limit), _queue(pool, sql, rules))
        case "kinds":
            kinds = [_kind(row) for row in pool.read(sql.pack_kinds, (after or "", limit))]
            return Packed(next_cursor(part, [kind.kind for kind in kinds], limit), kinds=tuple(kinds))
        case "customers":
            customers = [_customer(row) for row in pool.read(sql.pack_customers, (after or "", limit))]
            return Packed(next_cursor(part, [customer.id for customer in customers], limit), customers=tuple(customers))
        case "documents":
            documents = [_document(row) for row in pool.read(sql.pack_documents, (after or 0, limit))]
            return Packed(
                next_cursor(part, [document.snapshot.number for document in documents], limit), documents=tuple(documents)
            )
        case "lanes":
            lanes = [PackedLane(*row) for row in pool.read(sql.pack_lanes, (*(after or ("", "", 0)), limit))]
            return Packed(next_cursor(part, [lane[:3] for lane in lanes], limit), lanes=tuple(lanes))
        case _:
            records = [Record(*row) for row in pool.read(sql.pack_records, (*(after or ("", "")), limit))]
            return Packed(next_cursor(part, [record[:2] for record in records], limit), records=tuple(records))


def _queue(pool: Statements, sql: Queries, rules: Rules) -> PackedQueue:
    ((clocks, usual, busy_ms, taken, ready, *counters),) = pool.read(sql.pack_queue)
    rows = pool.read(sql.pack_dispatches)
    dispatches = [(None if kinds is None else tuple(kinds), number) for kinds, number in rows]
    dispatches.sort(key=lambda item: (item[0] is not None, item[0] or ()))
    totals = Totals(busy_ms, tuple(taken), tuple(ready))
    return PackedQueue(rules, tuple(clocks), tuple(dispatches), usual, totals, *counters)


def _kind(row: Row) -> PackedKind:
    kind, running_max, rate, burst, version, tokens, tokens_ms, clocks = row
    return PackedKind(kind, limit_from_row(running_max, rate, burst), version, Bucket(tokens, tokens_ms), tuple(clocks))


def limit_columns(limit: KindLimit) -> tuple[int | None, int | None, int]:
    """Convert a kind's limit to columns, in thousandths: running, rate, burst."""
    return limit.running, None if limit.rate is None else round(limit.rate * STEP), round(limit.burst * STEP)


def _customer(row: Row) -> PackedCustomer:
    id, counter, updated_ms, resets, parts, version, body, done, failed, cancelled, usual = row
    standing = Standing(counter, updated_ms, resets, parts_from_row(parts))
    return PackedCustomer(id, standing, decode_terms(body), version, done, failed, cancelled, usual)


def _document(row: Row) -> PackedDocument:
    return PackedDocument(document_from_row(row), *row[SNAPSHOT_COLUMNS:])


def unpack(pool: Statements, sql: Queries, packed: Packed) -> None:
    """Write rows that were packed in another store; rows that exist already stay."""
    if packed.queue is not None:
        _unpack_queue(pool, sql, packed.queue)
    for kind in packed.kinds:
        limit = limit_columns(kind.limit)
        pool.write(sql.unpack_kind, (kind.kind, *limit, kind.version, *kind.bucket, list(kind.clocks)))
    for customer in packed.customers:
        pool.write(sql.unpack_customer, _customer_row(customer))
    if packed.documents:
        pool.write(sql.unpack_documents, (json.dumps([_document_row(document) for document in packed.documents]),))
    if packed.lanes:
        pool.write(sql.unpack_lanes, [list(column) for column in zip(*packed.lanes, strict=True)])
    if packed.records:
        pool.write(sql.unpack_records, [list(column) for column in zip(*packed.records, strict=True)])


def _unpack_queue(pool: Statements, sql: Queries, queue: PackedQueue) -> None:
    rules, policy = queue.rules, queue.rules.policy
    pool.write(
        sql.unpack_queue,
        (
            encode_rules(rules), rules.version, interval_ms_of(policy), depths_of(policy.thresholds), policy.reset,
            rules.dispatch, rules.turns, rules.open_turn_every, rules.frozen, *rules.limits, list(queue.clocks), queue.usual,
            queue.totals.busy_ms, list(queue.totals.taken), queue.ticked_ms, queue.last_number, queue.last_change,
            queue.last_record,
        ),
    )  # fmt: skip
    for kinds, number in queue.dispatches:
        pool.write(sql.unpack_dispatches, (None if kinds is None else list(kinds), number))


def _customer_row(packed: PackedCustomer) -> tuple[object, ...]:
    terms = (packed.terms_version, encode_terms(packed.terms), *terms_columns(packed.terms))
    counter, updated_ms, resets, parts = packed.standing
    flat = [number for part in parts for number in part] or None
    counts = (packed.done, packed.failed, packed.cancelled, packed.usual)
    return (packed.id, counter, updated_ms, resets, flat, *terms, *counts)


def _document_row(packed: PackedDocument) -> dict[str, object]:
    document: DocumentRow = packed.snapshot
    check = document.check
    return {
        **document._asdict(), "check": None, "customer": document.customer, "checked_priority": check.priority,
        "counter": check.counter_thousandths, "checked_ms": check.checked_ms, "policy_version": check.policy_version,
        "terms_version": check.terms_version, **packed._asdict(), "snapshot": None,
    }  # fmt: skip
