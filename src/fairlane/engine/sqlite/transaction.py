"""What is read once and written once in a transaction, however many verbs share it?

Customers, lanes, priorities, the queue's own row and the feed's new lines are kept here while the transaction lasts and
written by `flush`. The states of documents are written at once, each by one conditional statement.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any, cast

import apsw

from fairlane.core.dispatch import Pace, is_blocked, start_tag
from fairlane.core.policy import LEVELS_MAX, Rules, Standing, Terms
from fairlane.engine.values import rules_from_json, terms_from_json

from .queries import Execute, sql

rules_of = lru_cache(maxsize=8)(rules_from_json)
terms_of = lru_cache(maxsize=1024)(terms_from_json)


def current_rules(execute: Execute) -> Rules:
    """The rules that hold now; parsed once a version."""
    version, body = execute(sql.rules_body).fetchone()
    return rules_of(body, version)


def competing_kinds(execute: Execute) -> list[str]:
    """The kinds that have a lane which competes, by hopping through the index."""
    kinds = [""]
    while row := execute(sql.next_kind, (kinds[-1],)).fetchone():
        kinds.append(row[0])
    return kinds[1:]


class Account:
    """A customer's row."""

    __slots__ = (
        "cancelled", "done", "failed", "id", "number", "running", "standing", "terms_text", "terms_version", "waiting",
    )  # fmt: skip

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.number: int = row[0]
        self.id: str = row[1]
        self.standing = Standing(*row[2:6])
        self.waiting: int = row[6]
        self.running: int = row[7]
        self.done: int = row[8]
        self.failed: int = row[9]
        self.cancelled: int = row[10]
        self.terms_text: str | None = row[11]
        self.terms_version: int = row[12]

    @property
    def terms(self) -> Terms:
        return terms_of(self.terms_text)

    @property
    def is_blocked(self) -> bool:
        return self.terms_text is not None and is_blocked(self.terms.paused, self.terms.cap, self.running)


class Lane:
    """A lane's row."""

    __slots__ = ("customer", "finish", "head", "head_ready_ms", "kind", "priority", "start")

    def __init__(
        self,
        customer: int,
        kind: str,
        priority: int,
        head: int | None = None,
        head_ready_ms: int | None = None,
        start: int | None = None,
        finish: int = 0,
    ) -> None:
        self.customer = customer
        self.kind = kind
        self.priority = priority
        self.head = head
        self.head_ready_ms = head_ready_ms
        self.start = start
        self.finish = finish


