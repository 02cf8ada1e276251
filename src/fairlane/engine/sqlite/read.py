"""Reading the file: every function runs inside one read transaction and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from fairlane.core.dispatch import is_blocked
from fairlane.core.document import WAITING, ChangeRow, CheckRow, Customer, DocumentRow, Hold, Outlook, PartRow, Record, Totals
from fairlane.core.eta import estimate_ahead
from fairlane.core.policy import TIME_MAX_MS, Rules
from fairlane.engine.errors import purged_feed_error
from fairlane.engine.protocol import DocumentBody, DocumentFilter, DocumentPage, KindRow, ReadyKind
from fairlane.engine.read import customer_snapshot

from .kinds import is_blocked_now, read_kind
from .queries import Execute, sql
from .rows import StoredCustomer, TransitionRow, read_rules, read_terms
from .usual import read_usual


def customer(execute: Execute, id: str, now_ms: int) -> Customer:
    row = execute(sql.read_customer, (id,)).fetchone()
    return _snapshot(execute, StoredCustomer(*(row or (0, id))), read_rules(execute), now_ms)


def customers(execute: Execute, after: str, limit: int, now_ms: int) -> list[Customer]:
    rules = read_rules(execute)
    rows = execute(sql.read_customers, (after, limit)).fetchall()
    return [_snapshot(execute, StoredCustomer(*row), rules, now_ms) for row in rows]


def _snapshot(execute: Execute, customer: StoredCustomer, rules: Rules, now_ms: int) -> Customer:
    version, terms = read_terms(execute, customer.number)
    counts = (*execute(sql.count_documents, (customer.number,)).fetchone(), read_usual(execute, customer.number))
    return customer_snapshot(customer.id, customer.standing, counts, terms, version, rules, now_ms)


def document(execute: Execute, id: str) -> DocumentRow | None:
    row = execute(sql.read_snapshot, (id,)).fetchone()
    return None if row is None else decode_document(row)


def decode_document(row: tuple[Any, ...]) -> DocumentRow:
    """Return a row of the view `snapshots` as a document."""
    id, number, customer, kind, state, *check, cost, key, ready_ms, attempts, attempts_max, token = row[:16]
    worker, lease_ms, ended_ms, reason, priority, no_better_than, by_hand, claimed_ms, *kept = row[16:30]
    return DocumentRow(
        id, number, customer, kind, state, CheckRow(customer, *check), cost, key, ready_ms, attempts, attempts_max, token,
        worker, lease_ms, ended_ms, reason, priority, no_better_than, bool(by_hand), claimed_ms, *kept,
    )  # fmt: skip


def documents(execute: Execute, filter: DocumentFilter, before: int | None, limit: int, scan_max: int) -> DocumentPage:
    number_max = TIME_MAX_MS if before is None else before
    state = "failed" if filter.state is None and filter.reason is not None else filter.state  # no other has a reason
    others = (filter.kind, filter.reason, filter.since_ms, filter.until_ms)
    owner: tuple[Any, ...] = ()
    examined: tuple[Any, ...]
    if filter.customer is not None:
        row = execute(sql.read_customer, (filter.customer,)).fetchone()
        if row is None:
            return DocumentPage([], None)
        owner = row[:1]
        page, floor, examined = sql.page_documents_of_customer, sql.floor_of_customer, (*owner, number_max)
    elif state in ("failed", "cancelled"):
        page, floor, examined = sql.page_failed_documents, sql.floor_of_failed_documents, (state, number_max)
    elif state == "running":  # few, and read in one go
        page, floor, examined = sql.page_running_documents, "", ()
    else:
        page, floor, examined = sql.page_documents, sql.floor_of_documents, (number_max,)
    is_filtered = others != (None,) * 4 or (state is not None and page in (sql.page_documents, sql.page_documents_of_customer))
    last = execute(floor, (*examined, scan_max - 1)).fetchone() if floor and is_filtered else None
    rows = execute(page, (number_max, last[0] if last else 0, limit, state, *others, *owner))
    found = [decode_document(row) for row in rows]
    return DocumentPage(found, found[-1].number if len(found) == limit else last[0] if last else None)


def body(execute: Execute, id: str) -> DocumentBody | None:
    row = execute(sql.read_body, (id,)).fetchone()
    return None if row is None else DocumentBody(*row)


def parts(execute: Execute, id: str) -> list[PartRow]:
    return [PartRow(decode_document(row), row[-1]) for row in execute(sql.read_parts, (id,))]


def outlook(execute: Execute, id: str, now_ms: int) -> Outlook | None:
    row = execute(sql.read_document, (id,)).fetchone()
    document = None if row is None else TransitionRow(*row)
    if document is None or document.state not in WAITING:
        return None
    priority = document.priority
    (own_before,) = execute(sql.count_in_lane, (*document.lane_key, document.number)).fetchone()
    (own_ready,) = execute(sql.count_in_lane, (*document.lane_key, TIME_MAX_MS)).fetchone()
    ready = execute(sql.read_priorities).fetchall()
    ahead = estimate_ahead(
        before=sum(count for count, _, _ in ready[: priority - 1]),
        others=ready[priority - 1][0] - own_ready,
        other_lanes=ready[priority - 1][1] - (own_ready > 0),
        own_before=own_before,
    )
    return Outlook(now_ms, priority, ahead, _hold(execute, document, now_ms), totals(execute))


def _hold(execute: Execute, document: TransitionRow, now_ms: int) -> Hold | None:
    """Return what keeps a document's lane from competing."""
    _, terms = read_terms(execute, document.customer)
    if terms.paused:
        return "paused"
    _, running, *_ = execute(sql.count_documents, (document.customer,)).fetchone()
    if is_blocked(terms.paused, terms.cap, running):
        return "cap"
    kind = read_kind(execute, document.kind)
    if not is_blocked_now(kind, now_ms):
        return None
    return "kind rate" if now_ms < kind.bucket.next_start_ms(kind.limit) else "kind running"


