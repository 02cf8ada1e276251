"""Rules, terms and checks as the JSON text that stores and the feed keep."""

from __future__ import annotations

import json
from dataclasses import fields

from fairlane.core.document import CheckRow
from fairlane.core.policy import CustomerLimits, Policy, Rules, Terms

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
            "open_turn_every": rules.open_turn_every,
            **rules.limits._asdict(),
            **frozen,
        }
    )


def decode_rules(text: str, version: int) -> Rules:
    """Return the rules of that version from their JSON."""
    values = json.loads(text)
    policy = Policy(values["reset_interval"], tuple(values["thresholds"]), values["reset"])
    limits = LIMITS_AT_FIRST._replace(**{name: values[name] for name in CustomerLimits._fields if name in values})
    return Rules(policy, values["dispatch"], values["open_turn_every"], version, values.get("frozen"), limits)


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
    limits = CustomerLimits(**{name: values.pop(name) for name in CustomerLimits._fields if name in values})
    return Terms(**values, limits=limits)


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
