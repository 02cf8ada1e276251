"""Bulk changes: cancel, retry or prioritize every document that matches a filter, in steps of a bounded size.

Laws:
- One step examines and changes a bounded number of documents, each by its own conditional write: nothing is held for long.
- A walk goes from its start to older documents: what is submitted after it began is never touched.
- A document that its customer's limits do not let wait again is counted as refused, and the others go on.
- A step may be repeated: what was changed no longer matches. A walk that was interrupted goes on from its last cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, get_args

from fairlane.core.document import ENDED, WAITING, DocumentRow, State
from fairlane.core.errors import BadValue, LimitReached
from fairlane.engine.protocol import DocumentFilter, Engine
from fairlane.engine.walk import first_number, read_page

from .validation import validate_priority

Action = Literal["cancel", "retry", "prioritize"]
CHANGES_MAX: dict[Action, int] = {"cancel": 1000, "retry": 200, "prioritize": 500}  # documents that one step changes
PARTICIPLES: dict[Action, str] = {"cancel": "cancelled", "retry": "retried", "prioritize": "prioritized"}
STATES: dict[Action, tuple[State, ...]] = {"cancel": (*WAITING, "running"), "retry": ("failed",), "prioritize": WAITING}
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


class BulkChange(NamedTuple):
    """What is done to each document."""

    action: Action
    priority: int | None = None  # that is set by hand
    by: str = ""  # who sets it
    as_customer: bool = False  # a retry is a check, as for a new document

    def applies_to(self, document: DocumentRow) -> bool:
        if self.action == "prioritize":
            return document.state in WAITING and not (document.is_set_by_hand and document.priority == self.priority)
        return self.action == "retry" or document.state not in ENDED


def bulk_step(engine: Engine, change: BulkChange, filter: DocumentFilter, cursor: str | None, *, is_dry_run: bool) -> BulkStep:
    """Change, or in a dry run count, the next documents that match."""
    filter = applicable(change, filter)
    before: int | None = first_number(engine, filter) if cursor is None else parse_cursor(cursor)
    start, limit = str(before), COUNTED_MAX if is_dry_run else CHANGES_MAX[change.action]
    matched = changed = 0
    refusals: list[LimitReached] = []
    for _ in range(READS_MAX):
        page = read_page(engine, filter, before, limit - matched)
        ids = [document.id for document in page.documents if change.applies_to(document)]
        matched, before = matched + len(ids), page.next
        if ids and not is_dry_run:
            changed += _apply(engine, change, ids, refusals)
        if before is None or matched >= limit:
            break
    reason = str(refusals[0]) if refusals else None
    return BulkStep(matched, changed, start, None if before is None else str(before), len(refusals), reason)


def _apply(engine: Engine, change: BulkChange, ids: list[str], refusals: list[LimitReached]) -> int:
    """Change documents, retrying them one by one; return how many, and add the refusals."""
    if change.action == "cancel":
        return len(engine.cancel(ids))
    if change.action == "prioritize":
        return len(engine.prioritize(ids, validate_priority("priority", change.priority), change.by))
    changed = 0
    for id in ids:
        try:
            changed += engine.retry(id, as_customer=change.as_customer)
        except LimitReached as error:
            refusals.append(error)
    return changed


def applicable(change: BulkChange, filter: DocumentFilter) -> DocumentFilter:
    """Return the filter for documents that the change applies to; refuse one that lets everything pass."""
    action = change.action
    if action not in get_args(Action):
        raise BadValue("action", action, "cancel, retry or prioritize")
    if action == "prioritize":
        validate_priority("priority", change.priority)
    elif change.priority is not None:
        raise BadValue("priority", change.priority, "left out, unless the action is prioritize")
    if filter == DocumentFilter():
        raise BadValue("filter", "empty", "a customer, kind, state, reason or date: all documents at once is rarely meant")
    states = STATES[action]
    if filter.state is not None and filter.state not in states:
        raise BadValue("state", filter.state, f"{' or '.join(states)}: others cannot be {PARTICIPLES[action]}")
    if action != "retry" and filter.reason is not None:
        raise BadValue(
            "reason", filter.reason, f"left out: a document with a reason has failed, and cannot be {PARTICIPLES[action]}"
        )
    return filter._replace(state="failed") if action == "retry" else filter


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
