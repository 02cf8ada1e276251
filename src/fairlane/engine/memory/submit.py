"""Check and submit: check, priority and insert in one step."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.core.document import NO_CHECK, CheckRow, ReceiptRow, Submission
from fairlane.core.errors import KeyConflict
from fairlane.core.policy import step_of, weight_of
from fairlane.engine.codec import encode_check
from fairlane.engine.errors import unknown_source_error

from .state import CustomerState, DocumentState, QueueState


def check(state: QueueState, customer_id: str, cost: int, now_ms: int) -> CheckRow:
    customer = state.customer(customer_id)
    check = _check(state, customer, cost, now_ms)
    state.log(now_ms, "checked", customer, note=encode_check(check, cost))
    return check


def submit(state: QueueState, submissions: Sequence[Submission], now_ms: int) -> list[ReceiptRow]:
    _refuse_unknown_sources(state, submissions)
    _refuse_key_conflicts(state, submissions)
    return [_submit(state, submission, now_ms) for submission in submissions]


def _refuse_unknown_sources(state: QueueState, submissions: Sequence[Submission]) -> None:
    for submission in submissions:
        source = state.document(submission.made_from) if submission.made_from else None
        if submission.made_from and (source is None or source.customer.id != submission.customer):
            raise unknown_source_error(submission)


def _refuse_key_conflicts(state: QueueState, submissions: Sequence[Submission]) -> None:
    """Raise KeyConflict before anything is moved; a key may also occur twice in the batch itself."""
    in_batch: dict[tuple[str, str], tuple[str | None, str]] = {}
    for submission in submissions:
        if submission.key is None:
            continue
        key = (submission.customer, submission.key)
        stored = state.documents[state.keys[key]] if key in state.keys else None
        known = (stored.digest, stored.id) if stored else in_batch.setdefault(key, (submission.digest, submission.id))
        digest, id = known
        if digest != submission.digest:
            raise KeyConflict(submission.customer, submission.key, id)


def _submit(state: QueueState, submission: Submission, now_ms: int) -> ReceiptRow:
    if submission.key is not None and (submission.customer, submission.key) in state.keys:
        return state.documents[state.keys[submission.customer, submission.key]].receipt()
    customer = state.customer(submission.customer)
    source = state.document(submission.made_from) if submission.made_from else None
    check = source.check._replace(checked_ms=now_ms) if source else _check(state, customer, submission.cost, now_ms)
    state.last_number = number = state.last_number + 1
    document = state.documents[number] = DocumentState(number, submission, customer, check)
    state.numbers[document.id] = number
    if document.key is not None:
        state.keys[customer.id, document.key] = number
    customer.waiting += 1
    if source:
        document.resets = NO_CHECK
    state.log(now_ms, "submitted", customer, document, submission.made_from)
    state.enqueue(document)
    return document.receipt()


def _check(state: QueueState, customer: CustomerState, cost: int, now_ms: int) -> CheckRow:
    policy = customer.terms.policy(state.rules.policy)
    customer.standing = policy.check(customer.standing, now_ms, step_of(cost, weight_of(customer.terms)))
    counter = customer.standing.counter
    return CheckRow(customer.id, policy.level(counter), counter, now_ms, state.rules.version, customer.terms_version)
