"""What is seen without moving anything: rows into the values that people look at."""

from __future__ import annotations

from functools import lru_cache

from fairlane.core.dispatch import Pace, estimate_ahead, is_blocked
from fairlane.core.document import WAITING, Check, Customer, Document, Outlook
from fairlane.core.policy import Standing
from fairlane.engine.codec import decode_rules, decode_terms
from fairlane.engine.read import customer_snapshot

from .pool import Row

rules_of = lru_cache(maxsize=8)(decode_rules)
_terms_of = lru_cache(maxsize=1024)(decode_terms)


def customer_of(id: str, row: Row) -> Customer:
    """A customer from its row: standing, terms, counts."""
    now_ms, rules_version, rules_body, counter, updated_ms, reset_ms, resets, terms_version, terms_body, *rest = row
    standing = Standing(counter or 0, updated_ms, reset_ms, resets or 0)
    everybody = rules_of(rules_body, rules_version).policy
    return customer_snapshot(id, standing, rest, _terms_of(terms_body), terms_version, everybody, now_ms)


def document_of(row: Row) -> Document:
    """A document from its row of snapshots."""
    id, number, customer, kind, state, *check, cost, key, ready_ms, attempts, attempts_max, token = row[:16]
    return Document(
        id, number, customer, kind, state, Check(customer, *check), cost, key, ready_ms, attempts, attempts_max, token,
        *row[16:20],
    )  # fmt: skip


def outlook_of(row: Row) -> Outlook | None:
    """What stands before a waiting document."""
    now_ms, priority, state, ready, lanes, dispatches, *pace, paused, cap, running, own_ready, own_before, oldest = row
    if state not in WAITING:
        return None
    ahead = estimate_ahead(
        before=sum(ready[: priority - 1]),
        others=ready[priority - 1] - own_ready,
        other_lanes=lanes[priority - 1] - (own_ready > 0),
        own_before=own_before,
    )
    return Outlook(now_ms, ahead, is_blocked(paused, cap, running), *Pace(*pace).recent(now_ms, dispatches), oldest)
