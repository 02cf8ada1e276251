"""Customers, figures over time, documents and their lives, as the page asks for them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlane.core.document import Claim, Done, Failed, Outcome, Retried
from tests.api.running import Server, problem_of, until

from .page_client import open_stream, signed_in
from .test_live import caught_up


@pytest.fixture
def page(server: Server) -> Iterator[httpx.Client]:
    with signed_in(server, server.operator) as browser:
        yield browser


def claimed(server: Server, *ids: str) -> list[Claim]:
    """Take everything, and give back what was not meant."""
    claims = server.claim(1000)
    wanted = [one for one in claims if one.id in ids]
    server.queue.engine.cancel([one.id for one in claims if one.id not in ids])
    return wanted


def customers(page: httpx.Client, **wanted: Any) -> list[dict[str, Any]]:
    """All pages of a list."""
    found: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        told = page.get("/page/customers", params=wanted | ({} if after is None else {"after": after})).json()
        found += told["customers"]
        after = told["next"]
        if after is None:
            assert told["total"] == len(found)
            return found


def test_a_row_says_what_the_store_says(server: Server, page: httpx.Client, customer: str) -> None:
    first = server.queue.submit_many(customer, [1] * 30)
    done = claimed(server, *(one.id for one in first[:2]))
    assert len(done) == 2
    server.queue.engine.settle([(done[0], Done()), (done[1], Failed("corrupt: no"))])
    ids = [one.id for one in server.queue.submit_many(customer, [1] * 3)]
    server.queue.tune(customer, weight=2, cap=4)
    look = server.queue.look(customer)

    def row() -> dict[str, Any] | None:
        told = page.get("/page/customers", params={"search": customer}).json()["customers"]
        found = next((one for one in told if one["customer"] == customer), None)
        return found if found and found["done_today"] and sum(found["trend"]) == 33 else None

    told = until(row, "the row")
    assert (told["counter"], told["waiting"], told["running"]) == (look.counter, look.waiting, look.running)
    assert (told["done_today"], told["failed_today"], told["weight"], told["cap"]) == (1, 1, 2, 4)
    assert told["waiting"] == len(ids)
    assert told["wait_p50"] is not None
    assert 0 < told["resets_in"] <= 1500


def test_customers_are_sorted_searched_filtered_and_paged(server: Server, page: httpx.Client, customer: str) -> None:
    names = [f"{customer} {letter}" for letter in "abcdefghij"]
    for number, name in enumerate(names):
        server.queue.submit_many(name, [1] * (number // 2 + 1))
    server.queue.tune(names[3], paused=True)
    until(lambda: len(customers(page, search=customer)) == len(names))
    for limit in (1, 3, 50):
        falling = customers(page, search=customer.upper(), sort="waiting", limit=limit)
        assert [one["waiting"] for one in falling] == sorted((one // 2 + 1 for one in range(10)), reverse=True)
        assert {one["customer"] for one in falling} == set(names)
        by_name = customers(page, search=customer, sort="customer", order="asc", limit=limit)
        assert [one["customer"] for one in by_name] == names
        backwards = customers(page, search=customer, sort="customer", order="desc", limit=limit)
        assert [one["customer"] for one in backwards] == names[::-1]
        counters = [one["counter"] for one in customers(page, search=customer, sort="counter", order="asc", limit=limit)]
        assert all(one <= later for one, later in pairwise(counters))
    assert [one["customer"] for one in customers(page, search=customer, filter="paused")] == [names[3]]
    assert customers(page, search=f"{customer} nobody") == []
    assert customers(page, search=customer, filter="failing") == []


BAD = ("sort=nothing", "order=up", "filter=x", "limit=0", "limit=1000", "after=x", "after=[1,2]", "after=" + "[" * 900)


@pytest.mark.parametrize("query", [*BAD, "search=" + "x" * 300])
def test_bad_questions_are_refused_with_a_sentence(page: httpx.Client, query: str) -> None:
    answer = page.get(f"/page/customers?{query}")
    assert (answer.status_code, problem_of(answer)) == (422, "bad-value")


def test_one_customer_with_its_steps(server: Server, page: httpx.Client, customer: str) -> None:
    start = 1_700_000_000.0
    for at in (0, 1, 2, 3, 1503, 3003.001, 3004):  # the worked example of the rules
        server.queue.submit(customer, 1, now=start + at)
    until(lambda: page.get(f"/page/customers/{customer}").status_code == 200)
    told = page.get(f"/page/customers/{customer}").json()
    assert [one["counter"] for one in told["steps"]] == [0, -1, -2, -3, -4, 0, -1]
    assert [one["priority"] for one in told["steps"]] == [1, 1, 1, 2, 2, 1, 1]
    assert [one["is_reset"] for one in told["steps"]] == [False] * 5 + [True, False]
    assert told["terms"]["thresholds"][0] == -2
    assert page.get("/page/customers/nobody at all").status_code == 404


def test_history_adds_up(server: Server, page: httpx.Client, customer: str) -> None:
    with open_stream(page) as stream:  # what other tests did has been told
        caught_up(server, stream)
    before = page.get("/page/history").json()["series"]
    ids = [one.id for one in server.queue.submit_many(customer, [1] * 5)]
    claims = claimed(server, *ids)
    outcomes: list[Outcome] = [Done(), Done(), Done(), Failed("too_large: no"), Failed("the handler said so")]
    server.queue.engine.settle(list(zip(claims, outcomes, strict=True)))

    def grown(name: str, series: dict[str, Any]) -> int:
        return int(sum(series[name]) - sum(before[name]))

    def counted() -> dict[str, Any] | None:
        told = page.get("/page/history").json()["series"]
        return told if grown("done", told) >= 3 else None

    told = until(counted)
    assert grown("done", told) == 3
    assert sum(told["failed"]["too_large"]) - sum(before["failed"].get("too_large", ())) == 1
    assert sum(told["failed"]["other"]) - sum(before["failed"].get("other", ())) == 1
    assert any(one is not None for one in told["wait_p95"]["1"])
    assert {len(series) for series in told["wait_p50"].values()} == {len(told["started"])}
    assert page.get("/page/history?minutes=2000").status_code == 422


def test_the_whole_life_of_a_document(server: Server, page: httpx.Client, customer: str) -> None:
    receipts = server.queue.submit_many(customer, [1] * 5)
    id = receipts[4].id
    [claim] = claimed(server, id)
    server.queue.engine.settle([(claim, Retried(0, "timed_out: once"))])
    [claim] = claimed(server, id)
    server.queue.engine.settle([(claim, Failed("encrypted: it asks for a password"))])
    told = page.get(f"/page/documents/{id}").json()
    assert [one["what"] for one in told["life"]] == ["submitted", "claimed", "retried", "claimed", "failed"]
    assert [one["worker"] for one in told["life"]] == [None, "tester", None, "tester", None]
    assert told["failure_code"] == "encrypted"
    why = told["why"]
    assert (why["counter"], why["priority"], why["threshold"], why["was_reset"]) == (-4, 2, -2, False)
    assert why["silence"] == 0
    assert told["outlook"]["blocked"] is None
    with signed_in(server, server.key(customer)) as own:
        seen = own.get(f"/page/documents/{id}").json()
        assert "tester" not in json.dumps(seen)
        assert [one["what"] for one in seen["life"]] == [one["what"] for one in told["life"]]
    with signed_in(server, server.key(f"{customer}, neighbour")) as other:
        unknown = other.get("/page/documents/01a1e26c-a079-7924-b052-ca4fc538e719")
        foreign = other.get(f"/page/documents/{id}")
        assert (foreign.status_code, foreign.content) == (unknown.status_code, unknown.content) == (404, unknown.content)


def test_why_it_waits(server: Server, page: httpx.Client, customer: str) -> None:
    id = server.queue.submit(customer, 1).id
    assert page.get(f"/page/documents/{id}").json()["why"]["was_reset"] is True
    server.queue.tune(customer, paused=True)
    assert page.get(f"/page/documents/{id}").json()["outlook"]["blocked"] == "paused"
    server.queue.tune(customer, paused=False)
    assert page.get(f"/page/documents/{id}").json()["outlook"]["ahead"] is not None


def test_documents_are_found_by_id_name_state_and_customer(server: Server, page: httpx.Client, customer: str) -> None:
    named = server.queue.submit(customer, content=b"x", name="Rechnung <script>alert(1)</script> März.pdf").id
    plain = [one.id for one in server.queue.submit_many(customer, [1] * 7)]
    server.queue.cancel(plain[0])

    def found(browser: httpx.Client, **wanted: Any) -> list[str]:
        ids, after = list[str](), None
        while True:
            told = browser.get("/page/documents", params=wanted | ({} if after is None else {"after": after})).json()
            ids += [one["id"] for one in told["documents"]]
            after = told["next"]
            if after is None:
                return ids

    assert found(page, customer=customer, limit=3) == [*reversed(plain), named]
    assert found(page, customer=customer, state="cancelled") == [plain[0]]
    assert found(page, search="märz", customer=customer) == [named]
    assert plain[3] in found(page, search=plain[3])
    assert found(page, search=plain[3][:35].upper(), customer=customer) == [plain[3]]
    told = page.get("/page/documents", params={"customer": customer, "search": "rechnung"}).json()["documents"][0]
    assert (told["size"], told["media_type"]) == (1, "application/pdf")
    assert told["name"].startswith("Rechnung <script>")
    with signed_in(server, server.key(customer)) as own, signed_in(server, server.key(f"{customer}, neighbour")) as other:
        assert set(found(own, limit=2)) == {*plain, named}
        assert found(other) == []
        assert found(other, search=plain[3]) == []
        assert other.get("/page/documents", params={"customer": customer}).status_code == 404


def test_rules_are_those_of_the_caller(server: Server, page: httpx.Client, customer: str) -> None:
    everybody = page.get("/page/rules").json()
    assert (everybody["reset_interval"], everybody["weight"]) == (1500, 1)
    server.queue.tune(customer, weight=3, reset="gradual")
    with signed_in(server, server.key(customer)) as own:
        told = own.get("/page/rules").json()
        assert (told["weight"], told["reset"], told["thresholds"]) == (3, "gradual", everybody["thresholds"])


def test_what_if(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        with signed_in(server, server.operator) as page:
            answer = page.post("/page/what-if", json={})
            assert (answer.status_code, problem_of(answer)) == (409, "no-history")
            server.queue.submit_many("big", [1] * 60)
            server.queue.submit_many("small", [1] * 2)
            while server.finish(4):
                pass
            told = page.post("/page/what-if", json={"reset": "gradual", "workers": 50}).json()
            assert told["documents"] == 62
            assert (told["now"]["workers"], told["then"]["workers"]) == (4, 50)
            assert told["then"]["waits"]["all"]["p95"] <= told["now"]["waits"]["all"]["p95"]
            assert told["now"]["waits"]["light"]["p50"] is not None
            for bad in (
                {"thresholds": [-4, -2]},
                {"reset_interval": 0},
                {"workers": 0},
                {"hours": 25},
                {"reset": "x"},
                {"x": 1},
            ):
                answer = page.post("/page/what-if", json=bad)
                assert (answer.status_code, problem_of(answer)) == (422, "bad-value"), bad
    finally:
        server.close()


def test_what_if_is_asked_one_at_a_time_and_ends_when_nobody_waits(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        server.queue.submit_many("acme", [1] * 3)
        server.finish(3)
        with signed_in(server, server.operator) as page:
            request = page.build_request("POST", "/page/what-if", json={})
            head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items() if name.lower() != "host")
            question = f"POST /page/what-if HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode() + request.read()
            line = socket.socket()

            def is_asked_twice() -> bool:
                """Ask, and ask again meanwhile; whichever comes second is refused, so it may take more than one try."""
                nonlocal line
                line.close()
                line = socket.create_connection(("127.0.0.1", server.port))
                line.sendall(question)
                return page.post("/page/what-if", json={}).status_code == 409

            until(is_asked_twice, "a question while another is answered")
            line.close()
            until(lambda: page.post("/page/what-if", json={}).status_code == 200, "an answer after the other has gone")
    finally:
        server.close()