class Priority:
    """A priority's row."""

    __slots__ = ("clock", "lanes", "ready")

    def __init__(self, clock: int, ready: int, lanes: int) -> None:
        self.clock = clock
        self.ready = ready
        self.lanes = lanes


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
        self.dispatches, self.last_number, self.last_change, self.changes_floor, self.last_record, *pace = row
        self.pace = Pace(*pace)
        self._queue_before = tuple(row)
        self.rules: Rules = rules_of(body, version)
        self._accounts: dict[str, Account] = {}
        self._accounts_by_number: dict[int, Account] = {}
        self._accounts_changed: dict[int, Account] = {}
        self._lanes: dict[tuple[int, str, int], Lane] = {}
        self._lanes_changed: dict[tuple[int, str, int], Lane] = {}
        self._priorities: dict[int, Priority] = {}
        self._changes: list[tuple[object, ...]] = []

    @staticmethod
    def now(now_ms: int | None) -> int:
        """The store's clock, read while the write lock is held, or the time that a test passed in."""
        return time.time_ns() // 1_000_000 if now_ms is None else now_ms

    # -- rows --------------------------------------------------------------------------------------------------------

    def find_account(self, id: str) -> Account | None:
        """A customer, if it was ever seen."""
        account = self._accounts.get(id)
        if account is None:
            row = self.execute(sql.account_by_id, (id,)).fetchone()
            if row is None:
                return None
            account = self._remember(Account(row))
        return account

    def account(self, id: str) -> Account:
        """A customer, new if it was never seen."""
        account = self.find_account(id)
        if account is None:
            self.execute(sql.add_account, (id,))
            account = self.find_account(id)
            assert account is not None
        return account

    def account_by_number(self, number: int) -> Account:
        """A customer that is known to be there."""
        account = self._accounts_by_number.get(number)
        if account is None:
            account = self._remember(Account(self.execute(sql.account_by_number, (number,)).fetchone()))
        return account

    def _remember(self, account: Account) -> Account:
        self._accounts[account.id] = self._accounts_by_number[account.number] = account
        return account

    def changed(self, account: Account) -> None:
        """The customer's row is to be written."""
        self._accounts_changed[account.number] = account

    def drop_account(self, account: Account) -> None:
        """The customer's row and everything that names it goes."""
        self.flush()
        del self._accounts[account.id], self._accounts_by_number[account.number]
        self._lanes = {key: lane for key, lane in self._lanes.items() if lane.customer != account.number}
        for statement in (sql.drop_lanes, sql.drop_terms, sql.drop_changes, sql.drop_account):
            self.execute(statement, (account.number,))

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
        """A lane, empty if it was never there."""
        key = (customer, kind, priority)
        lane = self._lanes.get(key)
        if lane is None:
            row = self.execute(sql.read_lane, key).fetchone()
            lane = self._lanes[key] = Lane(*key, *(row or ()))
        return lane

    def lane_changed(self, lane: Lane) -> None:
        """The lane's row is to be written."""
        self._lanes_changed[lane.customer, lane.kind, lane.priority] = lane

    def join_lane(self, account: Account, kind: str, priority: int, number: int, ready_ms: int) -> None:
        """A ready document joins its lane by submission number."""
        lane = self.lane(account.number, kind, priority)
        row = self.priority(priority)
        row.ready += 1
        if lane.head is not None and lane.head < number:
            return
        if lane.head is None:
            row.lanes += 1
            lane.start = None if account.is_blocked else start_tag(self.rules.dispatch, row.clock, lane.finish)
        lane.head, lane.head_ready_ms = number, ready_ms
        self.lane_changed(lane)

    def leave_lane(self, customer: int, kind: str, priority: int, number: int) -> None:
        """A ready document, whose state is already another one, leaves without being served."""
        lane = self.lane(customer, kind, priority)
        row = self.priority(priority)
        row.ready -= 1
        if lane.head != number:
            return
        following = self.execute(sql.next_in_lane, (customer, kind, priority, number)).fetchone()
        if following is None:
            row.lanes -= 1
            lane.start = None
        lane.head, lane.head_ready_ms = following or (None, None)
        self.lane_changed(lane)

    def running_changed(self, account: Account, by: int) -> None:
        """More or fewer of a customer's documents run: its lanes may have to leave or join the index."""
        before = account.is_blocked
        account.running += by
        self.changed(account)
        if account.is_blocked != before:
            self.gate(account)

    def gate(self, account: Account) -> None:
        """All lanes of a customer stop competing, or compete again from where their priority's clock stands."""
        for kind, priority, *_ in self.execute(sql.lanes_of, (account.number,)).fetchall():
            self.lane(account.number, kind, priority)
        for lane in [one for one in self._lanes.values() if one.customer == account.number]:
            if account.is_blocked or lane.head is None:
                lane.start = None
            elif lane.start is None:
                lane.start = start_tag(self.rules.dispatch, self.priority(lane.priority).clock, lane.finish)
            self.lane_changed(lane)

    def start_all_level(self) -> None:
        """Another dispatch holds: every lane that competes gets a new start tag."""
        self.flush()
        for customer, kind, priority, *_ in self.execute(sql.all_lanes).fetchall():
            lane = self.lane(customer, kind, priority)
            if lane.start is not None:
                lane.start = start_tag(self.rules.dispatch, self.priority(priority).clock, lane.finish)
                self.lane_changed(lane)

    # -- the end -----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what is still only here."""
        if self._accounts_changed:
            self.executemany(
                sql.write_account,
                [
                    (
                        *one.standing, one.waiting, one.running, one.done, one.failed, one.cancelled, one.terms_text,
                        one.terms_version, one.number,
                    )
                    for one in self._accounts_changed.values()
                ],
            )  # fmt: skip
            self._accounts_changed.clear()
        if self._lanes_changed:
            self.executemany(
                sql.write_lane,
                [
                    (one.customer, one.kind, one.priority, one.head, one.head_ready_ms, one.start, one.finish)
                    for one in self._lanes_changed.values()
                ],
            )
            self._lanes_changed.clear()
        if self._changes:
            self.executemany(sql.add_change, self._changes)
            self._changes.clear()

    def finish(self) -> None:
        """Write everything; the commit follows."""
        self.flush()
        for priority, row in self._priorities.items():
            self.execute(sql.write_priority, (row.clock, row.ready, row.lanes, priority))
        queue = (
            self.dispatches, self.last_number, self.last_change, self.changes_floor, self.last_record, *self.pace
        )  # fmt: skip
        if queue != self._queue_before:
            self.execute(sql.write_queue, queue)


assert LEVELS_MAX == 9  # the schema has a row for each
