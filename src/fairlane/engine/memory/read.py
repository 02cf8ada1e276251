"""Reading a queue in memory: customers, documents, outlooks, the feed and records."""

from __future__ import annotations

from fairlane.core.document import WAITING, ChangeRow, Customer, DocumentRow, Outlook, PartRow, Record, Totals
from fairlane.core.eta import estimate_ahead
from fairlane.core.policy import LEVELS_MAX, KindLimit
from fairlane.engine.errors import purged_feed_error
from fairlane.engine.protocol import DocumentBody, DocumentFilter, DocumentPage, KindRow, ReadyKind
from fairlane.engine.read import customer_snapshot

from .state import CustomerState, QueueState


def customer(state: QueueState, customer_id: str, now_ms: int) -> Customer:
    return _snapshot(state, state.customers.get(customer_id) or CustomerState(customer_id), now_ms)


def customers(state: QueueState, after: str, limit: int, now_ms: int) -> list[Customer]:
    ids = sorted(id for id in state.customers if id > after)[:limit]
    return [_snapshot(state, state.customers[id], now_ms) for id in ids]


def _snapshot(state: QueueState, customer: CustomerState, now_ms: int) -> Customer:
    heads = [lane.ready[lane.head] for lane in state.lanes.of_customer(customer.id) if lane.head is not None]
    counts = (
        customer.waiting, customer.running, customer.done, customer.failed, customer.cancelled, min(heads, default=None),
        customer.documents, customer.bytes, customer.usual,
    )  # fmt: skip
    return customer_snapshot(
        customer.id, customer.standing, counts, customer.terms, customer.terms_version, state.rules, now_ms
    )


def document(state: QueueState, id: str) -> DocumentRow | None:
    document = state.document(id)
    return None if document is None else document.snapshot()


def documents(state: QueueState, filter: DocumentFilter, before: int | None, limit: int, scan_max: int) -> DocumentPage:
    found: list[DocumentRow] = []
    examined, last = 0, 0
    for number, document in reversed(state.documents.items()):  # numbers only rise
        if before is not None and number >= before:
            continue
        if len(found) == limit or examined == scan_max:
            return DocumentPage(found, last)
        examined, last = examined + 1, number
        if filter.state in (None, document.state) and filter.matches(snapshot := document.snapshot()):
            found.append(snapshot)
    return DocumentPage(found, None)


def parts(state: QueueState, id: str) -> list[PartRow]:
    document = state.document(id)
    return [] if document is None else [PartRow(part.snapshot(), part.result) for part in state.parts_of(document)]


def body(state: QueueState, id: str) -> DocumentBody | None:
    document = state.document(id)
    return None if document is None else DocumentBody(document.payload, document.result)


def outlook(state: QueueState, id: str, now_ms: int) -> Outlook | None:
    document = state.document(id)
    if document is None or document.state not in WAITING:
        return None
    lanes = [lane for lane in state.lanes.lanes.values() if lane.ready]
    priority = document.priority
    own = state.lanes.lanes.get((document.customer.id, document.kind, priority))
    others = [lane for lane in lanes if lane.priority == priority and lane is not own]
    ahead = estimate_ahead(
        before=sum(len(lane.ready) for lane in lanes if lane.priority < priority),
        others=sum(len(lane.ready) for lane in others),
        other_lanes=len(others),
        own_before=sum(number < document.number for number in own.ready) if own else 0,
    )
    hold = document.customer.hold() or state.kind_hold(document.kind, now_ms)
    return Outlook(now_ms, priority, ahead, hold, totals(state))


def totals(state: QueueState) -> Totals:
    ready = [0] * LEVELS_MAX
    for lane in state.lanes.lanes.values():
        ready[lane.priority - 1] += len(lane.ready)
    return Totals(state.busy_ms, tuple(state.taken), tuple(ready))


def kind(state: QueueState, name: str) -> KindRow:
    kind = state.kinds.get(name)
    if kind is not None:
        return KindRow(name, kind.limit, kind.version, kind.running, kind.bucket.next_start_ms(kind.limit))
    running = sum(document.state == "running" and document.kind == name for document in state.documents.values())
    return KindRow(name, KindLimit(), 0, running, 0)


def kinds(state: QueueState, after: str, limit: int) -> list[KindRow]:
    return [kind(state, name) for name in sorted(name for name in state.kinds if name > after)[:limit]]


def ready_kinds(state: QueueState, after: str, limit: int) -> list[ReadyKind]:
    oldest: dict[str, int] = {}
    for lane in state.lanes.lanes.values():
        if lane.start is not None and lane.head is not None and lane.kind > after:
            ready_ms = lane.ready[lane.head]
            oldest[lane.kind] = min(oldest.get(lane.kind, ready_ms), ready_ms)
    return [ReadyKind(*item) for item in sorted(oldest.items())[:limit]]


def changes(state: QueueState, after: int | None, limit: int) -> list[ChangeRow]:
    if after is not None and after < state.changes_floor:
        raise purged_feed_error(state.changes_floor, after)
    numbers = [number for number in state.changes if number > (after or 0)][:limit]
    return [_change(state, number) for number in numbers]


def _change(state: QueueState, number: int) -> ChangeRow:
    at_ms, what, customer, document_number, token, note = state.changes[number]
    document = None if document_number is None else state.documents.get(document_number)
    return ChangeRow(number, at_ms, what, customer, None if document is None else document.id, token, note)


def record(state: QueueState, group: str, key: str) -> Record | None:
    return state.records.get((group, key))


def records(state: QueueState, group: str, after: str, limit: int) -> list[Record]:
    keys = sorted(key for record_group, key in state.records if record_group == group and key > after)[:limit]
    return [state.records[group, key] for key in keys]


def next_due_ms(state: QueueState, now_ms: int) -> int | None:
    """Return how long until a delayed document is due or the rate of a kind allows another start; None: neither will."""
    due = [state.delayed[0][0]] if state.delayed else []
    due += [start for kind in state.kinds.values() if (start := kind.bucket.next_start_ms(kind.limit)) > now_ms]
    return min(due) - now_ms if due else None
