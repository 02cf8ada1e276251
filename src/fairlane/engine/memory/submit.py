"""Check and submit: check, priority and insert in one step."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.core.document import NO_CHECK, CheckRow, ReceiptRow, Submission
from fairlane.core.errors import KeyConflict
from fairlane.core.policy import CustomerLimits, step_of, weight_of
from fairlane.engine.codec import encode_check
from fairlane.engine.errors import unknown_source_error
from fairlane.engine.limits import Additions, Usage, limits_of, new_submissions, refuse_customer, refuse_family, source_of

from .state import CustomerState, DocumentState, Family, QueueState


def check(state: QueueState, customer_id: str, cost: int, now_ms: int) -> CheckRow:
    customer = state.customer(customer_id)
    check = check_customer(state, customer, cost, now_ms)
    state.log(now_ms, "checked", customer, note=encode_check(check, cost))
    return check


def submit(state: QueueState, submissions: Sequence[Submission], now_ms: int) -> list[ReceiptRow]:
    _refuse_unknown_sources(state, submissions)
    _refuse_key_conflicts(state, submissions)
    _refuse_over_limits(state, submissions)
    return [insert(state, submission, now_ms).receipt() for submission in submissions]


def _refuse_unknown_sources(state: QueueState, submissions: Sequence[Submission]) -> None:
    for submission in submissions:
        if source_of(submission) is not None:
            source = _source(state, submission)
            if source is None or source.customer.id != submission.customer:
                raise unknown_source_error(submission)


def _source(state: QueueState, submission: Submission) -> DocumentState | None:
    id = source_of(submission)
    return None if id is None else state.document(id)


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


def _refuse_over_limits(state: QueueState, submissions: Sequence[Submission]) -> None:
    """Raise LimitReached before anything is moved; only new documents count."""
    additions = Additions(new_submissions(submissions, state.keys), lambda submission: _root(_source(state, submission)))
    for root, members in additions.families.items():
        family = state.families.get(root)
        refuse_family(members, family.descendants if family else 0, customer_limits(state, members[0].customer))
    for id in additions.customers:
        customer = state.customers.get(id) or CustomerState(id)
        usage = Usage(customer.waiting, customer.documents, customer.bytes)
        refuse_customer(id, additions, usage, customer_limits(state, id))


def customer_limits(state: QueueState, customer_id: str) -> CustomerLimits:
    """Return the limits that hold for a customer."""
    customer = state.customers.get(customer_id)
    return state.rules.limits if customer is None else limits_of(customer.terms, state.rules)


def _root(source: DocumentState | None) -> int | None:
    """Return the first document of the family of a document that comes out of another one."""
    return None if source is None else source.number if source.root is None else source.root


def insert(state: QueueState, submission: Submission, now_ms: int) -> DocumentState:
    """Insert a document; return it, or the one that has its key."""
    if submission.key is not None and (submission.customer, submission.key) in state.keys:
        return state.documents[state.keys[submission.customer, submission.key]]
    customer = state.customer(submission.customer)
    source = _source(state, submission)
    if source and submission.made_from:
        check = source.check._replace(checked_ms=now_ms)
    else:
        check = check_customer(state, customer, submission.cost, now_ms, submission.no_better_than)
    state.last_number = number = state.last_number + 1
    document = DocumentState(number, submission, customer, check)
    state.add(document)
    document.root = _root(source)
    if document.root is not None:
        family = state.families.setdefault(document.root, Family())
        family.descendants, family.kept = family.descendants + 1, family.kept + 1
    customer.waiting += 1
    if source and submission.made_from:
        document.resets = NO_CHECK
        document.priority, document.is_set_by_hand = source.priority, source.is_set_by_hand
        document.no_better_than = source.no_better_than
    state.log(now_ms, "submitted", customer, document, submission.made_from)
    state.enqueue(document)
    return document


def check_customer(
    state: QueueState, customer: CustomerState, cost: int, now_ms: int, no_better_than: int | None = None
) -> CheckRow:
    """Move a customer's counter by one check."""
    policy = customer.terms.policy(state.rules.policy)
    customer.standing = policy.check(customer.standing, now_ms, step_of(cost, weight_of(customer.terms)))
    counter = customer.standing.counter
    priority = max(policy.level(counter), no_better_than or 1)
    return CheckRow(customer.id, priority, counter, now_ms, state.rules.version, customer.terms_version)
