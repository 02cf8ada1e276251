"""Pack and unpack: how a queue in memory is moved to another store, or comes from one."""

from __future__ import annotations

from fairlane.core.dispatch import KindSet
from fairlane.core.document import WAITING, Submission
from fairlane.core.policy import LEVELS_MAX
from fairlane.engine.protocol import Packed, PackedCustomer, PackedDocument, PackedKind, PackedLane, PackedQueue
from fairlane.engine.transfer import next_cursor, parse_cursor

from .read import totals
from .state import DocumentState, Family, KindState, QueueState

_CARRIED = (
    "state", "ready_ms", "attempts", "attempts_max", "token", "worker", "ended_ms", "reason", "priority", "no_better_than",
    "is_set_by_hand", "claimed_ms", "bytes", "retries", "submitted_ms", "whole", "parts", "parts_left",
)  # fmt: skip


def pack(state: QueueState, cursor: str | None, limit: int) -> Packed:
    part, after = parse_cursor(cursor)
    match part:
        case "queue":
            queue = PackedQueue(
                state.rules, tuple(state.lanes.clocks[1:]), _pack_dispatches(state), state.usual, totals(state),
                state.ticked_ms, state.last_number, state.last_change, state.last_record,
            )  # fmt: skip
            return Packed(next_cursor(part, [], limit), queue)
        case "kinds":
            names = {kind for (_, kind), clock in state.lanes.kind_clocks.items() if clock} | state.kinds.keys()
            page = sorted(name for name in names if name > (after or ""))[:limit]
            return Packed(next_cursor(part, page, limit), kinds=tuple(_pack_kind(state, name) for name in page))
        case "customers":
            ids = sorted(id for id in state.customers if id > (after or ""))[:limit]
            return Packed(next_cursor(part, ids, limit), customers=tuple(_pack_customer(state, id) for id in ids))
        case "documents":
            numbers = sorted(number for number in state.documents if number > (after or 0))[:limit]
            documents = tuple(_pack_document(state, state.documents[number]) for number in numbers)
            return Packed(next_cursor(part, numbers, limit), documents=documents)
        case "lanes":
            all_lanes = (
                PackedLane(customer, kind, priority, *state.lanes.tags(lane))
                for (customer, kind, priority), lane in state.lanes.lanes.items()
            )
            lanes = sorted(lane for lane in all_lanes if _has_tags(lane) and (after is None or list(lane[:3]) > after))[:limit]
            return Packed(next_cursor(part, [lane[:3] for lane in lanes], limit), lanes=tuple(lanes))
        case _:
            keys = sorted(key for key in state.records if after is None or list(key) > after)[:limit]
            return Packed(next_cursor(part, keys, limit), records=tuple(state.records[key] for key in keys))


def _has_tags(lane: PackedLane) -> bool:
    return lane.start is not None or lane.finish > 0 or lane.cross_finish > 0


def _pack_dispatches(state: QueueState) -> tuple[tuple[KindSet, int], ...]:
    return tuple(sorted(state.lanes.dispatches.items(), key=lambda item: (item[0] is not None, item[0] or ())))


def _pack_kind(state: QueueState, name: str) -> PackedKind:
    kind = state.kinds.get(name) or KindState()
    clocks = tuple(state.lanes.kind_clocks.get((priority, name), 0) for priority in range(1, LEVELS_MAX + 1))
    return PackedKind(name, kind.limit, kind.version, kind.bucket, clocks)


def _pack_customer(state: QueueState, id: str) -> PackedCustomer:
    customer = state.customers[id]
    return PackedCustomer(
        id, customer.standing, customer.terms, customer.terms_version, customer.done, customer.failed, customer.cancelled,
        customer.usual,
    )  # fmt: skip


def _pack_document(state: QueueState, document: DocumentState) -> PackedDocument:
    family = state.families.get(document.number if document.root is None else document.root)
    return PackedDocument(
        document.snapshot(), document.digest, document.weight, document.resets, document.payload, document.result,
        document.root, family.descendants if family else 0, document.parts_from,
    )  # fmt: skip


def unpack(state: QueueState, packed: Packed) -> None:
    if packed.queue is not None:
        _unpack_queue(state, packed.queue)
    for kind in packed.kinds:
        _unpack_kind(state, kind)
    for customer in packed.customers:
        _unpack_customer(state, customer)
    for document in packed.documents:
        if document.snapshot.number not in state.documents:
            _unpack_document(state, document)
    for lane in packed.lanes:
        state.lanes.restore(*lane[:3], lane[3:])
    for record in packed.records:
        state.records[record.group, record.key] = record


def _unpack_queue(state: QueueState, queue: PackedQueue) -> None:
    state.rules = queue.rules
    state.lanes.open_turn_every = queue.rules.open_turn_every
    state.lanes.level(queue.rules.dispatch)
    state.lanes.clocks[1:] = queue.clocks
    state.lanes.dispatches = dict(queue.dispatches)
    state.usual, state.busy_ms, state.ticked_ms = queue.usual, queue.totals.busy_ms, queue.ticked_ms
    state.taken = list(queue.totals.taken)
    state.last_number, state.last_record = queue.last_number, queue.last_record
    state.last_change = state.changes_floor = queue.last_change
    state.changes.clear()


def _unpack_kind(state: QueueState, packed: PackedKind) -> None:
    for priority, clock in enumerate(packed.clocks, start=1):
        state.lanes.kind_clocks[priority, packed.kind] = clock
    if packed.version:
        kind = state.kinds[packed.kind] = KindState()
        kind.limit, kind.version, kind.bucket = packed.limit, packed.version, packed.bucket


def _unpack_customer(state: QueueState, packed: PackedCustomer) -> None:
    customer = state.customer(packed.id)
    customer.standing, customer.terms, customer.terms_version = packed.standing, packed.terms, packed.terms_version
    customer.done, customer.failed, customer.cancelled = packed.done, packed.failed, packed.cancelled
    customer.usual = packed.usual
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
    document.parts_from = packed.parts_from
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
