"""Documents as the page shows them: found by id, name, state and customer, and the details of one."""

from __future__ import annotations

import json
from typing import Any

import httpx

from fairlane.core.document import Failed, Retried
from tests.api.running import Server, until
from tests.console.page_client import claim_only, signed_in


def test_the_history_of_a_document(server: Server, page: httpx.Client, customer: str) -> None:
    receipts = server.queue.submit_many(customer, [1] * 5)
    id = receipts[4].id
    [claim] = claim_only(server, id)
    server.queue.engine.settle([(claim, Retried(0, "timed_out: once"))])
    [claim] = claim_only(server, id)
    (taken,) = server.queue.engine.take_over([(id, claim.token)], "celery@host", 60_000)
    assert taken is not None
    details = {
        "attempt": 2,
        "token": 3,
        "at": 0,
        "worker": "tester",
        "seconds": 1,
        "reason": "r",
        "traceback": "T",
        "output": "O",
    }
    server.queue.engine.settle([(taken, Failed("encrypted: it asks for a password", details=json.dumps(details)))])
    body = page.get(f"/page/documents/{id}").json()
    assert [change["what"] for change in body["life"]] == [
        "submitted", "claimed", "retried", "claimed", "taken_over", "failed",
    ]  # fmt: skip
    assert [change["worker"] for change in body["life"]] == [None, "tester", None, "tester", "celery@host", None]
    assert [change["attempt"] for change in body["life"]] == [0, 1, 1, 2, 2, 2]
    assert body["failure_code"] == "encrypted"
    assert [(attempt["number"], attempt["traceback"], attempt["output"]) for attempt in body["attempts"]] == [(2, "T", "O")]
    why = body["why"]
    assert (why["counter"], why["priority"], why["threshold"], why["was_reset"]) == (-4, 2, -2, False)
    assert why["silence"] == 0
    assert body["outlook"]["blocked"] is None
    with signed_in(server, server.key(customer)) as owner:
        own_body = owner.get(f"/page/documents/{id}").json()
        assert "tester" not in json.dumps(own_body)
        assert "celery" not in json.dumps(own_body)
        assert own_body["attempts"] == []
        assert [change["what"] for change in own_body["life"]] == [change["what"] for change in body["life"]]
    with signed_in(server, server.key(f"{customer}, neighbour")) as neighbour:
        unknown = neighbour.get("/page/documents/01a1e26c-a079-7924-b052-ca4fc538e719")
        foreign = neighbour.get(f"/page/documents/{id}")
        assert (foreign.status_code, foreign.content) == (unknown.status_code, unknown.content) == (404, unknown.content)


def test_a_document_that_its_customer_retried(server: Server, page: httpx.Client, customer: str) -> None:
    receipts = server.queue.submit_many(customer, [1] * 6)
    id = receipts[0].id
    [claim] = claim_only(server, id)
    server.queue.engine.settle([(claim, Failed("corrupt: no"))])
    assert page.get(f"/page/documents/{id}").json()["why"]["was_retried"] is False
    server.queue.retry(id, as_customer=True)
    body = page.get(f"/page/documents/{id}").json()
    assert (body["why"]["was_retried"], body["why"]["counter"], body["why"]["priority"]) == (True, -6, 3)
    assert body["life"][-1] | {"at": 0} == body["life"][-1] | {"at": 0, "what": "revived", "note": None}  # not the feed's JSON
    steps = until(lambda: page.get(f"/page/customers/{customer}").json().get("steps"), "the steps")
    assert [step["counter"] for step in steps] == [-1, -2, -3, -4, -5, -6]
    with signed_in(server, server.key(customer)) as owner:
        assert owner.get("/v1/me").json()["standing"]["documents"] == 6


def test_why_it_waits(server: Server, page: httpx.Client, customer: str) -> None:
    id = server.queue.submit(customer, 1).id
    assert page.get(f"/page/documents/{id}").json()["why"]["was_reset"] is True
    server.queue.tune(customer, paused=True)
    assert page.get(f"/page/documents/{id}").json()["outlook"]["blocked"] == "paused"
    server.queue.tune(customer, paused=False)
    assert page.get(f"/page/documents/{id}").json()["outlook"]["ahead"] is not None


