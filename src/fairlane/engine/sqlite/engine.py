"""The embedded engine: one SQLite file, many threads and processes, acknowledged = on disk.

Every verb that changes something is an operation for the group commit; every look runs on a connection of its own, so that
readers and writers do not wait for each other.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw

from fairlane.core.document import (
    ChangeRow,
    CheckRow,
    Claim,
    Customer,
    DocumentRow,
    Outcome,
    Outlook,
    ReceiptRow,
    Record,
    State,
    Submission,
)
from fairlane.core.errors import Mistake, StoreError, StoreFrozen
from fairlane.core.policy import Rules, Terms
from fairlane.engine.errors import refuse_frozen
from fairlane.engine.protocol import DocumentBody, Finding, Packed, Purged

from . import admin, claim, diagnostics, read, settle, submit, transfer
from .connection import connect, migrate, refuse_unfit, told_plainly
from .group_commit import GroupCommit, Ticket
from .queries import Execute
from .rows import current_rules
from .transaction import Transaction
from .wal_watch import Notice

T = TypeVar("T")
POLL_SECONDS = 0.002  # how often `wait` asks whether another process wrote, where no notice of that is given
GLANCE_SECONDS = 0.0001  # after a notice: how often to look while a commit is on its way to the disk ...
GLANCES_SECONDS = 0.005  # ... and for how long; after that it is a slow one, and looking so often would be a waste
NOTICED_SECONDS = 0.3  # that a commit may be on its way
UNNOTICED_SECONDS = 0.25  # how often to ask in spite of notices

_left_to_parent: list[object] = []  # handles of a parent process: a forked child may neither use nor close them


def is_everybodys(error: Exception) -> bool:
    """Whether a transaction failed because of the store and not because of one operation in it."""
    return isinstance(error, StoreError) and not isinstance(error.__cause__, apsw.ConstraintError)


class SqliteEngine:
    """A queue in one file."""

    durability = "durable: acknowledged after the data is on disk (SQLite, WAL, synchronous=FULL)"

    def __init__(self, path: Path, create: bool = True) -> None:
        self.path = path.absolute()  # connections are opened when needed, and the working folder may be another by then
        self._is_closed = False
        self._forking = threading.Lock()
        refuse_unfit(self.path, create)
        self._open()

    def _open(self) -> None:
        self._writer: apsw.Connection | None = None
        self._reader: apsw.Connection | None = None
        self._reading = threading.Lock()
        self._writing = threading.Lock()
        self._group = GroupCommit(self._commit)
        self._arrival = threading.Event()
        self._notices = threading.local()
        self._process = os.getpid()

    def migrate(self) -> None:
        connection = connect(self.path)
        migrate(connection, self.path)
        connection.close()

    def close(self) -> None:
        self._leave_handles_to_parent()
        self._is_closed = True
        with self._writing, self._reading:
            for connection in (self._writer, self._reader):
                if connection is not None:
                    connection.close()
            self._writer = self._reader = None

    def diagnose(self) -> list[Finding]:
        return self._read(lambda execute: diagnostics.diagnose(execute, self.path))

    def _leave_handles_to_parent(self) -> None:
        """After a fork the child starts with handles of its own; closing the parent's would break its locks."""
        if self._process == os.getpid():
            return
        with self._forking:
            if self._process != os.getpid():
                _left_to_parent.append((self._writer, self._reader, self._group))
                self._open()

    # -- transactions ------------------------------------------------------------------------------------------------

    def _change(self, operation: Callable[[Transaction], T]) -> T:
        """The same for verbs that begin or change something, which a frozen queue refuses."""

        def unless_frozen(tx: Transaction) -> T:
            refuse_frozen(tx.rules)
            return operation(tx)

        return self._write(unless_frozen)

    def _write(self, operation: Callable[[Transaction], T]) -> T:
        """Run an operation in a durable transaction, shared with whoever else is waiting."""
        self._leave_handles_to_parent()
        self._refuse_closed()
        return self._group.run(operation)

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise StoreError(f"the queue at {self.path} was closed; open it again")

    def _commit(self, group: list[Ticket[Any]]) -> None:
        """One transaction for all; if one of them made it fail, one for each, so that nobody fails for another's reason."""
        try:
            with self._writing, told_plainly(self.path):
                outcomes = self._transact([ticket.operation for ticket in group])
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told to the callers it belongs to
            if len(group) == 1 or is_everybodys(error):
                for ticket in group:
                    ticket.fail(error)
            else:
                for ticket in group:
                    self._commit([ticket])
            return
        for ticket, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Mistake | StoreFrozen):
                ticket.fail(outcome)
            else:
                ticket.succeed(outcome)
        self._arrival.set()

    def _transact(self, operations: list[Callable[[Transaction], object]]) -> list[object]:
        self._refuse_closed()
        if self._writer is None:
            self._writer = connect(self.path)
        connection = self._writer
        try:
            connection.execute("BEGIN IMMEDIATE")
            transaction = Transaction(connection)
            outcomes = [self._attempt(connection, transaction, operation) for operation in operations]
            transaction.finish()
            connection.execute("COMMIT")
            return outcomes
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(error, apsw.IOError):  # what the connection has cached may not be what is on disk
                self._writer = None
                connection.close()
            raise

    @staticmethod
    def _attempt(connection: apsw.Connection, transaction: Transaction, operation: Callable[[Transaction], object]) -> object:
        """A mistake is the outcome of its caller alone, as long as it was found before anything was written."""
        writes_before = connection.total_changes()
        try:
            return operation(transaction)
        except (Mistake, StoreFrozen) as mistake:
            if connection.total_changes() != writes_before:
                raise
            return mistake

    def _read(self, look: Callable[[Execute], T]) -> T:
        """Run a look in one read transaction."""
        self._leave_handles_to_parent()
        with self._reading, told_plainly(self.path):
            self._refuse_closed()
            if self._reader is None:
                self._reader = connect(self.path)
            self._reader.execute("BEGIN")
            try:
                return look(self._reader.execute)
            finally:
                self._reader.execute("COMMIT")

    # -- documents ---------------------------------------------------------------------------------------------------

    def check(self, customer: str, cost: int, *, now_ms: int | None = None) -> CheckRow:
        return self._change(lambda tx: submit.check(tx, customer, cost, tx.now(now_ms)))

    def submit(self, submissions: Sequence[Submission], *, now_ms: int | None = None) -> list[ReceiptRow]:
        return self._change(lambda tx: submit.submit(tx, submissions, tx.now(now_ms)))

    def claim(
        self,
        worker: str,
        limit: int,
        lease_ms: int,
        kinds: Mapping[str, int] | None = None,
        *,
        now_ms: int | None = None,
    ) -> list[Claim]:
        return self._change(lambda tx: claim.claim(tx, worker, limit, lease_ms, kinds, tx.now(now_ms)))

    def extend(self, claims: Sequence[Claim], lease_ms: int, *, now_ms: int | None = None) -> list[Claim]:
        return self._write(lambda tx: settle.extend(tx, claims, tx.now(now_ms) + lease_ms))

    def settle(self, settlements: Sequence[tuple[Claim, Outcome]], *, now_ms: int | None = None) -> list[Claim]:
        return self._write(lambda tx: settle.settle(tx, settlements, tx.now(now_ms)))

    def reclaim(self, limit: int, *, now_ms: int | None = None) -> int:
        return self._write(lambda tx: settle.reclaim(tx, limit, tx.now(now_ms)))

    def cancel(self, ids: Sequence[str], *, now_ms: int | None = None) -> list[str]:
        return self._change(lambda tx: settle.cancel(tx, ids, tx.now(now_ms)))

    def retry(self, id: str, *, now_ms: int | None = None) -> bool:
        return self._change(lambda tx: settle.retry(tx, id, tx.now(now_ms)))

    def purge(self, age_ms: int, limit: int, *, now_ms: int | None = None) -> Purged:
        return self._change(lambda tx: admin.purge(tx, tx.now(now_ms) - age_ms, limit))

    def wait(self, timeout_seconds: float, kinds: Sequence[str] | None = None) -> bool:
        deadline = time.monotonic() + timeout_seconds
        while True:
            self._arrival.clear()
            notice = self._notice()
            noticed = time.monotonic() if notice.take() else float("-inf")
            seen = self._read(read.data_version)
            is_ready, due_in_ms = self._read(lambda execute: read.is_work_ready(execute, kinds, Transaction.now(None)))
            if is_ready:
                return True
            self._await_write(seen, min(deadline, time.monotonic() + due_in_ms / 1000), notice, noticed)
            if time.monotonic() >= deadline:
                return False

    def _notice(self) -> Notice:
        """This thread's notices; the log is there, as the first look opened it."""
        if getattr(self._notices, "own", None) is None:
            self._read(read.data_version)
            self._notices.own = Notice(self.path)
        own: Notice = self._notices.own
        return own

    def _await_write(self, seen: int, wake: float, notice: Notice, noticed: float) -> None:
        """Until this process or another one wrote to the file, or the time to wake has come."""
        while (left := wake - time.monotonic()) > 0:
            if not notice.is_given:
                self._arrival.wait(min(left, POLL_SECONDS))
            elif (ago := time.monotonic() - noticed) < GLANCES_SECONDS:
                time.sleep(min(left, GLANCE_SECONDS))
            elif notice.wait(min(left, POLL_SECONDS if ago < NOTICED_SECONDS else UNNOTICED_SECONDS)):
                noticed = time.monotonic()
            if self._read(read.data_version) != seen:
                return

    # -- customers and rules -----------------------------------------------------------------------------------------

    def rules(self) -> Rules:
        return self._read(current_rules)

    def configure(self, rules: Rules, *, now_ms: int | None = None) -> Rules | None:
        return self._write(lambda tx: admin.configure(tx, rules, tx.now(now_ms)))

    def tune(self, customer: str, terms: Terms, version: int, *, now_ms: int | None = None) -> int | None:
        return self._change(lambda tx: admin.tune(tx, customer, terms, version, tx.now(now_ms)))

    def reset(self, customer: str, *, now_ms: int | None = None) -> None:
        self._change(lambda tx: admin.reset(tx, customer, tx.now(now_ms)))

    def forget(self, customer: str, limit: int, *, now_ms: int | None = None) -> int:
        return self._change(lambda tx: admin.forget(tx, customer, limit, tx.now(now_ms)))

    # -- looking: moves nothing --------------------------------------------------------------------------------------

    def customer(self, customer: str, *, now_ms: int | None = None) -> Customer:
        return self._read(lambda execute: read.customer(execute, customer, Transaction.now(now_ms)))

    def customers(self, after: str, limit: int, *, now_ms: int | None = None) -> list[Customer]:
        return self._read(lambda execute: read.customers(execute, after, limit, Transaction.now(now_ms)))

    def document(self, id: str) -> DocumentRow | None:
        return self._read(lambda execute: read.document(execute, id))

    def documents(self, customer: str | None, state: State | None, before: int | None, limit: int) -> list[DocumentRow]:
        return self._read(lambda execute: read.documents(execute, customer, state, before, limit))

    def body(self, id: str) -> DocumentBody | None:
        return self._read(lambda execute: read.body(execute, id))

    def outlook(self, id: str, *, now_ms: int | None = None) -> Outlook | None:
        return self._read(lambda execute: read.outlook(execute, id, Transaction.now(now_ms)))

    def changes(self, after: int | None, limit: int) -> list[ChangeRow]:
        return self._read(lambda execute: read.changes(execute, after, limit))

    # -- records -----------------------------------------------------------------------------------------------------

    def records(self, group: str, after: str, limit: int) -> list[Record]:
        return self._read(lambda execute: read.records(execute, group, after, limit))

    def record(self, group: str, key: str) -> Record | None:
        return self._read(lambda execute: read.record(execute, group, key))

    def put_record(self, group: str, key: str, value: str | None, version: int | None = None) -> int | None:
        return self._write(lambda tx: admin.put_record(tx, group, key, value, version))

    # -- moving to another store -------------------------------------------------------------------------------------

    def pack(self, cursor: str | None, limit: int) -> Packed:
        return self._read(lambda execute: transfer.pack(execute, cursor, limit))

    def unpack(self, packed: Packed) -> None:
        self._write(lambda tx: transfer.unpack(tx, packed))
