"""What is seen without moving anything; every function runs inside one read transaction."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from fairlane.core.dispatch import Pace, estimate_ahead, is_blocked
from fairlane.core.document import WAITING, ChangeRow, CheckRow, Customer, DocumentRow, Outlook, Record, State
from fairlane.core.policy import TIME_MAX_MS, Rules
from fairlane.engine.errors import purged_feed_error
from fairlane.engine.protocol import DocumentBody
from fairlane.engine.read import customer_snapshot

from .queries import Execute, sql
from .rows import Account, competing_kinds, current_rules, own_terms


def customer(execute: Execute, id: str, now_ms: int) -> Customer:
    row = execute(sql.account_by_id, (id,)).fetchone()
    return _look(execute, Account(*(row or (0, id))), current_rules(execute), now_ms)


def customers(execute: Execute, after: str, limit: int, now_ms: int) -> list[Customer]:
    everybody = current_rules(execute)
    rows = execute(sql.accounts_after, (after, limit)).fetchall()
    return [_look(execute, Account(*row), everybody, now_ms) for row in rows]


def _look(execute: Execute, account: Account, everybody: Rules, now_ms: int) -> Customer:
    version, terms = own_terms(execute, account.number)
    counts = execute(sql.counts_of, (account.number,)).fetchone()
    return customer_snapshot(account.id, account.standing, counts, terms, version, everybody.policy, now_ms)


def document(execute: Execute, id: str) -> DocumentRow | None:
    row = execute(sql.one_document, (id,)).fetchone()
    return None if row is None else document_of(row)


def document_of(row: tuple[Any, ...]) -> DocumentRow:
    """A row of the snapshots as a snapshot."""
    id, number, customer, kind, state, *check, cost, key, ready_ms, attempts, attempts_max, token = row[:16]
    return DocumentRow(
        id, number, customer, kind, state, CheckRow(customer, *check), cost, key, ready_ms, attempts, attempts_max, token,
        *row[16:20],
    )  # fmt: skip


def documents(execute: Execute, customer: str | None, state: State | None, before: int | None, limit: int) -> list[DocumentRow]:
    number_max = TIME_MAX_MS if before is None else before
    if customer is not None:
        row = execute(sql.account_by_id, (customer,)).fetchone()
        if row is None:
            return []
        found = execute(sql.documents_page_of_customer, (row[0], state, number_max, limit))
    elif state is None:
        found = execute(sql.documents_page, (number_max, limit))
    else:
        special = {"failed": sql.documents_page_unhappy, "cancelled": sql.documents_page_unhappy}
        special["running"] = sql.documents_page_running
        found = execute(special.get(state, sql.documents_page_of_state), (state, number_max, limit))
    return [document_of(one) for one in found]


def body(execute: Execute, id: str) -> DocumentBody | None:
    row = execute(sql.read_body, (id,)).fetchone()
    return None if row is None else DocumentBody(*row)


def outlook(execute: Execute, id: str, now_ms: int) -> Outlook | None:
    row = execute(sql.read_moving, (id,)).fetchone()
    if row is None or row[4] not in WAITING:
        return None
    number, _, customer_number, kind, _, priority, *_ = row
    lane = (customer_number, kind, priority)
    (own_before,) = execute(sql.count_in_lane, (*lane, number)).fetchone()
    (own_ready,) = execute(sql.count_in_lane, (*lane, TIME_MAX_MS)).fetchone()
    ready = execute(sql.read_priorities).fetchall()
    ahead = estimate_ahead(
        before=sum(count for count, _ in ready[: priority - 1]),
        others=ready[priority - 1][0] - own_ready,
        other_lanes=ready[priority - 1][1] - (own_ready > 0),
        own_before=own_before,
    )
    dispatches, *_, from_ms, from_dispatches, mid_ms, mid_dispatches = execute(sql.read_queue).fetchone()
    pace = Pace(from_ms, from_dispatches, mid_ms, mid_dispatches)
    _, terms = own_terms(execute, customer_number)
    _, running, *_ = execute(sql.counts_of, (customer_number,)).fetchone()
    blocked = is_blocked(terms.paused, terms.cap, running)
    (oldest_ready_ms,) = execute(sql.oldest_head, (kind,)).fetchone()
    return Outlook(now_ms, ahead, blocked, *pace.recent(now_ms, dispatches), oldest_ready_ms)


def changes(execute: Execute, after: int | None, limit: int) -> list[ChangeRow]:
    _, _, _, floor, *_ = execute(sql.read_queue).fetchone()
    if after is not None and after < floor:
        raise purged_feed_error(floor, after)
    return [ChangeRow(*row) for row in execute(sql.changes_after, (after or 0, limit))]


def is_work_ready(execute: Execute, kinds: Sequence[str] | None, now_ms: int) -> tuple[bool, float]:
    """Whether a claim would find something, and in how many milliseconds the next delayed document is due."""
    (due_ms,) = execute(sql.next_due).fetchone()
    due_in_ms = inf if due_ms is None else due_ms - now_ms
    wanted = competing_kinds(execute) if kinds is None else kinds
    return due_in_ms <= 0 or any(execute(sql.any_head, (kind,)).fetchone() for kind in wanted), due_in_ms


def data_version(execute: Execute) -> int:
    """A number that changes when another connection, of this process or another one, has committed."""
    (version,) = execute(sql.data_version).fetchone()
    return int(version)


def record(execute: Execute, group: str, key: str) -> Record | None:
    row = execute(sql.one_record, (group, key)).fetchone()
    return None if row is None else Record(*row)


def records(execute: Execute, group: str, after: str, limit: int) -> list[Record]:
    return [Record(*row) for row in execute(sql.records_after, (group, after, limit))]
