"""What is a document, which states does it pass through, and which words may it use?

Laws:
- Only the transitions listed here happen, whoever asks: caller, worker or sweeper.
- A document that has ended (done, failed, cancelled) stays so; only a retry asked for by a person starts a failed
  one again, under a new token.
- Times are whole milliseconds, counters and costs whole thousandths; `counter` is what people read.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from .errors import BadValue
from .policy import STEP, Standing, Terms, from_thousandths

State = Literal["delayed", "ready", "running", "done", "failed", "cancelled"]
EventType = Literal["submitted", "due", "claimed", "done", "failed", "retried", "released", "expired", "cancelled", "revived"]

WAITING: tuple[State, ...] = ("ready", "delayed")
ENDED: tuple[State, ...] = ("done", "failed", "cancelled")

TRANSITIONS: dict[EventType, tuple[tuple[State | None, ...], tuple[State, ...]]] = {
    # what happened: (from one of these, None being "not there yet"), (to one of these)
    "submitted": ((None,), ("ready", "delayed")),
    "due": (("delayed",), ("ready",)),
    "claimed": (("ready",), ("running",)),
    "done": (("running",), ("done",)),
    "failed": (("running",), ("failed",)),  # by the worker, or because its attempts are spent
    "retried": (("running",), ("ready", "delayed")),  # the worker asks for another attempt
    "released": (("running",), ("ready",)),  # the worker gives it back, attempt included
    "expired": (("running",), ("ready",)),  # the lease ran out and attempts are left
    "cancelled": (("ready", "delayed", "running"), ("cancelled",)),
    "revived": (("failed",), ("ready",)),  # a person asks for another round of attempts
}

ATTEMPTS_DEFAULT = 3
JSON_BYTES_MAX = 256 * 1024
RECORD_BYTES_MAX = 64 * 1024
BATCH_MAX = 100_000
NO_CHECK = -1  # stands where a check's count of resets would, in a document that inherited its priority
_UNWANTED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def validate_text(name: str, value: str, length_max: int = 200) -> str:
    """Any text of 1 to `length_max` characters without control characters or lone surrogates, exactly as given."""
    if type(value) is not str or not 1 <= len(value) <= length_max or _UNWANTED.search(value):
        wanted = f"text of 1 to {length_max} characters without control characters or lone surrogates"
        raise BadValue(name, value, wanted)
    return value


class Submission(NamedTuple):
    """A document as it is handed in; `payload` is JSON text, `digest` says whether two bodies are the same."""

    id: str
    customer: str
    kind: str
    payload: str
    cost: int = STEP
    key: str | None = None
    digest: str | None = None
    delay_ms: int = 0
    made_from: str | None = None  # the document a worker made it out of: it inherits that one's priority, without a check


class Check(NamedTuple):
    """What one check decided."""

    customer: str
    priority: int
    counter_thousandths: int
    checked_ms: int
    policy_version: int
    terms_version: int  # 0: the customer had no terms of its own

    @property
    def counter(self) -> int | float:
        return from_thousandths(self.counter_thousandths)

    @property
    def checked_at(self) -> float:
        return self.checked_ms / 1000


class Receipt(NamedTuple):
    """What the sender gets back: the document's id and what its check decided."""

    id: str
    number: int
    check: Check

    @property
    def customer(self) -> str:
        return self.check.customer

    @property
    def priority(self) -> int:
        return self.check.priority

    @property
    def counter(self) -> int | float:
        return self.check.counter


class Claim(NamedTuple):
    """A document lent to a worker until its lease ends; (id, token) is what every later write must show."""

    id: str
    token: int
    number: int
    customer: str
    kind: str
    priority: int
    payload: str
    attempts: int
    attempts_max: int
    lease_ms: int  # the lease ends then
    turn: int  # the dispatch number that took it
    is_open_turn: bool


class Done(NamedTuple):
    """The attempt succeeded; `result` is JSON text."""

    result: str | None = None
    cost: int | None = None  # when it turned out to be another than at submission


class Retried(NamedTuple):
    """The attempt failed and may be tried again after a while; it fails for good if the attempts are spent."""

    after_ms: int = 0
    reason: str = ""
    cost: int | None = None


class Failed(NamedTuple):
    """The attempt failed and another would not help."""

    reason: str
    cost: int | None = None


class Released(NamedTuple):
    """The worker did not get to it: no attempt is counted."""

    cost: None = None


Outcome = Done | Retried | Failed | Released


class Document(NamedTuple):
    """A snapshot of one document."""

    id: str
    number: int
    customer: str
    kind: str
    state: State
    check: Check
    cost: int
    key: str | None
    ready_ms: int
    attempts: int
    attempts_max: int
    token: int
    worker: str | None
    lease_ms: int | None
    ended_ms: int | None
    reason: str | None

    @property
    def priority(self) -> int:
        return self.check.priority

    @property
    def submitted_ms(self) -> int:
        return self.check.checked_ms


class Customer(NamedTuple):
    """A snapshot of one customer."""

    id: str
    standing: Standing
    next_priority: int  # what a check at this moment would give
    resets_in_ms: int
    waiting: int
    running: int
    done: int
    failed: int
    cancelled: int
    oldest_wait_ms: int | None  # how long its longest-ready head has waited
    terms: Terms
    terms_version: int

    @property
    def counter(self) -> int | float:
        return from_thousandths(self.standing.counter)


class Outlook(NamedTuple):
    """What stands before a waiting document, as a snapshot."""

    now_ms: int
    ahead: int  # about how many
    blocked: bool  # its customer is paused or at its cap
    dispatches: int  # how many were taken ...
    dispatches_span_ms: int  # ... during the last one to two minutes
    oldest_ready_ms: int | None  # since when the longest-ready head of its kind is ready; None: no head competes


class Change(NamedTuple):
    """One line of the feed: what happened, in the order it was committed."""

    number: int
    at_ms: int
    what: str
    customer: str | None
    document: str | None
    token: int | None
    note: str | None


class Record(NamedTuple):
    """A small keyed value; `value` is JSON text, `version` rises with every change."""

    group: str
    key: str
    value: str
    version: int
