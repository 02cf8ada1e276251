"""How does a queue leave a server for another store, or come to one?"""

from __future__ import annotations

import json
from typing import Any

from fairlane.core.document import Record
from fairlane.core.policy import Standing
from fairlane.engine.codec import encode_rules, encode_terms
from fairlane.engine.protocol import Packed, PackedCustomer, PackedDocument, PackedLane, PackedQueue
from fairlane.engine.transfer import next_cursor, parse_cursor

from . import codec
from .connection import Link

LOOKS_MAX = 200  # documents or customers that one script packs
BYTES_MAX = 4_000_000  # about so much is unpacked by one script


def pack(link: Link, cursor: str | None, limit: int) -> Packed:
    """Some rows from a cursor on."""
    part, after = parse_cursor(cursor)
    match part:
        case "queue":
            rules, version, clocks, *counters = link.run("pack", ["queue"], "plain")
            return Packed(next_cursor(part, [], limit), PackedQueue(codec.rules_of(rules, version), tuple(clocks), *counters))
        case "customers":
            customers = [_customer(row) for row in link.run("pack", [part, after or "", limit], "plain")]
            return Packed(next_cursor(part, [one.id for one in customers], limit), customers=tuple(customers))
        case "documents":
            documents = _documents(link, after or 0, limit)
            return Packed(next_cursor(part, [one.snapshot.number for one in documents], limit), documents=tuple(documents))
        case "lanes":
            lanes = _lanes(link, after, limit)
            return Packed(next_cursor(part, [lane[:3] for lane in lanes], limit), lanes=tuple(lanes))
        case _:
            records = [Record(*row) for row in link.run("pack", [part, *(after or ()), limit], "plain")]
            return Packed(next_cursor(part, [one[:2] for one in records], limit), records=tuple(records))


def _customer(row: list[Any]) -> PackedCustomer:
    id, *standing, terms, version, done, failed, cancelled = row
    return PackedCustomer(id, Standing(*standing), codec.terms_of(terms), version, done, failed, cancelled)


def _documents(link: Link, after: int, limit: int) -> list[PackedDocument]:
    found: list[PackedDocument] = []
    while len(found) < limit:
        go_on, *rows = link.run("pack", ["documents", after, min(LOOKS_MAX, limit - len(found))], "plain")
        found += [PackedDocument(codec.document(row[:-5]), *row[-5:]) for row in rows]
        if go_on == 0:
            break
        after = go_on
    return found


def _lanes(link: Link, after: list[Any] | None, limit: int) -> list[PackedLane]:
    """By customer, kind and priority; a customer's lanes are few and come together."""
    found: list[PackedLane] = []
    begin = "-" if after is None else "[" + after[0]
    while len(found) < limit:
        last, *rows = link.run("pack", ["lanes", begin, min(LOOKS_MAX, limit)], "plain")
        found += sorted(PackedLane(*row) for row in rows if after is None or row[:3] > after)
        if not last:
            break
        begin = "(" + last
    return found[:limit]


def unpack(link: Link, packed: Packed) -> None:
    """Write what was packed elsewhere; rows that are already there stay."""
    if packed.queue is not None:
        _write(link, "queue", [_queue_row(packed.queue)])
    _write(link, "customers", [_customer_row(one) for one in packed.customers])
    _write(link, "documents", [_document_row(one) for one in packed.documents])
    _write(link, "lanes", [list(one) for one in packed.lanes])
    _write(link, "records", [list(one) for one in packed.records])


def _write(link: Link, part: str, rows: list[list[Any]]) -> None:
    """In as many scripts as their size needs: none may hold up the server for long."""
    told: list[str] = []
    size = 0
    for place, row in enumerate(rows, start=1):
        told.append(json.dumps(row, ensure_ascii=False))
        size += len(told[-1])
        if size > BYTES_MAX or len(told) == LOOKS_MAX or place == len(rows):
            link.run("unpack", [part, f"[{','.join(told)}]"], "plain")
            told, size = [], 0


def _queue_row(queue: PackedQueue) -> list[Any]:
    counters = [queue.dispatches, queue.last_number, queue.last_change, queue.last_record]
    return [encode_rules(queue.rules), queue.rules.version, queue.clocks, *counters, *codec.rules_arguments(queue.rules)]


def _customer_row(one: PackedCustomer) -> list[Any]:
    ended = [one.done, one.failed, one.cancelled]
    return [one.id, *one.standing, *ended, one.terms_version, encode_terms(one.terms), *codec.terms_arguments(one.terms)]


def _document_row(one: PackedDocument) -> list[Any]:
    id, number, customer, kind, state, check, *rest = one.snapshot
    return [id, number, customer, kind, state, *check[1:], *rest, one.digest, one.weight, one.resets, one.payload, one.result]
