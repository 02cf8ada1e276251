"""Cursors: customers go on from where they were, on any server, and learn nothing of how much the whole queue does."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

import httpx
from hypothesis import given
from hypothesis import strategies as st

from fairlane import Queue
from fairlane.api.cursors import CURSOR_DIGITS, Cursors
from fairlane.engine.protocol import DocumentFilter
from tests.console.page_client import signed_in

from .running import Server, problem_of

NUMBERS = st.integers(0, 2**53)
CUSTOMERS = st.text(min_size=1, max_size=20)


@given(NUMBERS, CUSTOMERS, st.booleans())
def test_a_number_comes_back_on_any_server(number: int, customer: str, is_salted: bool) -> None:
    with Queue("memory://") as queue:
        cursor = Cursors(queue.engine).encode(customer, number, is_salted=is_salted)
        assert (cursor.isdigit(), len(cursor) <= CURSOR_DIGITS) == (True, True)
        other_server = Cursors(queue.engine)
        assert other_server.decode(customer, cursor) == number
        assert other_server.decode(f"{customer}x", cursor) is None
        assert other_server.encode(customer, number) == Cursors(queue.engine).encode(customer, number)
    with Queue("memory://") as elsewhere:
        assert Cursors(elsewhere.engine).decode(customer, cursor) is None


@given(NUMBERS, CUSTOMERS)
def test_a_number_is_no_cursor_of_a_customer(number: int, customer: str) -> None:
    with Queue("memory://") as queue:
        cursors = Cursors(queue.engine)
        assert cursors.decode(customer, str(number)) is None
        assert cursors.encode(None, number) == str(number)
        assert cursors.decode(None, str(number)) == number


def test_what_is_no_cursor_at_all() -> None:
    with Queue("memory://") as queue:
        cursors = Cursors(queue.engine)
        for text in ("", "x", "-1", "1.5", "²", "9" * 39, "9" * 40, "0" * 5000):
            assert cursors.decode("acme", text) is None
            assert cursors.decode(None, text) is None


def pages(client: httpx.Client, path: str) -> tuple[list[str], list[str]]:
    """Walk through all pages; return the ids of the documents, and the cursors."""
    ids: list[str] = []
    cursors: list[str] = []
    following: str | None = path
    while following is not None:
        page = client.get(following).json()
        ids += [document["id"] for document in page["documents"]]
        following = page["next"]
        if following is not None and following.isdigit():  # the page of the console
            cursors.append(following)
            following = f"{path}&after={following}"
        elif following is not None:
            cursors += parse_qs(urlsplit(following).query)["before"]
    return ids, cursors


def test_lists_are_walked_with_cursors_that_show_nothing(server: Server, client: httpx.Client, customer: str) -> None:
    ids = []
    for _ in range(25):
        ids.append(server.queue.submit(customer, 1).id)
        server.queue.submit(f"{customer}, neighbour", 1)
    newest = max(document.number for document in server.queue.engine.documents(DocumentFilter(), None, 1).documents)
    with signed_in(server, server.key(customer)) as browser:
        for caller, path in ((client, "/v1/documents?limit=2"), (browser, "/page/documents?limit=2")):
            found, cursors = pages(caller, path)
            assert found == ids[::-1]
            assert len(cursors) == 12
            assert all(int(cursor) > 2**64 for cursor in cursors), cursors
            assert cursors != sorted(cursors, key=int, reverse=True)
    for path in (f"/v1/documents?before={newest}", f"/page/documents?after={newest}"):
        answer = client.get(path)
        assert (answer.status_code, problem_of(answer)) == (404, "nothing-here")  # a customer's cursor is not a number
    with server.client(server.operator) as operator:
        found, cursors = pages(operator, f"/v1/documents?limit=2&customer={customer}")
        assert (found, all(int(cursor) <= newest + 1 for cursor in cursors)) == (ids[::-1], True)


def test_bulk_changes_go_on_with_cursors_that_show_nothing(server: Server, client: httpx.Client, customer: str) -> None:
    for _ in range(3):
        server.queue.submit(customer, 1)
    body = {"action": "cancel", "filter": {"kind": "default"}, "dry_run": True}
    counted = client.post("/v1/documents/bulk", json=body).json()
    assert (counted["matched"], int(counted["start"]) > 2**64) == (3, True)
    server.queue.submit(customer, 1)  # later than what was counted
    step = client.post("/v1/documents/bulk", json=body | {"dry_run": False, "cursor": counted["start"]}).json()
    assert (step["matched"], step["changed"], step["start"]) == (3, 3, counted["start"])
    answer = client.post("/v1/documents/bulk", json=body | {"cursor": "17"})
    assert (answer.status_code, problem_of(answer)) == (422, "bad-value")
    assert re.search("what a step gave as start or next", answer.text)
