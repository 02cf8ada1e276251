"""Reading documents: filters, pages that examine a bounded number of documents, and dates."""

from __future__ import annotations

import pytest

from fairlane.core.document import Done, Failed, Submission
from fairlane.engine import Engine
from fairlane.engine.protocol import DocumentFilter
from fairlane.engine.walk import read_page, walk_documents

from .conftest import Send, Take

DAY_MS = 24 * 3600 * 1000


def ids_of(engine: Engine, **filter: object) -> list[str]:
    return [document.id for document in walk_documents(engine, DocumentFilter(**filter))]  # type: ignore[arg-type]


def test_documents_are_filtered_by_kind_and_customer(engine: Engine, send: Send) -> None:
    (extract,) = send("ada")
    scans = send("ada", 2, kind="scan")
    (other,) = send("bob", kind="scan")
    assert ids_of(engine) == [other, *reversed(scans), extract]
    assert ids_of(engine, kind="scan") == [other, *reversed(scans)]
    assert ids_of(engine, kind="scan", customer="ada") == scans[::-1]
    assert ids_of(engine, kind="extract", customer="bob") == []
    assert ids_of(engine, kind="scan", state="ready") == [other, *reversed(scans)]
    assert ids_of(engine, kind="Scan") == []


def test_failed_documents_are_filtered_by_a_part_of_their_reason(engine: Engine, send: Send, take: Take) -> None:
    late, corrupt, done = send("ada", 3)
    reasons = {late: "took 100% longer than 5 s", corrupt: "corrupt: größer als erlaubt"}
    engine.settle([(claim, Failed(reasons[claim.id]) if claim.id in reasons else Done(None)) for claim in take(3)], now_ms=1)
    assert ids_of(engine, reason="longer than") == [late]
    assert ids_of(engine, reason="100%") == [late]
    assert ids_of(engine, reason="größer") == [corrupt]
    assert ids_of(engine, reason=" ", state="failed") == [corrupt, late]
    assert ids_of(engine, reason="corrupt", customer="ada") == [corrupt]
    assert ids_of(engine, reason="CORRUPT") == ids_of(engine, reason="t_ok") == ids_of(engine, reason="t.ok") == []
    assert ids_of(engine, reason="corrupt", kind="scan") == []
    assert ids_of(engine, state="done") == [done]


def test_documents_are_filtered_by_when_they_were_submitted(engine: Engine, send: Send) -> None:
    ids = [send("ada", at=day * DAY_MS)[0] for day in range(10)]
    assert ids_of(engine, since_ms=7 * DAY_MS) == ids[:6:-1]  # the bound itself belongs to it
    assert ids_of(engine, until_ms=3 * DAY_MS) == ids[2::-1]  # and here it does not
    assert ids_of(engine, since_ms=4 * DAY_MS, until_ms=5 * DAY_MS) == [ids[4]]
    assert ids_of(engine, since_ms=DAY_MS * 20) == ids_of(engine, until_ms=0) == []
    assert ids_of(engine, since_ms=4 * DAY_MS, until_ms=5 * DAY_MS, customer="ada") == [ids[4]]


def test_a_clock_that_was_set_back_hides_nothing(engine: Engine, send: Send) -> None:
    (before,) = send("ada", at=10 * DAY_MS)
    (during,) = send("bob", at=10 * DAY_MS - 3_600_000)
    (after,) = send("cyd", at=10 * DAY_MS + 1)
    assert ids_of(engine, until_ms=10 * DAY_MS) == [during]
    assert ids_of(engine, since_ms=10 * DAY_MS) == [after, before]


@pytest.mark.parametrize(
    "filter",
    [
        DocumentFilter(kind="fax"),
        DocumentFilter(customer="ada", kind="fax"),
        DocumentFilter(state="ready", kind="fax"),
        DocumentFilter(state="done"),
        DocumentFilter(state="delayed"),
        DocumentFilter(state="failed", kind="fax"),
        DocumentFilter(reason="nothing failed for this"),
    ],
    ids=repr,
)
def test_a_filter_that_matches_nothing_examines_a_page_at_a_time(
    engine: Engine, send: Send, take: Take, filter: DocumentFilter
) -> None:
    send("ada", 25)
    if filter.state == "failed" or filter.reason:
        engine.settle([(claim, Failed("corrupt")) for claim in take(25)], now_ms=1)
    if filter.state == "done":
        engine.cancel([claim.id for claim in take(25)], now_ms=1)
    before, reads = None, 0
    while True:
        page = engine.documents(filter, before, 100, 10)
        assert page.documents == []
        reads += 1
        if page.next is None:
            break
        assert before is None or page.next < before
        before = page.next
    assert reads == 3


def test_a_date_is_found_without_examining_everything_before_it(engine: Engine, send: Send) -> None:
    (old,) = send("ada", at=0)
    count = 5_100  # more than one page examines
    engine.submit([Submission(f"n{number}", "bob", "extract", "1") for number in range(count)], now_ms=3 * DAY_MS)
    page = read_page(engine, DocumentFilter(until_ms=DAY_MS), None, 10)
    assert [document.id for document in page.documents] == [old]
    page = read_page(engine, DocumentFilter(since_ms=5 * DAY_MS), None, 10)
    assert page == ([], None)  # the next document is older by more than a clock is set back


def test_pages_end_where_documents_were_purged(engine: Engine, send: Send, take: Take) -> None:
    (kept,) = send("ada")
    gone = send("ada", 30)
    engine.cancel(gone, now_ms=1)
    engine.purge(0, 1000, now_ms=2)
    (last,) = send("ada", at=3)
    assert ids_of(engine) == [last, kept]
    assert [document.id for document in walk_documents(engine, page_size=1)] == [last, kept]
    assert [claim.id for claim in take(2, at=3)] == [kept, last]
