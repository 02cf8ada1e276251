"""Check and submit: check, priority and insert in one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fairlane.core.document import ATTEMPTS_DEFAULT, NO_CHECK, CheckRow, ReceiptRow, Submission
from fairlane.core.errors import KeyConflict
from fairlane.core.policy import step_of, weight_of
from fairlane.engine.codec import encode_check
from fairlane.engine.errors import unknown_source_error
from fairlane.engine.limits import Additions, new_submissions, source_of, submission_bytes

from .limits import refuse_over_limits
from .queries import sql
from .transaction import Transaction


class _Source(NamedTuple):
    """The document that a submission comes out of."""

    check: CheckRow
    root: int  # the first document of its family
    priority: int
    no_better_than: int | None
    by_hand: int


class Submitter:
    """A customer while a transaction inserts its documents: its row, policy and weight are read once."""

    __slots__ = ("customer", "policy", "terms_version", "tx", "weight")

    def __init__(self, tx: Transaction, customer_id: str) -> None:
        self.tx = tx
        self.customer = tx.customer(customer_id)
        self.terms_version, terms = tx.terms(self.customer.number)
        self.policy = terms.policy(tx.rules.policy)
        self.weight = weight_of(terms)

    def count_busy(self, adding: int) -> None:
        """Raise the figure that is never below the documents that wait or run."""
        if self.customer.busy_most is not None:
            self.customer.busy_most += adding
            self.tx.mark_changed(self.customer)

    def check(self, cost: int, now_ms: int, no_better_than: int | None = None) -> CheckRow:
        """Move the counter by one check."""
        customer = self.customer
        self.tx.mark_changed(customer)
        customer.standing = standing = self.policy.check(customer.standing, now_ms, step_of(cost, self.weight))
        level = max(self.policy.level(standing.counter), no_better_than or 1)
        return CheckRow(customer.id, level, standing.counter, now_ms, self.tx.rules.version, self.terms_version)

    def submit(self, submission: Submission, now_ms: int, source: _Source | None, whole: str | None = None) -> ReceiptRow:
        """Insert a document; one made from another document inherits that one's check and moves no counter."""
        tx, customer = self.tx, self.customer
        if source is None or submission.made_from is None:
            check, resets = self.check(submission.cost, now_ms, submission.no_better_than), customer.standing.resets
            priority, no_better_than, by_hand = check.priority, submission.no_better_than, 0
        else:
            check, resets = source.check._replace(checked_ms=now_ms), NO_CHECK
            priority, no_better_than, by_hand = source.priority, source.no_better_than, source.by_hand
        tx.last_number = number = tx.last_number + 1
        ready_ms = now_ms + submission.delay_ms
        state, size = "delayed" if submission.delay_ms else "ready", submission_bytes(submission)
        row = (
            number, submission.id, customer.number, customer.id, submission.kind, state, priority, *check[2:], self.weight,
            resets, submission.cost, submission.key, ready_ms, ATTEMPTS_DEFAULT, size, None if source is None else source.root,
            check.priority if check.priority != priority else None, no_better_than, by_hand,
            whole,
        )  # fmt: skip
        tx.add_document(row, number, submission.payload)
        tx.log(now_ms, "submitted", customer.number, number, 0, submission.made_from)
        lane = tx.lane(customer.number, submission.kind, priority)
        lane.waiting += 1
        lane.documents += 1
        lane.bytes += size
        if not submission.delay_ms:
            tx.join_lane(lane, number, ready_ms)
        return ReceiptRow(submission.id, number, check)


def check(tx: Transaction, customer_id: str, cost: int, now_ms: int) -> CheckRow:
    """Check a customer without submitting a document."""
    submitter = Submitter(tx, customer_id)
    check = submitter.check(cost, now_ms)
    tx.log(now_ms, "checked", submitter.customer.number, note=encode_check(check, cost))
    return check


