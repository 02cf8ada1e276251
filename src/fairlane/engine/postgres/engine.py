"""The engine on PostgreSQL, for many machines: one schema of a database; acknowledged means committed.

Every verb that changes something is one call of an SQL function: one round trip, one transaction. The function locks the
queue while it runs, and reads the server's clock after that. Reads are plain statements.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TypeVar

from fairlane.core.dispatch import kind_set
from fairlane.core.document import (
    ChangeRow,
    CheckRow,
    Claim,
    Customer,
    DocumentRow,
    Failed,
    Outcome,
    Outlook,
    PartRow,
    ReceiptRow,
    Record,
    Retried,
    Submission,
    Totals,
)
from fairlane.core.errors import KeyConflict
from fairlane.core.policy import TIME_MAX_MS, KindLimit, Rules, Terms, interval_ms_of
from fairlane.engine.codec import encode_kind_limit, encode_rules, encode_terms
from fairlane.engine.errors import purged_feed_error, unknown_source_error
from fairlane.engine.limits import limit_error, source_of, submission_bytes
from fairlane.engine.protocol import (
    DUE_MAX,
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

from . import diagnostics, transfer
from .joined import CallerTransaction, Loop
from .listen import NotifyListener
from .migrate import depths_of, migrate, terms_columns
from .outcomes import claim_columns, if_any, settle_parameters
from .pool import PostgresPool, Row
from .queries import SCHEMA, queries
from .read import (
    customer_from_row,
    document_from_row,
    kind_from_row,
    outlook_from_row,
    parse_rules,
    read_documents,
    totals_from_row,
)
from .url import parse_url

T = TypeVar("T")


class PostgresEngine:
    """A queue in a schema of its own."""

    def __init__(self, url: str, create: bool = True, schema: Schema = SCHEMA) -> None:
        self.url = parse_url(url)
        self.schema = schema.version
        self.durability = migrate(self.url, create, schema)
        self._sql = queries(self.url.schema)
        self._pool: PostgresPool | CallerTransaction = PostgresPool(self.url, schema)
        self._listener = NotifyListener(self.url)
        self._in_transaction = False

    def close(self) -> None:
        self._pool.close()
        if not self._in_transaction:
            self._listener.close()

    def store_schema(self) -> int:
        return self._pool.schema_version()

    def diagnose(self) -> list[Finding]:
        return diagnostics.diagnose(self._pool, self._sql, self.url, self.durability)

    def within(self, transaction: object, loop: Loop | None = None) -> PostgresEngine:
        """Return an engine for the same queue that works inside the caller's open transaction on the same database."""
        engine = copy(self)
        engine._pool = CallerTransaction(self._pool, transaction, loop)
        engine._in_transaction = True
        return engine

    # -- documents ---------------------------------------------------------------------------------------------------

    def check(self, customer: str, cost: int, *, now_ms: int | None = None) -> CheckRow:
        ((priority, counter, checked_ms, *versions),) = self._pool.write(self._sql.check, (customer, cost, now_ms))
        return CheckRow(customer, priority, counter, checked_ms, *versions)

    def submit(self, submissions: Sequence[Submission], *, now_ms: int | None = None) -> list[ReceiptRow]:
        if not submissions:
            return []
        if len(submissions) == 1 and source_of(submissions[0]) is None:
            return [self._submit_one(submissions[0], now_ms)]
        ids, customers, kinds, payloads, costs, keys, digests, delays, *_ = map(list, zip(*submissions, strict=True))
        parameters = (
            ids, _once(customers), _once(kinds), payloads, _once(costs), if_any(keys), if_any(digests), _once(delays),
            if_any([submission.no_better_than for submission in submissions]),
            if_any([source_of(submission) for submission in submissions]),
            if_any([submission.made_from and True for submission in submissions]),
            if_any([submission.file_bytes or None for submission in submissions]), now_ms, self._in_transaction,
        )  # fmt: skip
        ((document_ids, *receipts, refused, refused_document, over),) = self._pool.write(self._sql.submit, parameters)
        if refused is not None:
            raise _submit_error(submissions[refused - 1], refused_document)
        if over is not None:
            raise _over_limit_error(over)
        return [
            ReceiptRow(id, number, CheckRow(customer, *check))
            for id, customer, number, *check in zip(document_ids or ids, customers, *receipts, strict=True)
        ]

    def _submit_one(self, submission: Submission, now_ms: int | None) -> ReceiptRow:
        parameters = (
            *submission[:8], submission.no_better_than, submission_bytes(submission), now_ms, self._in_transaction,
        )  # fmt: skip
        (((id, *numbers, refusal),),) = self._pool.write(self._sql.submit_one, parameters)
        if refusal == "over":
            raise _over_limit_error([id, *numbers])
        if refusal is not None:
            raise _submit_error(submission, id)
        number, *check = map(int, numbers)
        return ReceiptRow(id, number, CheckRow(submission.customer, *check))

    def claim(
        self,
        worker: str,
        limit: int,
        lease_ms: int,
        kinds: Mapping[str, int] | None = None,
        *,
        now_ms: int | None = None,
    ) -> list[Claim]:
        names = kind_set(kinds)
        kinds_and_attempts = (None, None) if kinds is None or names is None else (list(names), [kinds[name] for name in names])
        rows = self._pool.write(self._sql.claim, (worker, limit, lease_ms, *kinds_and_attempts, DUE_MAX, now_ms))
        return [Claim(*row) for row in rows]

    def extend(self, claims: Sequence[Claim], lease_ms: int, *, now_ms: int | None = None) -> list[Claim]:
        if not claims:
            return []
        ((lost,),) = self._pool.write(self._sql.extend, (*claim_columns(claims), lease_ms, now_ms))
        return [claims[index - 1] for index in lost]

    def take_over(
        self, handed: Sequence[tuple[str, int]], worker: str, lease_ms: int, *, now_ms: int | None = None
    ) -> list[Claim | None]:
        if not handed:
            return []
        ids, tokens = zip(*handed, strict=True)
        rows = self._pool.write(self._sql.take_over, (list(ids), list(tokens), worker, lease_ms, now_ms))
        taken = {(row[0], row[1] - 1): Claim(*row) for row in rows}
        return [taken.pop(each, None) for each in handed]

    def settle(self, settlements: Sequence[tuple[Claim, Outcome]], *, now_ms: int | None = None) -> list[Claim]:
        if not settlements:
            return []
        parameters = settle_parameters(settlements, now_ms)
        details = [outcome.details if isinstance(outcome, Retried | Failed) else None for _, outcome in settlements]
        if any(details):
            _, ids, tokens, *_ = parameters
            ((lost,),) = self._pool.write(self._sql.settle_with_details, (*parameters, ids, tokens, details))
        else:
            ((lost,),) = self._pool.write(self._sql.settle, parameters)
        return [settlements[index - 1][0] for index in lost]

    def reclaim(self, limit: int, *, now_ms: int | None = None) -> int:
        ((count,),) = self._pool.write(self._sql.reclaim, (limit, now_ms))
        return int(count)

    def cancel(self, ids: Sequence[str], *, now_ms: int | None = None) -> list[str]:
        ((cancelled,),) = self._pool.write(self._sql.cancel, (list(ids), now_ms))
        return list(cancelled)

    def retry(self, id: str, *, as_customer: bool = False, now_ms: int | None = None) -> bool:
        ((is_revived, over),) = self._pool.write(self._sql.retry, (id, as_customer, now_ms))
        if over is not None:
            raise _over_limit_error(over)
        return bool(is_revived)

    def purge(self, age_ms: int, limit: int, *, now_ms: int | None = None) -> Purged:
        ((ids, customers, tokens, changes),) = self._pool.write(self._sql.purge, (age_ms, limit, now_ms))
        return Purged(list(map(Removed, ids or (), customers or (), tokens or ())), changes)

    def wait(self, timeout_seconds: float, kinds: Sequence[str] | None = None) -> bool:
        deadline = time.monotonic() + timeout_seconds
        kinds = None if kinds is None else list(kinds)
        while True:
            seen = self._listener.count
            ((is_ready, due_in_ms),) = self._pool.read(self._sql.is_work_ready, (kinds,))
            if is_ready or (due_in_ms is not None and due_in_ms <= 0):
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if self._listener.start():  # only now: the server has just answered, so connecting does not hang
                continue
            self._listener.wait(left if due_in_ms is None else min(left, due_in_ms / 1000), seen)

    # -- customers and rules -----------------------------------------------------------------------------------------

    def rules(self) -> Rules:
        ((version, body),) = self._pool.read(self._sql.rules)
        return parse_rules(body, version)

    def configure(self, rules: Rules, *, now_ms: int | None = None) -> Rules | None:
        made = replace(rules, version=rules.version + 1)
        policy = rules.policy
        parameters = (
            rules.version, encode_rules(made), interval_ms_of(policy), depths_of(policy.thresholds), policy.reset,
            rules.dispatch, rules.turns, rules.open_turn_every, rules.frozen, *rules.limits, now_ms,
        )  # fmt: skip
        ((is_current,),) = self._pool.write(self._sql.configure, parameters)
        return made if is_current else None

    def tune(self, customer: str, terms: Terms, version: int, *, now_ms: int | None = None) -> int | None:
        parameters = (customer, version, encode_terms(terms), *terms_columns(terms), now_ms)
        ((new_version,),) = self._pool.write(self._sql.tune, parameters)
        return None if new_version is None else int(new_version)

    def limit_kind(self, kind: str, limit: KindLimit, version: int, *, now_ms: int | None = None) -> int | None:
        parameters = (kind, version, *transfer.limit_columns(limit), encode_kind_limit(kind, limit), now_ms)
        ((new_version,),) = self._pool.write(self._sql.limit_kind, parameters)
        return None if new_version is None else int(new_version)

    def prioritize(self, ids: Sequence[str], priority: int, by: str, *, now_ms: int | None = None) -> list[str]:
        ((waiting,),) = self._pool.write(self._sql.prioritize, (list(ids), priority, json.dumps(by), now_ms))
        return list(waiting)

    def reprioritize(self, customer: str, after: int, limit: int, *, recheck: bool, now_ms: int | None = None) -> Reprioritized:
        (row,) = self._pool.write(self._sql.reprioritize, (customer, after, limit, recheck, now_ms))
        return Reprioritized(*row)

    def reset(self, customer: str, *, now_ms: int | None = None) -> None:
        self._pool.write(self._sql.reset, (customer, now_ms))

    def forget(self, customer: str, limit: int, *, now_ms: int | None = None) -> list[Removed]:
        ((ids, tokens),) = self._pool.write(self._sql.forget, (customer, limit, now_ms))
        return [Removed(id, customer, token) for id, token in zip(ids or (), tokens or (), strict=True)]

    # -- reads -------------------------------------------------------------------------------------------------------

    def now(self) -> int:
        ((now_ms,),) = self._pool.read(self._sql.server_ms)
        return int(now_ms)

    def _read_current(self, statement: str, parameters: Sequence[object]) -> list[Row]:
        """Read; if the first column says that uncounted documents have arrived, count them and read again."""
        rows = self._pool.read(statement, parameters)
        if rows and rows[0][0]:
            self._pool.write(self._sql.absorb_arrivals)
            rows = self._pool.read(statement, parameters)
        return [row[1:] for row in rows]

    def customer(self, customer: str, *, now_ms: int | None = None) -> Customer:
        (row,) = self._read_current(self._sql.customer, (now_ms, customer))
        return customer_from_row(customer, row)

    def customers(self, after: str, limit: int, *, now_ms: int | None = None) -> list[Customer]:
        rows = self._read_current(self._sql.customers, (now_ms, after, limit))
        return [customer_from_row(row[3], (*row[:3], *row[4:])) for row in rows]

    def document(self, id: str) -> DocumentRow | None:
        rows = self._pool.read(self._sql.document, (id,))
        return document_from_row(rows[0]) if rows else None

    def documents(self, filter: DocumentFilter, before: int | None, limit: int, scan_max: int = SCAN_MAX) -> DocumentPage:
        return read_documents(self._pool, self._sql, filter, TIME_MAX_MS if before is None else before, limit, scan_max)

    def body(self, id: str) -> DocumentBody | None:
        rows = self._pool.read(self._sql.body, (id,))
        return DocumentBody(*rows[0]) if rows else None

    def parts(self, id: str) -> list[PartRow]:
        return [PartRow(document_from_row(row), row[-1]) for row in self._pool.read(self._sql.parts, (id,))]

    def outlook(self, id: str, *, now_ms: int | None = None) -> Outlook | None:
        rows = self._read_current(self._sql.outlook, (now_ms, id))
        return outlook_from_row(rows[0]) if rows else None

    def totals(self) -> Totals:
        (row,) = self._read_current(self._sql.totals, ())
        return totals_from_row(row)

    def kind(self, kind: str) -> KindRow:
        (row,) = self._pool.read(self._sql.kind, (kind,))
        return kind_from_row(kind, row)

    def kinds(self, after: str, limit: int) -> list[KindRow]:
        return [kind_from_row(kind, row) for kind, *row in self._pool.read(self._sql.kinds, (after, limit))]

    def ready_kinds(self, after: str, limit: int) -> list[ReadyKind]:
        rows = self._read_current(self._sql.ready_kinds, (after, limit))
        return [ReadyKind(*row) for row in rows if row[0] is not None]

    def changes(self, after: int | None, limit: int) -> list[ChangeRow]:
        ((floor, is_behind),) = self._pool.read(self._sql.feed_floor)
        if is_behind:
            self._pool.write(self._sql.absorb_arrivals)
        if after is not None and after < floor:
            raise purged_feed_error(floor, after)
        return [ChangeRow(*row) for row in self._pool.read(self._sql.changes, (after or 0, limit))]

    # -- records -----------------------------------------------------------------------------------------------------

    def records(self, group: str, after: str, limit: int) -> list[Record]:
        return [Record(*row) for row in self._pool.read(self._sql.records, (group, after, limit))]

    def record(self, group: str, key: str) -> Record | None:
        rows = self._pool.read(self._sql.record, (group, key))
        return Record(*rows[0]) if rows else None

    def put_record(self, group: str, key: str, value: str | None, version: int | None = None) -> int | None:
        ((new_version,),) = self._pool.write(self._sql.put_record, (group, key, value, version))
        return None if new_version is None else int(new_version)

    def rewrite(self, part: TextPart, texts: Sequence[Rewrite]) -> int:
        statement = {
            "payload": self._sql.rewrite_payload, "result": self._sql.rewrite_result, "reason": self._sql.rewrite_reason,
            "digest": self._sql.rewrite_digest, "note": self._sql.rewrite_note,
        }[part]  # fmt: skip
        return len(self._pool.write(statement, [list(column) for column in zip(*texts, strict=True)])) if texts else 0

    # -- moving to another store -------------------------------------------------------------------------------------

    def pack(self, cursor: str | None, limit: int) -> Packed:
        return transfer.pack(self._pool, self._sql, self.rules(), cursor, limit)

    def unpack(self, packed: Packed) -> None:
        transfer.unpack(self._pool, self._sql, packed)


def _once(values: list[T]) -> list[T]:
    """Send a list of equal values as one value."""
    return values[:1] if values.count(values[0]) == len(values) else values


def _submit_error(submission: Submission, document: str | None) -> Exception:
    if document is None:
        return unknown_source_error(submission)
    assert submission.key is not None
    return KeyConflict(submission.customer, submission.key, document)


def _over_limit_error(figures: Sequence[str]) -> Exception:
    limit, name, used, adding, most = figures
    return limit_error(limit, name, int(used), int(adding), int(most))
