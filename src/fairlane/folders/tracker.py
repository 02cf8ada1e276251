"""Progress of a set of documents, read from the change feed, whichever worker runs them.

Laws:
- The cost of tracking grows with the number of changes, not with the number of waiting documents.
- A document's wait is the time from its submission to its first claim, by the store's clock.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from fairlane.core.document import ChangeRow

CLAIMED_KEPT = 20

_STATE_AFTER = {"claimed": "running", "done": "done", "failed": "failed", "cancelled": "cancelled"} | dict.fromkeys(
    ("retried", "postponed", "released", "expired", "revived", "continued", "split", "joined"), "waiting"
)


class SubmittedDocument(Protocol):
    """The receipt of a document, as a queue returns it."""

    @property
    def id(self) -> str: ...
    @property
    def customer(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def submitted_at(self) -> datetime | None: ...


def to_unix_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


@dataclass(slots=True)
class TrackedDocument:
    """The latest known state of one document."""

    customer: str
    name: str
    priority: int
    submitted_ms: int
    state: str = "waiting"
    wait_ms: int | None = None
    reason: str | None = None


DocumentLookup = Callable[[str], TrackedDocument | None]  # by document id; None: do not track it


class CustomerSummary(NamedTuple):
    """Totals of one customer's documents."""

    customer: str
    documents: int
    done: int
    failed: int
    cancelled: int
    priorities: dict[int, int]  # number of documents by priority
    wait_p50: float | None  # seconds
    wait_p95: float | None


class Tracker:
    """Documents by state, priority and customer; `apply` brings them up to date."""

    def __init__(self) -> None:
        self.documents: dict[str, TrackedDocument] = {}
        self.by_customer: dict[str, Counter[str]] = defaultdict(Counter)  # number of documents by state
        self.lanes: dict[int, Counter[str]] = defaultdict(Counter)  # number waiting, by priority and customer
        self.longest_ms: dict[str, int] = defaultdict(int)  # the longest wait of each customer
        self.last_claimed: deque[TrackedDocument] = deque(maxlen=CLAIMED_KEPT)

    def add(self, receipts: Iterable[SubmittedDocument], names: Iterable[str]) -> None:
        """Track documents that were just submitted."""
        for receipt, name in zip(receipts, names, strict=True):
            submitted_ms = 0 if receipt.submitted_at is None else to_unix_ms(receipt.submitted_at)
            self._add(receipt.id, TrackedDocument(receipt.customer, name, receipt.priority, submitted_ms))

    def apply(self, changes: Iterable[ChangeRow], look_up: DocumentLookup = lambda _: None) -> list[TrackedDocument]:
        """Apply changes of the feed; return the documents that ended.

        `look_up` is called for submissions that are not tracked yet, such as the members of an archive.
        """
        ended = []
        for change in changes:
            id = change.document or ""
            if change.what == "submitted" and id not in self.documents and (new := look_up(id)) is not None:
                self._add(id, new)
            document = self.documents.get(id)
            if document is None or change.what not in _STATE_AFTER:
                continue
            self._count(document, -1)
            document.state = _STATE_AFTER[change.what]
            self._count(document, 1)
            if change.what == "claimed":
                self._claimed(document, change.at_ms)
            elif document.state != "waiting":
                document.reason = change.note
                ended.append(document)
        return ended

    @property
    def remaining(self) -> int:
        """The number of documents that have not ended."""
        return sum(states["waiting"] + states["running"] for states in self.by_customer.values())

    @property
    def failed(self) -> list[TrackedDocument]:
        """The failed documents in order of submission."""
        return [document for document in self.documents.values() if document.state == "failed"]

    def summaries(self) -> list[CustomerSummary]:
        """Summarise every customer, sorted by name."""
        by_customer: dict[str, list[TrackedDocument]] = defaultdict(list)
        for document in self.documents.values():
            by_customer[document.customer].append(document)
        return [self._summary(customer, by_customer[customer]) for customer in sorted(by_customer)]

    def _summary(self, customer: str, documents: list[TrackedDocument]) -> CustomerSummary:
        states = self.by_customer[customer]
        waits = sorted(document.wait_ms for document in documents if document.wait_ms is not None)
        priorities = Counter(document.priority for document in documents)
        return CustomerSummary(
            customer, len(documents), states["done"], states["failed"], states["cancelled"], dict(sorted(priorities.items())),
            percentile(waits, 50), percentile(waits, 95),
        )  # fmt: skip

    def _add(self, id: str, document: TrackedDocument) -> None:
        self.documents[id] = document
        self._count(document, 1)

    def _claimed(self, document: TrackedDocument, at_ms: int) -> None:
        if document.wait_ms is None:
            document.wait_ms = max(0, at_ms - document.submitted_ms)
            self.longest_ms[document.customer] = max(self.longest_ms[document.customer], document.wait_ms)
            self.last_claimed.append(document)

    def _count(self, document: TrackedDocument, by: int) -> None:
        self.by_customer[document.customer][document.state] += by
        if document.state == "waiting":
            self.lanes[document.priority][document.customer] += by


def percentile(waits_ms: Sequence[int], percent: int) -> float | None:
    """Return the nearest-rank percentile of sorted waits, in seconds; None if there are none."""
    if not waits_ms:
        return None
    return waits_ms[math.ceil(len(waits_ms) * percent / 100) - 1] / 1000


def last_change(changes: Callable[[int | None, int], list[ChangeRow]]) -> int | None:
    """Return the number of the newest change; None if the feed is empty.

    The feed has no query for its end, so the number is found by doubling and halving steps: a few reads for any length.
    """
    oldest = changes(None, 1)
    if not oldest:
        return None
    low, step = oldest[0].number, 1
    while later := changes(low + step, 1):
        low, step = later[0].number, step * 2
    while step > 1:  # the newest is above low and at most low + step
        step //= 2
        if later := changes(low + step, 1):
            low = later[0].number
    while later := changes(low, 1):
        low = later[0].number
    return low
