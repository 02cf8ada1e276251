"""How does a queue in memory leave for another store, or come from one?"""

from __future__ import annotations

from heapq import heappush
from operator import attrgetter

from fairlane.core.document import Submission
from fairlane.engine.protocol import Packed, PackedCustomer, PackedDocument, PackedLane, PackedQueue
from fairlane.engine.transfer import next_cursor, parse_cursor

from .state import Entry, Kept


def pack(kept: Kept, cursor: str | None, limit: int) -> Packed:
    part, after = parse_cursor(cursor)
    match part:
        case "queue":
            queue = PackedQueue(
                kept.rules, tuple(kept.lanes.clocks[1:]), kept.lanes.dispatches, kept.last_number, kept.last_change,
                kept.record_version,
            )  # fmt: skip
            return Packed(next_cursor(part, [], limit), queue)
        case "customers":
            customers = [_customer(kept, id) for id in sorted(id for id in kept.accounts if id > (after or ""))[:limit]]
            return Packed(next_cursor(part, [one.id for one in customers], limit), customers=tuple(customers))
        case "documents":
            entries = sorted((one for one in kept.entries.values() if one.number > (after or 0)), key=attrgetter("number"))
            documents = tuple(_document(one) for one in entries[:limit])
            return Packed(next_cursor(part, [one.snapshot.number for one in documents], limit), documents=documents)
        case "lanes":
            tagged = (PackedLane(*name, one.start, one.finish) for name, one in kept.lanes.lanes.items())
            lanes = sorted(one for one in tagged if _has_tags(one) and (after is None or list(one[:3]) > after))[:limit]
            return Packed(next_cursor(part, [one[:3] for one in lanes], limit), lanes=tuple(lanes))
        case _:
            keys = sorted(name for name in kept.records if after is None or list(name) > after)[:limit]
            return Packed(next_cursor(part, keys, limit), records=tuple(kept.records[name] for name in keys))


def _has_tags(lane: PackedLane) -> bool:
    return lane.start is not None or lane.finish > 0


def _customer(kept: Kept, id: str) -> PackedCustomer:
    one = kept.accounts[id]
    return PackedCustomer(id, one.standing, one.terms, one.terms_version, one.done, one.failed, one.cancelled)


def _document(entry: Entry) -> PackedDocument:
    return PackedDocument(entry.snapshot(), entry.digest, entry.weight, entry.resets, entry.payload, entry.result)


def unpack(kept: Kept, packed: Packed) -> None:
    if packed.queue is not None:
        _unpack_queue(kept, packed.queue)
    for one in packed.customers:
        account = kept.account(one.id)
        account.standing, account.terms, account.terms_version = one.standing, one.terms, one.terms_version
        account.done, account.failed, account.cancelled = one.done, one.failed, one.cancelled
        if one.terms.paused:
            kept.lanes.block(one.id)
    for document in packed.documents:
        if document.snapshot.number not in kept.entries:
            _unpack_document(kept, document)
    for lane in packed.lanes:
        kept.lanes.tag(lane.customer, lane.kind, lane.priority, lane.start, lane.finish)
    for record in packed.records:
        kept.records[record.group, record.key] = record


def _unpack_queue(kept: Kept, queue: PackedQueue) -> None:
    kept.rules = queue.rules
    kept.lanes.configure(queue.rules.dispatch, queue.rules.open_turn_every)
    kept.lanes.clocks[1:] = queue.clocks
    kept.lanes.dispatches, kept.last_number, kept.record_version = queue.dispatches, queue.last_number, queue.last_record
    kept.last_change = kept.changes_floor = queue.last_change
    kept.changes.clear()


def _unpack_document(kept: Kept, packed: PackedDocument) -> None:
    told = packed.snapshot
    account = kept.account(told.customer)
    submission = Submission(told.id, told.customer, told.kind, packed.payload, told.cost, told.key, packed.digest)
    entry = Entry(told.number, submission, account, told.check)
    entry.weight, entry.resets, entry.result, entry.state = packed.weight, packed.resets, packed.result, told.state
    entry.ready_ms, entry.attempts, entry.attempts_max, entry.token = (
        told.ready_ms,
        told.attempts,
        told.attempts_max,
        told.token,
    )
    entry.worker, entry.ended_ms, entry.reason = told.worker, told.ended_ms, told.reason
    kept.entries[entry.number] = entry
    kept.numbers[entry.id] = entry.number
    if entry.key is not None:
        kept.keys[account.id, entry.key] = entry.number
    if entry.state == "ready":
        kept.lanes.add(entry.number, account.id, entry.kind, entry.check.priority, entry.ready_ms)
    elif entry.state == "delayed":
        heappush(kept.delayed, (entry.ready_ms, entry.number))
    if entry.state in ("ready", "delayed"):
        account.waiting += 1
