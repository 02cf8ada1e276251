"""The reference engine: everything in this process, nothing on disk. What it does is what every engine must do.

Read it beside protocol.py. One lock makes every verb atomic; plain dictionaries remember.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from heapq import heappop, heappush
from operator import attrgetter

from fairlane.core.dispatch import Turn, is_blocked
from fairlane.core.document import (
    ATTEMPTS_DEFAULT,
    ENDED,
    NO_CHECK,
    WAITING,
    Change,
    Check,
    Claim,
    Customer,
    Document,
    Done,
    Failed,
    Outcome,
    Outlook,
    Receipt,
    Record,
    Released,
    Retried,
    State,
    Submission,
)
from fairlane.core.errors import KeyConflict
from fairlane.core.policy import Rules, Terms, correct_counter, operator_reset, step_of
from fairlane.engine.codec import encode_check, encode_rules, encode_terms
from fairlane.engine.errors import refuse_frozen, unknown_source_error
from fairlane.engine.protocol import DUE_MAX, EXPIRED, SPENT, DocumentBody, Finding, Packed, Purged

from . import admin, read, transfer
from .state import Account, Entry, Kept, now


class MemoryEngine:
    """A queue that lives and dies with this process."""

    durability = "not durable: everything is gone when this process ends"

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._arrival = threading.Condition(self._lock)
        self._kept = Kept()

    @contextmanager
    def _unfrozen(self) -> Iterator[None]:
        """The lock, for verbs that begin or change something."""
        with self._lock:
            refuse_frozen(self._kept.rules)
            yield

    def migrate(self) -> None:
        pass  # a queue in memory is always of this version

    def close(self) -> None:
        pass  # nothing is held

    def diagnose(self) -> list[Finding]:
        advice = "for documents that matter use sqlite:///fairlane.db"
        return [Finding("durability", "warning", self.durability, advice)]

    # -- documents ---------------------------------------------------------------------------------------------------

    def check(self, customer: str, cost: int, *, now_ms: int | None = None) -> Check:
        with self._unfrozen():
            now_ms = now(now_ms)
            account = self._kept.account(customer)
            check = self._check(account, cost, now_ms)
            self._kept.log(now_ms, "checked", account, note=encode_check(check, cost))
            return check

    def submit(self, submissions: Sequence[Submission], *, now_ms: int | None = None) -> list[Receipt]:
        with self._unfrozen():
            self._refuse(submissions)
            now_ms = now(now_ms)
            receipts = [self._submit(submission, now_ms) for submission in submissions]
            self._arrival.notify_all()
            return receipts

    def _refuse(self, submissions: Sequence[Submission]) -> None:
        """Unknown sources and conflicting keys are found before anything is moved."""
        for one in submissions:
            source = self._kept.entry(one.made_from) if one.made_from else None
            if one.made_from and (source is None or source.account.id != one.customer):
                raise unknown_source_error(one)
        here: dict[tuple[str, str], tuple[str | None, str]] = {}
        for one in submissions:
            if one.key is None:
                continue
            number = self._kept.keys.get((one.customer, one.key))
            known = None if number is None else (self._kept.entries[number].digest, self._kept.entries[number].id)
            digest, id = known or here.setdefault((one.customer, one.key), (one.digest, one.id))
            if digest != one.digest:
                raise KeyConflict(one.customer, one.key, id)

    def _submit(self, submission: Submission, now_ms: int) -> Receipt:
        if submission.key is not None and (submission.customer, submission.key) in self._kept.keys:
            return self._kept.entries[self._kept.keys[submission.customer, submission.key]].receipt()
        account = self._kept.account(submission.customer)
        source = self._kept.entry(submission.made_from) if submission.made_from else None
        check = source.check._replace(checked_ms=now_ms) if source else self._check(account, submission.cost, now_ms)
        self._kept.last_number = number = self._kept.last_number + 1
        entry = self._kept.entries[number] = Entry(number, submission, account, check)
        self._kept.numbers[entry.id] = number
        if entry.key is not None:
            self._kept.keys[account.id, entry.key] = number
        account.waiting += 1
        if source:
            entry.resets = NO_CHECK
        self._kept.log(now_ms, "submitted", account, entry, submission.made_from)
        self._queue_up(entry)
        return entry.receipt()

    def _check(self, account: Account, cost: int, now_ms: int) -> Check:
        policy = account.terms.policy(self._kept.rules.policy)
        account.standing = policy.check(account.standing, now_ms, step_of(cost, account.terms.weight_thousandths))
        counter = account.standing.counter
        return Check(account.id, policy.level(counter), counter, now_ms, self._kept.rules.version, account.terms_version)

    def _queue_up(self, entry: Entry) -> None:
        if entry.state == "delayed":
            heappush(self._kept.delayed, (entry.ready_ms, entry.number))
        else:
            self._kept.lanes.add(entry.number, entry.account.id, entry.kind, entry.check.priority, entry.ready_ms)

    def claim(
        self,
        worker: str,
        limit: int,
        lease_ms: int,
        kinds: Mapping[str, int] | None = None,
        *,
        now_ms: int | None = None,
    ) -> list[Claim]:
        with self._unfrozen():
            now_ms = now(now_ms)
            self._ready_what_is_due(now_ms)
            before = self._kept.lanes.dispatches
            claims: list[Claim] = []
            while len(claims) < limit and (turn := self._kept.lanes.next(kinds)) is not None:
                entry = self._kept.entries[turn.number]
                entry.attempts_max = ATTEMPTS_DEFAULT if kinds is None else kinds[entry.kind]
                claims.append(self._claim(turn, entry, worker, now_ms, now_ms + lease_ms))
            if claims:
                self._kept.pace = self._kept.pace.moved(now_ms, before)
            return claims

    def _ready_what_is_due(self, now_ms: int) -> None:
        for _ in range(DUE_MAX):
            entry = self._first(self._kept.delayed, "delayed", now_ms)
            if entry is None:
                return
            entry.state = "ready"
            self._queue_up(entry)

    def _first(self, heap: list[tuple[int, int]], state: State, now_ms: int) -> Entry | None:
        """The first entry of a heap whose time has come and which is still in that state, taken off the heap."""
        while heap and heap[0][0] <= now_ms:
            at_ms, number = heappop(heap)
            entry = self._kept.entries.get(number)
            if entry and entry.state == state and at_ms == (entry.lease_ms if state == "running" else entry.ready_ms):
                return entry
        return None

    def _claim(self, turn: Turn, entry: Entry, worker: str, now_ms: int, lease_ms: int) -> Claim:
        account = entry.account
        self._kept.lanes.take(turn, step_of(entry.cost, account.terms.weight_thousandths))
        entry.state = "running"
        entry.token += 1
        entry.attempts += 1
        entry.worker = worker
        entry.lease_ms = lease_ms
        heappush(self._kept.leases, (lease_ms, entry.number))
        account.waiting -= 1
        account.running += 1
        self._gate(account)
        self._kept.log(now_ms, "claimed", account, entry, worker)
        return Claim(
            entry.id, entry.token, entry.number, account.id, entry.kind, entry.check.priority, entry.payload,
            entry.attempts, entry.attempts_max, lease_ms, turn.dispatch_number, turn.is_open,
        )  # fmt: skip

    def _gate(self, account: Account) -> None:
        """Block or unblock the customer's lanes as its terms and what runs demand."""
        if is_blocked(account.terms.paused, account.terms.cap, account.running):
            self._kept.lanes.block(account.id)
        else:
            self._kept.lanes.unblock(account.id)

    def extend(self, claims: Sequence[Claim], lease_ms: int, *, now_ms: int | None = None) -> list[Claim]:
        with self._lock:
            until_ms = now(now_ms) + lease_ms
            lost = []
            for claim in claims:
                entry = self._held(claim)
                if entry is None:
                    lost.append(claim)
                elif entry.lease_ms is not None and entry.lease_ms < until_ms:
                    entry.lease_ms = until_ms
                    heappush(self._kept.leases, (until_ms, entry.number))
            return lost

    def _held(self, claim: Claim) -> Entry | None:
        """The document, if the claim still holds."""
        entry = self._kept.entry(claim.id)
        return entry if entry and entry.state == "running" and entry.token == claim.token else None

    def settle(self, settlements: Sequence[tuple[Claim, Outcome]], *, now_ms: int | None = None) -> list[Claim]:
        with self._lock:
            now_ms = now(now_ms)
            lost = []
            for claim, outcome in settlements:
                entry = self._held(claim)
                if entry is None:
                    lost.append(claim)
                else:
                    self._correct_cost(entry, outcome.cost, now_ms)
                    self._settle(entry, outcome, now_ms)
            self._arrival.notify_all()
            return lost

    def _correct_cost(self, entry: Entry, cost: int | None, now_ms: int) -> None:
        if cost is None or cost == entry.cost:
            return
        before, after = step_of(entry.cost, entry.weight), step_of(cost, entry.weight)
        entry.account.standing = correct_counter(entry.account.standing, entry.resets, before, after)
        self._kept.log(now_ms, "corrected", entry.account, entry, f"{entry.cost} {cost}")
        entry.cost = cost

    def _settle(self, entry: Entry, outcome: Outcome, now_ms: int) -> None:
        match outcome:
            case Done():
                entry.result = outcome.result
                self._end(entry, "done", now_ms)
            case Failed():
                self._end(entry, "failed", now_ms, outcome.reason)
            case Released():
                entry.attempts -= 1
                self._come_back(entry, "released", now_ms)
            case Retried() if entry.attempts >= entry.attempts_max:
                reason = SPENT.format(attempts=entry.attempts, attempts_max=entry.attempts_max, reason=outcome.reason)
                self._end(entry, "failed", now_ms, reason)
            case Retried():
                self._come_back(entry, "retried", now_ms, outcome.after_ms, outcome.reason)

    def _end(self, entry: Entry, state: State, now_ms: int, reason: str | None = None) -> None:
        account = entry.account
        if entry.state == "running":
            account.running -= 1
        else:
            account.waiting -= 1
        setattr(account, state, getattr(account, state) + 1)
        entry.state, entry.ended_ms, entry.lease_ms, entry.reason = state, now_ms, None, reason
        self._gate(account)
        self._kept.log(now_ms, state, account, entry, reason)

    def _come_back(self, entry: Entry, what: str, now_ms: int, after_ms: int = 0, note: str | None = None) -> None:
        entry.account.running -= 1
        entry.account.waiting += 1
        entry.state = "delayed" if after_ms else "ready"
        entry.ready_ms = now_ms + after_ms
        entry.lease_ms = None
        self._gate(entry.account)
        self._queue_up(entry)
        self._kept.log(now_ms, what, entry.account, entry, note)

    def reclaim(self, limit: int, *, now_ms: int | None = None) -> int:
        with self._lock:
            now_ms = now(now_ms)
            count = 0
            while count < limit and (entry := self._first(self._kept.leases, "running", now_ms)) is not None:
                count += 1
                if entry.attempts >= entry.attempts_max:
                    reason = EXPIRED.format(attempts=entry.attempts, attempts_max=entry.attempts_max)
                    self._end(entry, "failed", now_ms, reason)
                else:
                    self._come_back(entry, "expired", now_ms)
            self._arrival.notify_all()
            return count

    def cancel(self, ids: Sequence[str], *, now_ms: int | None = None) -> list[str]:
        with self._unfrozen():
            now_ms = now(now_ms)
            cancelled = []
            for id in ids:
                entry = self._kept.entry(id)
                if entry is None or entry.state in ENDED:
                    continue
                if entry.state == "ready":
                    self._kept.lanes.discard(entry.number)
                self._end(entry, "cancelled", now_ms)
                cancelled.append(id)
            return cancelled

    def retry(self, id: str, *, now_ms: int | None = None) -> bool:
        with self._unfrozen():
            now_ms = now(now_ms)
            entry = self._kept.entry(id)
            if entry is None or entry.state != "failed":
                return False
            entry.account.failed -= 1
            entry.account.waiting += 1
            entry.state, entry.ready_ms, entry.attempts = "ready", now_ms, 0
            entry.worker = entry.ended_ms = entry.reason = None
            self._queue_up(entry)
            self._kept.log(now_ms, "revived", entry.account, entry)
            self._arrival.notify_all()
            return True

    def purge(self, age_ms: int, limit: int, *, now_ms: int | None = None) -> Purged:
        with self._unfrozen():
            return admin.purge(self._kept, now(now_ms) - age_ms, limit)

    def wait(self, timeout_seconds: float, kinds: Sequence[str] | None = None) -> bool:
        deadline = time.monotonic() + timeout_seconds
        with self._arrival:
            while True:
                now_ms = now(None)
                due_ms = self._kept.delayed[0][0] - now_ms if self._kept.delayed else None
                if self._kept.lanes.next(kinds) is not None or (due_ms is not None and due_ms <= 0):
                    return True
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._arrival.wait(left if due_ms is None else min(left, due_ms / 1000))

    # -- customers and rules -----------------------------------------------------------------------------------------

    def rules(self) -> Rules:
        return self._kept.rules

    def configure(self, rules: Rules, *, now_ms: int | None = None) -> Rules | None:
        with self._lock:
            if rules.version != self._kept.rules.version:
                return None
            self._kept.rules = replace(rules, version=rules.version + 1)
            self._kept.lanes.configure(rules.dispatch, rules.open_turn_every)
            self._kept.log(now(now_ms), "configured", note=encode_rules(self._kept.rules))
            return self._kept.rules

    def tune(self, customer: str, terms: Terms, version: int, *, now_ms: int | None = None) -> int | None:
        with self._unfrozen():
            known = self._kept.accounts.get(customer)
            if version != (known.terms_version if known else 0):
                return None
            account = self._kept.account(customer)
            account.terms = terms
            account.terms_version += 1
            self._gate(account)
            self._kept.log(now(now_ms), "tuned", account, note=encode_terms(terms))
            self._arrival.notify_all()
            return account.terms_version

    def reset(self, customer: str, *, now_ms: int | None = None) -> None:
        with self._unfrozen():
            account = self._kept.accounts.get(customer)
            if account is not None:
                account.standing = operator_reset(account.standing)
                self._kept.log(now(now_ms), "reset", account)

    def forget(self, customer: str, limit: int, *, now_ms: int | None = None) -> int:
        with self._unfrozen():
            account = self._kept.accounts.get(customer)
            if account is None:
                return 0
            own = sorted((one for one in self._kept.entries.values() if one.account is account), key=attrgetter("number"))
            for entry in own[:limit]:
                self._forget_document(entry)
            if not own:
                self._kept.lanes.forget(customer)
                del self._kept.accounts[customer]
                self._kept.changes = {number: one for number, one in self._kept.changes.items() if one[2] != customer}
                self._kept.log(now(now_ms), "forgotten")
            return len(own[:limit])

    def _forget_document(self, entry: Entry) -> None:
        account = entry.account
        if entry.state == "ready":
            self._kept.lanes.discard(entry.number)
        counted = "waiting" if entry.state in WAITING else entry.state
        setattr(account, counted, getattr(account, counted) - 1)
        self._gate(account)
        self._kept.erase(entry)

    # -- looking: moves nothing --------------------------------------------------------------------------------------

    def customer(self, customer: str, *, now_ms: int | None = None) -> Customer:
        with self._lock:
            return read.customer(self._kept, customer, now(now_ms))

    def customers(self, after: str, limit: int, *, now_ms: int | None = None) -> list[Customer]:
        with self._lock:
            return read.customers(self._kept, after, limit, now(now_ms))

    def document(self, id: str) -> Document | None:
        with self._lock:
            return read.document(self._kept, id)

    def documents(self, customer: str | None, state: State | None, before: int | None, limit: int) -> list[Document]:
        with self._lock:
            return read.documents(self._kept, customer, state, before, limit)

    def body(self, id: str) -> DocumentBody | None:
        with self._lock:
            return read.body(self._kept, id)

    def outlook(self, id: str, *, now_ms: int | None = None) -> Outlook | None:
        with self._lock:
            return read.outlook(self._kept, id, now(now_ms))

    def changes(self, after: int | None, limit: int) -> list[Change]:
        with self._lock:
            return read.changes(self._kept, after, limit)

    # -- records -----------------------------------------------------------------------------------------------------

    def records(self, group: str, after: str, limit: int) -> list[Record]:
        with self._lock:
            keys = sorted(key for one, key in self._kept.records if one == group and key > after)[:limit]
            return [self._kept.records[group, key] for key in keys]

    def record(self, group: str, key: str) -> Record | None:
        with self._lock:
            return self._kept.records.get((group, key))

    def put_record(self, group: str, key: str, value: str | None, version: int | None = None) -> int | None:
        with self._lock:
            known = self._kept.records.get((group, key))
            if version is not None and version != (known.version if known else 0):
                return None
            if value is None:
                self._kept.records.pop((group, key), None)
                return 0
            self._kept.record_version += 1
            self._kept.records[group, key] = Record(group, key, value, self._kept.record_version)
            return self._kept.record_version

    # -- moving to another store -------------------------------------------------------------------------------------

    def pack(self, cursor: str | None, limit: int) -> Packed:
        with self._lock:
            return transfer.pack(self._kept, cursor, limit)

    def unpack(self, packed: Packed) -> None:
        with self._lock:
            transfer.unpack(self._kept, packed)
