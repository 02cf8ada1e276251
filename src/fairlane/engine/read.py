"""Reading a customer: what the policy makes of the stored counter at this moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlane.core.document import Customer
from fairlane.core.policy import Rules, Standing, Terms, weight_of
from fairlane.engine.limits import limits_of


def customer_snapshot(
    id: str, standing: Standing, counts: Sequence[Any], terms: Terms, terms_version: int, rules: Rules, now_ms: int
) -> Customer:
    """Return a customer with the priority that a check now would give.

    `counts` are its documents by state, the ready time of its oldest head, the documents and bytes that are kept, and
    what its attempts usually take.
    """
    waiting, running, done, failed, cancelled, oldest_ready_ms, documents, bytes_kept, usual = counts
    policy = terms.policy(rules.policy)
    return Customer(
        id,
        standing,
        policy.next_priority(standing, now_ms, weight_of(terms)),
        policy.resets_in_ms(standing, now_ms),
        waiting,
        running,
        done,
        failed,
        cancelled,
        None if oldest_ready_ms is None else max(0, now_ms - oldest_ready_ms),
        terms,
        terms_version,
        documents,
        bytes_kept,
        limits_of(terms, rules),
        usual,
    )
