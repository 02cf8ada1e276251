"""What the reference engine keeps: plain rows in plain dictionaries."""

from __future__ import annotations

import time

from fairlane.core.dispatch import Lanes, Pace
from fairlane.core.document import ATTEMPTS_DEFAULT, Check, Document, Receipt, Record, State, Submission
from fairlane.core.policy import Rules, Standing, Terms
from fairlane.engine.protocol import PROGRESS


def now(now_ms: int | None) -> int:
    """The store's clock, or the time that a test passed in."""
    return time.time_ns() // 1_000_000 if now_ms is None else now_ms


class Account:
    """A customer: where it stands, what it has, what it is owed."""

    __slots__ = ("cancelled", "done", "failed", "id", "running", "standing", "terms", "terms_version", "waiting")

    def __init__(self, id: str) -> None:
        self.id = id
        self.standing = Standing()
        self.terms = Terms()
        self.terms_version = 0
        self.waiting = self.running = self.done = self.failed = self.cancelled = 0


class Entry:
    """A document, its check, and what a worker has of it."""

    __slots__ = (
        "account", "attempts", "attempts_max", "check", "cost", "digest", "ended_ms", "id", "key", "kind", "lease_ms",
        "number", "payload", "ready_ms", "reason", "resets", "result", "state", "token", "weight", "worker",
    )  # fmt: skip

    def __init__(self, number: int, submission: Submission, account: Account, check: Check) -> None:
        self.number = number
        self.id = submission.id
        self.kind = submission.kind
        self.payload = submission.payload
        self.key = submission.key
        self.digest = submission.digest
        self.account = account
        self.check = check
        self.resets = account.standing.resets
        self.weight = account.terms.weight_thousandths
        self.cost = submission.cost
        self.state: State = "delayed" if submission.delay_ms else "ready"
        self.ready_ms = check.checked_ms + submission.delay_ms
        self.attempts = self.token = 0
        self.attempts_max = ATTEMPTS_DEFAULT
        self.worker: str | None = None
        self.lease_ms: int | None = None
        self.ended_ms: int | None = None
        self.reason: str | None = None
        self.result: str | None = None

    def receipt(self) -> Receipt:
        return Receipt(self.id, self.number, self.check)

    def snapshot(self) -> Document:
        return Document(
            self.id, self.number, self.account.id, self.kind, self.state, self.check, self.cost, self.key,
            self.ready_ms, self.attempts, self.attempts_max, self.token, self.worker, self.lease_ms, self.ended_ms,
            self.reason,
        )  # fmt: skip


class Kept:
    """Everything that a queue in memory knows."""

    def __init__(self) -> None:
        self.rules = Rules()
        self.lanes = Lanes(self.rules.dispatch, self.rules.open_turn_every)
        self.pace = Pace()
        self.accounts: dict[str, Account] = {}
        self.entries: dict[int, Entry] = {}
        self.numbers: dict[str, int] = {}  # document id: number
        self.keys: dict[tuple[str, str], int] = {}  # (customer, key): number
        self.delayed: list[tuple[int, int]] = []  # heap of (ready, number); some may have left
        self.leases: list[tuple[int, int]] = []  # heap of (lease end, number); some may have ended
        self.last_number = 0
        self.changes: dict[int, tuple[int, str, str | None, int | None, int | None, str | None]] = {}
        self.last_change = 0
        self.changes_floor = 0
        self.records: dict[tuple[str, str], Record] = {}
        self.record_version = 0

    def account(self, customer: str) -> Account:
        """A customer, new if it was never seen."""
        account = self.accounts.get(customer)
        if account is None:
            account = self.accounts[customer] = Account(customer)
        return account

    def entry(self, id: str) -> Entry | None:
        """A document, by its id."""
        return self.entries.get(self.numbers.get(id, 0))

    def erase(self, entry: Entry) -> None:
        """A document is forgotten, and with it its key and what was reported of it."""
        del self.entries[entry.number], self.numbers[entry.id]
        self.records.pop((PROGRESS, entry.id), None)
        if entry.key is not None:
            del self.keys[entry.account.id, entry.key]

    def log(
        self,
        at_ms: int,
        what: str,
        account: Account | None = None,
        entry: Entry | None = None,
        note: str | None = None,
    ) -> None:
        """A line of the feed."""
        self.last_change += 1
        self.changes[self.last_change] = (
            at_ms,
            what,
            account.id if account else None,
            entry.number if entry else None,
            entry.token if entry else None,
            note,
        )
