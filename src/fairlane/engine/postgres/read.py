"""Rows of the database as the values that readers get: customers, documents, outlooks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from fairlane.core.dispatch import Bucket, is_blocked, is_kind_blocked
from fairlane.core.document import WAITING, CheckRow, Customer, DocumentRow, Hold, Outlook, Totals
from fairlane.core.eta import estimate_ahead
from fairlane.core.policy import KindLimit, Parts, Standing, from_thousandths
from fairlane.engine.codec import decode_rules, decode_terms
from fairlane.engine.protocol import DocumentFilter, DocumentPage, KindRow
from fairlane.engine.queries import Queries
from fairlane.engine.read import customer_snapshot

from .pool import Row, Statements

parse_rules = lru_cache(maxsize=8)(decode_rules)
_parse_terms = lru_cache(maxsize=1024)(decode_terms)


def parts_from_row(parts: list[int] | None) -> Parts:
    """Make pairs of what was sent in which part of a sliding interval."""
    return tuple(zip(parts[::2], parts[1::2], strict=True)) if parts else ()


def customer_from_row(id: str, row: Row) -> Customer:
    """Make a customer of its standing, terms and counts."""
    now_ms, rules_version, rules_body, counter, updated_ms, resets, parts, terms_version, terms_body, *counts = row
    standing = Standing(counter or 0, updated_ms, resets or 0, parts_from_row(parts))
    rules = parse_rules(rules_body, rules_version)
    return customer_snapshot(id, standing, counts, _parse_terms(terms_body), terms_version, rules, now_ms)


def document_from_row(row: Row) -> DocumentRow:
    """Make a document of its row in the view `snapshots`."""
    id, number, customer, kind, state, *check, cost, key, ready_ms, attempts, attempts_max, token = row[:16]
    return DocumentRow(
        id, number, customer, kind, state, CheckRow(customer, *check), cost, key, ready_ms, attempts, attempts_max, token,
        *row[16:30],
    )  # fmt: skip


def read_documents(
    pool: Statements, sql: Queries, filter: DocumentFilter, before: int, limit: int, scan_max: int
) -> DocumentPage:
    """Read a page of documents, found among at most `scan_max`; if nothing is filtered out, the limit is bound enough.

    OFFSET 0 in the statements has each document looked up by its number, whatever the planner believes about the tables."""
    state = "failed" if filter.state is None and filter.reason is not None else filter.state  # no other has a reason
    is_filtered = filter[2:] != (None,) * 4
    if filter.customer is not None:
        page, floor = sql.documents_of_customer, sql.floor_of_customer
    elif state is None:
        page, floor = sql.documents, sql.floor_of_documents
    elif state in ("failed", "cancelled"):
        page, floor = sql.documents_unhappy, sql.floor_of_unhappy
    else:
        page, floor = (sql.documents_done, sql.floor_of_done) if state == "done" else (sql.documents_at_work, sql.floor_at_work)
    if page is not sql.documents_unhappy:
        is_filtered = is_filtered or state is not None
    parameters = filter._asdict() | {"state": state, "before": before, "limit": limit, "examined": scan_max - 1}
    last = pool.read(floor, parameters) if is_filtered else []
    bounds = {"floor": last[0][0] if last else None, "inner_limit": None if is_filtered else limit}
    rows = pool.read(page, parameters | bounds)
    found = [document_from_row(row) for row in rows]
    return DocumentPage(found, found[-1].number if len(found) == limit else last[0][0] if last else None)


def outlook_from_row(row: Row) -> Outlook | None:
    """Estimate what is ahead of a waiting document; None if it does not wait."""
    now_ms, priority, state, ready, lanes, busy_ms, taken, paused, cap, running, own_ready, own_before, *kind = row
    if state not in WAITING:
        return None
    ahead = estimate_ahead(
        before=sum(ready[: priority - 1]),
        others=ready[priority - 1] - own_ready,
        other_lanes=lanes[priority - 1] - (own_ready > 0),
        own_before=own_before,
    )
    hold: Hold | None = "paused" if paused else "cap" if is_blocked(paused, cap, running) else _kind_hold(kind, now_ms)
    return Outlook(now_ms, priority, ahead, hold, totals_from_row((busy_ms, taken, ready)))


def _kind_hold(kind: Sequence[Any], now_ms: int) -> Hold | None:
    """Return which limit keeps the lanes of a kind from competing."""
    running_max, rate, burst, running, tokens, tokens_ms = kind
    limit, bucket = limit_from_row(running_max, rate, burst), Bucket(tokens, tokens_ms or 0)
    if not is_kind_blocked(limit, running or 0, bucket, now_ms):
        return None
    return "kind rate" if now_ms < bucket.next_start_ms(limit) else "kind running"


def totals_from_row(row: Row) -> Totals:
    busy_ms, taken, ready = row
    return Totals(busy_ms, tuple(taken), tuple(ready))


def limit_from_row(running_max: int | None, rate: int | None, burst: int | None) -> KindLimit:
    """Make a limit of its columns in thousandths; a kind that has none has no row, or an empty one."""
    return KindLimit(running_max, None if rate is None else from_thousandths(rate), from_thousandths(burst or 1000))


def kind_from_row(kind: str, row: Sequence[Any]) -> KindRow:
    running_max, rate, burst, version, running, tokens, tokens_ms = row
    limit = limit_from_row(running_max, rate, burst)
    return KindRow(kind, limit, version, running, Bucket(tokens, tokens_ms or 0).next_start_ms(limit))
