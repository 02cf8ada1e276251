"""What did a live queue really get? Its feed as a workload, and its rules as a contender."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile

from fairlane.core.document import ChangeRow
from fairlane.core.errors import Mistake
from fairlane.core.policy import STEP, Terms
from fairlane.queue import PAGE_SIZE, Queue

from .contenders import Contender
from .workload import Arrival, Workload

ATTEMPT_ENDS = ("done", "failed", "retried", "released", "expired", "cancelled")


def feed(queue: Queue, after: int | None = None) -> Iterator[ChangeRow]:
    """Every change that is kept, or those after a number, oldest first, up to now."""
    page = queue.changes(after)
    while page:
        yield from page
        page = queue.changes(page[-1].number, PAGE_SIZE)


class _Past:
    """What a feed tells of documents."""

    def __init__(self) -> None:
        self.submitted: dict[str, tuple[int, str]] = {}  # by id: when, and by whom
        self.claimed_ms: dict[str, int] = {}
        self.spent_ms: dict[str, int] = {}  # by workers, all attempts together
        self.ended: set[str] = set()
        self.unlike = 0  # checks without a document, and documents without a check

    def follow(self, change: ChangeRow) -> None:
        id, what = change.document, change.what
        self.unlike += what == "checked" or (what == "submitted" and change.note is not None)
        if id is None or change.customer is None:
            return
        if what == "submitted":
            self.submitted[id] = change.at_ms, change.customer
        elif what == "claimed":
            self.claimed_ms[id] = change.at_ms
        elif what in ATTEMPT_ENDS and id in self.claimed_ms:
            self.spent_ms[id] = self.spent_ms.get(id, 0) + max(0, change.at_ms - self.claimed_ms.pop(id))
            if what in ("done", "failed"):
                self.ended.add(id)
        elif what == "revived":
            self.ended.discard(id)

    def notes(self) -> tuple[str, ...]:
        left_out = len(self.submitted.keys() - self.ended)
        told = []
        if left_out:
            told.append(f"{left_out:,} documents that have not ended, or were cancelled, are left out.")
        if self.unlike:
            told.append(
                f"{self.unlike:,} were checks without a document (left out) or documents without a check (checked here)."
            )
        return tuple(told)


def history(queue: Queue, after: int | None = None) -> Workload:
    """The documents of a queue that have ended, each with the time that workers spent on it; those submitted after a change."""
    past = _Past()
    for change in feed(queue, after):
        past.follow(change)
    known = [(id, *at) for id, at in past.submitted.items() if id in past.ended]
    if not known:
        raise Mistake(f"{queue.url} has no document that was submitted and has ended since its feed begins; nothing to replay")
    first_ms = min(at_ms for _, at_ms, _ in known)
    recent = takewhile(lambda one: one.submitted_ms >= first_ms, queue.documents())  # newest first
    costs = {one.id: one.cost for one in recent if one.cost != STEP}
    arrivals = [Arrival(at_ms, customer, past.spent_ms[id] * 1000, costs.get(id, STEP)) for id, at_ms, customer in known]
    return Workload.of(queue.url, arrivals, past.notes())


def current(queue: Queue) -> Contender:
    """The rules that hold in a queue now, with what its customers have of their own, but pauses: what ended was served."""
    terms: dict[str, Terms] = {}
    after = ""
    while page := queue.engine.customers(after, PAGE_SIZE):
        terms.update((one.id, replace(one.terms, paused=False)) for one in page if one.terms_version)
        after = page[-1].id
    return Contender("current", queue.rules(), terms)
