"""What became of a set of documents? Told by the feed of changes alone, whoever works them off.

Laws:
- Following costs in proportion to what happened, not to how much waits.
- The wait of a document is from its submission to the first time a worker took it, by the store's clock.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fairlane.core.document import ChangeRow, ReceiptRow

SERVED_KEPT = 20

_STATE_AFTER = {"claimed": "running", "done": "done", "failed": "failed", "cancelled": "cancelled"} | dict.fromkeys(
    ("retried", "released", "expired", "revived"), "waiting"
)


@dataclass(slots=True)
class Course:
    """One document so far."""

    customer: str
    name: str
    priority: int
    submitted_ms: int
    state: str = "waiting"
    wait_ms: int | None = None
    reason: str | None = None


Newcomer = Callable[[str], Course | None]  # None: it is not one of those that are followed


class Row(NamedTuple):
    """What one customer got."""

    customer: str
    documents: int
    done: int
    failed: int
    cancelled: int
    priorities: dict[int, int]  # how many documents had each
    wait_p50: float | None  # seconds
    wait_p95: float | None


class Courses:
    """Documents by state, priority and customer, kept up to date by `follow`."""

    def __init__(self) -> None:
        self.documents: dict[str, Course] = {}
        self.by_customer: dict[str, Counter[str]] = defaultdict(Counter)  # states
        self.lanes: dict[int, Counter[str]] = defaultdict(Counter)  # how many wait, by priority and customer
        self.longest_ms: dict[str, int] = defaultdict(int)  # the longest wait of each customer
        self.served: deque[Course] = deque(maxlen=SERVED_KEPT)

    def add(self, receipts: Iterable[ReceiptRow], names: Iterable[str]) -> None:
        """Documents that were submitted."""
        for receipt, name in zip(receipts, names, strict=True):
            course = Course(receipt.customer, name, receipt.priority, receipt.check.checked_ms)
            self.documents[receipt.id] = course
            self._count(course, 1)

    def follow(self, changes: Iterable[ChangeRow], newcomer: Newcomer = lambda _: None) -> list[Course]:
        """Take in what happened; returns the documents that ended. `newcomer` tells of one that others have submitted."""
        ended = []
        for change in changes:
            id = change.document or ""
            if change.what == "submitted" and id not in self.documents and (new := newcomer(id)) is not None:
                self.documents[id] = new
                self._count(new, 1)
            course = self.documents.get(id)
            if course is None or change.what not in _STATE_AFTER:
                continue
            self._count(course, -1)
            course.state = _STATE_AFTER[change.what]
            self._count(course, 1)
            if change.what == "claimed":
                self._served(course, change.at_ms)
            elif course.state != "waiting":
                course.reason = change.note
                ended.append(course)
        return ended

    @property
    def left(self) -> int:
        """How many have not ended."""
        return sum(states["waiting"] + states["running"] for states in self.by_customer.values())

    @property
    def failed(self) -> list[Course]:
        """Those that failed, in the order of submission."""
        return [one for one in self.documents.values() if one.state == "failed"]

    def rows(self) -> list[Row]:
        """What every customer got, by its name."""
        courses: dict[str, list[Course]] = defaultdict(list)
        for course in self.documents.values():
            courses[course.customer].append(course)
        return [self._row(customer, courses[customer]) for customer in sorted(courses)]

    def _row(self, customer: str, courses: list[Course]) -> Row:
        states = self.by_customer[customer]
        waits = sorted(one.wait_ms for one in courses if one.wait_ms is not None)
        priorities = Counter(one.priority for one in courses)
        return Row(
            customer, len(courses), states["done"], states["failed"], states["cancelled"], dict(sorted(priorities.items())),
            percentile(waits, 50), percentile(waits, 95),
        )  # fmt: skip

    def _served(self, course: Course, at_ms: int) -> None:
        if course.wait_ms is None:
            course.wait_ms = max(0, at_ms - course.submitted_ms)
            self.longest_ms[course.customer] = max(self.longest_ms[course.customer], course.wait_ms)
            self.served.append(course)

    def _count(self, course: Course, by: int) -> None:
        self.by_customer[course.customer][course.state] += by
        if course.state == "waiting":
            self.lanes[course.priority][course.customer] += by


def percentile(waits_ms: Sequence[int], share: int) -> float | None:
    """The smallest wait that this share of them does not exceed, in seconds; None of none. They are sorted."""
    if not waits_ms:
        return None
    return waits_ms[math.ceil(len(waits_ms) * share / 100) - 1] / 1000


def last_change(changes: Callable[[int | None, int], list[ChangeRow]]) -> int | None:
    """The number of the newest change, found in a few looks however long the feed is; None if none is kept."""
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
