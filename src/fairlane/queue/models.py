"""The values that `Queue` and `Client` return, in the units people use.

Laws:
- A moment is a datetime in UTC, a duration a timedelta; counters and costs are numbers of documents.
- The same verb returns the same class, whether it reads a store or a server.
- Milliseconds and thousandths stay in the rows of the engines; they are converted here, in one place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from fairlane.blobs.envelope import Pipeline
from fairlane.core.document import ENDED, ChangeRow, CheckRow, Customer, DocumentRow, ReceiptRow, Record, State
from fairlane.core.policy import from_thousandths

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DATETIME_MAX_MS = 253_402_300_799_999  # the end of the year 9999: later moments are shown as that
WORKER_EVENTS = ("claimed", "taken_over")  # whose note in the feed is the worker that has the document from then on
REASON_EVENTS = ("failed", "retried", "postponed", "cancelled", "expired")  # whose note in the feed is a reason for people


class Keep(Enum):
    """The default of options that stay as they are, where None has a meaning of its own."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP


class Receipt(NamedTuple):
    """A document that was accepted, and what its check decided."""

    id: str
    customer: str
    priority: int
    counter: float
    repeated: bool  # it was accepted before, with the same key
    submitted_at: datetime | None = None  # None: from a server, whose receipts do not say it
    ahead: int | None = None  # about how many documents go first; None: from a store, whose receipts do not say it


class Check(NamedTuple):
    """What one check decided."""

    customer: str
    priority: int
    counter: float
    checked_at: datetime


class Progress(NamedTuple):
    """What the handler of a document reported."""

    attempt: int
    progress: float | str | None  # a share from 0 to 1, or a few words
    partial: Any  # the newest partial result


class Attempt(NamedTuple):
    """What is kept of an attempt that failed."""

    attempt: int
    token: int  # of the claim: it rises with every claim, also after a retry by a person, and when one is taken over
    at: datetime  # by the worker's clock
    worker: str
    seconds: float  # that the handler ran
    reason: str
    traceback: str | None  # of the exception, or of a crash; of a long one the newest part
    output: str | None  # the end of what the handler printed


class HistoryEntry(NamedTuple):
    """Something that happened to one document."""

    event: str  # submitted, claimed (a server says: started), done, failed, …
    at: datetime
    claim: int | None  # the token of the claim that it was about, counted from 1; None before the first
    worker: str | None  # that claimed it or took it over; a server shows it to operators only
    reason: str | None  # why it failed, is retried, was postponed, expired or was cancelled
    priority: int | None = None  # that it got, when its priority was changed
    by: str | None = None  # the operator who set that by hand; a server shows it to operators only


class Document(NamedTuple):
    """A document as it is now."""

    id: str
    customer: str
    kind: str
    state: State
    priority: int
    counter: float  # of its customer, at its check
    cost: float
    key: str | None
    submitted_at: datetime
    ready_at: datetime
    ended_at: datetime | None
    attempts: int
    attempts_max: int
    reason: str | None  # why it failed, or is retried
    worker: str | None  # the worker that runs it; a server shows it to operators only
    bytes: int  # that its payload, its result and their files take
    retries: int  # by its customer
    progress: Progress | None = None  # set by `document` and `wait`, not by `documents`
    no_better_than: int | None = None  # the best priority that its submitter wanted for it
    set_by_hand: bool = False  # an operator set its priority
    whole: str | None = None  # the document that it is a part of
    parts: int = 0  # into which it was split last ...
    parts_done: int = 0  # ... and how many of them are done: it goes on when all are

    @property
    def is_ended(self) -> bool:
        """Return whether it is done, failed or cancelled."""
        return self.state in ENDED


class Step(NamedTuple):
    """One step of a document."""

    kind: str
    state: State | Literal["to come"]  # of the one at which the document is, its own
    result: Any = None  # of one that is done, and not the last


class Exported(NamedTuple):
    """What an export holds."""

    documents: int
    files: int
    bytes: int  # of the archive, before it is compressed
    missing: int  # files that are missing or damaged
    missing_documents: tuple[str, ...]  # ids of the first of these


class Look(NamedTuple):
    """Where a customer stands now."""

    customer: str
    counter: float
    next_priority: int
    waiting: int
    running: int
    done: int
    failed: int
    cancelled: int
    resets_in: timedelta  # until a check would find the reset interval over
    oldest_wait: timedelta | None  # that its longest-ready document has waited
    paused: bool
    documents: int  # that are kept, in any state ...
    bytes: int  # ... and what their payloads, results and files take
    waiting_max: int | None  # the most of each that it may have; None: no limit
    documents_max: int | None
    bytes_max: int | None


class Change(NamedTuple):
    """Something that happened to a document, a customer or the rules; `number` is what to resume after.

    Numbers rise, except those that a server gives to a customer's key: these are encrypted.
    """

    number: int
    event: str  # submitted, claimed (a server says: started), done, failed, …
    at: datetime
    customer: str | None
    document: str | None
    reason: str | None = None  # why it failed, is retried, expired or was cancelled
    priority: int | None = None  # that a document got, when its priority was changed
    by: str | None = None  # the operator who set that by hand; a server shows it to operators only


WorkerState = Literal["working", "draining", "drained", "gone"]


class RunningDocument(NamedTuple):
    """A document that runs on a worker."""

    id: str
    customer: str
    kind: str
    running_for: timedelta | None  # None: so recently begun that its worker has not reported it yet


