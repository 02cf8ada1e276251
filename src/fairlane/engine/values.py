"""How are rules, terms and checks written down, and how does what is stored of a customer become a look at it?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from fairlane.core.document import Check, Customer, Submission
from fairlane.core.errors import StoreFrozen, Unknown
from fairlane.core.policy import Policy, Rules, Standing, Terms


def rules_json(rules: Rules) -> str:
    """Rules without their version."""
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


def rules_from_json(text: str, version: int) -> Rules:
    """Rules as they were written."""
    told = json.loads(text)
    policy = Policy(told["reset_interval"], tuple(told["thresholds"]), told["reset"])
    return Rules(policy, told["dispatch"], told["open_turn_every"], version, told.get("frozen"))


def refuse_frozen(rules: Rules) -> None:
    """Nothing new may begin in a queue that is being moved, or was moved."""
    if rules.frozen is not None:
        raise StoreFrozen(rules.frozen)


def terms_json(terms: Terms) -> str:
    """Terms, only what differs from everybody's."""
    told = {one.name: getattr(terms, one.name) for one in fields(Terms) if one.init}
    return json.dumps({name: value for name, value in told.items() if value != getattr(Terms(), name)})


def terms_from_json(text: str | None) -> Terms:
    """Terms as they were written; None: none."""
    return Terms(**json.loads(text)) if text else Terms()


def looked_at(
    id: str, standing: Standing, counts: Sequence[Any], terms: Terms, terms_version: int, everybody: Policy, now_ms: int
) -> Customer:
    """A customer as it stands, with what a check at this moment would give; counts end with when its oldest head was ready."""
    waiting, running, done, failed, cancelled, oldest_ready_ms = counts
    policy = terms.policy(everybody)
    return Customer(
        id,
        standing,
        policy.next_priority(standing, now_ms, terms.weight_thousandths),
        policy.resets_in_ms(standing, now_ms),
        waiting,
        running,
        done,
        failed,
        cancelled,
        None if oldest_ready_ms is None else max(0, now_ms - oldest_ready_ms),
        terms,
        terms_version,
    )


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


PARTS = ("queue", "customers", "documents", "lanes", "records")


def part_of(mark: str | None) -> tuple[str, Any]:
    """Which part a mark stands in, and after which row; None: before the first."""
    if mark is None:
        return PARTS[0], None
    part, after = json.loads(mark)
    return part, after


def next_mark(part: str, keys: Sequence[Any], limit: int) -> str | None:
    """The mark behind these rows: in the same part if there may be more, else at the beginning of the next one."""
    if len(keys) == limit:
        return json.dumps([part, keys[-1]])
    following = PARTS.index(part) + 1
    return json.dumps([PARTS[following], None]) if following < len(PARTS) else None
