"""The read model: the whole queue in memory, kept up to date from the feed. Documents, lanes, workers, customers and figures.

It is loaded from the store and then follows the feed from a change before the load began: the last change of a document says
where it is, whatever was loaded of it, so that both meet without a lock.

Laws:
- Counts are a fold of the feed up to `change`; nothing is estimated but waits, which are counted in buckets.
- A change of a document that is not known does no harm: it is counted, and nothing is guessed.
- Light, heavy and starved mean the same as in the simulator.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Mapping
from heapq import heappop, heappush
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

from fairlane.core.document import ENDED, NEVER_MS, ChangeRow, DocumentRow
from fairlane.core.policy import Rules, Standing, interval_ms_of
from fairlane.engine.codec import decode_terms
from fairlane.extract.failure import CAN_RETRY
from fairlane.queue.models import new_priority

from .customers import CustomerRow
from .figures import Figures
from .lanes import LaneCounts, LiveDocument

# The feed does not say when a retried document is ready, and a revived one was dropped.
NEEDS_LOOKUP = ("retried", "postponed", "revived")
REQUEUED = (*NEEDS_LOOKUP, "released", "expired", "continued", "split", "joined")
SHOWN_MAX = 24  # running documents and workers in a frame
MOVES_SHOWN = 60
MOVES_MAX = 10_000
OVERDUE_BATCH = 2000  # documents that one change may move to the overdue ones
STORE_WORDS = ("attempt ", "its part ")  # so begin the words that the store puts before a reason ...
STORE_WORDS_END = " failed: "  # ... and so they end


class DocumentFacts(NamedTuple):
    """What the read model must know of a document besides the feed."""

    number: int
    priority: int
    counter: int  # thousandths
    submitted_ms: int
    ready_ms: int  # at first, as far as the store still knows
    next_ready_ms: int  # when it was, or will be, ready for its next attempt
    token: int
    is_set_by_hand: bool = False


def facts_of(document: DocumentRow) -> DocumentFacts:
    """Return the facts of a document; after an attempt the store only knows when it was ready again."""
    check = document.check
    ready_ms = check.checked_ms if document.attempts else document.ready_ms
    return DocumentFacts(
        document.number,
        document.priority,
        check.counter_thousandths,
        check.checked_ms,
        ready_ms,
        document.ready_ms,
        document.token,
        document.is_set_by_hand,
    )


class ReadModel:
    """The queue in memory."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.change = 0  # the number of the last change that is applied
        self.now_ms = 0
        self.since_ms = 0  # the figures begin here
        self.rows: dict[str, CustomerRow] = {}
        self.documents: dict[str, LiveDocument] = {}
        self.lanes = {priority: LaneCounts(priority) for priority in range(1, 10)}
        self.figures = Figures()
        self.is_stale = False  # a customer was forgotten: the feed does not say which, so the model must be loaded again
        self.starved = 0
        self.unserved: list[tuple[str, bool]] = []  # kinds that wait although no worker takes them, or all are draining
        self._counts_moves = False
        self._moves: Counter[tuple[str, str, int]] = Counter()  # what happened, customer, priority
        self._running: dict[str, LiveDocument] = {}
        self._workers: Counter[str] = Counter()
        self._delayed: list[tuple[int, int, LiveDocument]] = []  # heap by when they are ready; some may have left
        self._delayed_count = 0
        self._by_ready_time: deque[tuple[int, LiveDocument]] = deque()  # ready documents that are not overdue yet
        self._overdue: list[tuple[int, int, LiveDocument]] = []  # heap by number: ready for longer than the interval

    def row(self, customer: str) -> CustomerRow:
        """Return the row of a customer, new if there is none."""
        row = self.rows.get(customer)
        if row is None:
            row = self.rows[customer] = CustomerRow(customer)
        return row

    # -- loading -------------------------------------------------------------------------------------------------------

    def load(self, document: DocumentRow) -> None:
        """Add a document of the store that has not ended."""
        if document.id in self.documents:
            return
        row = self.row(document.customer)
        live = LiveDocument(document.id, document.number, row, document.priority, document.ready_ms)
        live.is_set_by_hand = document.is_set_by_hand
        self.documents[document.id] = live
        if document.state == "ready":  # most are
            live.state = "ready"
            row.waiting += 1
            self.lanes[live.priority].load(live)
            self._by_ready_time.append((live.ready_ms, live))
        else:
            live.worker, live.since_ms = document.worker or "", live.ready_ms
            self._enter(live, document.state)

    def finish_loading(self) -> None:
        """Put in order what was loaded."""
        self._by_ready_time = deque(sorted(self._by_ready_time, key=itemgetter(0)))
        for lane in self.lanes.values():
            lane.finish_loading()

    # -- following the feed --------------------------------------------------------------------------------------------

    def apply(self, changes: list[ChangeRow], facts: Mapping[str, DocumentFacts]) -> None:
        """Apply changes in their order; `facts` holds the documents that `missing` named."""
        for change in changes:
            self.change = change.number
            self.now_ms = max(self.now_ms, change.at_ms)
            if change.document is not None and change.customer is not None:
                self._apply_to_document(change, change.document, change.customer, facts.get(change.document))
            elif change.customer is not None:
                self._apply_to_customer(change, self.row(change.customer))
            elif change.what == "forgotten":
                self.is_stale = True

    def missing(self, changes: list[ChangeRow]) -> list[str]:
        """Return the ids of the documents whose facts must be read from the store to apply these changes."""
        known = self.documents
        return list(
            {
                change.document: None
                for change in changes
                if change.document is not None
                and (change.what in NEEDS_LOOKUP or (change.document not in known and change.what in ("submitted", "claimed")))
            }
        )

    def _apply_to_document(self, change: ChangeRow, id: str, customer: str, facts: DocumentFacts | None) -> None:
        what, document = change.what, self.documents.get(id)
        if document is None and what in ("submitted", "claimed", *REQUEUED) and facts is not None:
            document = LiveDocument(id, facts.number, self.row(customer), facts.priority, facts.ready_ms)
            document.is_set_by_hand = facts.is_set_by_hand
            self.documents[id] = document
        if self._counts_moves and len(self._moves) < MOVES_MAX:
            self._moves[what, customer, document.priority if document is not None else 0] += 1
        if what == "submitted":
            self._submitted(change, self.row(customer), document, facts)
        elif what == "claimed" and document is not None:
            self._claimed(change, document)
        elif what == "taken_over" and document is not None:
            self._taken_over(change, document)
        elif what in REQUEUED and document is not None:
            self._requeued(change, document, facts)
            if what == "revived" and change.note:  # by its customer, with a check
                self._checked(change, document.row)
        elif what in ENDED:
            self._ended(change, self.row(customer), document)
        elif what in ("prioritized", "rechecked"):
            self._reprioritized(change, self.row(customer), document)

    def _reprioritized(self, change: ChangeRow, row: CustomerRow, document: LiveDocument | None) -> None:
        """Move a waiting document to the lane of another priority; another check moves the counter, too."""
        priority, by = new_priority(change)
        if change.what == "rechecked":
            self._checked(change, row)
        if document is None or priority is None or (change.what == "rechecked" and document.is_set_by_hand):
            return
        document.is_set_by_hand = document.is_set_by_hand or by is not None
        if document.state == "ready":
            self.lanes[document.priority].remove(document)
            document.priority = priority
            self.lanes[priority].add(document)
        elif document.state != "running":  # one that was loaded as running was claimed since, and has its priority
            document.priority = priority

    def _submitted(
        self, change: ChangeRow, row: CustomerRow, document: LiveDocument | None, facts: DocumentFacts | None
    ) -> None:
        sender_class = row.record_submission(change.at_ms)
        if document is not None:
            document.sender_class = sender_class
            if not document.state:
                self._enter(document, "delayed" if document.ready_ms > change.at_ms else "ready")
        if facts is not None and change.note is None and (row.standing.updated_ms or 0) <= facts.submitted_ms:
            row.standing = _standing_after_check(row.standing, facts.counter, facts.submitted_ms)

    def _claimed(self, change: ChangeRow, document: LiveDocument) -> None:
        self._leave(document)
        document.worker, document.since_ms = change.note or "", change.at_ms
        wait_ms = max(0, change.at_ms - document.ready_ms)
        document.row.record_wait(wait_ms)
        self.figures.record_start(change.at_ms, document.priority, document.sender_class, wait_ms)
        self._enter(document, "running")
        self._find_starved(change.at_ms, document.number)

    def _taken_over(self, change: ChangeRow, document: LiveDocument) -> None:
        if document.state == "running":  # else it was loaded as it was later
            self._leave(document)
            document.worker = change.note or ""
            self._enter(document, "running")

    def _requeued(self, change: ChangeRow, document: LiveDocument, facts: DocumentFacts | None) -> None:
        self._leave(document)
        document.ready_ms, document.worker = change.at_ms, ""
        if change.what == "split":
            document.ready_ms = NEVER_MS  # it waits for its parts
        elif change.what in NEEDS_LOOKUP and facts is not None and facts.token == change.token:
            document.ready_ms = max(change.at_ms, facts.next_ready_ms)
        self._enter(document, "delayed" if document.ready_ms > change.at_ms else "ready")

    def _ended(self, change: ChangeRow, row: CustomerRow, document: LiveDocument | None) -> None:
        if document is not None:
            self._leave(document)
            del self.documents[document.id]
        if change.what == "cancelled":
            return
        code = None if change.what == "done" else failure_code(change.note)
        row.record_end(change.at_ms, code is None)
        self.figures.record_end(change.at_ms, code)

    def _apply_to_customer(self, change: ChangeRow, row: CustomerRow) -> None:
        if change.what == "tuned":
            row.terms = decode_terms(change.note)
        elif change.what == "reset":
            row.standing = Standing()
        elif change.what == "checked":
            self._checked(change, row)

    def _checked(self, change: ChangeRow, row: CustomerRow) -> None:
        """Take over the counter of a check that the feed holds."""
        if (row.standing.updated_ms or 0) <= change.at_ms:
            counter = json.loads(change.note or "{}").get("counter", 0)
            row.standing = _standing_after_check(row.standing, counter, change.at_ms)

    # -- states --------------------------------------------------------------------------------------------------------

    def _enter(self, document: LiveDocument, state: str) -> None:
        document.state = state
        if state == "running":
            self.lanes[document.priority].running += 1
            document.row.running += 1
            self._running[document.id] = document
            self._workers[document.worker] += 1
            return
        document.row.waiting += 1
        if state == "ready":
            self._add_ready(document)
        else:
            self._delayed_count += 1
            heappush(self._delayed, (document.ready_ms, document.number, document))

    def _add_ready(self, document: LiveDocument) -> None:
        self.lanes[document.priority].add(document)
        self._by_ready_time.append((document.ready_ms, document))

    def _leave(self, document: LiveDocument) -> None:
        state, document.state = document.state, ""
        if state == "running":
            self.lanes[document.priority].running -= 1
            document.row.running -= 1
            del self._running[document.id]
            self._workers[document.worker] -= 1
            if not self._workers[document.worker]:
                del self._workers[document.worker]
        elif state:
            document.row.waiting -= 1
            if state == "ready":
                self.lanes[document.priority].remove(document)
            else:
                self._delayed_count -= 1
            self.starved -= document.is_starved
            document.is_starved = False

    def advance_clock(self, now_ms: int) -> None:
        """Move delayed documents that are due to their lanes; the feed mentions them only when a worker next claims."""
        self.now_ms = max(self.now_ms, now_ms)
        self.figures.advance_day(self.now_ms)
        while self._delayed and self._delayed[0][0] <= self.now_ms:
            ready_ms, _, document = heappop(self._delayed)
            if document.state == "delayed" and document.ready_ms == ready_ms:
                self._delayed_count -= 1
                document.state = "ready"
                self._add_ready(document)

    def _find_starved(self, at_ms: int, claimed_number: int) -> None:
        """Mark documents as starved that are ready for longer than the reset interval while a later one was claimed."""
        limit_ms = at_ms - interval_ms_of(self.rules.policy)
        for _ in range(OVERDUE_BATCH):
            if not self._by_ready_time or self._by_ready_time[0][0] >= limit_ms:
                break
            ready_ms, document = self._by_ready_time.popleft()
            if document.state == "ready" and document.ready_ms == ready_ms:
                heappush(self._overdue, (document.number, ready_ms, document))
        while self._overdue and self._overdue[0][0] < claimed_number:
            _, ready_ms, document = heappop(self._overdue)
            if document.state == "ready" and document.ready_ms == ready_ms and not document.is_starved:
                document.is_starved = True
                self.starved += 1
        if self.starved:
            minute = self.figures.minute(at_ms)
            minute.starved = max(minute.starved, self.starved)

    # -- frames --------------------------------------------------------------------------------------------------------

    def count_moves(self, is_on: bool) -> None:
        """Begin or stop counting moves; they are counted only while there are viewers."""
        self._counts_moves = is_on
        if not is_on:
            self._moves.clear()

    def take_moves(self) -> list[dict[str, Any]]:
        """Return what moved since the last call, the most frequent first."""
        moves = [
            {"what": what, "customer": customer, "priority": priority, "count": count}
            for (what, customer, priority), count in self._moves.most_common(MOVES_SHOWN)
        ]
        self._moves.clear()
        return moves

    def frame(self, moves: list[dict[str, Any]], counted: int | None = None) -> dict[str, Any]:
        """Return what the live view shows; `counted` is how many documents were read while the load is not finished."""
        now_ms, figures = self.now_ms, self.figures
        workers = sorted(self._workers.items(), key=lambda entry: (-entry[1], entry[0]))
        return {
            "at": now_ms,
            "change": self.change,
            "since": self.since_ms,
            "counted": counted,
            "lanes": [lane.as_json(now_ms) for lane in self.lanes.values()],
            "running": [
                {
                    "id": document.id,
                    "customer": document.row.customer,
                    "priority": document.priority,
                    "since": document.since_ms,
                }
                for document in islice(self._running.values(), SHOWN_MAX)
            ],
            "running_total": len(self._running),
            "workers": [{"name": name, "running": count} for name, count in workers[:SHOWN_MAX]],
            "workers_total": len(workers),
            "moves": moves,
            "totals": {
                "customers": len(self.rows),
                "ready": sum(lane.ready for lane in self.lanes.values()),
                "delayed": self._delayed_count,
                "running": len(self._running),
                "done_today": figures.done_today,
                "failed_today": figures.failed_today.total(),
            },
            "rate": figures.rate(now_ms),
            "waits": figures.waits(now_ms),
            "starved": self.starved,
            "unserved": [{"kind": kind, "is_draining": is_draining} for kind, is_draining in self.unserved],
            "failures": [{"code": code, "count": count} for code, count in figures.failed_today.most_common()],
        }


