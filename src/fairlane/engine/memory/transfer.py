"""Pack and unpack: how a queue in memory is moved to another store, or comes from one."""

from __future__ import annotations

from fairlane.core.document import WAITING, Submission
from fairlane.engine.protocol import Packed, PackedCustomer, PackedDocument, PackedLane, PackedQueue
from fairlane.engine.transfer import next_cursor, parse_cursor

from .state import DocumentState, Family, QueueState

_CARRIED = (
    "state", "ready_ms", "attempts", "attempts_max", "token", "worker", "ended_ms", "reason", "bytes", "retries",
    "submitted_ms",
)  # fmt: skip


def pack(state: QueueState, cursor: str | None, limit: int) -> Packed:
    part, after = parse_cursor(cursor)
    match part:
        case "queue":
            queue = PackedQueue(
                state.rules, tuple(state.lanes.clocks[1:]), state.lanes.dispatches, state.last_number, state.last_change,
                state.last_record,
            )  # fmt: skip
            return Packed(next_cursor(part, [], limit), queue)
        case "customers":
            ids = sorted(id for id in state.customers if id > (after or ""))[:limit]
            return Packed(next_cursor(part, ids, limit), customers=tuple(_pack_customer(state, id) for id in ids))
        case "documents":
            numbers = sorted(number for number in state.documents if number > (after or 0))[:limit]
            documents = tuple(_pack_document(state, state.documents[number]) for number in numbers)
            return Packed(next_cursor(part, numbers, limit), documents=documents)
        case "lanes":
            all_lanes = (PackedLane(*key, lane.start, lane.finish) for key, lane in state.lanes.lanes.items())
            lanes = sorted(lane for lane in all_lanes if _has_tags(lane) and (after is None or list(lane[:3]) > after))[:limit]
            return Packed(next_cursor(part, [lane[:3] for lane in lanes], limit), lanes=tuple(lanes))
        case _:
            keys = sorted(key for key in state.records if after is None or list(key) > after)[:limit]
            return Packed(next_cursor(part, keys, limit), records=tuple(state.records[key] for key in keys))


def _has_tags(lane: PackedLane) -> bool:
    return lane.start is not None or lane.finish > 0


def _pack_customer(state: QueueState, id: str) -> PackedCustomer:
    customer = state.customers[id]
    return PackedCustomer(
        id, customer.standing, customer.terms, customer.terms_version, customer.done, customer.failed, customer.cancelled
    )


def _pack_document(state: QueueState, document: DocumentState) -> PackedDocument:
    family = state.families.get(document.number if document.root is None else document.root)
    return PackedDocument(
        document.snapshot(), document.digest, document.weight, document.resets, document.payload, document.result,
        document.root, family.descendants if family else 0,
    )  # fmt: skip


def unpack(state: QueueState, packed: Packed) -> None:
    if packed.queue is not None:
        _unpack_queue(state, packed.queue)
    for customer in packed.customers:
        _unpack_customer(state, customer)
    for document in packed.documents:
        if document.snapshot.number not in state.documents:
            _unpack_document(state, document)
    for lane in packed.lanes:
        state.lanes.set_tags(*lane)
    for record in packed.records:
        state.records[record.group, record.key] = record


def _unpack_queue(state: QueueState, queue: PackedQueue) -> None:
    state.rules = queue.rules
    state.lanes.configure(queue.rules.dispatch, queue.rules.open_turn_every)
    state.lanes.clocks[1:] = queue.clocks
    state.lanes.dispatches, state.last_number, state.last_record = queue.dispatches, queue.last_number, queue.last_record
    state.last_change = state.changes_floor = queue.last_change
    state.changes.clear()


def _unpack_customer(state: QueueState, packed: PackedCustomer) -> None:
    customer = state.customer(packed.id)
    customer.standing, customer.terms, customer.terms_version = packed.standing, packed.terms, packed.terms_version
    customer.done, customer.failed, customer.cancelled = packed.done, packed.failed, packed.cancelled
    if packed.terms.paused:
        state.lanes.block(packed.id)


def _unpack_document(state: QueueState, packed: PackedDocument) -> None:
    snapshot = packed.snapshot
    customer = state.customer(snapshot.customer)
    submission = Submission(
        snapshot.id, snapshot.customer, snapshot.kind, packed.payload, snapshot.cost, snapshot.key, packed.digest
    )
    document = DocumentState(snapshot.number, submission, customer, snapshot.check)
    document.weight, document.resets, document.result, document.root = packed.weight, packed.resets, packed.result, packed.root
    for name in _CARRIED:
        setattr(document, name, getattr(snapshot, name))
    state.add(document)
    if packed.descendants:
        root = document.number if document.root is None else document.root
        family = state.families.get(root)
        if family is None:
            family = state.families[root] = Family()
            family.descendants = packed.descendants
        else:
            family.kept += 1
    if document.state in WAITING:
        state.enqueue(document)
        customer.waiting += 1
