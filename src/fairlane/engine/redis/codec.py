"""How do values become a script's arguments, and its answer values? The order here is the order in the Lua files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from fairlane.core.document import (
    Check,
    Claim,
    Customer,
    Document,
    Done,
    Failed,
    Outcome,
    Receipt,
    Released,
    Retried,
    Submission,
)
from fairlane.core.policy import COUNTER_FLOOR, STEP, Policy, Rules, Standing, Terms, to_thousandths
from fairlane.engine.codec import decode_rules, decode_terms
from fairlane.engine.read import customer_snapshot

rules_of = lru_cache(maxsize=8)(decode_rules)
terms_of = lru_cache(maxsize=1024)(decode_terms)


def moment(now_ms: int | None) -> int | str:
    """The time that a test passed in, or nothing: then the server's clock rules."""
    return "" if now_ms is None else now_ms


def place(number: int) -> str:
    """A document's number as scripts name it: in text, in the order of numbers."""
    return f"{number:016d}"


def submit_arguments(submissions: Sequence[Submission], now_ms: int | None) -> list[Any]:
    """What documents have in common is sent once, and each names it by its place."""
    senders: dict[tuple[Any, ...], int] = {}
    has_keys = any(one.key is not None for one in submissions)
    documents: list[Any] = []
    for one in submissions:
        common = (one.customer, one.kind, one.cost, one.delay_ms, one.made_from or "")
        sender = senders.get(common)
        if sender is None:
            sender = senders[common] = len(senders) + 1
        if has_keys:
            key = "" if one.key is None else "k" + one.key
            documents += (sender, one.id, one.payload, key, one.digest or "")
        else:
            documents += (sender, one.id, one.payload)
    told = [value for common in senders for value in common]
    return [moment(now_ms), 0, int(has_keys), len(senders), *told, *documents]


def is_plain(submissions: Sequence[Submission]) -> bool:
    """Whether it is one document without a key, a delay or a source."""
    return len(submissions) == 1 and (submissions[0].key, submissions[0].delay_ms, submissions[0].made_from) == (None, 0, None)


def submit_one_arguments(one: Submission, now_ms: int | None) -> list[Any]:
    """What one plain document brings."""
    return [moment(now_ms), 0, one.customer, one.kind, one.cost, one.id, one.payload]


def receipts(submissions: Sequence[Submission], answer: list[Any]) -> list[Receipt]:
    """One receipt a submission, from seven values each; an id is told only where another document answers."""
    told = zip(*[iter(answer)] * 7, strict=True)
    return [
        Receipt(id or one.id, number, Check(one.customer, priority, counter, checked, version, terms))
        for one, (number, priority, counter, checked, version, terms, id) in zip(submissions, told, strict=True)
    ]


def first_from(submissions: Sequence[Submission], customer: str, source: str) -> Submission:
    """The submission that names a source which its customer does not have."""
    return next(one for one in submissions if (one.customer, one.made_from) == (customer, source))


def claims(answer: list[Any]) -> list[Claim]:
    """Claims, from twelve values each; whether one was an open turn is told as a number."""
    return [Claim._make((*told, is_open_turn == 1)) for *told, is_open_turn in zip(*[iter(answer)] * 12, strict=True)]


def settle_arguments(settlements: Sequence[tuple[Claim, Outcome]], now_ms: int | None) -> list[Any]:
    """Outcomes are told once and named by their place, after an id by which the call is known if it has to be sent again."""
    outcomes: dict[tuple[Any, ...], int] = {}
    each: list[Any] = []
    for claim, outcome in settlements:
        which = outcomes.setdefault(_told(outcome), len(outcomes) + 1)
        each += (place(claim.number), claim.id, claim.token, which)
    told = [value for outcome in outcomes for value in outcome]
    return [moment(now_ms), 0, os.urandom(8), len(outcomes), *told, *each]


def _told(outcome: Outcome) -> tuple[Any, ...]:
    """An outcome's name, its result or reason, after how long to come back, and the cost it turned out to have."""
    cost = "" if outcome.cost is None else outcome.cost
    match outcome:
        case Done():
            return "done", "" if outcome.result is None else "r" + outcome.result, 0, cost
        case Failed():
            return "failed", outcome.reason, 0, cost
        case Retried():
            return "retried", outcome.reason, outcome.after_ms, cost
        case Released():
            return "released", "", 0, cost


def depths_of(policy: Policy) -> list[int]:
    """The thresholds as rising depths below zero, in thousandths."""
    return [-to_thousandths("thresholds", value, COUNTER_FLOOR // STEP, 0) for value in policy.thresholds]


def rules_arguments(rules: Rules) -> list[Any]:
    """Rules in the numbers that scripts work with."""
    policy = rules.policy
    frozen = "" if rules.frozen is None else "f" + rules.frozen
    return [policy.interval_ms, policy.reset, rules.dispatch, rules.open_turn_every, frozen, *depths_of(policy)]


def terms_arguments(terms: Terms) -> list[Any]:
    """Terms in the numbers that scripts work with; empty: as everybody."""
    policy = terms.policy(Rules().policy)
    depths = [] if terms.thresholds is None else depths_of(policy)
    return [
        terms.weight_thousandths,
        "" if terms.cap is None else terms.cap,
        int(terms.paused),
        "" if terms.reset_interval is None else policy.interval_ms,
        terms.reset or "",
        int(terms.thresholds is not None),
        *depths,
    ]


def never_seen(customer: str) -> list[Any]:
    """The row of a customer that the server does not know."""
    return [customer, 0, None, None, 0, 0, 0, 0, 0, 0, None, 0, None]


def customer(row: list[Any], everybody: Rules, now_ms: int) -> Customer:
    """A look at a customer: what is stored, and what a check at this moment would give."""
    id, counter, updated_ms, reset_ms, resets, *counts, version, told = row
    standing = Standing(counter, updated_ms, reset_ms, resets)
    return customer_snapshot(id, standing, counts, terms_of(told), version, everybody.policy, now_ms)


def document(row: list[Any]) -> Document:
    """A snapshot of a document."""
    id, number, customer, kind, state, *check = row[:10]
    return Document(id, number, customer, kind, state, Check(customer, *check), *row[10:])
