"""How are rules, terms and checks written down? As JSON text, the same in every engine."""

from __future__ import annotations

import json
from dataclasses import fields

from fairlane.core.document import Check, Submission
from fairlane.core.errors import Unknown
from fairlane.core.policy import Policy, Rules, Terms


def rules_json(rules: Rules) -> str:
    """Rules without their version."""
    return json.dumps(
        {
            "reset_interval": rules.policy.reset_interval,
            "thresholds": rules.policy.thresholds,
            "reset": rules.policy.reset,
            "dispatch": rules.dispatch,
            "open_turn_every": rules.open_turn_every,
        }
    )


def rules_from_json(text: str, version: int) -> Rules:
    """Rules as they were written."""
    told = json.loads(text)
    policy = Policy(told["reset_interval"], tuple(told["thresholds"]), told["reset"])
    return Rules(policy, told["dispatch"], told["open_turn_every"], version)


def terms_json(terms: Terms) -> str:
    """Terms, only what differs from everybody's."""
    told = {one.name: getattr(terms, one.name) for one in fields(Terms) if one.init}
    return json.dumps({name: value for name, value in told.items() if value != getattr(Terms(), name)})


def terms_from_json(text: str | None) -> Terms:
    """Terms as they were written; None: none."""
    return Terms(**json.loads(text)) if text else Terms()


def unknown_source(submission: Submission) -> Unknown:
    """A document is said to be made out of one that its customer does not have."""
    return Unknown(
        f"there is no document {submission.made_from} of customer {submission.customer!r} to make another one from; it was "
        "never submitted, or it was purged"
    )


def purged_feed(floor: int, after: int) -> Unknown:
    """A reader of the feed slept too long."""
    return Unknown(
        f"changes up to {floor} were purged, so those after {after} cannot all be given; start again from the oldest kept "
        "with after=None"
    )


def check_note(check: Check, cost: int) -> str:
    """A check without a document, so that it can be read back from the feed."""
    return json.dumps(
        {"cost": cost, "counter": check.counter_thousandths, "priority": check.priority,
         "policy": check.policy_version, "terms": check.terms_version}
    )  # fmt: skip