def totals(execute: Execute) -> Totals:
    *_, busy_ms, _, _ = execute(sql.read_queue).fetchone()
    rows = execute(sql.read_priorities).fetchall()
    return Totals(busy_ms, tuple(taken for _, _, taken in rows), tuple(ready for ready, _, _ in rows))


def kind(execute: Execute, name: str) -> KindRow:
    row = read_kind(execute, name).public()
    if row.version:
        return row
    (running,) = execute(sql.count_running_of_kind, (name,)).fetchone()
    return row._replace(running=running)


def kinds(execute: Execute, after: str, limit: int) -> list[KindRow]:
    names = execute(sql.page_limited_kinds, (after, limit)).fetchall()
    return [read_kind(execute, name).public() for (name,) in names]


def ready_kinds(execute: Execute, after: str, limit: int) -> list[ReadyKind]:
    return [ReadyKind(*row) for row in execute(sql.ready_kinds, (after, limit))]


def changes(execute: Execute, after: int | None, limit: int) -> list[ChangeRow]:
    _, _, floor, *_ = execute(sql.read_queue).fetchone()
    if after is not None and after < floor:
        raise purged_feed_error(floor, after)
    return [ChangeRow(*row) for row in execute(sql.read_changes, (after or 0, limit))]


def record(execute: Execute, group: str, key: str) -> Record | None:
    row = execute(sql.read_record, (group, key)).fetchone()
    return None if row is None else Record(*row)


def records(execute: Execute, group: str, after: str, limit: int) -> list[Record]:
    return [Record(*row) for row in execute(sql.read_records, (group, after, limit))]


def is_work_ready(execute: Execute, kinds: Sequence[str] | None, now_ms: int) -> tuple[bool, float]:
    """Return whether a claim would take something, and in how many milliseconds the next delayed document is due."""
    (due_ms,) = execute(sql.read_next_due).fetchone()
    due_in_ms = inf if due_ms is None else due_ms - now_ms
    for (name,) in execute(sql.read_limited_kinds).fetchall():
        row = read_kind(execute, name)
        if row.blocked and (kinds is None or name in kinds) and row.oldest is not None:
            if not is_blocked_now(row, now_ms):
                return True, due_in_ms
            if (start_ms := row.bucket.next_start_ms(row.limit)) > now_ms:
                due_in_ms = min(due_in_ms, start_ms - now_ms)
    if kinds is None:
        return due_in_ms <= 0 or execute(sql.has_any_head).fetchone() is not None, due_in_ms
    return due_in_ms <= 0 or any(execute(sql.has_head, (kind,)).fetchone() for kind in kinds), due_in_ms


def data_version(execute: Execute) -> int:
    """Return a number that changes when another connection, of this process or another one, has committed."""
    (version,) = execute(sql.data_version).fetchone()
    return int(version)