def submit(tx: Transaction, submissions: Sequence[Submission], now_ms: int) -> list[ReceiptRow]:
    """Submit documents in order; known keys return their first receipt."""
    sources = _read_sources(tx, submissions)
    known = _read_known_keys(tx, submissions)
    root_of = (lambda submission: _root(sources, submission)) if sources else None
    additions = Additions(new_submissions(submissions, known), root_of)
    refuse_over_limits(tx, additions)
    submitters: dict[str, Submitter] = {}
    receipts: list[ReceiptRow] = []
    for submission in submissions:
        if submission.key is not None and (submission.customer, submission.key) in known:
            receipts.append(known[submission.customer, submission.key])
            continue
        submitter = submitters.get(submission.customer)
        if submitter is None:
            submitter = submitters[submission.customer] = Submitter(tx, submission.customer)
            submitter.count_busy(additions.customers[submission.customer])
        receipt = submitter.submit(submission, now_ms, sources.get(source_of(submission)) if sources else None)
        receipts.append(receipt)
        if submission.key is not None:
            known[submission.customer, submission.key] = receipt
            tx.execute(sql.add_key, (submitter.customer.number, submission.key, receipt.number, submission.digest))
    for root, members in additions.families.items():
        tx.execute(sql.add_to_family, (root, len(members)))
    return receipts


def add_parts(tx: Transaction, whole: str, parts: Sequence[Submission], now_ms: int) -> None:
    """Insert the parts of a document that was split: they are made from it."""
    source = next(iter(_read_sources(tx, parts[:1]).values()))
    submitter = Submitter(tx, parts[0].customer)
    submitter.count_busy(len(parts))
    tx.execute(sql.write_first_part, (tx.last_number + 1, whole))
    for part in parts:
        submitter.submit(part, now_ms, source, whole)
    tx.execute(sql.add_to_family, (source.root, len(parts)))


def _read_sources(tx: Transaction, submissions: Sequence[Submission]) -> dict[str | None, _Source]:
    """Return the documents that others come out of, by id; raise Unknown before anything is written."""
    sources: dict[str | None, _Source] = {}
    for submission in submissions:
        if submission.made_from is None and submission.parent is None:
            continue
        tx.flush_documents()
        row = tx.execute(sql.read_source, (source_of(submission),)).fetchone()
        if row is None or row[0] != submission.customer:
            raise unknown_source_error(submission)
        customer, checked_priority, counter, policy_version, terms_version, *source = row
        check = CheckRow(customer, checked_priority, counter, 0, policy_version, terms_version)
        sources[source_of(submission)] = _Source(check, *source)
    return sources


def _root(sources: dict[str | None, _Source], submission: Submission) -> int | None:
    source = sources.get(source_of(submission))
    return None if source is None else source.root


def _read_known_keys(tx: Transaction, submissions: Sequence[Submission]) -> dict[tuple[str, str], ReceiptRow]:
    """Return the receipts of keys that were used before; raise KeyConflict before anything is written."""
    receipts: dict[tuple[str, str], ReceiptRow] = {}
    owners: dict[tuple[str, str], tuple[str | None, str]] = {}  # (customer, key): digest and id of its document
    for submission in submissions:
        if submission.key is None:
            continue
        name = (submission.customer, submission.key)
        if name not in owners:
            tx.flush_documents()
            customer = tx.find_customer(submission.customer)
            row = customer and tx.execute(sql.read_key, (customer.number, submission.key)).fetchone()
            if row:
                number, *owner = row
                owners[name] = (owner[0], owner[1])
                id, number, *check = tx.execute(sql.read_receipt, (number,)).fetchone()
                receipts[name] = ReceiptRow(id, number, CheckRow(*check))
            else:
                owners[name] = (submission.digest, submission.id)
        digest, id = owners[name]
        if digest != submission.digest:
            raise KeyConflict(submission.customer, submission.key, id)
    return receipts
