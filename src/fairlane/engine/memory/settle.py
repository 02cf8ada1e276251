"""Extend, take over, settle, reclaim, cancel and retry: every way in which a claim or a document ends.

After all settlements of a call come the parts of documents that were split, then what the end of a part does to its whole,
and the end of a whole to its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappush

from fairlane.core.dispatch import USUAL_SHARE, USUAL_SHARE_OF_ALL, next_usual
from fairlane.core.document import (
    ENDED,
    NEVER_MS,
    Claim,
    Continued,
    Done,
    Failed,
    Outcome,
    Released,
    Retried,
    State,
    Submission,
)
from fairlane.core.policy import step_of, weight_of
from fairlane.engine.codec import encode_check
from fairlane.engine.limits import refuse_retry, text_bytes
from fairlane.engine.protocol import ATTEMPTS, ATTEMPTS_KEPT, EXPIRED, PART_FAILED, SPENT, attempt_key

from .claim import pop_due
from .state import DocumentState, QueueState
from .submit import check_customer, customer_limits, insert


def extend(state: QueueState, claims: Sequence[Claim], until_ms: int) -> list[Claim]:
    lost = []
    for claim in claims:
        document = _claimed_document(state, claim.id, claim.token)
        if document is None:
            lost.append(claim)
        elif document.lease_ms is not None and document.lease_ms < until_ms:
            document.lease_ms = until_ms
            heappush(state.leases, (until_ms, document.number))
    return lost


def _claimed_document(state: QueueState, id: str, token: int) -> DocumentState | None:
    """Return the document that is claimed under a token, or None if the claim was lost."""
    document = state.document(id)
    return document if document and document.state == "running" and document.token == token else None


def take_over(state: QueueState, id: str, token: int, worker: str, until_ms: int, now_ms: int) -> Claim | None:
    document = _claimed_document(state, id, token)
    if document is None:
        return None
    document.token += 1
    document.worker = worker
    document.lease_ms = until_ms
    heappush(state.leases, (until_ms, document.number))
    state.log(now_ms, "taken_over", document.customer, document, worker)
    return Claim(
        id, document.token, document.number, document.customer.id, document.kind, document.priority, document.payload,
        document.attempts, document.attempts_max, until_ms, turn=0, is_open_turn=False,
    )  # fmt: skip


def settle(state: QueueState, settlements: Sequence[tuple[Claim, Outcome]], now_ms: int) -> list[Claim]:
    lost, settled, splits = [], [], []
    for claim, outcome in settlements:
        document = _claimed_document(state, claim.id, claim.token)
        if document is None:
            lost.append(claim)
        else:
            _correct_cost(state, document, outcome.cost, now_ms)
            _true_up(state, document, now_ms)
            _settle(state, document, outcome, now_ms)
            settled.append(document)
            if isinstance(outcome, Retried | Failed) and outcome.details is not None:
                _keep_details(state, claim, outcome.details)
            if isinstance(outcome, Continued) and outcome.parts:
                splits.append((document, outcome.parts))
    for document, parts in splits:
        _add_parts(state, document, parts, now_ms)
    _end_families(state, settled, now_ms)
    return lost


def _keep_details(state: QueueState, claim: Claim, details: str) -> None:
    """Keep the details of an attempt, and those of the claims shortly before it."""
    for token in range(1, claim.token - ATTEMPTS_KEPT + 1):
        state.records.pop((ATTEMPTS, attempt_key(claim.id, token)), None)
    state.write_record(ATTEMPTS, attempt_key(claim.id, claim.token), details)


def _correct_cost(state: QueueState, document: DocumentState, cost: int | None, now_ms: int) -> None:
    if cost is None or cost == document.cost:
        return
    customer = document.customer
    more = step_of(cost, document.weight) - step_of(document.cost, document.weight)
    policy = customer.terms.policy(state.rules.policy)
    customer.standing = policy.correct(customer.standing, document.check.checked_ms, document.resets, more)
    state.log(now_ms, "corrected", document.customer, document, f"{document.cost} {cost}")
    document.cost = cost


def _true_up(state: QueueState, document: DocumentState, now_ms: int) -> None:
    """Charge the lane of an attempt that ends what it took more than was paid, and note what attempts usually take."""
    customer = document.customer
    taken = max(0, now_ms - (document.claimed_ms or 0)) * 1000
    if document.paid is not None and state.rules.turns == "time":
        delta = max(1, taken // weight_of(customer.terms)) - document.paid
        state.lanes.true_up(customer.id, document.kind, document.priority, delta)
    customer.usual = next_usual(customer.usual, taken, USUAL_SHARE)
    state.usual = next_usual(state.usual, taken, USUAL_SHARE_OF_ALL)


def _settle(state: QueueState, document: DocumentState, outcome: Outcome, now_ms: int) -> None:
    match outcome:
        case Done():
            document.result = outcome.result
            added = text_bytes(outcome.result) + outcome.file_bytes
            document.bytes += added
            document.customer.bytes += added
            _end(state, document, "done", now_ms)
        case Continued():
            _continue(state, document, outcome, now_ms)
        case Failed():
            _end(state, document, "failed", now_ms, outcome.reason)
        case Released():
            document.attempts -= 1
            _requeue(state, document, "released", now_ms)
        case Retried(counted=False):
            document.attempts -= 1
            _requeue(state, document, "postponed", now_ms, outcome.after_ms, outcome.reason)
        case Retried() if document.attempts >= document.attempts_max:
            reason = SPENT.format(attempts=document.attempts, attempts_max=document.attempts_max, reason=outcome.reason)
            _end(state, document, "failed", now_ms, reason)
        case Retried():
            _requeue(state, document, "retried", now_ms, outcome.after_ms, outcome.reason)


def _end(state: QueueState, document: DocumentState, final: State, now_ms: int, reason: str | None = None) -> None:
    customer = document.customer
    if document.state == "running":
        state.stop_running(document, now_ms)
    else:
        customer.waiting -= 1
    setattr(customer, final, getattr(customer, final) + 1)
    document.state, document.ended_ms, document.lease_ms, document.reason = final, now_ms, None, reason
    state.log(now_ms, final, customer, document, reason)


def _continue(state: QueueState, document: DocumentState, outcome: Continued, now_ms: int) -> None:
    """Let a document go on as another kind, when its parts are done if it has any."""
    state.stop_running(document, now_ms)
    customer = document.customer
    added = text_bytes(outcome.payload) - text_bytes(document.payload) + outcome.file_bytes
    customer.waiting, customer.bytes, document.bytes = customer.waiting + 1, customer.bytes + added, document.bytes + added
    document.kind, document.payload, document.attempts, document.lease_ms = outcome.kind, outcome.payload, 0, None
    document.state, document.ready_ms = ("delayed", NEVER_MS) if outcome.parts else ("ready", now_ms)
    document.parts = document.parts_left = len(outcome.parts)
    state.enqueue(document)
    state.log(now_ms, "split" if outcome.parts else "continued", customer, document, outcome.kind)


def _add_parts(state: QueueState, whole: DocumentState, parts: Sequence[Submission], now_ms: int) -> None:
    whole.parts_from = state.last_number + 1
    for part in parts:
        insert(state, part, now_ms).whole = whole.id


def _end_families(state: QueueState, documents: list[DocumentState], now_ms: int) -> None:
    """Count parts that are done towards their wholes; with a part that failed or was cancelled end its whole, and with a
    whole its other parts."""
    for document in documents:  # which grows
        whole = state.document(document.whole) if document.whole and document.state in ENDED else None
        if whole and whole.parts_left:
            if document.state == "done":
                _count_part(state, whole, now_ms)
            elif whole.state == "delayed":
                reason = PART_FAILED.format(id=document.id, reason=document.reason) if document.state == "failed" else None
                _end(state, whole, document.state, now_ms, reason)
                documents.append(whole)
        if document.parts_left and document.state in ENDED:
            parts = [part for part in state.parts_of(document) if part.state not in ENDED]
            for part in parts:
                _cancel(state, part, now_ms)
            documents += parts


def _count_part(state: QueueState, whole: DocumentState, now_ms: int) -> None:
    whole.parts_left -= 1
    if whole.parts_left == 0 and whole.state == "delayed":
        whole.state, whole.ready_ms = "ready", now_ms
        state.enqueue(whole)
        state.log(now_ms, "joined", whole.customer, whole)


def _requeue(
    state: QueueState, document: DocumentState, what: str, now_ms: int, after_ms: int = 0, note: str | None = None
) -> None:
    state.stop_running(document, now_ms)
    document.customer.waiting += 1
    document.state = "delayed" if after_ms else "ready"
    document.ready_ms = now_ms + after_ms
    document.lease_ms = None
    state.enqueue(document)
    state.log(now_ms, what, document.customer, document, note)


def reclaim(state: QueueState, limit: int, now_ms: int) -> int:
    expired: list[DocumentState] = []
    while len(expired) < limit and (document := pop_due(state, state.leases, "running", now_ms)) is not None:
        expired.append(document)
        if document.attempts >= document.attempts_max:
            reason = EXPIRED.format(attempts=document.attempts, attempts_max=document.attempts_max)
            _end(state, document, "failed", now_ms, reason)
        else:
            _requeue(state, document, "expired", now_ms)
    _end_families(state, list(expired), now_ms)
    return len(expired)


def cancel(state: QueueState, ids: Sequence[str], now_ms: int) -> list[str]:
    cancelled = []
    for id in ids:
        document = state.document(id)
        if document is None or document.state in ENDED:
            continue
        _cancel(state, document, now_ms)
        cancelled.append(document)
    _end_families(state, list(cancelled), now_ms)
    return [document.id for document in cancelled]


def _cancel(state: QueueState, document: DocumentState, now_ms: int) -> None:
    if document.state == "ready":
        state.lanes.discard(document.number)
    _end(state, document, "cancelled", now_ms)


def retry(state: QueueState, id: str, as_customer: bool, now_ms: int) -> bool:
    document = state.document(id)
    if document is None or document.state != "failed" or document.whole in state.numbers:
        return False
    customer = document.customer
    retries = document.retries if as_customer else None
    refuse_retry(id, customer.id, retries, lambda: customer.waiting, customer_limits(state, customer.id))
    note = check_again(state, document, now_ms) if as_customer else None
    document.retries += as_customer
    _revive(state, document, now_ms, note)
    revived = [document]
    for whole in revived:  # which grows
        parts = [part for part in state.parts_of(whole) if whole.parts_left and part.state != "done"]
        for part in parts:
            _revive(state, part, now_ms)
        revived += parts
    return True


def _revive(state: QueueState, document: DocumentState, now_ms: int, note: str | None = None) -> None:
    """Let a document that ended wait again: until its parts are done, if they are not."""
    customer = document.customer
    setattr(customer, document.state, getattr(customer, document.state) - 1)
    customer.waiting += 1
    document.state, document.ready_ms = ("delayed", NEVER_MS) if document.parts_left else ("ready", now_ms)
    document.attempts, document.worker, document.ended_ms, document.reason = 0, None, None, None
    state.enqueue(document)
    state.log(now_ms, "revived", customer, document, note)


def check_again(state: QueueState, document: DocumentState, now_ms: int) -> str:
    """Give a document the check of a new one; return the note for the feed. A priority set by hand stays."""
    before, customer = document.check, document.customer
    document.check = check_customer(state, customer, document.cost, now_ms, document.no_better_than)
    document.resets, document.weight = customer.standing.resets, weight_of(customer.terms)
    if not document.is_set_by_hand:
        document.priority = document.check.priority
    return encode_check(document.check, document.cost, before)
