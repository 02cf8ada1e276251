"""How does a queue leave its schema for another store, or come into one?"""

from __future__ import annotations

import json

from fairlane.core.document import Document, Record
from fairlane.core.policy import Rules, Standing
from fairlane.engine.codec import decode_terms, encode_rules, encode_terms
from fairlane.engine.protocol import Packed, PackedCustomer, PackedDocument, PackedLane, PackedQueue
from fairlane.engine.transfer import next_cursor, parse_cursor

from .migrate import depths_of, terms_columns
from .pool import Joined, Row, Sessions
from .queries import Queries
from .read import document_of

SNAPSHOT = 21  # columns of the snapshots, the customer's number included


def pack(sessions: Sessions | Joined, sql: Queries, rules: Rules, cursor: str | None, limit: int) -> Packed:
    """Some rows from a cursor on; what has arrived takes its place first."""
    part, after = parse_cursor(cursor)
    match part:
        case "queue":
            sessions.change(sql.take_in)
            ((clocks, *counters),) = sessions.look(sql.pack_queue)
            return Packed(next_cursor(part, [], limit), PackedQueue(rules, tuple(clocks), *counters))
        case "customers":
            customers = [_customer(row) for row in sessions.look(sql.pack_customers, (after or "", limit))]
            return Packed(next_cursor(part, [one.id for one in customers], limit), customers=tuple(customers))
        case "documents":
            documents = [_document(row) for row in sessions.look(sql.pack_documents, (after or 0, limit))]
            return Packed(next_cursor(part, [one.snapshot.number for one in documents], limit), documents=tuple(documents))
        case "lanes":
            lanes = [PackedLane(*row) for row in sessions.look(sql.pack_lanes, (*(after or ("", "", 0)), limit))]
            return Packed(next_cursor(part, [one[:3] for one in lanes], limit), lanes=tuple(lanes))
        case _:
            records = [Record(*row) for row in sessions.look(sql.pack_records, (*(after or ("", "")), limit))]
            return Packed(next_cursor(part, [one[:2] for one in records], limit), records=tuple(records))


def _customer(row: Row) -> PackedCustomer:
    id, *standing = row[:5]
    version, body, done, failed, cancelled = row[5:]
    return PackedCustomer(id, Standing(*standing), decode_terms(body), version, done, failed, cancelled)


def _document(row: Row) -> PackedDocument:
    return PackedDocument(document_of(row), *row[SNAPSHOT:])


def unpack(sessions: Sessions | Joined, sql: Queries, packed: Packed) -> None:
    """Write what was packed elsewhere; rows that are already there stay."""
    if packed.queue is not None:
        _unpack_queue(sessions, sql, packed.queue)
    for one in packed.customers:
        columns = terms_columns(one.terms)
        told = (
            one.id,
            *one.standing,
            one.terms_version,
            encode_terms(one.terms),
            *columns,
            one.done,
            one.failed,
            one.cancelled,
        )
        sessions.change(sql.unpack_customer, told)
    if packed.documents:
        sessions.change(sql.unpack_documents, (json.dumps([_told(one) for one in packed.documents]),))
    if packed.lanes:
        sessions.change(sql.unpack_lanes, [list(column) for column in zip(*packed.lanes, strict=True)])
    if packed.records:
        sessions.change(sql.unpack_records, [list(column) for column in zip(*packed.records, strict=True)])


def _unpack_queue(sessions: Sessions | Joined, sql: Queries, queue: PackedQueue) -> None:
    rules, policy = queue.rules, queue.rules.policy
    sessions.change(
        sql.unpack_queue,
        (
            encode_rules(rules), rules.version, policy.interval_ms, depths_of(policy.thresholds), policy.reset, rules.dispatch,
            rules.open_turn_every, rules.frozen, list(queue.clocks), queue.dispatches, queue.last_number, queue.last_change,
            queue.last_record,
        ),
    )  # fmt: skip


def _told(packed: PackedDocument) -> dict[str, object]:
    told: Document = packed.snapshot
    check = told.check
    return {
        **told._asdict(), "check": None, "customer": told.customer, "priority": check.priority,
        "counter": check.counter_thousandths, "checked_ms": check.checked_ms, "policy_version": check.policy_version,
        "terms_version": check.terms_version, **packed._asdict(), "snapshot": None,
    }  # fmt: skip
