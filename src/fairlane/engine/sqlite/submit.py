"""Check and submit: check, priority and insert in one step."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.core.document import ATTEMPTS_DEFAULT, NO_CHECK, CheckRow, ReceiptRow, Submission
from fairlane.core.errors import KeyConflict
from fairlane.core.policy import step_of, weight_of
from fairlane.engine.codec import encode_check
from fairlane.engine.errors import unknown_source_error

from .queries import sql
from .transaction import Transaction


class _Submitter:
    """A customer while a transaction inserts its documents: its row, policy and weight are read once."""

    __slots__ = ("customer", "policy", "terms_version", "tx", "weight")

    def __init__(self, tx: Transaction, customer_id: str) -> None:
        self.tx = tx
        self.customer = tx.customer(customer_id)
        self.terms_version, terms = tx.terms(self.customer.number)
        self.policy = terms.policy(tx.rules.policy)
        self.weight = weight_of(terms)

    def check(self, cost: int, now_ms: int) -> CheckRow:
        """Move the counter by one check."""
        customer = self.customer
        self.tx.mark_changed(customer)
        customer.standing = standing = self.policy.check(customer.standing, now_ms, step_of(cost, self.weight))
        level = self.policy.level(standing.counter)
        return CheckRow(customer.id, level, standing.counter, now_ms, self.tx.rules.version, self.terms_version)

    def submit(self, submission: Submission, now_ms: int, source_check: CheckRow | None) -> ReceiptRow:
        """Insert a document; one made from another document inherits that one's check and moves no counter."""
        tx, customer = self.tx, self.customer
        check = self.check(submission.cost, now_ms) if source_check is None else source_check._replace(checked_ms=now_ms)
        resets = customer.standing.resets if source_check is None else NO_CHECK
        tx.last_number = number = tx.last_number + 1
        ready_ms = now_ms + submission.delay_ms
        state = "delayed" if submission.delay_ms else "ready"
        row = (
            number, submission.id, customer.number, customer.id, submission.kind, state, *check[1:], self.weight, resets,
            submission.cost, submission.key, ready_ms, ATTEMPTS_DEFAULT,
        )  # fmt: skip
        tx.add_document(row, number, submission.payload)
        tx.log(now_ms, "submitted", customer.number, number, 0, submission.made_from)
        lane = tx.lane(customer.number, submission.kind, check.priority)
        lane.waiting += 1
        if not submission.delay_ms:
            tx.join_lane(lane, number, ready_ms)
        return ReceiptRow(submission.id, number, check)


def check(tx: Transaction, customer_id: str, cost: int, now_ms: int) -> CheckRow:
    """Check a customer without submitting a document."""
    submitter = _Submitter(tx, customer_id)
    check = submitter.check(cost, now_ms)
    tx.log(now_ms, "checked", submitter.customer.number, note=encode_check(check, cost))
    return check


def submit(tx: Transaction, submissions: Sequence[Submission], now_ms: int) -> list[ReceiptRow]:
    """Submit documents in order; known keys return their first receipt."""
    source_checks = _read_source_checks(tx, submissions)
    known = _read_known_keys(tx, submissions)
    submitters: dict[str, _Submitter] = {}
    receipts: list[ReceiptRow] = []
    for submission in submissions:
        if submission.key is not None and (submission.customer, submission.key) in known:
            receipts.append(known[submission.customer, submission.key])
            continue
        submitter = submitters.get(submission.customer)
        if submitter is None:
            submitter = submitters[submission.customer] = _Submitter(tx, submission.customer)
        receipt = submitter.submit(submission, now_ms, source_checks.get(submission.made_from))
        receipts.append(receipt)
        if submission.key is not None:
            known[submission.customer, submission.key] = receipt
            tx.execute(sql.add_key, (submitter.customer.number, submission.key, receipt.number, submission.digest))
    return receipts


def _read_source_checks(tx: Transaction, submissions: Sequence[Submission]) -> dict[str | None, CheckRow]:
    """Return the checks to inherit, by source document; raise Unknown before anything is written."""
    checks: dict[str | None, CheckRow] = {}
    for submission in submissions:
        if submission.made_from is None:
            continue
        tx.flush_documents()
        row = tx.execute(sql.read_source_check, (submission.made_from,)).fetchone()
        if row is None or row[0] != submission.customer:
            raise unknown_source_error(submission)
        customer, priority, counter, *versions = row
        checks[submission.made_from] = CheckRow(customer, priority, counter, 0, *versions)
    return checks


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
