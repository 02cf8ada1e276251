"""Rules, terms and checks as the JSON text that stores and the feed keep."""

from __future__ import annotations

import json
from dataclasses import fields

from fairlane.core.document import CheckRow
from fairlane.core.policy import CustomerLimits, KindLimit, Policy, Rules, Terms

RESETS_GONE = ("window", "gradual")  # `sliding` has taken their place
GONE = "has rules with reset = "  # so begins why rules that name one of them are frozen; servers write it in their migration
LIMITS_AT_FIRST = CustomerLimits(waiting_max=100_000, descendants_max=10_000, retries_max=3)  # of rules that name none


def encode_rules(rules: Rules) -> str:
    """Return the rules as JSON, without their version."""
    frozen = {} if rules.frozen is None else {"frozen": rules.frozen}
    return json.dumps(
        {
            "reset_interval": rules.policy.reset_interval,
            "thresholds": rules.policy.thresholds,
            "reset": rules.policy.reset,
            "dispatch": rules.dispatch,
            "turns": rules.turns,
            "open_turn_every": rules.open_turn_every,
            **rules.limits._asdict(),
            **frozen,
        }
    )


def decode_rules(text: str, version: int) -> Rules:
    """Return the rules of that version from their JSON."""
    values = json.loads(text)
    reset, frozen = values["reset"], values.get("frozen")
    if reset in RESETS_GONE:
        why = f"{GONE}{reset}, which is gone: `fairlane policy --reset sliding` sets its successor"
        reset, frozen = "sliding", frozen or why
    policy = Policy(values["reset_interval"], tuple(values["thresholds"]), reset)
    limits = LIMITS_AT_FIRST._replace(**{name: values[name] for name in CustomerLimits._fields if name in values})
    turns = values.get("turns", "time")
    return Rules(policy, values["dispatch"], values["open_turn_every"], version, frozen, limits, turns)


def is_reset_gone(rules: Rules) -> bool:
    """Return whether the rules are frozen because the store names a reset that is gone: what is shown instead is not set."""
    return (rules.frozen or "").startswith(GONE)


def names_gone_reset(text: str | None) -> bool:
    """Return whether rules or terms, as JSON, name a reset that is gone: checks under it cannot be repeated."""
    return bool(text) and json.loads(text or "").get("reset") in RESETS_GONE


def encode_terms(terms: Terms) -> str:
    """Return a customer's terms as JSON, only those that differ from the defaults."""
    values = {field.name: getattr(terms, field.name) for field in fields(Terms) if field.init and field.name != "limits"}
    own = {name: value for name, value in values.items() if value != getattr(Terms(), name)}
    return json.dumps(own | {name: value for name, value in terms.limits._asdict().items() if value is not None})


def decode_terms(text: str | None) -> Terms:
    """Return a customer's terms from their JSON; None stands for the defaults."""
    if not text:
        return Terms()
    values = json.loads(text)
    if values.get("reset") in RESETS_GONE:
        values["reset"] = "sliding"
    limits = CustomerLimits(**{name: values.pop(name) for name in CustomerLimits._fields if name in values})
    return Terms(**values, limits=limits)


def encode_kind_limit(kind: str, limit: KindLimit) -> str:
    """Return the limit of a kind as the note of its line in the feed."""
    return json.dumps({"kind": kind, "running": limit.running, "rate": limit.rate, "burst": limit.burst})


def encode_priority_change(before: int, after: int, by: str | None) -> str:
    """Return a change of priority as the note of its line in the feed; `by` is None if a new table was applied."""
    return json.dumps({"from": before, "to": after, "by": by})


def encode_check(check: CheckRow, cost: int, before: CheckRow | None = None) -> str:
    """Return a check as the note of its line in the feed, from which a replay reads it back.

    That of a document which its customer retries takes the place of the one `before`, so the line keeps both.
    """
    replaced = {} if before is None else {"before": _check_values(before)}
    return json.dumps({"cost": cost, **_check_values(check), **replaced})


def _check_values(check: CheckRow) -> dict[str, int]:
    return {
        "counter": check.counter_thousandths,
        "priority": check.priority,
        "policy": check.policy_version,
        "terms": check.terms_version,
    }
