"""Rows of the database as the values that readers get: customers, documents, outlooks."""

from __future__ import annotations

from functools import lru_cache

from fairlane.core.dispatch import is_blocked
from fairlane.core.document import WAITING, CheckRow, Customer, DocumentRow, Outlook
from fairlane.core.policy import Standing
from fairlane.engine.codec import decode_rules, decode_terms
from fairlane.engine.pace import Pace, estimate_ahead
from fairlane.engine.protocol import DocumentFilter, DocumentPage
from fairlane.engine.queries import Queries
from fairlane.engine.read import customer_snapshot

from .pool import CallerTransaction, PostgresPool, Row

parse_rules = lru_cache(maxsize=8)(decode_rules)
_parse_terms = lru_cache(maxsize=1024)(decode_terms)


def customer_from_row(id: str, row: Row) -> Customer:
    """Make a customer of its standing, terms and counts."""
    now_ms, rules_version, rules_body, counter, updated_ms, reset_ms, resets, terms_version, terms_body, *counts = row
    standing = Standing(counter or 0, updated_ms, reset_ms, resets or 0)
    rules = parse_rules(rules_body, rules_version)
    return customer_snapshot(id, standing, counts, _parse_terms(terms_body), terms_version, rules, now_ms)


def document_from_row(row: Row) -> DocumentRow:
    """Make a document of its row in the view `snapshots`."""
    id, number, customer, kind, state, *check, cost, key, ready_ms, attempts, attempts_max, token = row[:16]
    return DocumentRow(
        id, number, customer, kind, state, CheckRow(customer, *check), cost, key, ready_ms, attempts, attempts_max, token,
        *row[16:23],
    )  # fmt: skip


def read_documents(
    pool: PostgresPool | CallerTransaction, sql: Queries, filter: DocumentFilter, before: int, limit: int, scan_max: int
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
    now_ms, priority, state, ready, lanes, dispatches, *pace, paused, cap, running, own_ready, own_before, oldest = row
    if state not in WAITING:
        return None
    ahead = estimate_ahead(
        before=sum(ready[: priority - 1]),
        others=ready[priority - 1] - own_ready,
        other_lanes=lanes[priority - 1] - (own_ready > 0),
        own_before=own_before,
    )
    return Outlook(now_ms, ahead, is_blocked(paused, cap, running), *Pace(*pace).recent(now_ms, dispatches), oldest)
