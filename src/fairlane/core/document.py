"""Documents: their states and transitions, and the values that pass between callers, workers and engines.

Laws:
- Only the transitions listed here happen, whether a caller, a worker or the sweeper requests them.
- A document that has ended (done, failed, cancelled) stays so; only a retry by hand starts a failed one again, under a new
  token.
- Times are whole milliseconds, counters and costs whole thousandths; `counter` is what people read.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from .errors import BadValue
from .policy import STEP, CustomerLimits, Standing, Terms, from_thousandths

State = Literal["delayed", "ready", "running", "done", "failed", "cancelled"]
EventType = Literal["submitted", "due", "claimed", "done", "failed", "retried", "postponed", "released", "expired",
                    "cancelled", "revived", "taken_over", "continued", "split", "joined"]  # fmt: skip

Hold = Literal["paused", "cap", "kind running", "kind rate"]
WAITING: tuple[State, ...] = ("ready", "delayed")
ENDED: tuple[State, ...] = ("done", "failed", "cancelled")

TRANSITIONS: dict[EventType, tuple[tuple[State | None, ...], tuple[State, ...]]] = {
    # event: (from one of these states, None being "not submitted yet"), (to one of these)
    "submitted": ((None,), ("ready", "delayed")),
    "due": (("delayed",), ("ready",)),
    "claimed": (("ready",), ("running",)),
    "taken_over": (("running",), ("running",)),  # by another worker, under a new token; the attempt goes on
    "done": (("running",), ("done",)),
    # By the worker, or because its attempts are spent; while it waits for its parts because one of these failed.
    "failed": (("running", "delayed"), ("failed",)),
    "continued": (("running",), ("ready",)),  # its attempt succeeded, and it goes on as a document of another kind
    "split": (("running",), ("delayed",)),  # into parts: it goes on when all of them are done
    "joined": (("delayed",), ("ready",)),  # its last part is done
    "retried": (("running",), ("ready", "delayed")),  # the worker requests another attempt
    "postponed": (("running",), ("ready", "delayed")),  # the same for later, and the attempt is not counted
    "released": (("running",), ("ready",)),  # the worker returns it, and the attempt is not counted
    "expired": (("running",), ("ready",)),  # the lease ran out and attempts are left
    "cancelled": (("ready", "delayed", "running"), ("cancelled",)),
    # An operator or its customer grants another round of attempts; to parts that were cancelled with their whole, too.
    "revived": (("failed", "cancelled"), ("ready", "delayed")),
}

ATTEMPTS_DEFAULT = 3
BATCH_MAX = 100_000
PARTS_MAX = 1000  # of one document: they are cancelled and revived in one step
NEVER_MS = 253_402_300_799_999  # the end of the year 9999: a document that waits for its parts is delayed until then
NO_CHECK = -1  # in place of the count of resets, in a document that inherited its priority and had no check
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def validate_text(name: str, value: str, length_max: int = 200) -> str:
    """Return the text unchanged; raise BadValue unless it has 1 to `length_max` characters and no control characters."""
    if type(value) is not str or not 1 <= len(value) <= length_max or _FORBIDDEN.search(value):
        raise BadValue(name, value, f"text of 1 to {length_max} characters without control characters or lone surrogates")
    return value


class Submission(NamedTuple):
    """A document to be submitted; `payload` is JSON text, and equal digests mean equal bodies."""

    id: str
    customer: str
    kind: str
    payload: str
    cost: int = STEP
    key: str | None = None
    digest: str | None = None
    delay_ms: int = 0
    made_from: str | None = None  # the document that a worker derived it from: its priority is inherited, without a check
    no_better_than: int | None = None  # its priority is that number, or what the check gives if that is later
    parent: str | None = None  # the document whose file it was inside; like one made from it, it counts among its descendants
    file_bytes: int = 0  # of its file, which is stored elsewhere


class CheckRow(NamedTuple):
    """The result of one check."""

    customer: str
    priority: int  # no better than its document allows
    counter_thousandths: int
    checked_ms: int
    policy_version: int
    terms_version: int  # 0: the customer had no terms of its own

    @property
    def counter(self) -> int | float:
        return from_thousandths(self.counter_thousandths)


class ReceiptRow(NamedTuple):
    """The response to a submission: the document's id and its check."""

    id: str
    number: int
    check: CheckRow

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
    """A document leased to a worker; every later write for it must present (id, token)."""

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
    turn: int  # the dispatch number that took it; 0 in a claim that was taken over
    is_open_turn: bool


