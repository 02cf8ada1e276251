"""Why does this document wait, and about how long? One sentence for people, and its facts for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .core.document import Document, Outlook
from .core.policy import Rules


@dataclass(frozen=True, slots=True)
class Explanation:
    """`sentence` is for people; `facts` holds every figure in it."""

    sentence: str
    facts: dict[str, Any]

    def __str__(self) -> str:
        return self.sentence


def explained(document: Document, rules: Rules, outlook: Outlook | None) -> Explanation:
    """A document's priority and place, as far as they can be known now."""
    check = document.check
    facts: dict[str, Any] = {
        "id": document.id,
        "customer": document.customer,
        "kind": document.kind,
        "state": document.state,
        "priority": check.priority,
        "counter": check.counter,
        "checked_at": check.checked_ms / 1000,
        "policy_version": check.policy_version,
        "attempts": document.attempts,
        "reason": document.reason,
        "ahead": None,
        "expected_in": None,
        "paused_or_capped": None,
    }
    sentences = [
        f"Priority {check.priority}, because {document.customer}'s counter stood at {check.counter:,} when it was submitted."
    ]
    if outlook is None:
        sentences.append(_state(document))
    else:
        facts.update(_outlook_facts(document, outlook))
        sentences.append(_place(document, rules, facts))
    return Explanation(" ".join(sentences), facts)


def _outlook_facts(document: Document, outlook: Outlook) -> dict[str, Any]:
    expected_in = None
    if outlook.dispatches and not outlook.blocked:
        expected_in = (outlook.ahead + 1) * outlook.dispatches_span_ms / outlook.dispatches / 1000
    not_before = max(0, document.ready_ms - outlook.now_ms) / 1000
    if expected_in is not None and document.state == "delayed":
        expected_in = max(expected_in, not_before)
    return {
        "ahead": outlook.ahead,
        "expected_in": expected_in,
        "not_before_in": not_before if document.state == "delayed" else None,
        "paused_or_capped": outlook.blocked,
    }


def _place(document: Document, rules: Rules, facts: dict[str, Any]) -> str:
    if facts["paused_or_capped"]:
        return f"It waits because {document.customer} is paused or at its cap; about {_count(facts['ahead'])} ahead of it."
    delayed = ""
    if facts["not_before_in"] is not None:
        delayed = f"It is held back for another {_duration(facts['not_before_in'])}. "
    if facts["expected_in"] is None:
        return f"{delayed}{_ahead(facts['ahead'])}; no worker took a document lately, so when cannot be said."
    share = "" if rules.open_turn_every == 0 or rules.dispatch == "strict" else ", sooner if it gets an open turn"
    return (
        f"{delayed}{_ahead(facts['ahead'])}; at the present pace its turn comes in about "
        f"{_duration(facts['expected_in'])}{share}."
    )


def _state(document: Document) -> str:
    if document.state == "running":
        return f"It is running on {document.worker}, attempt {document.attempts} of {document.attempts_max}."
    reason = f": {document.reason}" if document.reason else ""
    return f"It is {document.state}{reason}."


def _ahead(documents: int) -> str:
    if documents == 0:
        return "Nothing is ahead of it"
    return f"About {_count(documents)} ahead of it"


def _count(documents: int) -> str:
    return "1 document is" if documents == 1 else f"{documents:,} documents are"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return "a second"
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= 2 * size or size == 1:
            whole = round(seconds / size)
            return f"{whole} {unit}" + ("s" if whole != 1 else "")
    raise AssertionError("unreachable: the last size is 1")
