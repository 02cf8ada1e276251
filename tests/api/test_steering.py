"""Steering over HTTP: operators set priorities, limit kinds and move a backlog; customers can do none of it, and see who did
nothing of it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from fairlane import BadValue, Client, Mistake, Unknown, WrongState
from fairlane.core.document import Failed
from fairlane.queue import backlog
from fairlane.queue.bulk import all_steps

from .running import Server, problem_of


@pytest.fixture
def desk(server: Server) -> Iterator[Client]:
    """An operator with a name."""
    with Client(server.address, server.key(None, role="operator", name="the desk")) as client:
        yield client


def priorities(server: Server, customer: str) -> list[int]:
    return [document.priority for document in server.queue.documents(customer, "ready")][::-1]


# -- by hand ---------------------------------------------------------------------------------------------------------


def test_an_operator_sets_the_priority_of_a_document(server: Server, operator: httpx.Client, customer: str) -> None:
    ids = [receipt.id for receipt in server.queue.submit_many(customer, range(30), kind=customer)]
    answer = operator.patch(f"/v1/documents/{ids[-1]}", json={"priority": 1})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["priority"], answer.json()["set_by_hand"]) == (1, True)
    assert server.queue.document(ids[-1]).priority == 1
    (listed,) = [each for each in operator.get("/v1/documents", params={"customer": customer}).json()["documents"]
                 if each["id"] == ids[0]]  # fmt: skip
    assert (listed["set_by_hand"], listed["no_better_than"]) == (False, None)


@pytest.mark.parametrize("body", [{"priority": 0}, {"priority": 10}, {"priority": "1"}, {"priority": 1.5}, {"priority": True},
                                  {}, {"priority": 1, "state": "done"}, []])  # fmt: skip
def test_a_priority_that_is_none_is_refused(server: Server, operator: httpx.Client, customer: str, body: Any) -> None:
    id = server.queue.submit(customer, kind=customer).id
    answer = operator.patch(f"/v1/documents/{id}", json=body)
    assert (answer.status_code, problem_of(answer)) == (422, "bad-value")
    assert not server.queue.document(id).set_by_hand


def test_only_waiting_documents_are_prioritized(server: Server, operator: httpx.Client, customer: str) -> None:
    id = server.queue.submit(customer, kind=customer).id
    server.queue.cancel(id)
    answer = operator.patch(f"/v1/documents/{id}", json={"priority": 1})
    assert (answer.status_code, problem_of(answer)) == (409, "wrong-state")
    assert answer.json()["detail"] == f"document {id} is cancelled; only a waiting document can be given another priority"
    assert operator.patch("/v1/documents/nothing", json={"priority": 1}).status_code == 404


def test_a_customer_prioritizes_nothing(server: Server, client: httpx.Client, customer: str) -> None:
    id = server.queue.submit(customer, no_better_than=8).id
    assert client.patch(f"/v1/documents/{id}", json={"priority": 1}).status_code == 404
    body = {"priority": 1, "filter": {"customer": customer}}
    assert client.post("/v1/documents/prioritize", json=body).status_code == 404
    body = {"action": "prioritize", "priority": 1, "filter": {"customer": customer}}
    assert client.post("/v1/documents/bulk", json=body).status_code == 422
    assert server.queue.document(id).priority == 8


def test_all_that_match_are_counted_first_and_then_prioritized(
    server: Server, desk: Client, operator: httpx.Client, customer: str
) -> None:
    server.queue.submit_many(customer, range(30), kind=customer)
    body = {"priority": 2, "filter": {"kind": customer}, "dry_run": True}
    counted = operator.post("/v1/documents/prioritize", json=body).json()
    assert (counted["matched"], counted["changed"], counted["next"]) == (30, 0, None)
    late = server.queue.submit(customer, kind=customer)
    body = {"priority": 2, "filter": {"kind": customer}, "cursor": counted["start"]}
    assert operator.post("/v1/documents/prioritize", json=body).json()["changed"] == 30
    assert set(priorities(server, customer)) == {2, 9}
    assert not server.queue.document(late.id).set_by_hand
    step = desk.bulk("prioritize", kind=customer, priority=3)
    assert (step.matched, step.changed, step.next) == (31, 31, None)


def test_the_feed_says_who_to_operators_and_not_to_customers(
    server: Server, desk: Client, client: httpx.Client, customer: str
) -> None:
    id = server.queue.submit(customer, kind=customer).id
    after = max(change.number for change in server.queue.changes())
    desk.prioritize(id, 7)
    event = next(event for event in desk.events(after) if event.document == id)
    assert (event.event, event.priority, event.by) == ("prioritized", 7, "the desk")
    entry = desk.history(id)[-1]
    assert (entry.event, entry.priority, entry.by) == ("prioritized", 7, "the desk")
    last = client.get(f"/v1/documents/{id}/history").json()["history"][-1]
    assert (last["event"], last["priority"], last["by"]) == ("prioritized", 7, None)
    with client.stream("GET", "/v1/events", headers={"Last-Event-ID": "0"}) as stream:
        data = (json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: "))
        seen = next(fields for fields in data if fields["event"] == "prioritized")
    assert (seen["document"], seen["priority"]) == (id, 7)
    assert "by" not in seen


# -- kinds -----------------------------------------------------------------------------------------------------------


def test_a_kind_is_limited_with_versions(server: Server, operator: httpx.Client, customer: str) -> None:
    kind = f"{customer}/ocr"
    address = "/v1/kinds/" + kind.replace(" ", "%20").replace("/", "%2F")
    assert operator.get(address).json() == {
        "kind": kind, "running": 0, "running_max": None, "rate": None, "burst": 1, "held_by": None, "version": 0,
    }  # fmt: skip
    limited = operator.patch(address, json={"running_max": 3, "rate": 10, "burst": 20, "version": 0}).json()
    assert (limited["running_max"], limited["rate"], limited["burst"], limited["version"]) == (3, 10, 20, 1)
    answer = operator.patch(address, json={"running_max": 4, "version": 0})
    assert (answer.status_code, problem_of(answer)) == (409, "changed-meanwhile")
    assert operator.patch(address, json={"rate": None}).json()["rate"] is None
    row = server.queue.kind(kind)
    assert (row.running_max, row.rate, row.burst, row.version) == (3, None, 20, 2)
    (listed,) = [each for each in operator.get("/v1/kinds").json()["kinds"] if each["kind"] == kind]
    assert listed["running_max"] == 3


@pytest.mark.parametrize("body", [{"running_max": 0}, {"running_max": 2.5}, {"rate": 0}, {"rate": "fast"}, {"burst": 0},
                                  {"burst": None}, {"weight": 2}])  # fmt: skip
def test_a_bad_limit_is_refused(server: Server, operator: httpx.Client, customer: str, body: Any) -> None:
    answer = operator.patch(f"/v1/kinds/{customer}", json=body)
    assert (answer.status_code, problem_of(answer)) == (422, "bad-value")
    assert server.queue.kind(customer).version == 0


def test_kinds_come_a_page_at_a_time(server: Server, operator: httpx.Client, desk: Client, customer: str) -> None:
    for name in ("a", "b", "c"):
        desk.limit_kind(f"{customer} {name}", running_max=1)
    page = operator.get("/v1/kinds", params={"after": f"{customer} ", "limit": 2}).json()
    assert [kind["kind"] for kind in page["kinds"]] == [f"{customer} a", f"{customer} b"]
    page = operator.get(page["next"]).json()
    assert page["kinds"][0]["kind"] == f"{customer} c"
    assert {f"{customer} {name}" for name in "abc"} <= {kind.kind for kind in desk.kinds()}
    assert desk.limit_kind(f"{customer} a") == desk.kind(f"{customer} a") == server.queue.kind(f"{customer} a")


# -- the backlog -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_for_one", [True, False])
def test_a_table_is_applied_to_the_backlog(server: Server, desk: Client, customer: str, is_for_one: bool) -> None:
    server.queue.submit_many(customer, range(16), kind=customer)
    desk.tune(customer, thresholds=(-10,))
    assert max(priorities(server, customer)) == 8
    changed = desk.apply_table(customer) if is_for_one else desk.apply_table()
    assert priorities(server, customer) == [1] * 11 + [2] * 5
    assert changed >= 13


def test_a_reset_takes_the_backlog_along_step_by_step(
    server: Server, operator: httpx.Client, desk: Client, customer: str
) -> None:
    server.queue.submit_many(customer, range(30), kind=customer)
    for receipt in list(server.queue.documents(customer))[-10:]:
        server.queue.cancel(receipt.id)
    before = priorities(server, customer)
    answer = operator.post(f"/v1/customers/{customer}/reset")
    assert (answer.status_code, answer.json()["changed"], answer.json()["next"]) == (200, 0, None)
    assert priorities(server, customer) == before
    body = {"with_backlog": True}
    answer = operator.post(f"/v1/customers/{customer}/reset", json=body).json()
    assert (answer["counter"], answer["next"]) == (-19, None)
    after = priorities(server, customer)
    assert after[:4] == [1, 1, 1, 2]
    assert answer["changed"] == sum(one != other for one, other in zip(before, after, strict=True))
    assert desk.reset(customer) == 0
    assert server.queue.look(customer).counter == 0
    assert desk.reset(customer, with_backlog=True) == 0, "they have the priorities of a fresh start already"
    assert server.queue.look(customer).counter == -19


def test_a_step_with_a_cursor_goes_on_and_resets_nothing(server: Server, operator: httpx.Client, customer: str) -> None:
    server.queue.submit_many(customer, range(backlog.DOCUMENTS_MAX + 10), kind=customer)
    address = f"/v1/customers/{customer}/reset"
    first = operator.post(address, json={"with_backlog": True}).json()
    assert first["counter"] == 1 - backlog.DOCUMENTS_MAX
    last = operator.post(address, json={"with_backlog": True, "cursor": first["next"]}).json()
    assert (last["counter"], last["next"]) == (-9 - backlog.DOCUMENTS_MAX, None)
    answer = operator.post(address, json={"cursor": first["next"]})
    assert (answer.status_code, problem_of(answer)) == (422, "bad-value")
    answer = operator.post(address, json={"with_backlog": True, "cursor": "x"})
    assert (answer.status_code, problem_of(answer)) == (422, "bad-value")
    for step in all_steps(lambda at: server.queue.bulk("cancel", customer=customer, cursor=at), None):
        assert step.changed


# -- no better than ----------------------------------------------------------------------------------------------------


def test_a_document_may_ask_for_a_later_priority(server: Server, client: httpx.Client, customer: str) -> None:
    assert client.post("/v1/documents", json={"no_better_than": 7}).json()["priority"] == 7
    form = {"data": {"no_better_than": "6"}, "files": {"file": ("a.txt", b"text")}}
    assert client.post("/v1/documents", **form).json()["priority"] == 6  # type: ignore[arg-type]
    bare = {"params": {"no_better_than": "5", "name": "a.txt"}, "content": b"text", "headers": {"content-type": "text/plain"}}
    assert client.post("/v1/documents", **bare).json()["priority"] == 5  # type: ignore[arg-type]
    batch = client.post("/v1/batches", json={"documents": [{}, {}], "no_better_than": 4}).json()
    assert [document["priority"] for document in batch["documents"]] == [4, 4]
    assert client.post("/v1/batches", **form).json()["documents"][0]["priority"] == 6  # type: ignore[arg-type]
    id = batch["documents"][0]["id"]
    assert client.get(f"/v1/documents/{id}").json()["no_better_than"] == 4
    assert server.queue.look(customer).counter == -5, "the counter moves as always"


@pytest.mark.parametrize("value", ["0", "10", "1.5", "one", "true"])
def test_a_best_priority_that_is_none_is_refused(client: httpx.Client, value: str) -> None:
    answers = [
        client.post("/v1/documents", content=f'{{"no_better_than": {value if value != "one" else "[]"}}}',
                    headers={"content-type": "application/json"}),
        client.post("/v1/documents", data={"no_better_than": value}, files={"file": ("a.txt", b"text")}),
        client.post("/v1/batches", data={"no_better_than": value}, files={"file": ("a.txt", b"text")}),
    ]  # fmt: skip
    for answer in answers:
        assert (answer.status_code, problem_of(answer)) == (422, "bad-value")
        assert "no_better_than" in answer.json()["detail"]


def test_an_upload_token_carries_it(server: Server, client: httpx.Client, customer: str) -> None:
    with Client(server.address, server.key(customer)) as maker:
        token = maker.create_upload_token(no_better_than=8)
        assert token.info.no_better_than == maker.upload_token(token.info.id).no_better_than == 8
    with server.client(token.secret) as browser:
        answer = browser.post("/v1/uploads", content=b"text", headers={"content-type": "text/plain"})
    assert server.queue.document(answer.json()["id"]).priority == 8
    assert client.post("/v1/upload-tokens", json={"no_better_than": 12}).status_code == 422


def test_the_client_asks_for_it(server: Server, customer: str) -> None:
    with Client(server.address, server.key(customer)) as client:
        assert client.submit(no_better_than=7).priority == 7
        receipt = client.submit(content=io.BytesIO(b"text"), name="a.txt", no_better_than=6)
        assert receipt.priority == 6
        assert client.document(receipt.id).no_better_than == 6
        assert [each.priority for each in client.submit_many([1, 2], no_better_than=5).documents] == [5, 5]
        with pytest.raises(BadValue, match="no_better_than"):
            client.submit(no_better_than=0)


def test_the_client_says_clearly_what_is_wrong(server: Server, desk: Client, customer: str) -> None:
    id = server.queue.submit(customer, kind=customer).id
    with pytest.raises(BadValue, match="priority is 0; it must be a whole number from 1"):
        desk.prioritize(id, 0)
    with pytest.raises(BadValue, match="priority is None; it must be a whole number from 1"):
        desk.bulk("prioritize", customer=customer)
    with pytest.raises(BadValue, match="left out, unless the action is prioritize"):
        desk.bulk("cancel", customer=customer, priority=1)
    with pytest.raises(Unknown):
        desk.prioritize("nothing", 1)
    (claim,) = server.queue.engine.claim("worker", 1, 60_000, {customer: 1})
    with pytest.raises(WrongState, match="is running"):
        desk.prioritize(id, 1)
    server.queue.engine.settle([(claim, Failed("enough"))])
    with Client(server.address, server.viewer) as viewer:
        assert viewer.kind(customer).kind == customer
        with pytest.raises(Mistake, match="an operator's key"):
            viewer.limit_kind(customer, running_max=1)
