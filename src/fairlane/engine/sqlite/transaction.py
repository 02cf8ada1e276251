"""What is read once and written once in a transaction, however many verbs share it?

Customers, lanes, priorities, the queue's own row and the feed's new lines are kept here while the transaction lasts and
written by `flush`. The states of documents are written at once, each by one conditional statement.

A claim and a settlement touch a customer's lanes and not its own row: with many customers every row is a page of its own.
"""

from __future__ import annotations

import time
from typing import Any, cast

import apsw

from fairlane.core.dispatch import Pace, is_blocked, start_tag
from fairlane.core.policy import Rules, Terms
from fairlane.engine.codec import encode_terms

from .queries import Execute, sql
from .rows import NO_TERMS, Account, Lane, OwnTerms, Priority, own_terms, rules_of


class Transaction:
    """One transaction on a connection that already holds the write lock."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.execute: Execute = connection.execute
        self.executemany: Execute = connection.executemany
        *row, version, body = cast("tuple[Any, ...]", self.execute(sql.read_queue_and_rules).fetchone())
        self.dispatches: int
        self.last_number: int
        self.last_change: int
        self.changes_floor: int
        self.last_record: int
        self._tunings: int
        self.dispatches, self.last_number, self.last_change, self.changes_floor, self.last_record, self._tunings = row[:6]
        self.pace = Pace(*row[6:])
        self._queue_before = tuple(row)
        self.rules: Rules = rules_of(body, version)
        self._accounts: dict[str, Account] = {}
        self._accounts_changed: dict[int, Account] = {}
        self._terms: dict[int, OwnTerms] = {}
        self._lanes: dict[int, dict[tuple[str, int], Lane]] = {}  # by customer; all of them once `_lanes_of` was asked
        self._lanes_whole: set[int] = set()
        self._lanes_changed: dict[tuple[int, str, int], Lane] = {}
        self._joined: list[tuple[int, str, int, int, int]] = []
        self._priorities: dict[int, Priority] = {}
        self._changes: list[tuple[object, ...]] = []
        self.documents: list[tuple[object, ...]] = []  # new ones, not yet written
        self.payloads: list[tuple[int, str]] = []

    @staticmethod
    def now(now_ms: int | None) -> int:
        """The store's clock, read while the write lock is held, or the time that a test passed in."""
        return time.time_ns() // 1_000_000 if now_ms is None else now_ms

    # -- customers ---------------------------------------------------------------------------------------------------

    def find_account(self, id: str) -> Account | None:
        """A customer, if it was ever seen."""
        account = self._accounts.get(id)
        if account is None:
            row = self.execute(sql.account_by_id, (id,)).fetchone()
            if row is None:
                return None
            account = self._accounts[id] = Account(*row)
        return account

    def account(self, id: str) -> Account:
        """A customer, new if it was never seen."""
        account = self.find_account(id)
        if account is None:
            self.execute(sql.add_account, (id,))
            account = self.find_account(id)
            assert account is not None
        return account

    def account_changed(self, account: Account) -> None:
        """The customer's row is to be written."""
        self._accounts_changed[account.number] = account

    def own_terms(self, customer: int) -> OwnTerms:
        """What a customer has of its own."""
        if self._tunings == 0:
            return NO_TERMS
        found = self._terms.get(customer)
        if found is None:
            found = self._terms[customer] = own_terms(self.execute, customer)
        return found

    def tune(self, customer: int, terms: Terms, now_ms: int) -> int:
        """Other terms hold for a customer; its lanes may have to leave or join the index."""
        was_blocked = self.is_blocked(customer)
        version = self.own_terms(customer).version + 1
        self.set_terms(customer, OwnTerms(version, terms), now_ms)
        if self.is_blocked(customer) != was_blocked:
            self.gate(customer)
        return version

    def set_terms(self, customer: int, own: OwnTerms, now_ms: int) -> None:
        """Another version of a customer's terms is written."""
        self.execute(sql.add_terms, (customer, own.version, now_ms, encode_terms(own.terms)))
        self._terms[customer] = own
        self._tunings += 1

    def drop_account(self, account: Account) -> None:
        """The customer's row and everything that names it goes."""
        self.flush()
        del self._accounts[account.id]
        self._lanes.pop(account.number, None)
        self._terms.pop(account.number, None)
        self._lanes_whole.discard(account.number)
        for statement in (sql.drop_lanes, sql.drop_terms, sql.drop_changes, sql.drop_account):
            self.execute(statement, (account.number,))

    # -- priorities and the feed -------------------------------------------------------------------------------------

    def priority(self, priority: int) -> Priority:
        """A priority, which is to be written."""
        row = self._priorities.get(priority)
        if row is None:
            row = self._priorities[priority] = Priority(*self.execute(sql.read_priority, (priority,)).fetchone())
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
        """A line of the feed."""
        self.last_change += 1
        self._changes.append((self.last_change, at_ms, what, customer, document, token, note))

    # -- lanes -------------------------------------------------------------------------------------------------------

    def lane(self, customer: int, kind: str, priority: int) -> Lane:
        """A lane, empty if it was never there; whoever asks for it changes it, so it is to be written."""
        own = self._lanes.setdefault(customer, {})
        lane = own.get((kind, priority))
        if lane is None:
            row = self.execute(sql.read_lane, (customer, kind, priority)).fetchone()
            lane = own[kind, priority] = Lane(customer, kind, priority, *(row or ()))
        self._lanes_changed[customer, kind, priority] = lane
        return lane

    def _lanes_of(self, customer: int) -> list[Lane]:
        """All lanes of a customer."""
        own = self._lanes.setdefault(customer, {})
        if customer not in self._lanes_whole:
            self._lanes_whole.add(customer)
            for kind, priority, *row in self.execute(sql.lanes_of, (customer,)).fetchall():
                own.setdefault((kind, priority), Lane(customer, kind, priority, *row))
        return list(own.values())

    def join_lane(self, lane: Lane, number: int, ready_ms: int) -> None:
        """A ready document joins its lane by submission number."""
        self._joined.append((*lane.name(), number, ready_ms))
        row = self.priority(lane.priority)
        row.ready += 1
        if lane.head is not None and lane.head < number:
            return
        if lane.head is None:
            row.lanes += 1
            is_out = self.is_blocked(lane.customer)
            lane.start = None if is_out else start_tag(self.rules.dispatch, row.clock, lane.finish)
        lane.head, lane.head_ready_ms = number, ready_ms

    def leave_lane(self, lane: Lane, number: int) -> None:
        """A ready document leaves without being served."""
        self._flush_joined()
        self.execute(sql.leave_lane, (*lane.name(), number))
        row = self.priority(lane.priority)
        row.ready -= 1
        if lane.head != number:
            return
        following = self.execute(sql.next_in_lane, (*lane.name(), number, 1)).fetchone()
        if following is None:
            row.lanes -= 1
            lane.start = None
        lane.head, lane.head_ready_ms = following or (None, None)

    def is_blocked(self, customer: int) -> bool:
        """Whether a customer's lanes must not compete now."""
        version, terms = self.own_terms(customer)
        if version == 0 or (terms.cap is None and not terms.paused):
            return False
        return is_blocked(terms.paused, terms.cap, sum(lane.running for lane in self._lanes_of(customer)))

    def stopped_running(self, lane: Lane) -> None:
        """One document fewer runs: a customer at its cap may compete again."""
        was_blocked = self.is_blocked(lane.customer)
        lane.running -= 1
        if self.is_blocked(lane.customer) != was_blocked:
            self.gate(lane.customer)

    def gate(self, customer: int) -> None:
        """All lanes of a customer stop competing, or compete again from where their priority's clock stands."""
        is_out = self.is_blocked(customer)
        for lane in self._lanes_of(customer):
            if is_out or lane.head is None:
                lane.start = None
            else:
                lane.start = start_tag(self.rules.dispatch, self.priority(lane.priority).clock, lane.finish)
            self._lanes_changed[customer, lane.kind, lane.priority] = lane

    def start_all_level(self) -> None:
        """Another dispatch holds: every lane that competes gets a new start tag."""
        self.flush()
        for name in self.execute(sql.competing_lanes).fetchall():
            lane = self.lane(*name)
            lane.start = start_tag(self.rules.dispatch, self.priority(lane.priority).clock, lane.finish)

    # -- the end -----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what is still only here."""
        self.flush_documents()
        if self._accounts_changed:
            accounts = [(*one.standing, one.number) for one in self._accounts_changed.values()]
            self.executemany(sql.write_account, accounts)
            self._accounts_changed.clear()
        self._flush_joined()
        if self._lanes_changed:
            self._flush_lanes(list(self._lanes_changed.values()))
            self._lanes_changed.clear()
        if self._changes:
            self.executemany(sql.add_change, self._changes)
            self._changes.clear()

    def flush_documents(self) -> None:
        """Write new documents; whoever reads or changes documents asks for it first."""
        if self.documents:
            self.executemany(sql.add_document, self.documents)
            self.executemany(sql.add_payload, self.payloads)
            self.documents.clear()
            self.payloads.clear()

    def _flush_joined(self) -> None:
        if self._joined:
            self.executemany(sql.join_lane, self._joined)
            self._joined.clear()

    def _flush_lanes(self, lanes: list[Lane]) -> None:
        """A lane that keeps its place has its counts written and its index entries left alone."""
        placed = [lane for lane in lanes if lane.stored_place != lane.place()]
        kept = [lane for lane in lanes if lane.stored_place == lane.place()]
        if placed:
            self.executemany(sql.write_lane, [(*lane.name(), *lane.place(), *lane.counts()) for lane in placed])
        if kept:
            self.executemany(sql.write_lane_counts, [(*lane.counts(), *lane.name()) for lane in kept])
        for lane in placed:
            lane.stored_place = lane.place()

    def finish(self) -> None:
        """Write everything; the commit follows."""
        self.flush()
        for priority, row in self._priorities.items():
            self.execute(sql.write_priority, (row.clock, row.ready, row.lanes, priority))
        counters = (self.dispatches, self.last_number, self.last_change, self.changes_floor, self.last_record, self._tunings)
        queue = (*counters, *self.pace)
        if queue != self._queue_before:
            self.execute(sql.write_queue, queue)
