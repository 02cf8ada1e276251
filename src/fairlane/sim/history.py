"""The history of a live queue: its change feed as a workload and as the measured past, its rules as a contender."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from fairlane.core.document import ChangeRow
from fairlane.core.errors import Mistake
from fairlane.core.policy import STEP, Terms
from fairlane.engine.protocol import DocumentFilter
from fairlane.engine.walk import walk_documents
from fairlane.masking import mask_url
from fairlane.queue import PAGE_SIZE, Queue

from .contenders import Contender
from .past import ATTEMPT_ENDS, Observation, Past, past_replay
from .workload import Arrival, Workload


class History(NamedTuple):
    """The documents of a queue that have ended, as a workload, and what really happened to them."""

    workload: Workload
    past: Past


def read_feed(queue: Queue, after: int | None = None) -> Iterator[ChangeRow]:
    """Yield the changes that are kept, or those after a number, oldest first, up to now."""
    page = queue.engine.changes(after, PAGE_SIZE)
    while page:
        yield from page
        page = queue.engine.changes(page[-1].number, PAGE_SIZE)


Round = tuple[str, int]  # a document's id, and how often its customer had retried it: each time is a check, as of another one


class _DocumentTimes:
    """Submission and service times of documents, read from the feed; one that its customer retried counts once more."""

    def __init__(self, delayed_ms: Mapping[str, int], steered: int) -> None:
        self.delayed_ms = delayed_ms
        self.steered = steered
        self.rounds: dict[str, int] = {}  # by id, of those that their customer retried
        self.submitted: dict[Round, tuple[int, str]] = {}  # time and customer
        self.ready_ms: dict[Round, int] = {}  # of those that were never claimed
        self.claimed_ms: dict[Round, int] = {}
        self.waited_ms: dict[Round, int] = {}  # from when it was first ready to its first claim
        self.retried: set[Round] = set()
        self.service_ms: dict[Round, int] = {}  # all attempts together
        self.ended: set[Round] = set()
        self.unpaired = 0  # checks without a document, and documents without a check

    def apply(self, change: ChangeRow) -> None:
        what = change.what
        self.unpaired += what in ("checked", "rechecked") or (what == "submitted" and change.note is not None)
        if change.document is None or change.customer is None:
            return
        if what == "revived" and change.note:
            self.rounds[change.document] = self.rounds.get(change.document, 0) + 1
        id = change.document, self.rounds.get(change.document, 0)
        if what == "submitted" or (what == "revived" and change.note):
            self.submitted[id] = change.at_ms, change.customer
            self.ready_ms[id] = self.delayed_ms.get(change.document, 0) if what == "submitted" else 0
            self.ready_ms[id] = max(self.ready_ms[id], change.at_ms)
        elif what == "claimed":
            self.claimed_ms[id] = change.at_ms
            if id in self.waited_ms:
                self.retried.add(id)
            elif id in self.ready_ms:
                self.waited_ms[id] = max(0, change.at_ms - self.ready_ms.pop(id))
        elif what in ATTEMPT_ENDS and id in self.claimed_ms:
            self.service_ms[id] = self.service_ms.get(id, 0) + max(0, change.at_ms - self.claimed_ms.pop(id))
            if what in ("done", "failed"):
                self.ended.add(id)
        elif what == "revived":
            self.ended.discard(id)

    @property
    def left_out(self) -> int:
        return len(self.submitted.keys() - self.ended)

    def notes(self) -> tuple[str, ...]:
        notes = []
        if self.left_out:
            notes.append(f"Documents left out, because they have not ended or were cancelled: {self.left_out:,}.")
        if self.unpaired:
            notes.append(
                f"Checks without a document (left out), or documents without a check (checked here): {self.unpaired:,}."
            )
        if self.steered:
            notes.append(
                f"Documents whose priority was set, or could be no better (here it follows the check): {self.steered:,}."
            )
        return tuple(notes)


def load_history(queue: Queue, after: int | None = None) -> History:
    """Load the documents that have ended, with their service times; all that the feed has, or those after a change."""
    costs, delayed_ms, steered = _read_documents(queue, after)
    times, observation = _DocumentTimes(delayed_ms, steered), Observation(delayed_ms)
    for change in read_feed(queue, after):
        times.apply(change)
        observation.apply(change)
    ended = [(id, *submitted) for id, submitted in times.submitted.items() if id in times.ended]
    if not ended:
        raise Mistake(
            f"{mask_url(queue.url)} has no document that was submitted and has ended since its feed begins; nothing to replay"
        )
    ended.sort(key=lambda document: document[1])  # as a workload sorts them
    arrivals = [Arrival(at_ms, customer, times.service_ms[id] * 1000, costs.get(id[0], STEP)) for id, at_ms, customer in ended]
    workload = Workload.of(mask_url(queue.url), arrivals, times.notes())
    waits_ms = (times.waited_ms.get(id, 0) for id, _, _ in ended)
    start_us = array("q", (at_us + wait_ms * 1000 for at_us, wait_ms in zip(workload.at_us, waits_ms, strict=True)))
    measured = past_replay(workload, current_contender(queue), observation.running_max, start_us)
    return History(workload, Past(measured, observation, len(times.retried & times.ended), times.left_out))


def _read_documents(queue: Queue, after: int | None) -> tuple[dict[str, int], dict[str, int], int]:
    """Read what the feed does not say: costs other than 1, when delays were over, as far as that is known, and how many
    priorities are not what the check gave."""
    first = next(read_feed(queue, after), None)
    costs, delayed_ms, steered, retaken = dict[str, int](), dict[str, int](), 0, dict[str, int]()
    filter = DocumentFilter(since_ms=None if first is None else first.at_ms)
    for document in walk_documents(queue.engine, filter):
        if document.cost != STEP:
            costs[document.id] = document.cost
        if document.ready_ms > document.submitted_ms and document.token <= 1:  # later claims have times of their own
            delayed_ms[document.id] = document.ready_ms
        elif document.ready_ms > document.submitted_ms and document.attempts <= 1:  # or its one claim was taken over
            retaken[document.id] = document.ready_ms
        steered += document.is_set_by_hand or document.no_better_than is not None
    if retaken:
        claims = Counter(change.document for change in read_feed(queue, after) if change.what == "claimed")
        delayed_ms |= {id: ready_ms for id, ready_ms in retaken.items() if claims[id] <= 1}
    return costs, delayed_ms, steered


def current_contender(queue: Queue) -> Contender:
    """Return the queue's rules and its customers' terms; without pauses, because paused documents would never be served."""
    terms: dict[str, Terms] = {}
    after = ""
    while page := queue.engine.customers(after, PAGE_SIZE):
        terms.update((customer.id, replace(customer.terms, paused=False)) for customer in page if customer.terms_version)
        after = page[-1].id
    return Contender("current", queue.rules(), terms)
