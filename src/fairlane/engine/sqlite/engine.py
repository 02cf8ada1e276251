"""The SQLite engine: one file, many threads and processes, acknowledged after the data is on disk.

Every verb that changes something is an operation in a group commit; every other one reads on a connection of its own. The
work of each verb is in the module of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from fairlane.core.document import (
    ChangeRow,
    CheckRow,
    Claim,
    Customer,
    DocumentRow,
    Outcome,
    Outlook,
    PartRow,
    ReceiptRow,
    Record,
    Submission,
    Totals,
)
from fairlane.core.policy import KindLimit, Rules, Terms
from fairlane.engine.errors import refuse_frozen
from fairlane.engine.protocol import (
    SCAN_MAX,
    DocumentBody,
    DocumentFilter,
    DocumentPage,
    Finding,
    KindRow,
    Packed,
    Purged,
    ReadyKind,
    Removed,
    Reprioritized,
    Rewrite,
    TextPart,
)
from fairlane.engine.schema import Schema
from fairlane.file_modes import create_private

from . import admin, claim, count, diagnostics, priorities, read, settle, submit, transfer
from .connection import connect
from .file_checks import close_to_others, refuse_unfit
from .migrate import migrate
from .pool import SqlitePool
from .queries import SCHEMA
from .rows import read_rules
from .transaction import Transaction, current_time_ms
from .wait import WorkWaiter

T = TypeVar("T")
COUNT_STEP = 1000  # documents of an older version that are counted in one transaction


class SqliteEngine:
    """A queue in one file."""

    durability = "durable: acknowledged after the data is on disk (SQLite, WAL, synchronous=FULL)"

    def __init__(self, path: Path, create: bool = True, schema: Schema = SCHEMA) -> None:
        self.path = path.absolute()  # connections are opened later, when the working folder may be another one
        refuse_unfit(self.path, create)
        create_private(str(self.path))
        self.schema = schema.version
        connection = connect(self.path, schema)
        close_to_others(self.path)  # only now is it known to be a queue's file
        migrate(connection, self.path, schema)
        connection.close()
        self._pool = SqlitePool(self.path, schema)
        self._waiter = WorkWaiter(self._pool)
        if not self._pool.read(count.is_counted):
            while self._pool.write(lambda tx: count.count_some(tx, COUNT_STEP)):
                pass

    def _write_unless_frozen(self, operation: Callable[[Transaction], T]) -> T:
        """Run an operation that begins or changes something, which a frozen queue refuses."""

        def unless_frozen(tx: Transaction) -> T:
            refuse_frozen(tx.rules)
            return operation(tx)

        return self._pool.write(unless_frozen)

    # -- Store -----------------------------------------------------------------------------------------------------------

    def check(self, customer: str, cost: int, *, now_ms: int | None = None) -> CheckRow:
        return self._write_unless_frozen(lambda tx: submit.check(tx, customer, cost, current_time_ms(now_ms)))

    def submit(self, submissions: Sequence[Submission], *, now_ms: int | None = None) -> list[ReceiptRow]:
        return self._write_unless_frozen(lambda tx: submit.submit(tx, submissions, current_time_ms(now_ms)))

    def claim(
        self,
        worker: str,
        limit: int,
        lease_ms: int,
        kinds: Mapping[str, int] | None = None,
        *,
        now_ms: int | None = None,
    ) -> list[Claim]:
        return self._write_unless_frozen(lambda tx: claim.claim(tx, worker, limit, lease_ms, kinds, current_time_ms(now_ms)))

    def extend(self, claims: Sequence[Claim], lease_ms: int, *, now_ms: int | None = None) -> list[Claim]:
        return self._pool.write(lambda tx: settle.extend(tx, claims, current_time_ms(now_ms) + lease_ms))

    def take_over(
        self, handed: Sequence[tuple[str, int]], worker: str, lease_ms: int, *, now_ms: int | None = None
    ) -> list[Claim | None]:
        def operation(tx: Transaction) -> list[Claim | None]:
            at_ms = current_time_ms(now_ms)
            return [settle.take_over(tx, id, token, worker, at_ms + lease_ms, at_ms) for id, token in handed]

        return self._pool.write(operation)

    def settle(self, settlements: Sequence[tuple[Claim, Outcome]], *, now_ms: int | None = None) -> list[Claim]:
        return self._pool.write(lambda tx: settle.settle(tx, settlements, current_time_ms(now_ms)))

    def reclaim(self, limit: int, *, now_ms: int | None = None) -> int:
        return self._pool.write(lambda tx: settle.reclaim(tx, limit, current_time_ms(now_ms)))

    def cancel(self, ids: Sequence[str], *, now_ms: int | None = None) -> list[str]:
        return self._write_unless_frozen(lambda tx: settle.cancel(tx, ids, current_time_ms(now_ms)))

    def retry(self, id: str, *, as_customer: bool = False, now_ms: int | None = None) -> bool:
        return self._write_unless_frozen(lambda tx: settle.retry(tx, id, as_customer, current_time_ms(now_ms)))

    def wait(self, timeout_seconds: float, kinds: Sequence[str] | None = None) -> bool:
        return self._waiter.wait(timeout_seconds, kinds)

    # -- Reader ----------------------------------------------------------------------------------------------------------

    def now(self) -> int:
        return current_time_ms(None)

    def rules(self) -> Rules:
        return self._pool.read(read_rules)

    def customer(self, customer: str, *, now_ms: int | None = None) -> Customer:
        return self._pool.read(lambda execute: read.customer(execute, customer, current_time_ms(now_ms)))

    def customers(self, after: str, limit: int, *, now_ms: int | None = None) -> list[Customer]:
        return self._pool.read(lambda execute: read.customers(execute, after, limit, current_time_ms(now_ms)))

    def document(self, id: str) -> DocumentRow | None:
        return self._pool.read(lambda execute: read.document(execute, id))

    def documents(self, filter: DocumentFilter, before: int | None, limit: int, scan_max: int = SCAN_MAX) -> DocumentPage:
        return self._pool.read(lambda execute: read.documents(execute, filter, before, limit, scan_max))

    def body(self, id: str) -> DocumentBody | None:
        return self._pool.read(lambda execute: read.body(execute, id))

    def parts(self, id: str) -> list[PartRow]:
        return self._pool.read(lambda execute: read.parts(execute, id))

    def outlook(self, id: str, *, now_ms: int | None = None) -> Outlook | None:
        return self._pool.read(lambda execute: read.outlook(execute, id, current_time_ms(now_ms)))

    def totals(self) -> Totals:
        return self._pool.read(read.totals)

    def kind(self, kind: str) -> KindRow:
        return self._pool.read(lambda execute: read.kind(execute, kind))

    def kinds(self, after: str, limit: int) -> list[KindRow]:
        return self._pool.read(lambda execute: read.kinds(execute, after, limit))

    def ready_kinds(self, after: str, limit: int) -> list[ReadyKind]:
        return self._pool.read(lambda execute: read.ready_kinds(execute, after, limit))

    def changes(self, after: int | None, limit: int) -> list[ChangeRow]:
        return self._pool.read(lambda execute: read.changes(execute, after, limit))

    def record(self, group: str, key: str) -> Record | None:
        return self._pool.read(lambda execute: read.record(execute, group, key))

    def records(self, group: str, after: str, limit: int) -> list[Record]:
        return self._pool.read(lambda execute: read.records(execute, group, after, limit))

    # -- Admin -----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._pool.close()

    def store_schema(self) -> int:
        return self._pool.schema_version()

    def diagnose(self) -> list[Finding]:
        schema = self.store_schema()
        return self._pool.read(lambda execute: diagnostics.diagnose(execute, self.path, schema))

    def configure(self, rules: Rules, *, now_ms: int | None = None) -> Rules | None:
        return self._pool.write(lambda tx: admin.configure(tx, rules, current_time_ms(now_ms)))

    def tune(self, customer: str, terms: Terms, version: int, *, now_ms: int | None = None) -> int | None:
        return self._write_unless_frozen(lambda tx: admin.tune(tx, customer, terms, version, current_time_ms(now_ms)))

    def limit_kind(self, kind: str, limit: KindLimit, version: int, *, now_ms: int | None = None) -> int | None:
        return self._write_unless_frozen(lambda tx: admin.limit_kind(tx, kind, limit, version, current_time_ms(now_ms)))

    def prioritize(self, ids: Sequence[str], priority: int, by: str, *, now_ms: int | None = None) -> list[str]:
        return self._write_unless_frozen(lambda tx: priorities.prioritize(tx, ids, priority, by, current_time_ms(now_ms)))

    def reprioritize(self, customer: str, after: int, limit: int, *, recheck: bool, now_ms: int | None = None) -> Reprioritized:
        return self._write_unless_frozen(
            lambda tx: priorities.reprioritize(tx, customer, after, limit, recheck, current_time_ms(now_ms))
        )

    def reset(self, customer: str, *, now_ms: int | None = None) -> None:
        self._write_unless_frozen(lambda tx: admin.reset(tx, customer, current_time_ms(now_ms)))

    def put_record(self, group: str, key: str, value: str | None, version: int | None = None) -> int | None:
        return self._pool.write(lambda tx: admin.put_record(tx, group, key, value, version))

    def rewrite(self, part: TextPart, texts: Sequence[Rewrite]) -> int:
        return self._pool.write(lambda tx: admin.rewrite(tx, part, texts))

    def purge(self, age_ms: int, limit: int, *, now_ms: int | None = None) -> Purged:
        return self._write_unless_frozen(lambda tx: admin.purge(tx, current_time_ms(now_ms) - age_ms, limit))

    def forget(self, customer: str, limit: int, *, now_ms: int | None = None) -> list[Removed]:
        return self._write_unless_frozen(lambda tx: admin.forget(tx, customer, limit, current_time_ms(now_ms)))

    # -- Transfer --------------------------------------------------------------------------------------------------------

    def pack(self, cursor: str | None, limit: int) -> Packed:
        return self._pool.read(lambda execute: transfer.pack(execute, cursor, limit))

    def unpack(self, packed: Packed) -> None:
        self._pool.write(lambda tx: transfer.unpack(tx, packed))
