"""Walking through a queue's documents, newest first: page after page, from one date to another.

Documents have their numbers in the order of submission, so a date lies at a number, which a few reads find. A clock that was
set back breaks that order: the walk begins and ends a day beyond the dates, and misses nothing unless it was more than a day.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlane.core.document import DocumentRow

from .protocol import DocumentFilter, DocumentPage, Reader

ALL = DocumentFilter()
PAGE_SIZE = 1000
CLOCK_SLACK_MS = 24 * 3600 * 1000


def walk_documents(
    engine: Reader, filter: DocumentFilter = ALL, before: int | None = None, page_size: int = PAGE_SIZE
) -> Iterator[DocumentRow]:
    """Yield every document that matches, newest first."""
    while True:
        page = read_page(engine, filter, before, page_size)
        yield from page.documents
        if page.next is None:
            return
        before = page.next


def read_page(engine: Reader, filter: DocumentFilter, before: int | None, limit: int) -> DocumentPage:
    """Read one page, which begins and ends near the filter's dates; it may be short although there are more."""
    if before is None and filter.until_ms is not None:
        before = first_number(engine, filter)
    page = engine.documents(filter, before, limit)
    if page.next is not None and filter.since_ms is not None:
        following = newest_document(engine, page.next)
        if following is None or following.submitted_ms < filter.since_ms - CLOCK_SLACK_MS:
            return page._replace(next=None)
    return page


def newest_document(engine: Reader, before: int | None = None) -> DocumentRow | None:
    """Return the newest document below a number."""
    return next(walk_documents(engine, ALL, before, page_size=1), None)


def first_number(engine: Reader, filter: DocumentFilter) -> int:
    """Return a number below which everything is that matches now; what is submitted later has a higher one."""
    newest = newest_document(engine)
    if newest is None or filter.until_ms is None:
        return 1 if newest is None else newest.number + 1
    at_ms, low, high = filter.until_ms + CLOCK_SLACK_MS, 0, newest.number + 1
    while low < high:
        middle = (low + high) // 2
        document = newest_document(engine, middle + 1)
        if document is None or document.submitted_ms < at_ms:
            low = middle + 1
        else:
            high = document.number
    return low