class Done(NamedTuple):
    """The attempt succeeded; `result` is JSON text."""

    result: str | None = None
    cost: int | None = None  # the true cost, if it differs from the one at submission
    file_bytes: int = 0  # of the result's files, which are stored elsewhere


class Retried(NamedTuple):
    """The attempt failed and may be repeated after a delay; the document fails if its attempts are spent.

    One that is not counted has a delay and spends no attempt: the document was postponed.
    """

    after_ms: int = 0
    reason: str = ""
    cost: int | None = None
    counted: bool = True
    details: str | None = None  # JSON text about the attempt, kept with the document


class Failed(NamedTuple):
    """The attempt failed, and another would not help."""

    reason: str
    cost: int | None = None
    details: str | None = None  # JSON text about the attempt, kept with the document


class Continued(NamedTuple):
    """The attempt succeeded, and the document goes on: as that kind, with that payload and fresh attempts.

    Its parts are inserted in the same step, as documents made from it, and it goes on as soon as all of them are done. When one
    fails or is cancelled, it ends in the same way, and the others are cancelled.
    """

    kind: str
    payload: str
    parts: tuple[Submission, ...] = ()
    cost: int | None = None
    file_bytes: int = 0  # of the files that the attempt wrote, which are stored elsewhere


class Released(NamedTuple):
    """The worker returned it unprocessed: the attempt is not counted."""

    cost: None = None


Outcome = Done | Continued | Retried | Failed | Released


class DocumentRow(NamedTuple):
    """A snapshot of one document."""

    id: str
    number: int
    customer: str
    kind: str
    state: State
    check: CheckRow
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
    priority: int  # of the lane in which it waits, or waited
    no_better_than: int | None
    is_set_by_hand: bool  # an operator set its priority
    claimed_ms: int | None  # its newest claim; one that is taken over began earlier
    bytes: int = 0  # of its payload, its result and their files
    retries: int = 0  # by its customer: each was a check, and `check` is the newest
    submitted_ms: int = 0
    whole: str | None = None  # the document that it is a part of, which may be gone
    parts: int = 0  # into which it was split last ...
    parts_left: int = 0  # ... and those of them that are not done


class PartRow(NamedTuple):
    """A part of a document; `result` is JSON text."""

    document: DocumentRow
    result: str | None


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
    documents: int  # that are kept, in any state ...
    bytes: int  # ... and their payloads, results and files
    limits: CustomerLimits  # its own, else everybody's
    usual: int | None  # what its attempts usually take, in thousandths of a millisecond; None: none has ended

    @property
    def counter(self) -> int | float:
        return from_thousandths(self.standing.counter)


class Totals(NamedTuple):
    """Counts of a whole queue, from which rates are made; by priority, from 1 on."""

    busy_ms: int  # for so long has something waited that could be taken, up to the last claim
    taken: tuple[int, ...]  # documents that were claimed after they had waited
    ready: tuple[int, ...]  # documents that are ready now


class Outlook(NamedTuple):
    """A snapshot of what is ahead of a waiting document, and how fast documents are taken."""

    now_ms: int
    priority: int
    ahead: int  # an estimate
    hold: Hold | None  # what keeps its lane from competing; None: nothing
    totals: Totals


class ChangeRow(NamedTuple):
    """One line of the feed of events, in the order of commits."""

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
