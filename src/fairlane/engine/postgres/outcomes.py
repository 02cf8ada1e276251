"""Outcomes as the lists that the function `settle` takes, one value of each for every claim."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeVar

from fairlane.core.document import Claim, Continued, Done, Failed, Outcome, Released, Retried

T = TypeVar("T")


def if_any(values: list[T]) -> list[T] | None:
    """Send a list without any value as NULL."""
    return values if any(value is not None for value in values) else None


def claim_columns(claims: Sequence[Claim]) -> tuple[list[int], list[str], list[int]]:
    """Return numbers, ids and tokens, on which every later write is conditional."""
    return [claim.number for claim in claims], [claim.id for claim in claims], [claim.token for claim in claims]


def settle_parameters(settlements: Sequence[tuple[Claim, Outcome]], now_ms: int | None) -> tuple[Any, ...]:
    """Return the parameters of `settle`."""
    outcomes = [outcome for _, outcome in settlements]
    return (
        *claim_columns([claim for claim, _ in settlements]),
        [_name(outcome) for outcome in outcomes],
        if_any([_text(outcome) for outcome in outcomes]),
        if_any([outcome.after_ms or None if isinstance(outcome, Retried) else None for outcome in outcomes]),
        if_any([outcome.cost for outcome in outcomes]),
        if_any([outcome.file_bytes or None if isinstance(outcome, Done | Continued) else None for outcome in outcomes]),
        if_any([outcome.kind if isinstance(outcome, Continued) else None for outcome in outcomes]),
        _parts(outcomes),
        now_ms,
    )


def _name(outcome: Outcome) -> str:
    """Return the event that an outcome is in the feed, unless attempts are spent."""
    match outcome:
        case Done():
            return "done"
        case Continued():
            return "split" if outcome.parts else "continued"
        case Failed():
            return "failed"
        case Retried():
            return "retried" if outcome.counted else "postponed"
        case Released():
            return "released"


def _text(outcome: Outcome) -> str | None:
    """Return the result, the payload or the reason."""
    match outcome:
        case Done():
            return outcome.result
        case Continued():
            return outcome.payload
        case Retried() | Failed():
            return outcome.reason
        case _:
            return None


def _parts(outcomes: Sequence[Outcome]) -> str | None:
    """Return the parts of documents that are split, each with the ordinal of its document."""
    parts = [
        (ordinal, part.id, part.kind, part.payload, part.cost, part.delay_ms, part.file_bytes)
        for ordinal, outcome in enumerate(outcomes, start=1)
        if isinstance(outcome, Continued)
        for part in outcome.parts
    ]
    return json.dumps(parts) if parts else None
