"""Explanations of a document's priority and of a customer's standing: sentences for people, facts for programs."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor
from typing import Any

from fairlane.core.document import ChangeRow, Customer, DocumentRow, Hold, Outlook
from fairlane.core.policy import Policy, Rules
from fairlane.engine.codec import is_reset_gone

from .calibration import Calibration
from .workers import Service

UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
HOLDS: dict[Hold, str] = {
    "paused": "{customer} is paused",
    "cap": "as many documents of {customer} run as its cap allows",
    "kind running": "as many documents of kind {kind!r} run as its limit allows",
    "kind rate": "documents of kind {kind!r} start as often as its limit allows",
}
WIDE = 20  # "within an hour", not "in 2 minutes to an hour", if the end is at least this many times as far as the start


@dataclass(frozen=True, slots=True)
class Explanation:
    """`sentence` is for people; `facts` holds every figure in it."""

    sentence: str
    facts: dict[str, Any]

    def __str__(self) -> str:
        return self.sentence


def explain_document(
    document: DocumentRow,
    rules: Rules,
    outlook: Outlook | None,
    service: Service = "served",
    delay: ChangeRow | None = None,
    calibration: Calibration | None = None,
    *,
    for_customer: bool = False,
) -> Explanation:
    """Explain a document's priority, and if it waits what is ahead, whether workers take its kind, what delayed it.

    An explanation for a customer names neither workers nor stores.
    """
    check = document.check
    facts: dict[str, Any] = {
        "id": document.id,
        "customer": document.customer,
        "kind": document.kind,
        "state": document.state,
        "priority": document.priority,
        "checked_priority": check.priority,
        "set_by_hand": document.is_set_by_hand,
        "no_better_than": document.no_better_than,
        "counter": check.counter,
        "checked_at": check.checked_ms / 1000,
        "policy_version": check.policy_version,
        "attempts": document.attempts,
        "reason": document.reason,
        "ahead": None,
        "expected_in": None,
        "expected_in_low": None,
        "expected_in_high": None,
        "held_by": None,
        "service": None,
        "delayed_by": None if delay is None else delay.what,
        "delayed_because": None if delay is None else delay.note,
        "parts": document.parts,
        "parts_done": document.parts - document.parts_left,
    }
    sentences = [_priority_sentence(document)]
    if outlook is None or waits_for_parts(document):
        sentences.append(_state_sentence(document, for_customer))
    else:
        facts.update(_outlook_facts(document, rules, outlook, service, calibration or Calibration()))
        if delay is not None:
            sentences.append(_delay_sentence(document, delay))
        sentences.append(_outlook_sentence(document, _frozen(rules, for_customer), facts))
    return Explanation(" ".join(sentences), facts)


def waits_for_parts(document: DocumentRow) -> bool:
    """Return whether a document was split, and some of its parts are not done."""
    return document.state == "delayed" and document.parts_left > 0


def _priority_sentence(document: DocumentRow) -> str:
    check, counter = document.check, f"{document.customer}'s counter stood at {document.check.counter:,}"
    checked = "retried" if document.retries else "submitted"
    if document.is_set_by_hand:
        return f"Priority {document.priority}, set by an operator; {counter} when it was {checked}, for {check.priority}."
    if document.priority != check.priority:
        return f"Priority {document.priority} by the table that holds now; {counter} when it was {checked}."
    if document.priority == document.no_better_than:
        return f"Priority {document.priority}, because it was submitted to be no better than that; {counter} then."
    return f"Priority {document.priority}, because {counter} when it was {checked}."


def explain_customer(customer: Customer, rules: Rules) -> Explanation:
    """Explain a customer's counter, when it resets, and the customer's own terms."""
    terms, policy = customer.terms, customer.terms.policy(rules.policy)
    facts: dict[str, Any] = {
        "customer": customer.id,
        "counter": customer.counter,
        "next_priority": customer.next_priority,
        "resets_in": customer.resets_in_ms / 1000,
        "waiting": customer.waiting,
        "running": customer.running,
        "done": customer.done,
        "failed": customer.failed,
        "cancelled": customer.cancelled,
        "oldest_wait": None if customer.oldest_wait_ms is None else customer.oldest_wait_ms / 1000,
        "paused": terms.paused,
        "cap": terms.cap,
        "weight": terms.weight,
        "reset": policy.reset,
        "reset_interval": policy.reset_interval,
        "thresholds": list(policy.thresholds),
        "documents": customer.documents,
        "bytes": customer.bytes,
        **customer.limits._asdict(),
        "cost_min": terms.cost_min,
        "turns": rules.turns,
        "usual_seconds": None if customer.usual is None else customer.usual / 1_000_000,
    }
    sentences = [
        f"{customer.id}'s counter stands at {customer.counter:,}; its next document gets priority {customer.next_priority}.",
        _reset_sentence(customer, policy),
        _counts_sentence(customer),
        *_kept_sentences(customer),
        *_turns_sentences(customer, rules),
        *_terms_sentences(customer),
    ]
    if terms.paused:
        sentences.insert(0, f"{customer.id} is paused: nothing of it is served until it is resumed.")
    return Explanation(" ".join(sentences), facts)


def format_range(low: float, high: float) -> str:
    """Format a range of seconds from now; a start that is close to now compared with the end is left out."""
    if high < 1:
        return "in less than a second"
    size, unit = _unit(high)
    last = _units(ceil(high / size), unit)
    if low < max(1, high / WIDE):
        return f"within {last}"
    first = f"{floor(low / size):,}" if low >= size else _duration(low)
    return f"in about {last}" if last.startswith(f"{first} ") else f"in {first} to {last}"


def _reset_sentence(customer: Customer, policy: Policy) -> str:
    if customer.standing.updated_ms is None:
        return "It stands as never seen."
    if customer.resets_in_ms == 0:
        return "Its reset interval is over, so its next document starts afresh at 0."
    after = _duration(customer.resets_in_ms / 1000)
    if policy.reset == "sliding":
        interval = _duration(policy.reset_interval)
        return (
            f"The counter is what it sent within the last {interval}; it is back at 0 after about {after} without a document."
        )
    return f"It starts afresh at 0 after about {after} more without a document."


def _counts_sentence(customer: Customer) -> str:
    waiting = "Nothing of it is waiting" if customer.waiting == 0 else f"{_count(customer.waiting)} waiting"
    if customer.oldest_wait_ms is not None:
        waiting += f", the longest for {_duration(customer.oldest_wait_ms / 1000)}"
    counts = {"running": customer.running, "done": customer.done, "failed": customer.failed, "cancelled": customer.cancelled}
    return "; ".join([waiting, ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)]).rstrip("; ") + "."


def _kept_sentences(customer: Customer) -> list[str]:
    limits = customer.limits
    if customer.documents == 0 and limits.documents_max is None and limits.bytes_max is None:
        return []
    documents = _of_most(customer.documents, limits.documents_max, "document")
    return [f"It keeps {documents} with {_of_most(customer.bytes, limits.bytes_max, 'byte')}."]


def _of_most(count: int, most: int | None, noun: str) -> str:
    if most is None:
        return _units(count, noun)
    reached = "" if count < most else " (that limit is reached)"
    return f"{count:,} of at most {_units(most, noun)}{reached}"


def _turns_sentences(customer: Customer, rules: Rules) -> list[str]:
    """Say what it pays for its turns, if that is time and some is known."""
    if customer.usual is None or rules.turns != "time" or rules.dispatch != "fair":
        return []
    seconds = customer.usual / 1_000_000
    usual = "less than a second" if seconds < 1 else _duration(seconds)
    return [f"An attempt of it usually takes {usual}: that is what it pays for a turn."]


def _terms_sentences(customer: Customer) -> list[str]:
    terms, sentences = customer.terms, list[str]()
    most = customer.limits.waiting_max
    if most is not None and customer.waiting >= most:
        sentences.append(f"No more than {_count(most).rsplit(' ', 1)[0]} may wait, so new ones are refused.")
    if terms.cap is not None:
        reached = ", which is reached now" if customer.running >= terms.cap else ""
        sentences.append(f"At most {_count(terms.cap).rsplit(' ', 1)[0]} may run at once{reached}.")
    if terms.weight != 1:
        for_it = f"it may send {terms.weight:g} times as much for the same priority, and gets {terms.weight:g} turns for one"
        sentences.append(f"Its weight is {terms.weight:g}: {for_it}.")
    own = {"reset": terms.reset, "reset interval": terms.reset_interval, "thresholds": terms.thresholds}
    names = [name for name, value in own.items() if value is not None]
    if names:
        sentences.append(f"It has its own {' and '.join(names)}.")
    return sentences


def _outlook_facts(
    document: DocumentRow, rules: Rules, outlook: Outlook, service: Service, calibration: Calibration
) -> dict[str, Any]:
    not_before = max(0, document.ready_ms - outlook.now_ms) / 1000
    expectation = None if rules.frozen or service != "served" else calibration.estimate(outlook)
    if expectation is not None and document.state == "delayed":
        expectation = expectation.delayed_by(not_before)
    return {
        "ahead": outlook.ahead,
        "expected_in": None if expectation is None else round(expectation.likely, 3),
        "expected_in_low": None if expectation is None else round(expectation.low, 3),
        "expected_in_high": None if expectation is None else round(expectation.high, 3),
        "not_before_in": not_before if document.state == "delayed" else None,
        "held_by": outlook.hold,
        "service": service,
    }


def _frozen(rules: Rules, for_customer: bool) -> str | None:
    """Return why the queue is frozen; for a customer without the store that it is moved to, and what operators must do."""
    if rules.frozen is None or not for_customer:
        return rules.frozen
    return "is being upgraded" if is_reset_gone(rules) else "is being moved to another store"


def _outlook_sentence(document: DocumentRow, frozen: str | None, facts: dict[str, Any]) -> str:
    ahead, unknown = _ahead(facts["ahead"]), "so when it starts cannot be said"
    if facts["held_by"]:
        return f"{ahead}; {HOLDS[facts['held_by']].format(customer=document.customer, kind=document.kind)}, {unknown}."
    if facts["not_before_in"] is not None:
        ahead = f"It is held back for another {_duration(facts['not_before_in'])}. {ahead}"
    if frozen:
        return f"{ahead}; the queue {frozen}, {unknown}."
    if facts["service"] == "unserved":
        return f"{ahead}; no worker takes documents of kind {document.kind!r}, {unknown}."
    if facts["service"] == "draining":
        return f"{ahead}; all workers that take documents of kind {document.kind!r} are being drained, {unknown}."
    if facts["expected_in"] is None:
        return f"{ahead}; no worker has taken a document that waited, {unknown}."
    return f"{ahead}; it will probably start {format_range(facts['expected_in_low'], facts['expected_in_high'])}."


def _delay_sentence(document: DocumentRow, delay: ChangeRow) -> str:
    reason = f": {delay.note}" if delay.note else ""
    if delay.what == "postponed":
        return f"Its handler postponed it without using up an attempt{reason}."
    return f"Attempt {document.attempts} of {document.attempts_max} failed{reason}."


def _state_sentence(document: DocumentRow, for_customer: bool) -> str:
    if waits_for_parts(document):
        return f"It waits for {document.parts_left:,} of its {_units(document.parts, 'part')}, and goes on when all are done."
    if document.state == "running":
        worker = "a worker" if for_customer else document.worker
        return f"It is running on {worker}, attempt {document.attempts} of {document.attempts_max}."
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
    size, unit = _unit(seconds)
    return _units(round(seconds / size), unit)


def _unit(seconds: float) -> tuple[int, str]:
    """Return the largest unit that fits twice, as (its seconds, its name)."""
    return next((unit for unit in UNITS if seconds >= 2 * unit[0]), UNITS[-1])


def _units(count: int, unit: str) -> str:
    return f"{count:,} {unit}" + ("s" if count != 1 else "")
