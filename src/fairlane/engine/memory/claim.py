"""Claim: documents in dispatch order, each with a lease and a new token."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush

from fairlane.core.dispatch import USUAL_FIRST, kind_set, turn_price
from fairlane.core.document import ATTEMPTS_DEFAULT, Claim, State
from fairlane.core.lanes import Turn
from fairlane.core.policy import step_of, weight_of
from fairlane.engine.protocol import DUE_MAX

from .state import DocumentState, QueueState


def claim(
    state: QueueState, worker: str, limit: int, lease_ms: int, kinds: Mapping[str, int] | None, now_ms: int
) -> list[Claim]:
    _ready_due_documents(state, now_ms)
    update_kinds(state, now_ms)
    _count_busy_time(state, now_ms)
    claims: list[Claim] = []
    taken_kinds = kind_set(kinds)
    while len(claims) < limit and (turn := state.lanes.next(taken_kinds)) is not None:
        document = state.documents[turn.number]
        document.attempts_max = ATTEMPTS_DEFAULT if kinds is None else kinds[document.kind]
        claims.append(_claim(state, turn, document, worker, now_ms, now_ms + lease_ms))
    return claims


def update_kinds(state: QueueState, now_ms: int) -> None:
    """Let kinds compete again whose rate allows another start."""
    for kind in state.kinds:
        state.update_kind(kind, now_ms)


def _count_busy_time(state: QueueState, now_ms: int) -> None:
    """Count the time since the last claim during which something could have been taken."""
    oldest_ms = state.lanes.oldest_ready_ms()
    if oldest_ms is not None:
        state.busy_ms += max(0, now_ms - max(state.ticked_ms, oldest_ms))
        state.ticked_ms = max(state.ticked_ms, now_ms)


def _ready_due_documents(state: QueueState, now_ms: int) -> None:
    for _ in range(DUE_MAX):
        document = pop_due(state, state.delayed, "delayed", now_ms)
        if document is None:
            return
        document.state = "ready"
        state.enqueue(document)


def pop_due(state: QueueState, heap: list[tuple[int, int]], expected: State, now_ms: int) -> DocumentState | None:
    """Pop the first document of a heap that is due and still in the expected state; drop stale entries before it."""
    while heap and heap[0][0] <= now_ms:
        at_ms, number = heappop(heap)
        document = state.documents.get(number)
        if document and document.state == expected:
            due_ms = document.lease_ms if expected == "running" else document.ready_ms
            if at_ms == due_ms:
                return document
    return None


def _claim(state: QueueState, turn: Turn, document: DocumentState, worker: str, now_ms: int, lease_ms: int) -> Claim:
    customer = document.customer
    document.paid = _pay(state, turn, document)
    if now_ms > document.ready_ms:
        state.taken[document.priority - 1] += 1
    document.state = "running"
    document.claimed_ms = now_ms
    document.token += 1
    document.attempts += 1
    document.worker = worker
    document.lease_ms = lease_ms
    heappush(state.leases, (lease_ms, document.number))
    customer.waiting -= 1
    customer.running += 1
    state.update_block(customer)
    if (kind := state.kinds.get(document.kind)) is not None:
        kind.running += 1
        kind.bucket = kind.bucket.take(kind.limit, now_ms)
        state.update_kind(document.kind, now_ms)
    state.log(now_ms, "claimed", customer, document, worker)
    return Claim(
        document.id, document.token, document.number, customer.id, document.kind, document.priority, document.payload,
        document.attempts, document.attempts_max, lease_ms, turn.dispatch_number, turn.is_open,
    )  # fmt: skip


def _pay(state: QueueState, turn: Turn, document: DocumentState) -> int | None:
    """Charge the lane for its turn; return what it paid, if that is trued up when the attempt ends."""
    customer, turns = document.customer, state.rules.turns
    weight = weight_of(customer.terms)
    usual = next((usual for usual in (customer.usual, state.usual) if usual is not None), USUAL_FIRST)
    price = turn_price(turns, step_of(document.cost, weight), usual, weight)
    return price if state.lanes.take(turn, price) and turns == "time" else None
