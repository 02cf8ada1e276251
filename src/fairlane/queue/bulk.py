"""Bulk changes: cancel or retry every document that matches a filter, in steps of a bounded size.

Laws:
- One step examines and changes a bounded number of documents, each by its own conditional write: nothing is held for long.
- A walk goes from its start to older documents: what is submitted after it began is never touched.
- A document that its customer's limits do not let wait again is counted as refused, and the others go on.
- A step may be repeated: what was changed no longer matches. A walk that was interrupted goes on from its last cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, get_args

from fairlane.core.document import ENDED, State
from fairlane.core.errors import BadValue, LimitReached
from fairlane.engine.protocol import DocumentFilter, Engine
from fairlane.engine.walk import first_number, read_page

Action = Literal["cancel", "retry"]
CHANGES_MAX: dict[Action, int] = {"cancel": 1000, "retry": 200}  # documents that one step changes: many in a write, or one
COUNTED_MAX = 5000  # documents that one step counts
READS_MAX = 10  # pages that one step reads


class BulkStep(NamedTuple):
    """One step of a bulk change; cursors are opaque."""

    matched: int  # documents that the change applies to
    changed: int  # of these; 0 in a dry run
    start: str  # where the walk began: give it as the cursor to walk over the same documents again
    next: str | None  # the cursor of the next step; None: this was the last
    refused: int = 0  # of those that matched: their customer is at a limit ...
    reason: str | None = None  # ... and which, of the first


def bulk_step(
    engine: Engine,
    action: Action,
    filter: DocumentFilter,
    cursor: str | None,
    *,
    is_dry_run: bool,
    as_customer: bool = False,
) -> BulkStep:
    """Change, or in a dry run count, the next documents that match."""
    filter = applicable(action, filter)
    before: int | None = first_number(engine, filter) if cursor is None else parse_cursor(cursor)
    start, limit = str(before), COUNTED_MAX if is_dry_run else CHANGES_MAX[action]
    matched = changed = 0
    refusals: list[LimitReached] = []
    for _ in range(READS_MAX):
        page = read_page(engine, filter, before, limit - matched)
        ids = [document.id for document in page.documents if action == "retry" or document.state not in ENDED]
        matched, before = matched + len(ids), page.next
        if not is_dry_run:
            changed += len(engine.cancel(ids)) if action == "cancel" and ids else _retry(engine, ids, as_customer, refusals)
        if before is None or matched >= limit:
            break
    reason = str(refusals[0]) if refusals else None
    return BulkStep(matched, changed, start, None if before is None else str(before), len(refusals), reason)


def _retry(engine: Engine, ids: list[str], as_customer: bool, refusals: list[LimitReached]) -> int:
    """Retry documents one by one; return how many, and add the refusals."""
    changed = 0
    for id in ids:
        try:
            changed += engine.retry(id, as_customer=as_customer)
        except LimitReached as error:
            refusals.append(error)
    return changed


def applicable(action: Action, filter: DocumentFilter) -> DocumentFilter:
    """Return the filter for documents that the action applies to; refuse one that lets everything pass."""
    if action not in get_args(Action):
        raise BadValue("action", action, "cancel or retry")
    if filter == DocumentFilter():
        raise BadValue("filter", "empty", "a customer, kind, state, reason or date: all documents at once is rarely meant")
    states: tuple[State, ...] = ("failed",) if action == "retry" else ("ready", "delayed", "running")
    if filter.state is not None and filter.state not in states:
        raise BadValue("state", filter.state, f"{' or '.join(states)}: others cannot be {_PARTICIPLES[action]}")
    if action == "cancel" and filter.reason is not None:
        raise BadValue("reason", filter.reason, "left out: a document with a reason has failed, and cannot be cancelled")
    return filter._replace(state="failed") if action == "retry" else filter


_PARTICIPLES = {"cancel": "cancelled", "retry": "retried"}


def parse_cursor(cursor: str) -> int:
    """Return the number in a cursor."""
    if not (isinstance(cursor, str) and cursor.isascii() and cursor.isdigit() and len(cursor) < 17):
        raise BadValue("cursor", cursor, "what a step gave as start or next")
    return int(cursor)


def all_steps(step: Callable[[str | None], BulkStep], cursor: str | None) -> Iterator[BulkStep]:
    """Yield step after step from a cursor on."""
    while True:
        done = step(cursor)
        yield done
        if done.next is None:
            return
        cursor = done.next
