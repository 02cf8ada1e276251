"""Transfer: pack a queue for another store, and unpack one that comes from another store."""

from __future__ import annotations

import json
from typing import Any

from fairlane.core.dispatch import Bucket, KindSet
from fairlane.core.document import Record
from fairlane.engine.codec import encode_rules, encode_terms
from fairlane.engine.protocol import Packed, PackedCustomer, PackedDocument, PackedKind, PackedLane, PackedQueue
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
            return Packed(next_cursor(part, [], limit), _queue(pool.run("pack", [part], "same")))
        case "kinds":
            kinds = [_kind(row) for row in pool.run("pack", [part, after or "", limit], "same")]
            return Packed(next_cursor(part, [kind.kind for kind in kinds], limit), kinds=tuple(kinds))
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


def _queue(row: list[Any]) -> PackedQueue:
    rules, version, clocks, of_all, of_sets, usual, busy_ms, taken, ready, *rest = row
    sets = {tuple(json.loads(text)): int(count) for text, count in zip(of_sets[::2], of_sets[1::2], strict=True)}
    dispatches: list[tuple[KindSet, int]] = [*([(None, of_all)] if of_all else ()), *sorted(sets.items())]
    totals = codec.totals([busy_ms, taken, ready])
    return PackedQueue(codec.parse_rules(rules, version), tuple(clocks), tuple(dispatches), usual, totals, *rest)


def _kind(row: list[Any]) -> PackedKind:
    name, limit, version, tokens, tokens_at, clocks = row
    return PackedKind(name, codec.kind_limit(limit), version, Bucket(tokens, tokens_at), tuple(clocks))


def _customer(row: list[Any]) -> PackedCustomer:
    id, counter, updated_ms, resets, parts, terms, *rest = row
    return PackedCustomer(id, codec.standing(counter, updated_ms, resets, parts), codec.parse_terms(terms), *rest)


def _documents(pool: RedisPool, after: int, limit: int) -> list[PackedDocument]:
    documents: list[PackedDocument] = []
    while len(documents) < limit:
        last, *rows = pool.run("pack", ["documents", after, min(ROWS_MAX, limit - len(documents))], "same")
        documents += [PackedDocument(codec.document(row[:-8]), *row[-8:]) for row in rows]
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
    _write(pool, "kinds", [_kind_row(kind) for kind in packed.kinds])
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
    of_sets = {json.dumps(kinds, ensure_ascii=False): count for kinds, count in queue.dispatches if kinds is not None}
    dispatches = [dict(queue.dispatches).get(None, 0), of_sets]
    counters = [queue.usual, *queue.totals[:2], queue.ticked_ms, queue.last_number, queue.last_change, queue.last_record]
    rules = codec.rules_arguments(queue.rules)
    return [encode_rules(queue.rules), queue.rules.version, queue.clocks, *dispatches, *counters, *rules]


def _kind_row(packed: PackedKind) -> list[Any]:
    limit = [codec.kind_limit_text(packed.limit), packed.version, *codec.kind_limit_arguments(packed.limit)]
    return [packed.kind, *limit, *packed.bucket, packed.clocks]


def _customer_row(packed: PackedCustomer) -> list[Any]:
    counter, updated_ms, resets, parts = packed.standing
    sent = [value for part in parts for value in part]
    ended = [packed.done, packed.failed, packed.cancelled, packed.usual]
    terms = [packed.terms_version, encode_terms(packed.terms), *codec.terms_arguments(packed.terms)]
    return [packed.id, counter, updated_ms, resets, sent, *ended, *terms]


def _document_row(packed: PackedDocument) -> list[Any]:
    id, number, customer, kind, state, check, *rest = packed.snapshot
    numbers = [int(value) if isinstance(value, bool) else value for value in rest]  # scripts get 1 for true
    stored = [packed.digest, packed.weight, packed.resets, packed.payload, packed.result, packed.root, packed.descendants]
    return [id, number, customer, kind, state, *check[1:], *numbers, *stored, packed.parts_from]