class WorkerStatus(NamedTuple):
    """A worker as the registry shows it."""

    name: str
    instance: str  # tells workers of the same name apart
    state: WorkerState  # draining: it finishes what it has; drained: it has nothing left; gone: it has stopped reporting
    host: str
    pid: int
    version: str  # of Fairlane
    is_outdated: bool  # it knows only an older schema than the store has
    kinds: tuple[str, ...] | None  # that it takes; None: too many to list
    slots: int
    started_at: datetime
    silent_for: timedelta  # since its last report
    documents: tuple[RunningDocument, ...]


class Kind(NamedTuple):
    """A kind of documents, and what all workers together may do with it; None: no limit."""

    kind: str
    running: int  # documents of it that run now
    running_max: int | None  # that may run at once
    rate: float | None  # starts a second ...
    burst: float  # ... of which so many may come at once
    held_by: Literal["kind running", "kind rate"] | None  # the limit that it has reached
    version: int  # of its limit; 0: it never had one


class UnservedKind(NamedTuple):
    """A kind of which documents wait although no worker takes them."""

    kind: str
    is_draining: bool  # workers take it, but all of them are being drained
    oldest_wait: timedelta


@lru_cache(maxsize=64)  # the documents of one batch were submitted in the same millisecond
def to_datetime(milliseconds: int) -> datetime:
    """Return milliseconds since the epoch as a datetime in UTC."""
    return EPOCH + timedelta(milliseconds=min(milliseconds, DATETIME_MAX_MS))


def to_json(
    value: Attempt | Check | HistoryEntry | Kind | Look | WorkerStatus | RunningDocument | UnservedKind,
) -> dict[str, Any]:
    """Return a value as JSON members: moments as seconds since the epoch, durations as seconds."""
    members = {name: _to_seconds(member) for name, member in value._asdict().items()}
    if isinstance(value, WorkerStatus):
        members["documents"] = [to_json(document) for document in value.documents]
    return members


def _to_seconds(member: Any) -> Any:
    if isinstance(member, datetime):
        return member.timestamp()
    return member.total_seconds() if isinstance(member, timedelta) else member


def receipt_from(row: ReceiptRow, submitted_id: str) -> Receipt:
    """Return the receipt of a document that was submitted under this id; a repeated key returns another one."""
    check = row.check
    return Receipt(row.id, check.customer, check.priority, check.counter, row.id != submitted_id, to_datetime(check.checked_ms))


def receipts_from(rows: Sequence[ReceiptRow], ids: Sequence[str]) -> list[Receipt]:
    return list(map(receipt_from, rows, ids))


def check_from(row: CheckRow) -> Check:
    return Check(row.customer, row.priority, row.counter, to_datetime(row.checked_ms))


def document_from(row: DocumentRow, progress: Progress | None = None) -> Document:
    return Document(
        row.id, row.customer, row.kind, row.state, row.priority, row.check.counter, from_thousandths(row.cost), row.key,
        to_datetime(row.submitted_ms), to_datetime(row.ready_ms), None if row.ended_ms is None else to_datetime(row.ended_ms),
        row.attempts, row.attempts_max, row.reason, row.worker, row.bytes, row.retries, progress, row.no_better_than,
        row.is_set_by_hand, row.whole, row.parts, row.parts - row.parts_left,
    )  # fmt: skip


def steps_of(row: DocumentRow, pipeline: Pipeline) -> list[Step]:
    """Return the steps of a document that goes on by that pipeline."""
    steps = [Step(step.kind, "done", step.result) for step in pipeline.results]
    steps.append(Step(row.kind, row.state))
    return steps + [Step(kind, "to come") for kind in pipeline.steps[len(steps) :]]


def history_from(change: ChangeRow) -> HistoryEntry:
    worker = change.note if change.what in WORKER_EVENTS else None
    return HistoryEntry(
        change.what, to_datetime(change.at_ms), change.token or None, worker, reason_of(change), *new_priority(change)
    )


def reason_of(change: ChangeRow) -> str | None:
    """Return the note of a change if it is a reason for people."""
    return change.note if change.what in REASON_EVENTS and change.note else None


def new_priority(change: ChangeRow) -> tuple[int | None, str | None]:
    """Return the priority that a change gave to its document, and who set it by hand."""
    if change.what == "prioritized":
        note = json.loads(change.note or "{}")
        return note.get("to"), note.get("by")
    if change.what == "rechecked":
        return json.loads(change.note or "{}").get("priority"), None
    return None, None


def attempt_from(record: Record) -> Attempt:
    values = json.loads(record.value)
    return Attempt(**values | {"at": to_datetime(values["at"])})


def look_from(row: Customer) -> Look:
    oldest_wait = None if row.oldest_wait_ms is None else timedelta(milliseconds=row.oldest_wait_ms)
    return Look(
        row.id, row.counter, row.next_priority, row.waiting, row.running, row.done, row.failed, row.cancelled,
        timedelta(milliseconds=row.resets_in_ms), oldest_wait, row.terms.paused, row.documents, row.bytes,
        row.limits.waiting_max, row.limits.documents_max, row.limits.bytes_max,
    )  # fmt: skip


def change_from(row: ChangeRow) -> Change:
    return Change(row.number, row.what, to_datetime(row.at_ms), row.customer, row.document, reason_of(row), *new_priority(row))
