"""The connections of one process: one that writes, in group commits, and one that reads.

Readers and writers have connections of their own, so that they do not wait for each other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw

from fairlane.core.errors import Mistake, StoreError, StoreFrozen
from fairlane.engine.schema import Schema

from .connection import connect
from .errors import translate_errors
from .group_commit import GroupCommit, PendingOperation
from .queries import SCHEMA, Execute, sql
from .transaction import Transaction

T = TypeVar("T")

_inherited: list[object] = []  # connections of a parent process: a forked child may neither use nor close them


def is_store_failure(error: Exception) -> bool:
    """Return whether a transaction failed because of the store, and not because of one operation in it."""
    return isinstance(error, StoreError) and not isinstance(error.__cause__, apsw.ConstraintError)


class SqlitePool:
    """Runs operations on one file; connections are opened at first use, and again after a fork or a disk error."""

    def __init__(self, path: Path, schema: Schema = SCHEMA) -> None:
        self.path = path
        self._schema = schema
        self.arrival = threading.Event()  # set by every commit of this process
        self._is_closed = False
        self._forking = threading.Lock()
        self._start()

    def _start(self) -> None:
        self._writer: apsw.Connection | None = None
        self._reader: apsw.Connection | None = None
        self._reading = threading.Lock()
        self._writing = threading.Lock()
        self._group_commit = GroupCommit(self.commit)
        self._process_id = os.getpid()

    def write(self, operation: Callable[[Transaction], T]) -> T:
        """Run an operation in a durable transaction, shared with the other callers that are waiting."""
        self._restart_after_fork()
        self._refuse_closed()
        return self._group_commit.run(operation)

    def read(self, operation: Callable[[Execute], T]) -> T:
        """Run an operation in one read transaction."""
        self._restart_after_fork()
        with self._reading, translate_errors(self.path):
            self._refuse_closed()
            if self._reader is None:
                self._reader = connect(self.path, self._schema)
            self._reader.execute("BEGIN")
            try:
                self._refuse_newer(self._reader.execute)
                return operation(self._reader.execute)
            finally:
                self._reader.execute("COMMIT")

    def schema_version(self) -> int:
        """Return the version of the schema that the file has."""
        return self.read(self._refuse_newer)

    def close(self) -> None:
        self._restart_after_fork()
        self._is_closed = True
        with self._writing, self._reading:
            for connection in (self._writer, self._reader):
                if connection is not None:
                    connection.close()
            self._writer = self._reader = None

    def commit(self, group: list[PendingOperation[Any]]) -> None:
        """Run a group in one transaction; if one operation made it fail, run each alone, so that only that one fails."""
        try:
            with self._writing, translate_errors(self.path):
                outcomes = self._transact([pending.operation for pending in group])
        except Exception as error:  # noqa: BLE001 - every error belongs to the callers of the group
            if len(group) == 1 or is_store_failure(error):
                for pending in group:
                    pending.fail(error)
            else:
                for pending in group:
                    self.commit([pending])
            return
        for pending, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Mistake | StoreFrozen):
                pending.fail(outcome)
            else:
                pending.succeed(outcome)
        self.arrival.set()

    def _restart_after_fork(self) -> None:
        """Give a forked child connections of its own: closing those of the parent would drop the parent's locks."""
        if self._process_id == os.getpid():
            return
        with self._forking:
            if self._process_id != os.getpid():
                _inherited.append((self._writer, self._reader, self._group_commit))
                self.arrival = threading.Event()
                self._start()

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise StoreError(f"the queue at {self.path} was closed; open it again")

    def _refuse_newer(self, execute: Execute) -> int:
        """Refuse a file that another program has brought to a schema too new for this one; return its version."""
        return self._schema.refuse_newer(str(self.path), execute(sql.schema_mark).get)

    def _transact(self, operations: list[Callable[[Transaction], object]]) -> list[object]:
        self._refuse_closed()
        if self._writer is None:
            self._writer = connect(self.path, self._schema)
        connection = self._writer
        try:
            connection.execute("BEGIN IMMEDIATE")
            self._refuse_newer(connection.execute)
            transaction = Transaction(connection)
            outcomes = [_run(connection, transaction, operation) for operation in operations]
            transaction.finish()
            connection.execute("COMMIT")
            return outcomes
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(error, apsw.IOError):  # the connection's cache may differ from what is on disk
                self._writer = None
                connection.close()
            raise


def _run(connection: apsw.Connection, transaction: Transaction, operation: Callable[[Transaction], object]) -> object:
    """Run an operation; return its error as a value if nothing was written, so that the others of the group go on."""
    writes_before = connection.total_changes()
    try:
        return operation(transaction)
    except (Mistake, StoreFrozen) as error:
        if connection.total_changes() != writes_before:
            raise
        return error
