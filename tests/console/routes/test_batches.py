"""A batch as the page shows it: found by its id or key, its documents with their states, and the way there from each."""

from __future__ import annotations

from typing import Any

import httpx

from tests.api.running import Server
from tests.console.page_client import claim_only, signed_in


def submit_batch(server: Server, customer: str, count: int, key: str | None = None) -> dict[str, Any]:
    headers = {} if key is None else {"Idempotency-Key": key}
    body = {"customer": customer, "documents": [{"payload": number} for number in range(count)]}
    with server.client(server.operator) as client:
        response = client.post("/v1/batches", json=body, headers=headers)
    assert response.status_code == 202, response.text
    batch: dict[str, Any] = response.json()
    return batch | {"ids": [document["id"] for document in batch["documents"]]}


def test_a_batch_has_its_documents_in_order_a_page_at_a_time(server: Server, page: httpx.Client, customer: str) -> None:
    batch = submit_batch(server, customer, 5, "import-1")
    server.queue.cancel(batch["ids"][3])
    body = page.get(f"/page/batches/{batch['id']}", params={"limit": 2}).json()
    assert {name: body["batch"][name] for name in ("id", "customer", "key", "documents")} == {
        "id": batch["id"], "customer": customer, "key": "import-1", "documents": 5,
    }  # fmt: skip
    assert (body["counts"], body["missing"], body["ended"]) == ({"ready": 4, "cancelled": 1}, 0, 1)
    shown = [document["id"] for document in body["documents"]]
    while body["next"] is not None:
        body = page.get(f"/page/batches/{batch['id']}", params={"limit": 2, "after": body["next"]}).json()
        shown += [document["id"] for document in body["documents"]]
    assert shown == batch["ids"]
    only = page.get(f"/page/batches/{batch['id']}", params={"state": "cancelled"}).json()
    assert [document["id"] for document in only["documents"]] == [batch["ids"][3]]
    assert only["counts"] == {"ready": 4, "cancelled": 1}


def test_documents_that_were_erased_are_counted_as_missing(server: Server, page: httpx.Client, customer: str) -> None:
    batch = submit_batch(server, customer, 3)
    server.queue.engine.forget(customer, 1)
    body = page.get(f"/page/batches/{batch['id']}").json()
    assert (body["missing"], body["ended"], len(body["documents"])) == (1, 1, 2)


def test_a_document_leads_to_the_batch_it_came_with(server: Server, page: httpx.Client, customer: str) -> None:
    batch = submit_batch(server, customer, 3)
    found = page.get(f"/page/documents/{batch['ids'][1]}").json()["batch"]
    assert (found["id"], found["position"], found["documents"]) == (batch["id"], 2, 3)
    alone = server.queue.submit(customer, 1).id
    pretender = server.queue.submit(customer, 1, key=f"{batch['id']}/7").id
    stranger = server.queue.submit(f"{customer}, neighbour", 1, key=f"{batch['id']}/0").id
    for id in (alone, pretender, stranger):
        assert page.get(f"/page/documents/{id}").json()["batch"] is None
    claim_only(server)


def test_a_batch_of_files_is_found_from_its_documents_too(server: Server, page: httpx.Client, customer: str) -> None:
    with server.client(server.operator) as client:
        files = [("file", (f"{name}.txt", b"text")) for name in "ab"]
        batch = client.post("/v1/batches", data={"customer": customer}, files=files).json()
    second = batch["documents"][1]["id"]
    assert page.get(f"/page/documents/{second}").json()["batch"]["position"] == 2
    documents = page.get(f"/page/batches/{batch['id']}").json()["documents"]
    assert [document["name"] for document in documents] == ["a.txt", "b.txt"]


def search(client: httpx.Client, text: str, **query: str) -> dict[str, Any]:
    body: dict[str, Any] = client.get("/page/documents", params={"search": text, **query}).json()
    return body


def test_the_search_finds_a_batch_by_id_and_by_the_key_of_its_customer(
    server: Server, page: httpx.Client, customer: str
) -> None:
    batch = submit_batch(server, customer, 2, "Import of November")
    neighbour = f"{customer}, neighbour"
    found = search(page, batch["id"])
    assert (found["batch"]["id"], found["documents"], found["next"]) == (batch["id"], [], None)
    assert search(page, batch["id"].upper(), customer=customer)["batch"]["id"] == batch["id"]
    assert search(page, batch["id"], customer=neighbour)["batch"] is None
    assert search(page, "Import of November", customer=customer)["batch"]["id"] == batch["id"]
    assert search(page, "import of november", customer=customer)["batch"] is None
    assert search(page, "Import of November")["batch"] is None  # keys are a customer's own
    with signed_in(server, server.key(customer)) as owner, signed_in(server, server.key(neighbour)) as other:
        assert search(owner, batch["id"])["batch"]["id"] == search(owner, "Import of November")["batch"]["id"] == batch["id"]
        assert search(other, batch["id"])["batch"] is None
        assert search(other, "Import of November")["batch"] is None
        assert owner.get(f"/page/batches/{batch['id']}").status_code == 200
        unknown = other.get("/page/batches/01a1e26c-a079-7924-b052-ca4fc538e719")
        foreign = other.get(f"/page/batches/{batch['id']}")
        assert (foreign.status_code, foreign.content) == (404, unknown.content)


def test_the_search_finds_a_document_by_its_exact_key(server: Server, page: httpx.Client, customer: str) -> None:
    id = server.queue.submit(customer, 1, key="Invoice 17").id
    server.queue.submit(customer, 1, key="Invoice 170")
    assert [document["id"] for document in search(page, "Invoice 17", customer=customer)["documents"]] == [id]
    assert search(page, "invoice 17", customer=customer)["documents"] == []
    with signed_in(server, server.key(f"{customer}, neighbour")) as other:
        assert search(other, "Invoice 17")["documents"] == []
