"""The history of a document: its lines of the feed, found by bisection and in a bounded number of pages."""

from __future__ import annotations

from fairlane.core.document import ChangeRow, DocumentRow
from fairlane.core.errors import Unknown
from fairlane.engine import Engine

from .models import HistoryEntry, history_from, to_datetime

PAGE, PAGES_MAX = 1000, 20
DELAY_PAGES_MAX = 5


def newest(engine: Engine) -> int:
    """Return the number of the newest change, found by bisection; 0: there is none."""
    oldest = engine.changes(None, 1)
    if not oldest:
        return 0
    known = oldest[0].number
    step = 1
    while engine.changes(known + step, 1):
        known, step = known + step, step * 2
    while engine.changes(known, 1):  # the newest is above `known` and at most `known + step`
        step = max(1, step // 2)
        known += step if engine.changes(known + step - 1, 1) else 0
    return known


def first_since(engine: Engine, at_ms: int) -> int:
    """Return the number before the first change at this time or later, found by bisection; the newest if there is none."""
    oldest = engine.changes(None, 1)
    low, high = (oldest[0].number - 1 if oldest else 0), newest(engine)
    while low < high:
        middle = (low + high) // 2
        page = engine.changes(middle, 1)
        if page and page[0].at_ms < at_ms:
            low = page[0].number
        else:
            high = middle
    return low


def read_changes(engine: Engine, after: int, limit: int = PAGE) -> list[ChangeRow]:
    """Read the changes after a number; if some of those were purged, the oldest that are kept."""
    try:
        return engine.changes(after, limit)
    except Unknown:
        return engine.changes(None, limit)


def changes_of(engine: Engine, document: DocumentRow) -> list[ChangeRow]:
    """Search the feed backwards from the document's end, or from now, and then where it was submitted."""
    end = newest(engine) if document.ended_ms is None else first_since(engine, document.ended_ms + 1)
    known: dict[int, ChangeRow] = {}
    for page in range(PAGES_MAX):
        after = max(0, end - (page + 1) * PAGE)
        changes = read_changes(engine, after, PAGE)
        known |= {change.number: change for change in changes if change.document == document.id}
        if _has_submission(known) or after == 0 or (changes and changes[0].at_ms < document.submitted_ms):
            break
    if not _has_submission(known):
        start = first_since(engine, document.submitted_ms)
        known |= {change.number: change for change in read_changes(engine, start, PAGE) if change.document == document.id}
    return [change for _, change in sorted(known.items())]


def _has_submission(changes: dict[int, ChangeRow]) -> bool:
    return any(change.what == "submitted" for change in changes.values())


def history_of(engine: Engine, document: DocumentRow) -> list[HistoryEntry]:
    """Return what happened to a document, oldest first; its submission and its end are known even when the feed was purged."""
    history = [history_from(change) for change in changes_of(engine, document)]
    known = {entry.event for entry in history}
    if "submitted" not in known:
        history.insert(0, HistoryEntry("submitted", to_datetime(document.submitted_ms), None, None, None))
    if document.ended_ms is not None and document.state not in known:
        end = to_datetime(document.ended_ms)
        history.append(HistoryEntry(document.state, end, document.token or None, None, document.reason))
    return history


def last_delay(engine: Engine, document: DocumentRow) -> ChangeRow | None:
    """Return the change by which a worker delayed a document: retried or postponed; None if it is too long ago to be found."""
    if document.state != "delayed" or not document.token:
        return None
    end = newest(engine)
    for page in range(DELAY_PAGES_MAX):
        after = max(0, end - (page + 1) * PAGE)
        changes = read_changes(engine, after, PAGE)
        for change in reversed(changes):
            if change.document == document.id and change.token == document.token:
                return change if change.what in ("retried", "postponed") else None
        if after == 0 or not changes or changes[0].number > after + 1:
            break
    return None
