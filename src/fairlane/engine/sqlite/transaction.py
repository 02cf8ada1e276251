"""One write transaction: rows are read once and written once, however many operations share it.

Customers, lanes, priorities, the queue's own row and new lines of the feed are kept here while the transaction lasts and
written by `flush`. The states of documents are written at once, each by one conditional statement.

A claim and a settlement touch a customer's lanes and not its own row: with many customers every such row is another page.
"""

from __future__ import annotations

import time
from typing import Any, cast

import apsw

from fairlane.core.dispatch import is_blocked, true_up
from fairlane.core.policy import LEVELS_MAX, Rules, Terms
from fairlane.engine.codec import encode_terms

from .kinds import Kinds, StoredKind, is_blocked_now
from .queries import Execute, sql
from .rows import (
    NO_TERMS,
    EndedRelative,
    LaneKey,
    LaneRow,
    PriorityRow,
    StoredCustomer,
    TermsRow,
    decode_rules_cached,
    read_terms,
)
from .usual import Usuals


def current_time_ms(now_ms: int | None) -> int:
    """Return the store's clock, or the time that a test passed in; writers call it while they hold the write lock."""
    return time.time_ns() // 1_000_000 if now_ms is None else now_ms


class Transaction:
    """One transaction on a connection that already holds the write lock."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.execute: Execute = connection.execute
        self.executemany: Execute = connection.executemany
        *row, version, body = cast("tuple[Any, ...]", self.execute(sql.read_queue_and_rules).fetchone())
        self.last_number: int
        self.last_change: int
        self.changes_floor: int
        self.last_record: int
        self._tunings: int
        self.uncounted: int
        self.busy_ms: int
        self.ticked_ms: int
        self.usual_of_all: int | None
        self.last_number, self.last_change, self.changes_floor, self.last_record, self._tunings, *others = row
        self.uncounted, self.busy_ms, self.ticked_ms, self.usual_of_all = others
        self._stored_queue = tuple(row)
        self.rules: Rules = decode_rules_cached(body, version)
        self._customers: dict[str, StoredCustomer] = {}
        self._customers_changed: dict[int, StoredCustomer] = {}
        self._terms: dict[int, TermsRow] = {}
        self._lanes: dict[int, dict[tuple[str, int], LaneRow]] = {}  # by customer: the lanes that were read
        self._lanes_complete: set[int] = set()  # customers of which all lanes were read
        self._lanes_changed: dict[LaneKey, LaneRow] = {}
        self._joined: list[tuple[int, str, int, int, int]] = []  # documents that joined a lane, not yet written
        self._priorities: dict[int, PriorityRow] = {}
        self.kinds = Kinds(self.execute)
        self.usuals = Usuals(self.execute, self.executemany)
        self._changes: list[tuple[object, ...]] = []
        self.ended_relatives: list[EndedRelative] = []  # in a call that has not dealt with them yet
        self._documents: list[tuple[object, ...]] = []  # new ones, not yet written
        self._payloads: list[tuple[int, str]] = []

    # -- customers ---------------------------------------------------------------------------------------------------

    def find_customer(self, id: str) -> StoredCustomer | None:
        """Return a customer, or None if it was never seen."""
        customer = self._customers.get(id)
        if customer is None:
            row = self.execute(sql.read_customer, (id,)).fetchone()
            if row is None:
                return None
            customer = self._customers[id] = StoredCustomer(*row)
        return customer

    def customer(self, id: str) -> StoredCustomer:
        """Return a customer; insert it if it was never seen."""
        customer = self.find_customer(id)
        if customer is None:
            self.execute(sql.add_customer, (id,))
            customer = self.find_customer(id)
            assert customer is not None
        return customer

    def mark_changed(self, customer: StoredCustomer) -> None:
        """Have the customer's row written by the next flush."""
        self._customers_changed[customer.number] = customer

    def terms(self, customer: int) -> TermsRow:
        """Return the terms that hold for a customer now."""
        if self._tunings == 0:  # no customer was ever tuned: save the lookup
            return NO_TERMS
        terms = self._terms.get(customer)
        if terms is None:
            terms = self._terms[customer] = read_terms(self.execute, customer)
        return terms

    def tune(self, customer: int, terms: Terms, now_ms: int) -> int:
        """Replace a customer's terms, and block or unblock its lanes accordingly; return the new version."""
        was_blocked = self.is_blocked(customer)
        version = self.terms(customer).version + 1
        self.add_terms(customer, TermsRow(version, terms), now_ms)
        if self.is_blocked(customer) != was_blocked:
            self.update_block(customer)
        return version

    def add_terms(self, customer: int, row: TermsRow, now_ms: int) -> None:
        """Write another version of a customer's terms."""
        self.execute(sql.add_terms, (customer, row.version, now_ms, encode_terms(row.terms)))
        self._terms[customer] = row
        self._tunings += 1

    def delete_customer(self, customer: StoredCustomer) -> None:
        """Delete the customer's row and everything that names it."""
        self.flush()
        del self._customers[customer.id]
        self._lanes.pop(customer.number, None)
        self._terms.pop(customer.number, None)
        self.usuals.forget(customer.number)
        self._lanes_complete.discard(customer.number)
        for statement in (sql.delete_lanes, sql.delete_terms, sql.delete_changes, sql.delete_customer):
            self.execute(statement, (customer.number,))

    # -- documents, priorities and the feed --------------------------------------------------------------------------

    def add_document(self, row: tuple[object, ...], number: int, payload: str) -> None:
        """Have a new document written by the next flush."""
        self._documents.append(row)
        self._payloads.append((number, payload))

    def priority(self, priority: int) -> PriorityRow:
        """Return a priority's row, which `finish` writes back."""
        row = self._priorities.get(priority)
        if row is None:
            row = self._priorities[priority] = PriorityRow(*self.execute(sql.read_priority, (priority,)).fetchone())
        return row

    def log(
        self,
        at_ms: int,
        what: str,
        customer: int | None = None,
        document: int | None = None,
        token: int | None = None,
        note: str | None = None,
    ) -> None:
        """Append a line to the feed."""
        self.last_change += 1
        self._changes.append((self.last_change, at_ms, what, customer, document, token, note))

    # -- lanes -------------------------------------------------------------------------------------------------------

    def lane(self, customer: int, kind: str, priority: int) -> LaneRow:
        """Return a lane, empty if it is new, to be changed: it is written by the next flush."""
        lanes = self._lanes.setdefault(customer, {})
        lane = lanes.get((kind, priority))
        if lane is None:
            row = self.execute(sql.read_lane, (customer, kind, priority)).fetchone()
            if row is None:
                lane = LaneRow(customer, kind, priority)
            else:
                usual, *columns = row
                self.usuals.remember(customer, usual)
                lane = LaneRow(customer, kind, priority, *columns)
            lanes[kind, priority] = lane
        self._lanes_changed[customer, kind, priority] = lane
        return lane

    def all_lanes(self, customer: int) -> list[LaneRow]:
        """Return all lanes of a customer."""
        lanes = self._lanes.setdefault(customer, {})
        if customer not in self._lanes_complete:
            self._lanes_complete.add(customer)
            for kind, priority, *row in self.execute(sql.read_lanes, (customer,)).fetchall():
                lanes.setdefault((kind, priority), LaneRow(customer, kind, priority, *row))
        return list(lanes.values())

    def join_lane(self, lane: LaneRow, number: int, ready_ms: int) -> None:
        """Add a ready document to its lane, ordered by submission number."""
        self._joined.append((*lane.key(), number, ready_ms))
        row = self.priority(lane.priority)
        row.ready += 1
        if lane.head is not None and lane.head < number:
            return
        if lane.head is None:
            row.lanes += 1
            if not self.is_blocked(lane.customer):
                self.start_lane(lane)
        lane.head, lane.head_ready_ms = number, ready_ms

    def leave_lane(self, lane: LaneRow, number: int) -> None:
        """Remove a ready document from its lane without serving it."""
        self._flush_joined()
        self.execute(sql.leave_lane, (*lane.key(), number))
        row = self.priority(lane.priority)
        row.ready -= 1
        if lane.head != number:
            return
        following = self.execute(sql.next_in_lane, (*lane.key(), number, 1)).fetchone()
        if following is None:
            row.lanes -= 1
            lane.start = None
        lane.head, lane.head_ready_ms = following or (None, None)

    def is_blocked(self, customer: int) -> bool:
        """Return whether a customer's lanes must not compete now."""
        version, terms = self.terms(customer)
        if version == 0 or (terms.cap is None and not terms.paused):
            return False
        return is_blocked(terms.paused, terms.cap, sum(lane.running for lane in self.all_lanes(customer)))

    def start_lane(self, lane: LaneRow) -> None:
        """Give a lane that gains a head or is unblocked its start tags."""
        if self.rules.dispatch == "strict":
            lane.start = lane.cross = 0
        else:
            lane.start = max(self.kinds.get(lane.kind).clocks[lane.priority - 1], lane.finish)
            lane.cross = max(self.priority(lane.priority).clock, lane.cross_finish)

    def true_up(self, lane: LaneRow, delta: int) -> None:
        """Charge a lane what one of its turns cost more than it paid, or return what it cost less."""
        kind, clock = self.kinds.get(lane.kind), self.priority(lane.priority).clock
        competes = lane.start is not None and not kind.blocked
        if competes and lane.start is not None:
            lane.finish, lane.cross_finish = lane.start, kind.cross(lane.priority, lane.cross)
        lane.finish = true_up(lane.finish, kind.clocks[lane.priority - 1], delta)
        lane.cross_finish = true_up(lane.cross_finish, clock, delta)
        if competes:
            lane.start, lane.cross = lane.finish, lane.cross_finish
        elif lane.start is not None:
            self.start_lane(lane)

    def stop_running(self, lane: LaneRow, now_ms: int) -> None:
        """Count one running document less: a customer at its cap, or a kind at its limit, may compete again."""
        was_blocked = self.is_blocked(lane.customer)
        lane.running -= 1
        if self.is_blocked(lane.customer) != was_blocked:
            self.update_block(lane.customer)
        kind = self.kinds.get(lane.kind)
        if kind.is_limited:
            kind.running -= 1
            self.update_kind(kind, now_ms)

    def update_kind(self, kind: StoredKind, now_ms: int) -> None:
        """Block or unblock a kind, as its limit demands."""
        blocked = is_blocked_now(kind, now_ms)
        if blocked == kind.blocked:
            return
        kind.blocked = blocked
        if not blocked:
            is_strict = self.rules.dispatch == "strict"
            kind.floors = None if is_strict else [self.priority(priority).clock for priority in range(1, LEVELS_MAX + 1)]
            self.kinds.reread(kind.kind)

    def update_block(self, customer: int) -> None:
        """Take all lanes of a customer out of the competition, or let them compete again from their priority's clock."""
        is_blocked = self.is_blocked(customer)
        for lane in self.all_lanes(customer):
            if is_blocked or lane.head is None:
                lane.start = None
            elif lane.start is None:
                self.start_lane(lane)
            self._lanes_changed[lane.key()] = lane

    def level_lanes(self) -> None:
        """Let every lane start from the clocks, after a change of the dispatch or of what turns are paid with."""
        self.flush()
        self._write_priorities()
        self.kinds.write()
        self.execute(sql.drop_floors)
        self.execute(sql.level_lanes, (self.rules.dispatch == "strict",))
        self._lanes.clear()
        self._lanes_complete.clear()
        self.kinds = Kinds(self.execute)
        after = ""
        while page := self.execute(sql.page_kinds, (after, 1000)).fetchall():
            for (kind,) in page:
                self.kinds.get(kind)
                self.kinds.reread(kind)
            after = page[-1][0]

    # -- writing -----------------------------------------------------------------------------------------------------

    def write_record(self, group: str, key: str, value: str) -> int:
        """Set a record and return its new version."""
        self.last_record += 1
        self.execute(sql.write_record, (group, key, value, self.last_record))
        return self.last_record

    def flush(self) -> None:
        """Write everything but priorities and the queue's own row, so that statements can read it."""
        self.flush_documents()
        if self._customers_changed:
            changed = self._customers_changed.values()
            self.executemany(sql.write_customer, [(*customer.columns(), customer.number) for customer in changed])
            self._customers_changed.clear()
        self._flush_joined()
        if self._lanes_changed:
            self._flush_lanes(list(self._lanes_changed.values()))
            self._lanes_changed.clear()
        self.kinds.write()
        if self._changes:
            self.executemany(sql.add_change, self._changes)
            self._changes.clear()

    def flush_documents(self) -> None:
        """Write new documents; an operation that reads or changes documents calls it first."""
        if self._documents:
            self.executemany(sql.add_document, self._documents)
            self.executemany(sql.add_payload, self._payloads)
            self._documents.clear()
            self._payloads.clear()

    def _flush_joined(self) -> None:
        if self._joined:
            self.executemany(sql.join_lane, self._joined)
            self._joined.clear()

    def _flush_lanes(self, lanes: list[LaneRow]) -> None:
        """Write lanes; of one whose head or tags did not change only the rest, so that its index entries are left alone."""
        moved, tagged, counted = [], [], []
        for lane in lanes:
            head, tags = lane.head_position(), lane.tags()
            if lane.stored_head != head:
                moved.append((*lane.key(), *head, *tags, *lane.counts()))
            elif lane.stored_tags != tags:
                tagged.append((*tags, *lane.counts(), *lane.key()))
            else:
                counted.append((*lane.counts(), *lane.key()))
                continue
            before = lane.entries(lane.stored_head, lane.stored_tags)
            self.kinds.lane_moved(lane.kind, before, lane.entries(head, tags))
            lane.stored_head, lane.stored_tags = head, tags
        for statement, rows in ((sql.write_lane, moved), (sql.write_lane_tags, tagged), (sql.write_lane_counts, counted)):
            if rows:
                self.executemany(statement, rows)

    def _write_priorities(self) -> None:
        for priority, row in self._priorities.items():
            self.execute(sql.write_priority, (row.clock, row.ready, row.lanes, row.taken, priority))

    def finish(self) -> None:
        """Write everything; the commit follows."""
        self.flush()
        self.usuals.write()
        self._write_priorities()
        counters = (self.last_number, self.last_change, self.changes_floor, self.last_record, self._tunings)
        queue = (*counters, self.uncounted, self.busy_ms, self.ticked_ms, self.usual_of_all)
        if queue != self._stored_queue:
            self.execute(sql.write_queue, queue)
