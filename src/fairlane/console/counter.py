"""The steps of a customer's counter, read from the checks of its documents."""

from __future__ import annotations

from typing import Any

from fairlane.core.document import DocumentRow
from fairlane.core.policy import STEP, step_of


def counter_steps(newest_first: list[DocumentRow], weight: int) -> list[dict[str, Any]]:
    """Return the counter at each check, oldest first; of a document that its customer retried, at its newest."""
    steps: list[dict[str, Any]] = []
    counter = 0
    for document in sorted(newest_first, key=lambda document: (document.check.checked_ms, document.number)):
        check = document.check
        steps.append(
            {
                "at": check.checked_ms,
                "counter": check.counter,
                "priority": check.priority,
                "is_reset": is_reset(document, weight) and check.counter_thousandths > counter,
            }
        )
        counter = check.counter_thousandths
    return steps


def is_reset(document: DocumentRow, weight: int) -> bool:
    """Return whether a document's check left the counter where a reset, or a first check, leaves it."""
    return document.check.counter_thousandths == min(0, STEP - step_of(document.cost, weight))
