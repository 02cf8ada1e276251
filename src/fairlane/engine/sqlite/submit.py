"""Check, priority and insert, in one step."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.core.document import ATTEMPTS_DEFAULT, NO_CHECK, CheckRow, ReceiptRow, Submission
from fairlane.core.errors import KeyConflict
from fairlane.core.policy import step_of
from fairlane.engine.codec import encode_check
from fairlane.engine.errors import unknown_source_error

from .queries import sql
from .transaction import Transaction


class _Sender:
    """A customer while a transaction takes its documents: its row, its policy, its lanes."""

    __slots__ = ("account", "policy", "terms_version", "tx", "weight")

    def __init__(self, tx: Transaction, customer: str) -> None:
        self.tx = tx
        self.account = tx.account(customer)
        self.terms_version, terms = tx.own_terms(self.account.number)
        self.policy = terms.policy(tx.rules.policy)
        self.weight = terms.weight_thousandths

    def check(self, cost: int, now_ms: int) -> CheckRow:
        """One check: the counter moves, and gives a priority."""
        account = self.account
        self.tx.account_changed(account)
        account.standing = standing = self.policy.check(account.standing, now_ms, step_of(cost, self.weight))
        level = self.policy.level(standing.counter)
        return CheckRow(account.id, level, standing.counter, now_ms, self.tx.rules.version, self.terms_version)

    def take(self, submission: Submission, now_ms: int, source: CheckRow | None) -> ReceiptRow:
        """Check, priority and insert; a document made from another one inherits instead of being checked."""
        tx, account = self.tx, self.account
        made = self.check(submission.cost, now_ms) if source is None else source._replace(checked_ms=now_ms)
        resets = account.standing.resets if source is None else NO_CHECK
        tx.last_number = number = tx.last_number + 1
        ready_ms = now_ms + submission.delay_ms
        tx.documents.append((
            number, submission.id, account.number, account.id, submission.kind, "delayed" if submission.delay_ms else "ready",
            *made[1:], self.weight, resets, submission.cost, submission.key, ready_ms, ATTEMPTS_DEFAULT,
        ))  # fmt: skip
        tx.payloads.append((number, submission.payload))
        tx.log(now_ms, "submitted", account.number, number, 0, submission.made_from)
        lane = tx.lane(account.number, submission.kind, made.priority)
        lane.waiting += 1
        if not submission.delay_ms:
            tx.join_lane(lane, number, ready_ms)
        return ReceiptRow(submission.id, number, made)


def check(tx: Transaction, customer: str, cost: int, now_ms: int) -> CheckRow:
    """One check without a document."""
    sender = _Sender(tx, customer)
    made = sender.check(cost, now_ms)
    tx.log(now_ms, "checked", sender.account.number, note=encode_check(made, cost))
    return made


def submit(tx: Transaction, submissions: Sequence[Submission], now_ms: int) -> list[ReceiptRow]:
    """All of them, in order; keys that are known return their first receipt."""
    sources = _sources(tx, submissions)
    known = _known_keys(tx, submissions)
    senders: dict[str, _Sender] = {}
    receipts: list[ReceiptRow] = []
    for one in submissions:
        if one.key is not None and (one.customer, one.key) in known:
            receipts.append(known[one.customer, one.key])
            continue
        sender = senders.get(one.customer)
        if sender is None:
            sender = senders[one.customer] = _Sender(tx, one.customer)
        receipt = sender.take(one, now_ms, sources.get(one.made_from))
        receipts.append(receipt)
        if one.key is not None:
            known[one.customer, one.key] = receipt
            tx.execute(sql.add_key, (sender.account.number, one.key, receipt.number, one.digest))
    return receipts


def _sources(tx: Transaction, submissions: Sequence[Submission]) -> dict[str | None, CheckRow]:
    """What documents made from others inherit; refuses unknown ones before anything is written."""
    sources: dict[str | None, CheckRow] = {}
    for one in submissions:
        if one.made_from is None:
            continue
        tx.flush_documents()
        row = tx.execute(sql.read_source, (one.made_from,)).fetchone()
        if row is None or row[0] != one.customer:
            raise unknown_source_error(one)
        customer, priority, counter, *versions = row
        sources[one.made_from] = CheckRow(customer, priority, counter, 0, *versions)
    return sources


def _known_keys(tx: Transaction, submissions: Sequence[Submission]) -> dict[tuple[str, str], ReceiptRow]:
    """The receipts of keys that were used before; refuses conflicts before anything is written."""
    known: dict[tuple[str, str], ReceiptRow] = {}
    here: dict[tuple[str, str], tuple[str | None, str]] = {}
    for one in submissions:
        if one.key is None:
            continue
        name = (one.customer, one.key)
        if name not in here:
            tx.flush_documents()
            account = tx.find_account(one.customer)
            row = account and tx.execute(sql.known_key, (account.number, one.key)).fetchone()
            if row:
                number, digest, id = row
                here[name] = (digest, id)
                id, number, *made = tx.execute(sql.read_receipt, (number,)).fetchone()
                known[name] = ReceiptRow(id, number, CheckRow(*made))
            else:
                here[name] = (one.digest, one.id)
        digest, id = here[name]
        if digest != one.digest:
            raise KeyConflict(one.customer, one.key, id)
    return known
