"""Configure, tune, limits, reset, records, purge and forget: what operators do with a queue in a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fairlane.core.dispatch import Bucket
from fairlane.core.document import Record
from fairlane.core.policy import KindLimit, Rules, Terms, operator_reset
from fairlane.engine.codec import encode_kind_limit, encode_rules, encode_terms
from fairlane.engine.protocol import Purged, Removed, Rewrite, TextPart

from .kinds import encode_limit
from .queries import sql
from .rows import TransitionRow
from .settle import delete_document, forget_document
from .transaction import Transaction


def configure(tx: Transaction, rules: Rules, now_ms: int) -> Rules | None:
    """Replace the rules, under the next version."""
    before = tx.rules
    if rules.version != before.version:
        return None
    tx.rules = replace(rules, version=rules.version + 1)
    body = encode_rules(tx.rules)
    tx.execute(sql.add_rules, (tx.rules.version, now_ms, body))
    if (rules.dispatch, rules.turns) != (before.dispatch, before.turns):
        tx.level_lanes()
    tx.log(now_ms, "configured", note=body)
    return tx.rules


def tune(tx: Transaction, customer_id: str, terms: Terms, version: int, now_ms: int) -> int | None:
    """Replace a customer's terms, under the next version."""
    known = tx.find_customer(customer_id)
    if version != (tx.terms(known.number).version if known else 0):
        return None
    customer = tx.customer(customer_id)
    new_version = tx.tune(customer.number, terms, now_ms)
    tx.log(now_ms, "tuned", customer.number, note=encode_terms(terms))
    return new_version


def limit_kind(tx: Transaction, name: str, limit: KindLimit, version: int, now_ms: int) -> int | None:
    """Replace a kind's limit, with a full bucket, under the next version."""
    kind = tx.kinds.get(name)
    if version != kind.version:
        return None
    tx.flush_documents()
    kind.limit, kind.limits, kind.version = limit, encode_limit(limit), version + 1
    kind.bucket = Bucket()
    (kind.running,) = tx.execute(sql.count_running_of_kind, (name,)).fetchone()
    tx.update_kind(kind, now_ms)
    tx.log(now_ms, "limited", note=encode_kind_limit(name, limit))
    return kind.version


def reset(tx: Transaction, customer_id: str, now_ms: int) -> None:
    """Set a customer's counter back as if it had never been seen."""
    customer = tx.find_customer(customer_id)
    if customer is not None:
        customer.standing = operator_reset(customer.standing)
        tx.mark_changed(customer)
        tx.log(now_ms, "reset", customer.number)


def put_record(tx: Transaction, group: str, key: str, value: str | None, version: int | None) -> int | None:
    """Set or delete a record."""
    row = tx.execute(sql.read_record, (group, key)).fetchone()
    if version is not None and version != (Record(*row).version if row else 0):
        return None
    if value is None:
        tx.execute(sql.delete_record, (group, key))
        return 0
    return tx.write_record(group, key, value)


def rewrite(tx: Transaction, part: TextPart, texts: Sequence[Rewrite]) -> int:
    """Replace texts that are still what they were."""
    tx.flush()
    statement = {
        "payload": sql.rewrite_payload, "result": sql.rewrite_result, "reason": sql.rewrite_reason,
        "digest": sql.rewrite_digest, "note": sql.rewrite_note,
    }[part]  # fmt: skip
    return sum(len(tx.execute(statement, (after, number, before)).fetchall()) for number, before, after in texts)


def purge(tx: Transaction, before_ms: int, limit: int) -> Purged:
    """Delete old changes first and ended documents after: no document may vanish while its changes can still be read."""
    tx.flush_documents()
    trimmed = _trim_changes(tx, before_ms, limit)
    if trimmed == limit:
        return Purged([], trimmed)
    ended = [TransitionRow(*row) for row in tx.execute(sql.read_ended_documents, (before_ms, limit)).fetchall()]
    for document in ended:
        delete_document(tx, document)
    return Purged([Removed(document.id, document.customer_id, document.token) for document in ended], trimmed)


def _trim_changes(tx: Transaction, before_ms: int, limit: int) -> int:
    tx.flush()
    trimmed = 0
    for number, at_ms in tx.execute(sql.read_oldest_changes, (limit,)).fetchall():
        if at_ms > before_ms:
            break
        trimmed += 1
        tx.changes_floor = number
    if trimmed:
        tx.execute(sql.trim_changes, (tx.changes_floor,))
    return trimmed


def forget(tx: Transaction, customer_id: str, limit: int, now_ms: int) -> list[Removed]:
    """Erase some of a customer's documents; when none is left, everything else that names it."""
    tx.flush_documents()
    customer = tx.find_customer(customer_id)
    if customer is None:
        return []
    documents = [TransitionRow(*row) for row in tx.execute(sql.read_documents_to_forget, (customer.number, limit))]
    for document in documents:
        forget_document(tx, document, now_ms)
    if not documents:
        tx.delete_customer(customer)
        tx.log(now_ms, "forgotten")
    return [Removed(document.id, customer_id, document.token) for document in documents]
