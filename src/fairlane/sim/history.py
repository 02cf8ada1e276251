"""The history of a live queue: its change feed as a workload, its rules as a contender."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile

from fairlane.core.document import ChangeRow
from fairlane.core.errors import Mistake
from fairlane.core.policy import STEP, Terms
from fairlane.queue import PAGE_SIZE, Queue
from fairlane.queue.models import to_datetime

from .contenders import Contender
from .workload import Arrival, Workload

ATTEMPT_ENDS = ("done", "failed", "retried", "released", "expired", "cancelled")


def read_feed(queue: Queue, after: int | None = None) -> Iterator[ChangeRow]:
    """Yield the changes that are kept, or those after a number, oldest first, up to now."""
    page = queue.engine.changes(after, PAGE_SIZE)
    while page:
        yield from page
        page = queue.engine.changes(page[-1].number, PAGE_SIZE)


class _DocumentTimes:
    """Submission and service times of documents, read from the feed."""

    def __init__(self) -> None:
        self.submitted: dict[str, tuple[int, str]] = {}  # by id: time and customer
        self.claimed_ms: dict[str, int] = {}
        self.service_ms: dict[str, int] = {}  # all attempts together
        self.ended: set[str] = set()
        self.unpaired = 0  # checks without a document, and documents without a check

    def apply(self, change: ChangeRow) -> None:
        id, what = change.document, change.what
        self.unpaired += what == "checked" or (what == "submitted" and change.note is not None)
        if id is None or change.customer is None:
            return
        if what == "submitted":
            self.submitted[id] = change.at_ms, change.customer
        elif what == "claimed":
            self.claimed_ms[id] = change.at_ms
        elif what in ATTEMPT_ENDS and id in self.claimed_ms:
            self.service_ms[id] = self.service_ms.get(id, 0) + max(0, change.at_ms - self.claimed_ms.pop(id))
            if what in ("done", "failed"):
                self.ended.add(id)
        elif what == "revived":
            self.ended.discard(id)

    def notes(self) -> tuple[str, ...]:
        left_out = len(self.submitted.keys() - self.ended)
        notes = []
        if left_out:
            notes.append(f"Documents left out, because they have not ended or were cancelled: {left_out:,}.")
        if self.unpaired:
            notes.append(
                f"Checks without a document (left out), or documents without a check (checked here): {self.unpaired:,}."
            )
        return tuple(notes)


def load_history(queue: Queue, after: int | None = None) -> Workload:
    """Load the documents that have ended, with their service times; all that the feed has, or those after a change."""
    times = _DocumentTimes()
    for change in read_feed(queue, after):
        times.apply(change)
    ended = [(id, *submitted) for id, submitted in times.submitted.items() if id in times.ended]
    if not ended:
        raise Mistake(f"{queue.url} has no document that was submitted and has ended since its feed begins; nothing to replay")
    first_ms = min(at_ms for _, at_ms, _ in ended)
    recent = takewhile(lambda document: document.submitted_at >= to_datetime(first_ms), queue.documents())  # newest first
    costs = {document.id: round(document.cost * STEP) for document in recent if document.cost != 1}
    arrivals = [Arrival(at_ms, customer, times.service_ms[id] * 1000, costs.get(id, STEP)) for id, at_ms, customer in ended]
    return Workload.of(queue.url, arrivals, times.notes())


def current_contender(queue: Queue) -> Contender:
    """Return the queue's rules and its customers' terms; without pauses, because paused documents would never be served."""
    terms: dict[str, Terms] = {}
    after = ""
    while page := queue.engine.customers(after, PAGE_SIZE):
        terms.update((customer.id, replace(customer.terms, paused=False)) for customer in page if customer.terms_version)
        after = page[-1].id
    return Contender("current", queue.rules(), terms)