def test_a_priority_set_by_hand_is_explained_to_operators_and_to_its_customer(
    server: Server, page: httpx.Client, customer: str
) -> None:
    id = server.queue.submit(customer, 1, no_better_than=9).id
    assert page.get(f"/page/documents/{id}").json()["why"]["threshold"] is None  # its counter was below none
    server.queue.tune(customer, thresholds=(-2,))  # a table without a line for the priority that it has
    body = page.get(f"/page/documents/{id}").json()
    assert (body["why"]["priority"], body["why"]["threshold"], body["why"]["no_better_than"]) == (9, None, 9)
    assert page.patch(f"/v1/documents/{id}", json={"priority": 3}).status_code == 200
    body = page.get(f"/page/documents/{id}").json()
    assert (body["document"]["priority"], body["document"]["set_by_hand"], body["why"]["priority"]) == (3, True, 9)
    last = body["life"][-1]
    assert (last["what"], last["priority"], last["note"]) == ("prioritized", 3, None)
    assert last["by"]
    with signed_in(server, server.key(customer)) as owner:
        own = owner.get(f"/page/documents/{id}")
        assert (own.json()["life"][-1]["priority"], own.json()["life"][-1]["by"]) == (3, None)
        assert last["by"] not in own.text


def test_a_limit_of_its_kind_holds_a_document(server: Server, page: httpx.Client, customer: str) -> None:
    kind = f"{customer} limited"
    ids = [receipt.id for receipt in server.queue.submit_many(customer, [1] * 2, kind=kind)]
    server.queue.limit_kind(kind, running_max=1)
    server.queue.engine.claim("tester", 1, 60_000, {kind: 1})
    assert page.get(f"/page/documents/{ids[1]}").json()["outlook"]["blocked"] == "kind_running"
    server.queue.limit_kind(kind, running_max=None, rate=0.001)
    assert page.get(f"/page/documents/{ids[1]}").json()["outlook"]["blocked"] != "kind_running"
    server.queue.engine.cancel(ids)


def all_ids(client: httpx.Client, **query: Any) -> list[str]:
    """Read the ids on all pages."""
    ids, after = list[str](), None
    while True:
        body = client.get("/page/documents", params=query | ({} if after is None else {"after": after})).json()
        ids += [document["id"] for document in body["documents"]]
        after = body["next"]
        if after is None:
            return ids


def test_documents_are_found_by_id_name_state_and_customer(server: Server, page: httpx.Client, customer: str) -> None:
    named = server.queue.submit(customer, content=b"x", name="Rechnung <script>alert(1)</script> März.pdf").id
    plain = [receipt.id for receipt in server.queue.submit_many(customer, [1] * 7)]
    server.queue.cancel(plain[0])
    assert all_ids(page, customer=customer, limit=3) == [*reversed(plain), named]
    assert all_ids(page, customer=customer, state="cancelled") == [plain[0]]
    assert all_ids(page, search="märz", customer=customer) == [named]
    assert plain[3] in all_ids(page, search=plain[3])
    assert all_ids(page, search=plain[3][:35].upper(), customer=customer) == [plain[3]]
    document = page.get("/page/documents", params={"customer": customer, "search": "rechnung"}).json()["documents"][0]
    assert (document["size"], document["media_type"]) == (1, "application/pdf")
    assert document["name"].startswith("Rechnung <script>")
    neighbour_key = server.key(f"{customer}, neighbour")
    with signed_in(server, server.key(customer)) as owner, signed_in(server, neighbour_key) as neighbour:
        assert set(all_ids(owner, limit=2)) == {*plain, named}
        assert all_ids(neighbour) == []
        assert all_ids(neighbour, search=plain[3]) == []
        assert neighbour.get("/page/documents", params={"customer": customer}).status_code == 404
