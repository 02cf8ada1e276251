"""Transfer: pack a queue for another store, and unpack one that comes from another store."""

from __future__ import annotations

import json
from typing import Any

from fairlane.core.document import Record
from fairlane.core.policy import Standing
from fairlane.engine.codec import encode_rules, encode_terms
from fairlane.engine.protocol import Packed, PackedCustomer, PackedDocument, PackedLane, PackedQueue
from fairlane.engine.transfer import next_cursor, parse_cursor

from . import codec
from .connection import RedisPool

ROWS_MAX = 200  # that one script packs or unpacks
BYTES_MAX = 4_000_000  # about as much as one script unpacks


def pack(pool: RedisPool, cursor: str | None, limit: int) -> Packed:
    """Pack some rows from a cursor on."""
    part, after = parse_cursor(cursor)
    match part:
        case "queue":
            rules, version, clocks, *counters = pool.run("pack", ["queue"], "same")
            return Packed(
                next_cursor(part, [], limit), PackedQueue(codec.parse_rules(rules, version), tuple(clocks), *counters)
            )
        case "customers":
            customers = [_customer(row) for row in pool.run("pack", [part, after or "", limit], "same")]
            return Packed(next_cursor(part, [customer.id for customer in customers], limit), customers=tuple(customers))
        case "documents":
            documents = _documents(pool, after or 0, limit)
            return Packed(
                next_cursor(part, [document.snapshot.number for document in documents], limit), documents=tuple(documents)
            )
        case "lanes":
            lanes = _lanes(pool, after, limit)
            return Packed(next_cursor(part, [lane[:3] for lane in lanes], limit), lanes=tuple(lanes))
        case _:
            records = [Record(*row) for row in pool.run("pack", [part, *(after or ()), limit], "same")]
            return Packed(next_cursor(part, [record[:2] for record in records], limit), records=tuple(records))


def _customer(row: list[Any]) -> PackedCustomer:
    id, *standing, terms, version, done, failed, cancelled = row
    return PackedCustomer(id, Standing(*standing), codec.parse_terms(terms), version, done, failed, cancelled)


def _documents(pool: RedisPool, after: int, limit: int) -> list[PackedDocument]:
    documents: list[PackedDocument] = []
    while len(documents) < limit:
        last, *rows = pool.run("pack", ["documents", after, min(ROWS_MAX, limit - len(documents))], "same")
        documents += [PackedDocument(codec.document(row[:-7]), *row[-7:]) for row in rows]
        if last == 0:
            break
        after = last
    return documents


def _lanes(pool: RedisPool, after: list[Any] | None, limit: int) -> list[PackedLane]:
    """Pack lanes by customer, kind and priority; a customer's lanes are few and come together."""
    lanes: list[PackedLane] = []
    begin = "-" if after is None else "[" + after[0]
    while len(lanes) < limit:
        last, *rows = pool.run("pack", ["lanes", begin, min(ROWS_MAX, limit)], "same")
        lanes += sorted(PackedLane(*row) for row in rows if after is None or row[:3] > after)
        if not last:
            break
        begin = "(" + last
    return lanes[:limit]


def unpack(pool: RedisPool, packed: Packed) -> None:
    """Write rows that were packed in another store; rows that exist already stay."""
    if packed.queue is not None:
        _write(pool, "queue", [_queue_row(packed.queue)])
    _write(pool, "customers", [_customer_row(customer) for customer in packed.customers])
    _write(pool, "documents", [_document_row(document) for document in packed.documents])
    _write(pool, "lanes", [list(lane) for lane in packed.lanes])
    _write(pool, "records", [list(record) for record in packed.records])


def _write(pool: RedisPool, part: str, rows: list[list[Any]]) -> None:
    """Write rows in batches: one script must not block the server for long."""
    batch: list[str] = []
    size = 0
    for count, row in enumerate(rows, start=1):
        batch.append(json.dumps(row, ensure_ascii=False))
        size += len(batch[-1])
        if size > BYTES_MAX or len(batch) == ROWS_MAX or count == len(rows):
            pool.run("unpack", [part, f"[{','.join(batch)}]"], "same")
            batch, size = [], 0


def _queue_row(queue: PackedQueue) -> list[Any]:
    counters = [queue.dispatches, queue.last_number, queue.last_change, queue.last_record]
    return [encode_rules(queue.rules), queue.rules.version, queue.clocks, *counters, *codec.rules_arguments(queue.rules)]


def _customer_row(packed: PackedCustomer) -> list[Any]:
    ended = [packed.done, packed.failed, packed.cancelled]
    terms = [packed.terms_version, encode_terms(packed.terms), *codec.terms_arguments(packed.terms)]
    return [packed.id, *packed.standing, *ended, *terms]


def _document_row(packed: PackedDocument) -> list[Any]:
    id, number, customer, kind, state, check, *rest = packed.snapshot
    stored = [packed.digest, packed.weight, packed.resets, packed.payload, packed.result, packed.root, packed.descendants]
    return [id, number, customer, kind, state, *check[1:], *rest, *stored]
