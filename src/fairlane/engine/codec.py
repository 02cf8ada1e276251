"""Rules, terms and checks as the JSON text that stores and the feed keep."""

from __future__ import annotations

import json
from dataclasses import fields

from fairlane.core.document import CheckRow
from fairlane.core.policy import Policy, Rules, Terms


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
            **frozen,
        }
    )


def decode_rules(text: str, version: int) -> Rules:
    """Return the rules of that version from their JSON."""
    values = json.loads(text)
    policy = Policy(values["reset_interval"], tuple(values["thresholds"]), values["reset"])
    return Rules(policy, values["dispatch"], values["open_turn_every"], version, values.get("frozen"))


def encode_terms(terms: Terms) -> str:
    """Return a customer's terms as JSON, only those that differ from the defaults."""
    values = {field.name: getattr(terms, field.name) for field in fields(Terms) if field.init}
    return json.dumps({name: value for name, value in values.items() if value != getattr(Terms(), name)})


def decode_terms(text: str | None) -> Terms:
    """Return a customer's terms from their JSON; None stands for the defaults."""
    return Terms(**json.loads(text)) if text else Terms()


def encode_check(check: CheckRow, cost: int) -> str:
    """Return a check without a document as the note of its line in the feed, from which a replay reads it back."""
    return json.dumps(
        {"cost": cost, "counter": check.counter_thousandths, "priority": check.priority,
         "policy": check.policy_version, "terms": check.terms_version}
    )  # fmt: skip