def encode_frame(model: ReadModel, moves: list[dict[str, Any]]) -> bytes:
    """Return a frame as a server-sent event."""
    data = json.dumps(model.frame(moves), separators=(",", ":"))
    return f"id: {model.change}\ndata: {data}\n\n".encode()


def encode_partial_frame(model: ReadModel) -> bytes:
    """Return a frame of a model that is still being loaded; it has no id, because it is not the state at any change."""
    for lane in model.lanes.values():
        lane.finish_loading()
    data = json.dumps(model.frame([], len(model.documents)), separators=(",", ":"))
    return f"data: {data}\n\n".encode()


def failure_code(reason: str | None) -> str:
    """Return the code that the reason of a failed document begins with; `other` if it begins with none of ours."""
    text = reason or ""
    while text.startswith(STORE_WORDS) and STORE_WORDS_END in text:
        text = text.partition(STORE_WORDS_END)[2]
    code = text.partition(":")[0].strip()
    return code if code in CAN_RETRY else "other"


def may_help_again(code: str) -> bool:
    """Whether another attempt may succeed where one failed with this code; nobody knows of errors that are not ours."""
    return all(can_retry for known, can_retry in CAN_RETRY.items() if known == code)


def _standing_after_check(standing: Standing, counter: int, at_ms: int) -> Standing:
    """Return the standing after a check; what was sent in which part of a sliding interval is not in the feed."""
    return Standing(counter, at_ms, standing.resets)
