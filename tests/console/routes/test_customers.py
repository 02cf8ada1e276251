"""Customers as the page shows them: rows, pages, and one with the steps of its counter."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import httpx
import pytest

from fairlane.core.document import Done, Failed
from tests.api.running import Server, problem_of, until
from tests.console.page_client import claim_only


def all_customers(page: httpx.Client, **query: Any) -> list[dict[str, Any]]:
    """Read all pages of a list."""
    customers: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        body = page.get("/page/customers", params=query | ({} if after is None else {"after": after})).json()
        customers += body["customers"]
        after = body["next"]
        if after is None:
            assert body["total"] == len(customers)
            return customers


def test_a_row_says_what_the_store_says(server: Server, page: httpx.Client, customer: str) -> None:
    first = server.queue.submit_many(customer, [1] * 30)
    claims = claim_only(server, *(receipt.id for receipt in first[:2]))
    assert len(claims) == 2
    server.queue.engine.settle([(claims[0], Done()), (claims[1], Failed("corrupt: no"))])
    waiting = server.queue.submit_many(customer, [1] * 3)
    server.queue.tune(customer, weight=2, cap=4, bytes_max=5000)
    look = server.queue.look(customer)

    def complete_row() -> dict[str, Any] | None:
        rows = page.get("/page/customers", params={"search": customer}).json()["customers"]
        row = next((row for row in rows if row["customer"] == customer), None)
        return row if row and row["done_today"] and sum(row["trend"]) == 33 else None

    row = until(complete_row, "the row")
    assert (row["counter"], row["waiting"], row["running"]) == (look.counter, look.waiting, look.running)
    assert (row["done_today"], row["failed_today"], row["weight"], row["cap"]) == (1, 1, 2, 4)
    assert (row["documents"], row["bytes"], row["waiting_max"], row["bytes_max"]) == (33, 33, 100_000, 5000)
    assert row["waiting"] == len(waiting)
    assert row["wait_p50"] is not None
    assert 0 < row["resets_in"] <= 1500


def test_customers_are_sorted_searched_filtered_and_paged(server: Server, page: httpx.Client, customer: str) -> None:
    names = [f"{customer} {letter}" for letter in "abcdefghij"]
    for number, name in enumerate(names):
        server.queue.submit_many(name, [1] * (number // 2 + 1))
    server.queue.tune(names[3], paused=True)
    until(lambda: len(all_customers(page, search=customer)) == len(names))
    for limit in (1, 3, 50):
        falling = all_customers(page, search=customer.upper(), sort="waiting", limit=limit)
        assert [row["waiting"] for row in falling] == sorted((number // 2 + 1 for number in range(10)), reverse=True)
        assert {row["customer"] for row in falling} == set(names)
        by_name = all_customers(page, search=customer, sort="customer", order="asc", limit=limit)
        assert [row["customer"] for row in by_name] == names
        backwards = all_customers(page, search=customer, sort="customer", order="desc", limit=limit)
        assert [row["customer"] for row in backwards] == names[::-1]
        rows = all_customers(page, search=customer, sort="counter", order="asc", limit=limit)
        assert all(row["counter"] <= later["counter"] for row, later in pairwise(rows))
    assert [row["customer"] for row in all_customers(page, search=customer, filter="paused")] == [names[3]]
    assert all_customers(page, search=f"{customer} nobody") == []
    assert all_customers(page, search=customer, filter="failing") == []


BAD = ("sort=nothing", "order=up", "filter=x", "limit=0", "limit=1000", "after=x", "after=[1,2]", "after=" + "[" * 900)


@pytest.mark.parametrize("query", [*BAD, "search=" + "x" * 300])
def test_bad_queries_are_refused_with_a_sentence(page: httpx.Client, query: str) -> None:
    response = page.get(f"/page/customers?{query}")
    assert (response.status_code, problem_of(response)) == (422, "bad-value")


def test_one_customer_with_its_steps(server: Server, page: httpx.Client, customer: str) -> None:
    start = 1_700_000_000.0
    for seconds in (0, 1, 2, 3, 1503, 3003.001, 3004):  # the worked example of the rules
        server.queue.submit(customer, 1, now=start + seconds)
    until(lambda: page.get(f"/page/customers/{customer}").status_code == 200)
    body = page.get(f"/page/customers/{customer}").json()
    assert [step["counter"] for step in body["steps"]] == [0, -1, -2, -3, -4, 0, -1]
    assert [step["priority"] for step in body["steps"]] == [1, 1, 1, 2, 2, 1, 1]
    assert [step["is_reset"] for step in body["steps"]] == [False] * 5 + [True, False]
    assert body["terms"]["thresholds"][0] == -2
    assert page.get("/page/customers/nobody at all").status_code == 404
