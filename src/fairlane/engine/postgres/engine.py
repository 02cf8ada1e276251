"""The engine for many machines: one schema of a PostgreSQL database, acknowledged = committed there.

Every verb that changes something is one call of a function that the schema holds: one round trip, one transaction. It holds
the queue's row for as long as it runs; the server's clock is read after that. Looks are plain statements.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, TypeVar

import psycopg

from fairlane.core.document import (
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
from fairlane.core.policy import TIME_MAX_MS, Rules, Terms
from fairlane.engine.codec import encode_rules, encode_terms
from fairlane.engine.errors import purged_feed_error, unknown_source_error
from fairlane.engine.protocol import DUE_MAX, DocumentBody, Finding, Packed, Purged

from . import diagnostics, transfer
from .listen import Listener
from .migrate import depths_of, migrate, terms_columns
from .pool import Joined, Row, Sessions
from .queries import queries
from .read import customer_of, document_of, outlook_of, rules_of
from .url import place_of

T = TypeVar("T")
WORDS: dict[type[Outcome], str] = {Done: "done", Retried: "retried", Failed: "failed", Released: "released"}


class PostgresEngine:
    """A queue in a schema of its own."""

    def __init__(self, url: str, create: bool = True) -> None:
        self.place = place_of(url)
        self._create = create
        self._sql = queries(self.place.schema)
        self._sessions: Sessions | Joined = Sessions(self.place)
        self._listener = Listener(self.place)
        self._joins = False
        self._durability = ""

    @property
    def durability(self) -> str:
        if not self._durability:
            self.migrate()
        return self._durability

    def migrate(self) -> None:
        self._durability = migrate(self.place, self._create)

    def close(self) -> None:
        self._sessions.close()
        if not self._joins:
            self._listener.close()

    def diagnose(self) -> list[Finding]:
        return diagnostics.diagnose(self._sessions, self._sql, self.place, self.durability)

    def within(self, connection: psycopg.Connection[Any]) -> PostgresEngine:
        """The same queue inside a caller's open transaction on the same database."""
        joined = copy(self)
        joined._sessions = Joined(self.place, connection)
        joined._joins = True
        return joined

    # -- documents ---------------------------------------------------------------------------------------------------

    def check(self, customer: str, cost: int, *, now_ms: int | None = None) -> Check:
        ((priority, counter, checked_ms, *versions),) = self._sessions.change(self._sql.check, (customer, cost, now_ms))
        return Check(customer, priority, counter, checked_ms, *versions)

    def submit(self, submissions: Sequence[Submission], *, now_ms: int | None = None) -> list[Receipt]:
        if not submissions:
            return []
        if len(submissions) == 1 and submissions[0].made_from is None:
            return [self._submit_one(submissions[0], now_ms)]
        ids, customers, kinds, payloads, costs, keys, digests, delays, sources = map(list, zip(*submissions, strict=True))
        told = (
            ids, _once(customers), _once(kinds), payloads, _once(costs), _if_any(keys), _if_any(digests), _once(delays),
            _if_any(sources), now_ms, self._joins,
        )  # fmt: skip
        ((documents, *made, refused, refused_document),) = self._sessions.change(self._sql.submit, told)
        if refused is not None:
            raise _refusal(submissions[refused - 1], refused_document)
        return [
            Receipt(id, number, Check(customer, *check))
            for id, customer, number, *check in zip(documents or ids, customers, *made, strict=True)
        ]

    def _submit_one(self, one: Submission, now_ms: int | None) -> Receipt:
        (((id, *numbers, refusal),),) = self._sessions.change(self._sql.submit_one, (*one[:8], now_ms, self._joins))
        if refusal is not None:
            raise _refusal(one, id)
        number, *check = map(int, numbers)
        return Receipt(id, number, Check(one.customer, *check))

    def claim(
        self,
        worker: str,
        limit: int,
        lease_ms: int,
        kinds: Mapping[str, int] | None = None,
        *,
        now_ms: int | None = None,
    ) -> list[Claim]:
        wanted = (None, None) if kinds is None else (list(kinds), list(kinds.values()))
        rows = self._sessions.change(self._sql.claim, (worker, limit, lease_ms, *wanted, DUE_MAX, now_ms))
        return [Claim(*row) for row in rows]

    def extend(self, claims: Sequence[Claim], lease_ms: int, *, now_ms: int | None = None) -> list[Claim]:
        if not claims:
            return []
        ((lost,),) = self._sessions.change(self._sql.extend, (*_names(claims), lease_ms, now_ms))
        return [claims[place - 1] for place in lost]

    def settle(self, settlements: Sequence[tuple[Claim, Outcome]], *, now_ms: int | None = None) -> list[Claim]:
        if not settlements:
            return []
        outcomes = [outcome for _, outcome in settlements]
        told = (
            *_names([claim for claim, _ in settlements]),
            [WORDS[type(one)] for one in outcomes],
            _if_any([_text(one) for one in outcomes]),
            _if_any([one.after_ms if isinstance(one, Retried) and one.after_ms else None for one in outcomes]),
            _if_any([one.cost for one in outcomes]),
            now_ms,
        )
        ((lost,),) = self._sessions.change(self._sql.settle, told)
        return [settlements[place - 1][0] for place in lost]

    def reclaim(self, limit: int, *, now_ms: int | None = None) -> int:
        ((count,),) = self._sessions.change(self._sql.reclaim, (limit, now_ms))
        return int(count)

    def cancel(self, ids: Sequence[str], *, now_ms: int | None = None) -> list[str]:
        ((cancelled,),) = self._sessions.change(self._sql.cancel, (list(ids), now_ms))
        return list(cancelled)

    def retry(self, id: str, *, now_ms: int | None = None) -> bool:
        ((is_revived,),) = self._sessions.change(self._sql.retry, (id, now_ms))
        return bool(is_revived)

    def purge(self, age_ms: int, limit: int, *, now_ms: int | None = None) -> Purged:
        (gone,) = self._sessions.change(self._sql.purge, (age_ms, limit, now_ms))
        return Purged(*gone)

    def wait(self, timeout_seconds: float, kinds: Sequence[str] | None = None) -> bool:
        deadline = time.monotonic() + timeout_seconds
        wanted = None if kinds is None else list(kinds)
        while True:
            seen = self._listener.listen()
            ((is_ready, due_in_ms),) = self._sessions.look(self._sql.is_work_ready, (wanted, wanted))
            if is_ready or (due_in_ms is not None and due_in_ms <= 0):
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._listener.wait(left if due_in_ms is None else min(left, due_in_ms / 1000), seen)

    # -- customers and rules -----------------------------------------------------------------------------------------

    def rules(self) -> Rules:
        ((version, body),) = self._sessions.look(self._sql.rules)
        return rules_of(body, version)

    def configure(self, rules: Rules, *, now_ms: int | None = None) -> Rules | None:
        made = replace(rules, version=rules.version + 1)
        policy = rules.policy
        told = (
            rules.version, encode_rules(made), policy.interval_ms, depths_of(policy.thresholds), policy.reset, rules.dispatch,
            rules.open_turn_every, rules.frozen, now_ms,
        )  # fmt: skip
        ((is_made,),) = self._sessions.change(self._sql.configure, told)
        return made if is_made else None

    def tune(self, customer: str, terms: Terms, version: int, *, now_ms: int | None = None) -> int | None:
        told = (customer, version, encode_terms(terms), *terms_columns(terms), now_ms)
        ((made,),) = self._sessions.change(self._sql.tune, told)
        return None if made is None else int(made)

    def reset(self, customer: str, *, now_ms: int | None = None) -> None:
        self._sessions.change(self._sql.reset, (customer, now_ms))

    def forget(self, customer: str, limit: int, *, now_ms: int | None = None) -> int:
        ((gone,),) = self._sessions.change(self._sql.forget, (customer, limit, now_ms))
        return int(gone)

    # -- looking: moves nothing --------------------------------------------------------------------------------------

    def _look_at_all(self, statement: str, parameters: Sequence[object]) -> list[Row]:
        """A look whose first column says whether something has arrived that it does not count yet; then it looks again."""
        rows = self._sessions.look(statement, parameters)
        if rows and rows[0][0]:
            self._sessions.change(self._sql.take_in)
            rows = self._sessions.look(statement, parameters)
        return [row[1:] for row in rows]

    def customer(self, customer: str, *, now_ms: int | None = None) -> Customer:
        (row,) = self._look_at_all(self._sql.customer, (now_ms, customer))
        return customer_of(customer, row)

    def customers(self, after: str, limit: int, *, now_ms: int | None = None) -> list[Customer]:
        rows = self._look_at_all(self._sql.customers, (now_ms, after, limit))
        return [customer_of(row[3], (*row[:3], *row[4:])) for row in rows]

    def document(self, id: str) -> Document | None:
        rows = self._sessions.look(self._sql.document, (id,))
        return document_of(rows[0]) if rows else None

    def documents(self, customer: str | None, state: State | None, before: int | None, limit: int) -> list[Document]:
        sql, number_max = self._sql, TIME_MAX_MS if before is None else before
        if customer is not None:
            rows = self._sessions.look(sql.documents_of_customer, (customer, state, state, number_max, limit))
        elif state is None:
            rows = self._sessions.look(sql.documents, (number_max, limit))
        else:
            pages = {"done": sql.documents_done, "failed": sql.documents_unhappy, "cancelled": sql.documents_unhappy}
            rows = self._sessions.look(pages.get(state, sql.documents_at_work), (state, number_max, limit))
        return [document_of(row) for row in rows]

    def body(self, id: str) -> DocumentBody | None:
        rows = self._sessions.look(self._sql.body, (id,))
        return DocumentBody(*rows[0]) if rows else None

    def outlook(self, id: str, *, now_ms: int | None = None) -> Outlook | None:
        rows = self._look_at_all(self._sql.outlook, (now_ms, id))
        return outlook_of(rows[0]) if rows else None

    def changes(self, after: int | None, limit: int) -> list[Change]:
        ((floor, is_behind),) = self._sessions.look(self._sql.feed_floor)
        if is_behind:
            self._sessions.change(self._sql.take_in)
        if after is not None and after < floor:
            raise purged_feed_error(floor, after)
        return [Change(*row) for row in self._sessions.look(self._sql.changes, (after or 0, limit))]

    # -- records -----------------------------------------------------------------------------------------------------

    def records(self, group: str, after: str, limit: int) -> list[Record]:
        return [Record(*row) for row in self._sessions.look(self._sql.records, (group, after, limit))]

    def record(self, group: str, key: str) -> Record | None:
        rows = self._sessions.look(self._sql.record, (group, key))
        return Record(*rows[0]) if rows else None

    def put_record(self, group: str, key: str, value: str | None, version: int | None = None) -> int | None:
        ((made,),) = self._sessions.change(self._sql.put_record, (group, key, value, version))
        return None if made is None else int(made)

    # -- moving to another store -------------------------------------------------------------------------------------

    def pack(self, cursor: str | None, limit: int) -> Packed:
        return transfer.pack(self._sessions, self._sql, self.rules(), cursor, limit)

    def unpack(self, packed: Packed) -> None:
        transfer.unpack(self._sessions, self._sql, packed)


def _once(values: list[T]) -> list[T]:
    """A list that is the same all through is sent as one value."""
    return values[:1] if values.count(values[0]) == len(values) else values


def _if_any(values: list[T]) -> list[T] | None:
    """A list that is empty all through is sent as nothing."""
    return values if any(one is not None for one in values) else None


def _names(claims: Sequence[Claim]) -> tuple[list[int], list[str], list[int]]:
    """What every later write must show."""
    return [one.number for one in claims], [one.id for one in claims], [one.token for one in claims]


def _text(outcome: Outcome) -> str | None:
    """A result, or a reason."""
    match outcome:
        case Done():
            return outcome.result
        case Retried() | Failed():
            return outcome.reason
        case _:
            return None


def _refusal(submission: Submission, document: str | None) -> Exception:
    if document is None:
        return unknown_source_error(submission)
    assert submission.key is not None
    return KeyConflict(submission.customer, submission.key, document)
