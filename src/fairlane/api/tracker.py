"""The documents that have not ended, followed through the feed: what waits, runs and is delayed, of which kind.

Laws:
- It is one server's view of the whole queue, whichever server and worker took part.
- Above TRACKED_MAX documents it does not follow more of them one by one, and counts those it missed; when there is room
  again it reads the queue anew.
- Times are those of the feed, so the store's.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from itertools import islice, takewhile
from sys import intern
from typing import Any, NamedTuple

from fairlane.core.document import ENDED, WAITING, ChangeRow, CheckRow, DocumentRow
from fairlane.core.policy import Rules
from fairlane.engine.protocol import DocumentFilter
from fairlane.engine.walk import newest_document, walk_documents
from fairlane.queue import Queue
from fairlane.queue.models import new_priority
from fairlane.queue.workers import Fleet

from .pace import Pace

TRACKED_MAX = 200_000  # waiting and running documents that are tracked one by one
KINDS_KNOWN_MAX = 10_000
SENDERS_KNOWN_MAX = 20_000
LIGHT_MOST = 3  # documents of a customer within LIGHT_MS, as the simulator says
LIGHT_MS = 1_500_000
USUAL_SHARE = 8  # the newest time counts for one eighth
# After these the feed does not say when it is ready.
NEEDS_LOOKUP = ("retried", "postponed", "revived", "split")
WAITS_AGAIN = (*NEEDS_LOOKUP, "released", "expired", "continued", "joined")


class FollowedDocument(NamedTuple):
    """A document that has not ended."""

    number: int
    customer: str
    kind: str
    priority: int
    ready_ms: int
    is_light: bool = False
    started_ms: int | None = None  # None: it does not run; 0: it started before this server did
    dispatches: int = 0  # to workers that take its kind, when it became ready
    before: int = 0  # how many documents were ready then
    is_set_by_hand: bool = False  # an operator set its priority


class KindPace:
    """How fast documents of one kind come, and how long one takes."""

    __slots__ = ("_arrivals", "_pace", "usual_seconds")

    def __init__(self) -> None:
        self._arrivals = 0
        self._pace = Pace()
        self.usual_seconds: float | None = None  # from claim to settlement; None: none has ended yet

    def arrived(self, at_ms: int) -> None:
        self._pace = self._pace.advance(at_ms, self._arrivals)
        self._arrivals += 1

    def took(self, seconds: float) -> None:
        usual = seconds if self.usual_seconds is None else self.usual_seconds
        self.usual_seconds = usual + (seconds - usual) / USUAL_SHARE

    def arrivals_a_second(self, now_ms: int) -> float:
        """Return how many documents came in a second, lately."""
        documents, span_ms = self._pace.recent(now_ms, self._arrivals)
        return documents * 1000 / max(span_ms, 60_000) if documents else 0.0


class TrackedState(NamedTuple):
    """A copy of what is tracked, for a thread."""

    waiting: list[FollowedDocument]
    running: Tally[str]  # by kind
    paces: dict[str, KindPace]
    dispatches: Tally[frozenset[str]]  # by the set of kinds that a worker takes
    rules: Rules
    untracked: int

    def dispatches_for(self, kind: str) -> tuple[int, int]:
        """Return how many documents workers took that take this kind, and by how many sets of kinds."""
        counts = [count for kinds, count in self.dispatches.items() if kind in kinds]
        return sum(counts), len(counts)


class DocumentTracker:
    """Follows documents from change to change."""

    def __init__(self, queue: Queue, call: Callable[..., Awaitable[Any]]) -> None:
        self._queue = queue
        self._call = call
        self.waiting: dict[str, FollowedDocument] = {}  # about in the order they became ready
        self.running: dict[str, FollowedDocument] = {}
        self.delayed: dict[str, FollowedDocument] = {}
        self.senders: Tally[str] = Tally()  # how many of each customer wait
        self.paces: dict[str, KindPace] = {}
        self.untracked = 0
        self.rules = Rules()
        self.fleet: Fleet | None = None
        self._expected: dict[str, tuple[FollowedDocument, int]] = {}  # known, and not in the feed yet; when it was submitted
        self._dispatches: Tally[frozenset[str]] = Tally()  # by the set of kinds that a worker takes
        self._looked_up: dict[str, DocumentRow] = {}
        self._recent: OrderedDict[str, deque[int]] = OrderedDict()  # when a customer sent its newest documents
        self._last_number = 0

    async def start(self) -> None:
        """Read what waits and runs already."""
        documents, self._last_number = await self._call(self._not_ended)
        for part in (self.waiting, self.running, self.delayed, self.senders):
            part.clear()
        self.untracked = 0
        for document in documents:
            self._add(document.id, _tracked(document), document.state == "delayed")
        self.rules = await self._call(self._queue.rules)

    def expect(self, id: str, number: int, kind: str, check: CheckRow, ready_ms: int) -> None:
        """Note a document that was accepted here, before the feed has it."""
        document = FollowedDocument(number, check.customer, intern(kind), check.priority, ready_ms)
        if len(self._expected) >= TRACKED_MAX:
            self._expected.clear()
        self._expected[id] = (document, check.checked_ms)

    def promote_due(self, now_ms: int) -> None:
        """Let delayed documents wait whose time has come: the feed has no line for that."""
        for id in [id for id, document in self.delayed.items() if document.ready_ms <= now_ms]:
            self._wait(id, self.delayed.pop(id))

    def copy(self) -> TrackedState:
        """Return a copy of what is tracked."""
        running = Tally(document.kind for document in self.running.values())
        return TrackedState(
            list(self.waiting.values()), running, dict(self.paces), self._dispatches.copy(), self.rules, self.untracked
        )

    # -- changes -------------------------------------------------------------------------------------------------------

    async def prepare(self, changes: list[ChangeRow]) -> None:
        """Read what the feed does not say about the documents of these changes."""
        whats = {change.what for change in changes}
        if "configured" in whats:
            self.rules = await self._call(self._queue.rules)
        if "forgotten" in whats or (self.untracked and len(self.waiting) + len(self.running) < TRACKED_MAX // 2):
            await self.start()
        submitted = [change.document for change in changes if change.what == "submitted" and change.document is not None]
        if not all(id in self._expected or self._is_tracked(id) for id in submitted):  # through another server or the library
            for row in await self._call(self._newly_submitted):
                self.expect(row.id, row.number, row.kind, row.check, row.ready_ms)
        ids = [change.document for change in changes if change.what in NEEDS_LOOKUP and change.document is not None]
        self._looked_up = await self._call(self._read, ids) if ids else {}

    def apply(self, change: ChangeRow, id: str) -> FollowedDocument | None:
        """Follow one change; return the document as it was before it, with the time it started if it ran; None: not tracked."""
        what = change.what
        if what == "submitted":
            return self._submitted(id)
        if what == "claimed":
            document = self._stop_waiting(id) or self.delayed.pop(id, None)
            if document is not None:
                self._dispatched(document.kind, change.note)
                self.running[id] = document._replace(started_ms=change.at_ms)
            return document
        if what == "taken_over":
            return self.running.get(id)
        if what in ("prioritized", "rechecked"):
            return self._reprioritized(id, change)
        document = self.running.pop(id, None)
        if document is not None and document.started_ms and what != "expired":
            self._pace(document.kind).took(max(0, change.at_ms - document.started_ms) / 1000)
        if what in ENDED:
            return document or self._stop_waiting(id) or self.delayed.pop(id, None)
        if what == "joined":
            document = self.delayed.pop(id, None)
        if what in WAITS_AGAIN:
            self._wait_again(id, document, change)
        return document

    def _reprioritized(self, id: str, change: ChangeRow) -> FollowedDocument | None:
        """Follow a waiting document to another priority; return it as it was before."""
        waiting = self.waiting if id in self.waiting else self.delayed
        document, (priority, by) = waiting.get(id), new_priority(change)
        if document is not None and priority is not None and (change.what == "prioritized" or not document.is_set_by_hand):
            waiting[id] = document._replace(priority=priority, is_set_by_hand=document.is_set_by_hand or by is not None)
        return document

    def _submitted(self, id: str) -> FollowedDocument | None:
        document, submitted_ms = self._expected.pop(id, (None, 0))
        if document is None or self._is_tracked(id):
            return self.waiting.get(id) or self.running.get(id) or self.delayed.get(id)
        self._last_number = max(self._last_number, document.number)
        self._pace(document.kind).arrived(submitted_ms)
        document = document._replace(is_light=self._is_light(document.customer, submitted_ms))
        self._add(id, document, document.ready_ms > submitted_ms)
        return document

    def _wait_again(self, id: str, document: FollowedDocument | None, change: ChangeRow) -> None:
        row = self._looked_up.get(id)
        if row is not None and row.state not in ENDED:  # if it runs again already, the claim follows in the feed
            is_light = document is not None and document.is_light
            self._add(id, _tracked(row)._replace(is_light=is_light, started_ms=None), row.state == "delayed")
        elif document is not None and change.what not in NEEDS_LOOKUP:
            kind = intern(change.note) if change.what == "continued" and change.note else document.kind
            self._add(id, document._replace(kind=kind, ready_ms=change.at_ms, started_ms=None), False)

    def _add(self, id: str, document: FollowedDocument, is_delayed: bool) -> None:
        if len(self.waiting) + len(self.running) + len(self.delayed) >= TRACKED_MAX:
            self.untracked += 1
        elif document.started_ms is not None:
            self.running[id] = document
        elif is_delayed:
            self.delayed[id] = document
        else:
            self._wait(id, document)

    def _wait(self, id: str, document: FollowedDocument) -> None:
        before = len(self.waiting)
        dispatches = sum(count for kinds, count in self._dispatches.items() if document.kind in kinds)
        self.waiting[id] = document._replace(dispatches=dispatches, before=before)
        self.senders[document.customer] += 1

    def _stop_waiting(self, id: str) -> FollowedDocument | None:
        document = self.waiting.pop(id, None)
        if document is not None:
            self.senders[document.customer] -= 1
            if self.senders[document.customer] <= 0:
                del self.senders[document.customer]
        return document

    def _dispatched(self, kind: str, worker: str | None) -> None:
        kinds = None if self.fleet is None else self.fleet.kinds_of(worker or "")
        self._dispatches[kinds if kinds is not None and kind in kinds else frozenset((kind,))] += 1

    def _pace(self, kind: str) -> KindPace:
        if len(self.paces) >= KINDS_KNOWN_MAX and kind not in self.paces:
            self.paces.clear()
        return self.paces.setdefault(kind, KindPace())

    def _is_tracked(self, id: str) -> bool:
        return id in self.waiting or id in self.running or id in self.delayed

    def _is_light(self, customer: str, at_ms: int) -> bool:
        recent = self._recent.setdefault(customer, deque(maxlen=LIGHT_MOST))
        is_light = len(recent) < LIGHT_MOST or at_ms - recent[0] > LIGHT_MS
        recent.append(at_ms)
        self._recent.move_to_end(customer)
        while len(self._recent) > SENDERS_KNOWN_MAX:
            self._recent.popitem(last=False)
        return is_light

    # -- reading -------------------------------------------------------------------------------------------------------

    def _not_ended(self) -> tuple[list[DocumentRow], int]:
        """Read the documents that have not ended, as many as can be tracked, and the newest number."""
        engine, documents = self._queue.engine, list[DocumentRow]()
        newest = newest_document(engine)
        for state in ("running", *WAITING):
            walk = walk_documents(engine, DocumentFilter(state=state))
            documents += islice(walk, max(0, TRACKED_MAX - len(documents)))
        return sorted(documents, key=lambda document: document.number), newest.number if newest else 0

    def _newly_submitted(self) -> list[DocumentRow]:
        """Read the documents above the last number that was seen."""
        walk = walk_documents(self._queue.engine)
        return list(takewhile(lambda document: document.number > self._last_number, islice(walk, TRACKED_MAX)))

    def _read(self, ids: list[str]) -> dict[str, DocumentRow]:
        rows = ((id, self._queue.engine.document(id)) for id in ids)
        return {id: row for id, row in rows if row is not None}


def _tracked(row: DocumentRow) -> FollowedDocument:
    """Return a document as it is tracked; the store does not say when one that runs was started."""
    started_ms = 0 if row.state == "running" else None
    return FollowedDocument(
        row.number, row.customer, intern(row.kind), row.priority, row.ready_ms, started_ms=started_ms,
        is_set_by_hand=row.is_set_by_hand,
    )  # fmt: skip
