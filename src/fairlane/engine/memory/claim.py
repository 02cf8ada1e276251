"""Claim: documents in dispatch order, each with a lease and a new token."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush

from fairlane.core.dispatch import Turn
from fairlane.core.document import ATTEMPTS_DEFAULT, Claim, State
from fairlane.core.policy import step_of, weight_of
from fairlane.engine.protocol import DUE_MAX

from .state import DocumentState, QueueState


def claim(
    state: QueueState, worker: str, limit: int, lease_ms: int, kinds: Mapping[str, int] | None, now_ms: int
) -> list[Claim]:
    _ready_due_documents(state, now_ms)
    dispatches_before = state.lanes.dispatches
    claims: list[Claim] = []
    while len(claims) < limit and (turn := state.lanes.next(kinds)) is not None:
        document = state.documents[turn.number]
        document.attempts_max = ATTEMPTS_DEFAULT if kinds is None else kinds[document.kind]
        claims.append(_claim(state, turn, document, worker, now_ms, now_ms + lease_ms))
    if claims:
        state.pace = state.pace.advance(now_ms, dispatches_before)
    return claims


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
    state.lanes.take(turn, step_of(document.cost, weight_of(customer.terms)))
    document.state = "running"
    document.token += 1
    document.attempts += 1
    document.worker = worker
    document.lease_ms = lease_ms
    heappush(state.leases, (lease_ms, document.number))
    customer.waiting -= 1
    customer.running += 1
    state.update_block(customer)
    state.log(now_ms, "claimed", customer, document, worker)
    return Claim(
        document.id, document.token, document.number, customer.id, document.kind, document.check.priority, document.payload,
        document.attempts, document.attempts_max, lease_ms, turn.dispatch_number, turn.is_open,
    )  # fmt: skip
