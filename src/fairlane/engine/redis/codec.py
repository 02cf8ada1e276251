"""Encode values as a script's arguments, and decode its reply; the order is that of the Lua files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from fairlane.core import dispatch
from fairlane.core.document import (
    CheckRow,
    Claim,
    Continued,
    Customer,
    DocumentRow,
    Done,
    Failed,
    Outcome,
    ReceiptRow,
    Released,
    Retried,
    Submission,
    Totals,
)
from fairlane.core.policy import (
    COUNTER_FLOOR,
    STEP,
    CustomerLimits,
    KindLimit,
    Policy,
    Rules,
    Standing,
    Terms,
    interval_ms_of,
    to_thousandths,
    weight_of,
)
from fairlane.engine.codec import decode_rules, decode_terms
from fairlane.engine.limits import source_of
from fairlane.engine.protocol import KindRow
from fairlane.engine.read import customer_snapshot

parse_rules = lru_cache(maxsize=8)(decode_rules)
parse_terms = lru_cache(maxsize=1024)(decode_terms)


def time_argument(now_ms: int | None) -> int | str:
    """Return the time that a test passed in, or nothing for the server's clock."""
    return "" if now_ms is None else now_ms


def seq(number: int) -> str:
    """Return a document's number as scripts use it: 16 digits, so that text sorts by number."""
    return f"{number:016d}"


def submit_arguments(submissions: Sequence[Submission], now_ms: int | None) -> list[Any]:
    """Encode submissions: what documents have in common is sent once as a sender, which each names by its index."""
    senders: dict[tuple[Any, ...], int] = {}
    has_files = any(submission.file_bytes for submission in submissions)
    has_keys = any(submission.key is not None for submission in submissions)
    documents: list[Any] = []
    for submission in submissions:
        sender = (
            submission.customer, submission.kind, submission.cost, submission.delay_ms, source_of(submission) or "",
            int(submission.made_from is not None), "" if submission.no_better_than is None else submission.no_better_than,
        )  # fmt: skip
        index = senders.setdefault(sender, len(senders) + 1)
        documents += (index, submission.id, submission.payload)
        if has_files:
            documents.append(submission.file_bytes)
        if has_keys:
            documents += ("" if submission.key is None else "k" + submission.key, submission.digest or "")
    return [
        time_argument(now_ms),
        0,
        int(has_files),
        int(has_keys),
        len(senders),
        *(value for sender in senders for value in sender),
        *documents,
    ]


def receipts(submissions: Sequence[Submission], reply: list[list[Any]]) -> list[ReceiptRow]:
    """Decode receipts; where a key names another document, the receipt is that document's."""
    return [
        ReceiptRow(id, number, CheckRow(submission.customer, *check))
        for submission, (number, *check, id) in zip(submissions, reply, strict=True)
    ]


def first_from(submissions: Sequence[Submission], customer: str, source: str) -> Submission:
    """Find the first submission of a customer that names a source."""
    return next(submission for submission in submissions if (submission.customer, source_of(submission)) == (customer, source))


def claims(reply: list[list[Any]]) -> list[Claim]:
    """Decode claims; the last value is 1 for an open turn."""
    return [Claim._make((*values, is_open_turn == 1)) for *values, is_open_turn in reply]


def settle_arguments(settlements: Sequence[tuple[Claim, Outcome]], now_ms: int | None) -> list[Any]:
    """Encode settlements with an id for this call, by which a repetition finds it; equal outcomes are sent once."""
    outcomes: dict[tuple[Any, ...], int] = {}
    each: list[Any] = []
    for claim, outcome in settlements:
        index = outcomes.setdefault(_outcome_values(outcome), len(outcomes) + 1)
        each += (seq(claim.number), claim.id, claim.token, index)
    values = [value for outcome in outcomes for value in outcome]
    return [time_argument(now_ms), 0, os.urandom(8), len(outcomes), *values, *each]


