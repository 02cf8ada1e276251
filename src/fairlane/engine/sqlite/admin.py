"""What operators ask for: rules, terms, resets, purges, forgetting, records."""

from __future__ import annotations

from dataclasses import replace

from fairlane.core.document import Record
from fairlane.core.policy import Rules, Terms, operator_reset
from fairlane.engine.codec import encode_rules, encode_terms
from fairlane.engine.protocol import Purged

from .queries import sql
from .settle import Moving, drop_document, forget_document
from .transaction import Transaction


def configure(tx: Transaction, rules: Rules, now_ms: int) -> Rules | None:
    """Other rules for everybody, under the next version."""
    before = tx.rules
    if rules.version != before.version:
        return None
    tx.rules = replace(rules, version=rules.version + 1)
    body = encode_rules(tx.rules)
    tx.execute(sql.add_rules, (tx.rules.version, now_ms, body))
    if rules.dispatch != before.dispatch:
        tx.start_all_level()
    tx.log(now_ms, "configured", note=body)
    return tx.rules


def tune(tx: Transaction, customer: str, terms: Terms, version: int, now_ms: int) -> int | None:
    """Other terms for one customer, under the next version."""
    known = tx.find_account(customer)
    if version != (tx.own_terms(known.number).version if known else 0):
        return None
    account = tx.account(customer)
    made = tx.tune(account.number, terms, now_ms)
    tx.log(now_ms, "tuned", account.number, note=encode_terms(terms))
    return made


def reset(tx: Transaction, customer: str, now_ms: int) -> None:
    """The customer stands as never seen."""
    account = tx.find_account(customer)
    if account is not None:
        account.standing = operator_reset(account.standing)
        tx.account_changed(account)
        tx.log(now_ms, "reset", account.number)


def purge(tx: Transaction, before_ms: int, limit: int) -> Purged:
    """Old changes go first, then documents that ended; so a document is not gone while its changes can be read."""
    tx.flush_documents()
    trimmed = _trim_changes(tx, before_ms, limit)
    if trimmed == limit:
        return Purged(0, trimmed)
    ended = tx.execute(sql.ended_documents, (before_ms, limit)).fetchall()
    for number, customer, key in ended:
        drop_document(tx, number, customer, key)
    return Purged(len(ended), trimmed)


def _trim_changes(tx: Transaction, before_ms: int, limit: int) -> int:
    tx.flush()
    trimmed = 0
    for number, at_ms in tx.execute(sql.oldest_changes, (limit,)).fetchall():
        if at_ms > before_ms:
            break
        trimmed += 1
        tx.changes_floor = number
    if trimmed:
        tx.execute(sql.trim_changes, (tx.changes_floor,))
    return trimmed


def forget(tx: Transaction, customer: str, limit: int, now_ms: int) -> int:
    """Some of a customer's documents; when none is left, everything else that names it."""
    tx.flush_documents()
    account = tx.find_account(customer)
    if account is None:
        return 0
    own = [Moving(*row) for row in tx.execute(sql.documents_to_forget, (account.number, limit))]
    for moving in own:
        forget_document(tx, moving)
    if not own:
        tx.drop_account(account)
        tx.log(now_ms, "forgotten")
    return len(own)


def put_record(tx: Transaction, group: str, key: str, value: str | None, version: int | None) -> int | None:
    """A record's new value, or none."""
    row = tx.execute(sql.one_record, (group, key)).fetchone()
    if version is not None and version != (Record(*row).version if row else 0):
        return None
    if value is None:
        tx.execute(sql.drop_record, (group, key))
        return 0
    tx.last_record += 1
    tx.execute(sql.put_record, (group, key, value, tx.last_record))
    return tx.last_record
