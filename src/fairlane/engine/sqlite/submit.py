"""Check, priority and insert, in one step."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.core.document import ATTEMPTS_DEFAULT, Check, Receipt, Submission
from fairlane.core.errors import KeyConflict
from fairlane.core.policy import step_of
from fairlane.engine.values import check_note

from .queries import sql
from .rows import Account
from .transaction import Transaction


def check(tx: Transaction, customer: str, cost: int, now_ms: int) -> Check:
    """One check without a document."""
    account = tx.account(customer)
    made = _check(tx, account, cost, now_ms)
    tx.log(now_ms, "checked", account.number, note=check_note(made, cost))
    return made


def _check(tx: Transaction, account: Account, cost: int, now_ms: int) -> Check:
    rules = tx.rules
    terms_version, terms = tx.own_terms(account.number)
    policy = terms.policy(rules.policy)
    account.standing = policy.check(account.standing, now_ms, step_of(cost, terms.weight_thousandths))
    counter = account.standing.counter
    tx.account_changed(account)
    return Check(account.id, policy.level(counter), counter, now_ms, rules.version, terms_version)


def submit(tx: Transaction, submissions: Sequence[Submission], now_ms: int) -> list[Receipt]:
    """All of them, in order; keys that are known return their first receipt."""
    known = _known_keys(tx, submissions)
    receipts: list[Receipt] = []
    documents: list[tuple[object, ...]] = []
    payloads: list[tuple[int, str]] = []
    for one in submissions:
        if one.key is not None and (one.customer, one.key) in known:
            receipts.append(known[one.customer, one.key])
            continue
        account = tx.account(one.customer)
        receipt = _receipt(tx, account, one, now_ms)
        receipts.append(receipt)
        documents.append(_row(tx, account, one, receipt))
        payloads.append((receipt.number, one.payload))
        if one.key is not None:
            known[one.customer, one.key] = receipt
            tx.execute(sql.add_key, (account.number, one.key, receipt.number, one.digest))
        _queue_up(tx, account, one, receipt)
    tx.executemany(sql.add_document, documents)
    tx.executemany(sql.add_payload, payloads)
    return receipts


def _known_keys(tx: Transaction, submissions: Sequence[Submission]) -> dict[tuple[str, str], Receipt]:
    """The receipts of keys that were used before; refuses conflicts before anything is written."""
    known: dict[tuple[str, str], Receipt] = {}
    here: dict[tuple[str, str], tuple[str | None, str]] = {}
    for one in submissions:
        if one.key is None:
            continue
        name = (one.customer, one.key)
        if name not in here:
            account = tx.find_account(one.customer)
            row = account and tx.execute(sql.known_key, (account.number, one.key)).fetchone()
            if row:
                number, digest, id = row
                here[name] = (digest, id)
                id, number, *made = tx.execute(sql.read_receipt, (number,)).fetchone()
                known[name] = Receipt(id, number, Check(*made))
            else:
                here[name] = (one.digest, one.id)
        digest, id = here[name]
        if digest != one.digest:
            raise KeyConflict(one.customer, one.key, id)
    return known


def _receipt(tx: Transaction, account: Account, submission: Submission, now_ms: int) -> Receipt:
    made = _check(tx, account, submission.cost, now_ms)
    tx.last_number += 1
    return Receipt(submission.id, tx.last_number, made)


def _row(tx: Transaction, account: Account, submission: Submission, receipt: Receipt) -> tuple[object, ...]:
    made = receipt.check
    return (
        receipt.number, receipt.id, account.number, account.id, submission.kind,
        "delayed" if submission.delay_ms else "ready",
        made.priority, made.counter_thousandths, made.checked_ms, made.policy_version, made.terms_version,
        tx.own_terms(account.number).terms.weight_thousandths, account.standing.resets, submission.cost, submission.key,
        made.checked_ms + submission.delay_ms, ATTEMPTS_DEFAULT,
    )  # fmt: skip


def _queue_up(tx: Transaction, account: Account, submission: Submission, receipt: Receipt) -> None:
    lane = tx.lane(account.number, submission.kind, receipt.priority)
    lane.waiting += 1
    tx.log(receipt.check.checked_ms, "submitted", account.number, receipt.number, 0)
    if not submission.delay_ms:
        tx.join_lane(lane, receipt.number, receipt.check.checked_ms)