def _outcome_values(outcome: Outcome) -> tuple[Any, ...]:
    """Encode an outcome: its name; result, reason or payload; delay, corrected cost, details, bytes of the files it wrote, the
    kind as which the document goes on, and its parts."""
    cost = "" if outcome.cost is None else outcome.cost
    match outcome:
        case Done():
            return "done", "" if outcome.result is None else "r" + outcome.result, 0, cost, "", outcome.file_bytes, "", ""
        case Continued():
            parts = [(part.id, part.kind, part.payload, part.cost, part.delay_ms, part.file_bytes) for part in outcome.parts]
            packed = json.dumps(parts, ensure_ascii=False) if parts else ""
            return "continued", outcome.payload, 0, cost, "", outcome.file_bytes, outcome.kind, packed
        case Failed():
            return "failed", outcome.reason, 0, cost, outcome.details or "", 0, "", ""
        case Retried():
            name = "retried" if outcome.counted else "postponed"
            return name, outcome.reason, outcome.after_ms, cost, outcome.details or "", 0, "", ""
        case Released():
            return "released", "", 0, cost, "", 0, "", ""


def depths_of(policy: Policy) -> list[int]:
    """Convert thresholds to rising depths below zero, in thousandths."""
    return [-to_thousandths("thresholds", value, COUNTER_FLOOR // STEP, 0) for value in policy.thresholds]


def rules_arguments(rules: Rules) -> list[Any]:
    """Encode rules."""
    policy = rules.policy
    frozen = "" if rules.frozen is None else "f" + rules.frozen
    return [
        interval_ms_of(policy), policy.reset, rules.dispatch, rules.turns, rules.open_turn_every, frozen,
        *_limits_arguments(rules.limits), *depths_of(policy),
    ]  # fmt: skip


def _limits_arguments(limits: CustomerLimits) -> list[int | str]:
    return ["" if most is None else most for most in limits]


def terms_arguments(terms: Terms) -> list[Any]:
    """Encode terms; an empty value means that the rules' value holds."""
    policy = terms.policy(Rules().policy)
    depths = [] if terms.thresholds is None else depths_of(policy)
    return [
        weight_of(terms),
        "" if terms.cap is None else terms.cap,
        int(terms.paused),
        "" if terms.reset_interval is None else interval_ms_of(policy),
        terms.reset or "",
        *_limits_arguments(terms.limits),
        int(terms.thresholds is not None),
        *depths,
    ]


def never_seen(customer: str) -> list[Any]:
    """Make the row of a customer that the server does not know."""
    return [customer, 0, None, 0, None, 0, 0, 0, 0, 0, None, 0, 0, None, 0, None]


def standing(counter: int, updated_ms: int | None, resets: int, parts: list[int] | None) -> Standing:
    """Decode a customer's counter; the starts of parts and what was sent in them come one after the other."""
    sent = parts or []
    return Standing(counter, updated_ms, resets, tuple(zip(sent[::2], sent[1::2], strict=True)))


def customer(row: list[Any], rules: Rules, now_ms: int) -> Customer:
    """Decode a customer, with what a check at this moment would give."""
    id, counter, updated_ms, resets, parts, *counts, version, terms = row
    return customer_snapshot(
        id, standing(counter, updated_ms, resets, parts), counts, parse_terms(terms), version, rules, now_ms
    )


def document(row: list[Any]) -> DocumentRow:
    """Decode a document."""
    id, number, customer, kind, state, *check = row[:10]
    document = DocumentRow(id, number, customer, kind, state, CheckRow(customer, *check), *row[10:])
    return document._replace(is_set_by_hand=document.is_set_by_hand == 1)


def kind_limit(text: str | None) -> KindLimit:
    """Decode the limit of a kind; None stands for no limit."""
    return KindLimit(**json.loads(text)) if text else KindLimit()


def kind_limit_text(limit: KindLimit) -> str:
    """Encode the limit of a kind as it is kept."""
    return json.dumps({"running": limit.running, "rate": limit.rate, "burst": limit.burst})


def kind_limit_arguments(limit: KindLimit) -> list[Any]:
    """Encode the limit of a kind: running at once, then rate and burst in thousandths; nothing means no limit."""
    rate = "" if limit.rate is None else round(limit.rate * STEP)
    return ["" if limit.running is None else limit.running, rate, round(limit.burst * STEP)]


def kind(row: list[Any]) -> KindRow:
    """Decode a kind."""
    name, limit, *rest = row
    return KindRow(name, kind_limit(limit), *rest)


def kind_set_text(kinds: Iterable[str] | None) -> str:
    """Encode the set of kinds under which their dispatches are counted."""
    return json.dumps(dispatch.kind_set(kinds), ensure_ascii=False)


def totals(row: list[Any]) -> Totals:
    """Decode the counts of a queue."""
    busy_ms, taken, ready = row
    return Totals(busy_ms, tuple(taken), tuple(ready))
