"""What is true now? The whole queue as its feed tells it: documents, lanes, workers, customers and figures.

It begins with what a store held at some moment and follows the feed from a change before that moment: the last change of a
document says where it is, whatever was read of it, so that both meet without a lock.

Laws:
- Counts are a fold of the feed up to `change`; nothing is estimated but waits, which are counted in steps.
- Whatever a change says of a document that is not known is no harm: it is counted, and nothing is guessed.
- What is light, heavy and starved means the same as in the simulator.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Mapping
from heapq import heappop, heappush
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

from fairlane.core.document import ENDED, ChangeRow, DocumentRow
from fairlane.core.policy import Rules, Standing
from fairlane.engine.codec import decode_terms
from fairlane.extract.failure import CAN_RETRY

from .customers import Row
from .figures import Figures
from .lanes import Followed, Lane

ANEW = ("retried", "revived")  # after these it is not known when a document is ready, or it was let go before
COMES_BACK = ("retried", "released", "expired", "revived")
SHOWN = 24
MOVES = 60
MOVES_KEPT_MAX = 10_000
JUDGED_AT_ONCE = 2000
SPENT = " failed: "  # ends what the store puts before the reason of a last attempt


class Seen(NamedTuple):
    """What must be known of a document besides what the feed says."""

    number: int
    priority: int
    counter: int  # thousandths
    submitted_ms: int
    ready_ms: int  # at first, as far as the store still knows
    again_ms: int  # when it was, or will be, ready for its next attempt
    token: int


def seen(document: DocumentRow) -> Seen:
    """A document that was read; after an attempt the store only knows when it was ready again."""
    check = document.check
    ready_ms = check.checked_ms if document.attempts else document.ready_ms
    return Seen(
        document.number,
        check.priority,
        check.counter_thousandths,
        check.checked_ms,
        ready_ms,
        document.ready_ms,
        document.token,
    )


class Live:
    """The queue, in memory."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.change = 0
        self.now_ms = 0
        self.since_ms = 0  # figures begin here
        self.rows: dict[str, Row] = {}
        self.documents: dict[str, Followed] = {}
        self.lanes = {priority: Lane(priority) for priority in range(1, 10)}
        self.figures = Figures()
        self.is_unsure = False  # somebody was forgotten: the feed does not say who
        self._is_watched = False
        self.starved = 0
        self._running: dict[str, Followed] = {}
        self._workers: Counter[str] = Counter()
        self._delayed: list[tuple[int, int, Followed]] = []  # heap; some may have left
        self._delayed_count = 0
        self._unjudged: deque[tuple[int, Followed]] = deque()  # ready ones in the order they became so
        self._overdue: list[tuple[int, int, Followed]] = []  # heap by number: ready for too long, and not passed over yet
        self._moves: Counter[tuple[str, str, int]] = Counter()

    def row(self, customer: str) -> Row:
        """A customer, new if it was never seen."""
        row = self.rows.get(customer)
        if row is None:
            row = self.rows[customer] = Row(customer)
        return row

    # -- beginning -----------------------------------------------------------------------------------------------------

    def hold(self, document: DocumentRow) -> None:
        """A document that was read and has not ended."""
        if document.id not in self.documents:
            ready_ms = document.ready_ms
            row = self.row(document.customer)
            one = Followed(document.id, document.number, row, document.check.priority, ready_ms)
            self.documents[document.id] = one
            if document.state == "ready":  # most are
                one.state = "ready"
                row.waiting += 1
                self.lanes[one.priority].hold(one)
                self._unjudged.append((ready_ms, one))
            else:
                one.worker, one.since_ms = document.worker or "", ready_ms
                self._enter(one, document.state)

    def held(self) -> None:
        """Everything was read, in whatever order."""
        self._unjudged = deque(sorted(self._unjudged, key=itemgetter(0)))
        for lane in self.lanes.values():
            lane.held()

    # -- following -----------------------------------------------------------------------------------------------------

    def follow(self, changes: list[ChangeRow], read: Mapping[str, Seen]) -> None:
        """Some changes, in their order; `read` holds those of their documents that had to be looked up."""
        for change in changes:
            self.change = change.number
            self.now_ms = max(self.now_ms, change.at_ms)
            if change.document is not None and change.customer is not None:
                self._happened(change, change.document, change.customer, read.get(change.document))
            elif change.customer is not None:
                self._customer_changed(change, self.row(change.customer))
            elif change.what == "forgotten":
                self.is_unsure = True

    def needs(self, changes: list[ChangeRow]) -> list[str]:
        """Which documents must be looked up to follow these changes."""
        known = self.documents
        return list(
            {
                change.document: None
                for change in changes
                if change.document is not None
                and (change.what in ANEW or (change.document not in known and change.what in ("submitted", "claimed")))
            }
        )

    def _happened(self, change: ChangeRow, id: str, customer: str, read: Seen | None) -> None:
        what, one = change.what, self.documents.get(id)
        if one is None and what in ("submitted", "claimed", *COMES_BACK) and read is not None:
            one = self.documents[id] = Followed(id, read.number, self.row(customer), read.priority, read.ready_ms)
        if self._is_watched and len(self._moves) < MOVES_KEPT_MAX:
            self._moves[what, customer, one.priority if one is not None else 0] += 1
        if what == "submitted":
            self._submitted(change, self.row(customer), one, read)
        elif what == "claimed":
            self._claimed(change, one)
        elif what in COMES_BACK:
            self._came_back(change, one, read)
        elif what in ENDED:
            self._ended(change, self.row(customer), one)

    def _submitted(self, change: ChangeRow, row: Row, one: Followed | None, read: Seen | None) -> None:
        sort = row.sent(change.at_ms)
        if one is not None:
            one.sort = sort
            if not one.state:
                self._enter(one, "delayed" if one.ready_ms > change.at_ms else "ready")
        if read is not None and change.note is None and (row.standing.updated_ms or 0) <= read.submitted_ms:
            row.standing = _stepped(row.standing, read.counter, read.submitted_ms)

    def _claimed(self, change: ChangeRow, one: Followed | None) -> None:
        if one is None:
            return
        self._leave(one)
        one.worker, one.since_ms = change.note or "", change.at_ms
        wait_ms = max(0, change.at_ms - one.ready_ms)
        one.row.waited(wait_ms)
        self.figures.began(change.at_ms, one.priority, one.sort, wait_ms)
        self._enter(one, "running")
        self._judge(change.at_ms, one.number)

    def _came_back(self, change: ChangeRow, one: Followed | None, read: Seen | None) -> None:
        if one is None:
            return
        self._leave(one)
        one.ready_ms, one.worker = change.at_ms, ""
        state = "ready"
        if change.what == "retried" and read is not None and read.token == change.token and read.again_ms > change.at_ms:
            one.ready_ms, state = read.again_ms, "delayed"
        self._enter(one, state)

    def _ended(self, change: ChangeRow, row: Row, one: Followed | None) -> None:
        if one is not None:
            self._leave(one)
            del self.documents[one.id]
        if change.what == "cancelled":
            return
        code = None if change.what == "done" else code_of(change.note)
        row.ended(change.at_ms, code is None)
        self.figures.ended(change.at_ms, code)

    def _customer_changed(self, change: ChangeRow, row: Row) -> None:
        if change.what == "tuned":
            row.terms = decode_terms(change.note)
        elif change.what == "reset":
            row.standing = Standing()
        elif change.what == "checked" and (row.standing.updated_ms or 0) <= change.at_ms:
            row.standing = _stepped(row.standing, json.loads(change.note or "{}").get("counter", 0), change.at_ms)

    # -- where documents are -------------------------------------------------------------------------------------------

    def _enter(self, one: Followed, state: str) -> None:
        one.state = state
        if state == "running":
            self.lanes[one.priority].running += 1
            one.row.running += 1
            self._running[one.id] = one
            self._workers[one.worker] += 1
            return
        one.row.waiting += 1
        if state == "ready":
            self._ready(one)
        else:
            self._delayed_count += 1
            heappush(self._delayed, (one.ready_ms, one.number, one))

    def _ready(self, one: Followed) -> None:
        self.lanes[one.priority].add(one)
        self._unjudged.append((one.ready_ms, one))

    def _leave(self, one: Followed) -> None:
        state, one.state = one.state, ""
        if state == "running":
            self.lanes[one.priority].running -= 1
            one.row.running -= 1
            del self._running[one.id]
            self._workers[one.worker] -= 1
            if not self._workers[one.worker]:
                del self._workers[one.worker]
        elif state:
            one.row.waiting -= 1
            if state == "ready":
                self.lanes[one.priority].remove(one)
            else:
                self._delayed_count -= 1
            self.starved -= one.is_starved
            one.is_starved = False

    def pass_time(self, now_ms: int) -> None:
        """What was held back until now is ready; the store says nothing of that until somebody asks for work."""
        self.now_ms = max(self.now_ms, now_ms)
        self.figures.turn(self.now_ms)
        while self._delayed and self._delayed[0][0] <= self.now_ms:
            at_ms, _, one = heappop(self._delayed)
            if one.state == "delayed" and one.ready_ms == at_ms:
                self._delayed_count -= 1
                one.state = "ready"
                self._ready(one)

    def _judge(self, at_ms: int, number: int) -> None:
        """A document was taken: those that were ready for longer than the reset interval and came before it are starved."""
        limit_ms = at_ms - self.rules.policy.interval_ms
        for _ in range(JUDGED_AT_ONCE):
            if not self._unjudged or self._unjudged[0][0] >= limit_ms:
                break
            ready_ms, one = self._unjudged.popleft()
            if one.state == "ready" and one.ready_ms == ready_ms:
                heappush(self._overdue, (one.number, ready_ms, one))
        while self._overdue and self._overdue[0][0] < number:
            _, ready_ms, one = heappop(self._overdue)
            if one.state == "ready" and one.ready_ms == ready_ms and not one.is_starved:
                one.is_starved = True
                self.starved += 1
        if self.starved:
            minute = self.figures.minute(at_ms)
            minute.starved = max(minute.starved, self.starved)

    # -- what is told --------------------------------------------------------------------------------------------------

    def watch(self, is_watched: bool) -> None:
        """Moves are counted only while somebody watches."""
        self._is_watched = is_watched
        if not is_watched:
            self._moves.clear()

    def moves(self) -> list[dict[str, Any]]:
        """What moved since this was last asked, the most first."""
        told = [
            {"what": what, "customer": customer, "priority": priority, "count": count}
            for (what, customer, priority), count in self._moves.most_common(MOVES)
        ]
        self._moves.clear()
        return told

    def frame(self, moves: list[dict[str, Any]], counted: int | None = None) -> dict[str, Any]:
        """Everything that viewers see at a glance; `counted`: the queue is still being read, so many so far."""
        now_ms, figures = self.now_ms, self.figures
        workers = sorted(self._workers.items(), key=lambda one: (-one[1], one[0]))
        return {
            "at": now_ms,
            "change": self.change,
            "since": self.since_ms,
            "counted": counted,
            "lanes": [lane.told(now_ms) for lane in self.lanes.values()],
            "running": [
                {"id": one.id, "customer": one.row.customer, "priority": one.priority, "since": one.since_ms}
                for one in islice(self._running.values(), SHOWN)
            ],
            "running_total": len(self._running),
            "workers": [{"name": name, "running": count} for name, count in workers[:SHOWN]],
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
            "rate": figures.pace(now_ms),
            "waits": figures.waits(now_ms),
            "starved": self.starved,
            "failures": [{"code": code, "count": count} for code, count in figures.failed_today.most_common()],
        }


def written(live: Live, moves: list[dict[str, Any]]) -> bytes:
    """A frame as a server-sent event."""
    told = json.dumps(live.frame(moves), separators=(",", ":"))
    return f"id: {live.change}\ndata: {told}\n\n".encode()


def written_so_far(live: Live) -> bytes:
    """The same of a queue that is still being read; it has no number, as it is not true at any."""
    for lane in live.lanes.values():
        lane.held()
    told = json.dumps(live.frame([], len(live.documents)), separators=(",", ":"))
    return f"data: {told}\n\n".encode()


def code_of(reason: str | None) -> str:
    """Why a document failed, in a word; `other` if its reason does not begin with one that we know."""
    told = reason or ""
    told = told.partition(SPENT)[2] if told.startswith("attempt ") else told
    code = told.partition(":")[0].strip()
    return code if code in CAN_RETRY else "other"


def _stepped(standing: Standing, counter: int, at_ms: int) -> Standing:
    """Where a customer stands after a check; one that did not step down was a reset."""
    is_reset = standing.reset_ms is None or counter >= standing.counter
    return Standing(counter, at_ms, at_ms if is_reset else standing.reset_ms, standing.resets + is_reset)
