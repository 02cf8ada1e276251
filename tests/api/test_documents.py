"""Documents and batches over HTTP: handing in, looking, waiting, ending."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from fairlane.core.document import Failed

from .running import Server, problem_of, until


def submit(client: httpx.Client, payload: Any = None, key: str | None = None, **more: Any) -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.post("/v1/documents", json={"payload": payload, **more}, headers=headers)


def test_a_document_is_taken_with_its_priority_and_its_place(client: httpx.Client, customer: str) -> None:
    first = submit(client, {"order": 1})
    assert first.status_code == 202
    body = first.json()
    assert (body["priority"], body["counter"], body["customer"], body["repeated"]) == (1, 0, customer, False)
    assert first.headers["location"] == body["links"]["self"] == f"/v1/documents/{body['id']}"
    assert [submit(client).json()["counter"] for _ in range(4)] == [-1, -2, -3, -4]
    assert submit(client).json()["ahead"] >= 2  # priorities 1 of this customer go first
    seen = client.get(body["links"]["self"]).json()
    assert (seen["state"], seen["priority"], seen["attempts"], seen["worker"]) == ("ready", 1, 0, None)


def test_what_was_handed_in_reaches_the_worker_exactly(server: Server, client: httpx.Client, customer: str) -> None:
    payload = {"text": "zażółć \U0001f600 \u0000 \ud800", "number": 10**40, "deep": [[[1.5]]], "none": None}
    body = json.dumps({"payload": payload})
    id = client.post("/v1/documents", content=body, headers={"Content-Type": "application/json"}).json()["id"]
    assert server.queue.payload(id) == payload


def test_the_same_key_is_the_same_document_and_another_body_a_conflict(
    server: Server, client: httpx.Client, customer: str
) -> None:
    first, again = submit(client, {"n": 1}, "k 1"), submit(client, {"n": 1}, "k 1")
    assert first.json()["id"] == again.json()["id"]
    assert (first.json()["repeated"], again.json()["repeated"]) == (False, True)
    other = submit(client, {"n": 2}, "k 1")
    assert (other.status_code, problem_of(other)) == (409, "key-conflict")
    assert server.queue.look(customer).waiting == 1
    assert server.queue.submit(customer, {"n": 1}, key="k 1").id == first.json()["id"]  # the library agrees


def test_a_thousand_of_one_key_at_once_are_one_document(server: Server, client: httpx.Client, customer: str) -> None:
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda _: submit(client, {"n": 1}, "storm"), range(300)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    look = server.queue.look(customer)
    assert (look.waiting, look.counter) == (1, 0)


def test_a_conflict_spoils_nobody_elses_commit(server: Server, client: httpx.Client, customer: str) -> None:
    submit(client, {"n": 0}, "taken")
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda n: submit(client, {"n": n + 1}, "taken" if n % 3 == 0 else None), range(90)))
    assert [answer.status_code for answer in answers] == [409 if n % 3 == 0 else 202 for n in range(90)]
    assert server.queue.look(customer).waiting == 61


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (b"", 400, "bad-request"),
        (b"{", 400, "bad-request"),
        (b'{"payload": "\xff"}', 400, "bad-request"),
        (b'{"payload": ' + b"9" * 5000 + b"}", 400, "bad-request"),
        (b'{"payload": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "bad-request"),
        (b'{"payload": ' + b"[" * 150 + b"]" * 150 + b"}", 422, "bad-value"),
        (b"[]", 422, "bad-value"),
        (b'{"payload": NaN}', 422, "bad-value"),
        (b'{"payload": 1, "more": 2}', 422, "bad-value"),
        (b'{"cost": 0}', 422, "bad-value"),
        (b'{"cost": true}', 422, "bad-value"),
        (b'{"cost": "1"}', 422, "bad-value"),
        (b'{"delay": -1}', 422, "bad-value"),
        (b'{"delay": 1e400}', 422, "bad-value"),
        (b'{"kind": 7}', 422, "bad-value"),
        (b'{"kind": ""}', 422, "bad-value"),
        (b'{"kind": "other"}', 422, "bad-value"),
        (b'{"kind": "folder"}', 422, "bad-value"),
        (b'{"payload": {"fairlane.file": {"name": "x", "size": 1, "sha256": "0"}}}', 422, "bad-value"),
        (b'{"payload": "' + b"x" * 300_000 + b'"}', 422, "bad-value"),
        (b'{"payload": "' + b"x" * 1_100_000 + b'"}', 413, "too-large"),
        (b'{"customer": "somebody else"}', 404, "nothing-here"),
    ],
)
def test_what_cannot_be_taken_is_reported_and_leaves_nothing(
    server: Server, client: httpx.Client, customer: str, body: bytes, status: int, word: str
) -> None:
    answer = client.post("/v1/documents", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, problem_of(answer)) == (status, word)
    look = server.queue.look(customer)
    assert (look.waiting, look.counter, look.next_priority) == (0, 0, 1)
    assert list(server.queue.documents(customer)) == []


@pytest.mark.parametrize("key", ["", "k" * 201, "bell\x07", "half\xff"])
def test_a_key_that_cannot_be_one_is_refused(server: Server, client: httpx.Client, customer: str, key: str) -> None:
    raw = f"Idempotency-Key: {key}".encode("latin-1")
    token = client.headers["authorization"].partition(" ")[2]
    answer = server.raw(server.head(token) + raw + b"\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
    assert answer.split(b" ", 2)[1] in (b"400", b"422"), answer
    assert list(server.queue.documents(customer)) == []


def test_an_operator_says_for_whom_and_may_use_any_kind_but_folder(
    server: Server, operator: httpx.Client, customer: str
) -> None:
    assert problem_of(submit(operator)) == "bad-value"
    id = submit(operator, {"path": "x"}, customer=customer, kind="other").json()["id"]
    assert server.queue.document(id).kind == "other"
    assert problem_of(submit(operator, customer=customer, kind="folder")) == "bad-value"


def test_a_document_without_a_file_is_not_for_the_built_in_handler(
    server: Server, client: httpx.Client, operator: httpx.Client, customer: str
) -> None:
    assert client.get("/v1/me").json()["kinds"] == ["extract", "default"]
    assert server.queue.document(submit(client).json()["id"]).kind == "default"
    batch = {"documents": [{"payload": 1}], "customer": customer}
    for answer in (
        submit(client, {"order": 1}, kind="extract"),
        submit(operator, {"order": 1}, kind="extract", customer=customer),
        operator.post("/v1/batches", json=batch | {"kind": "extract"}),
    ):
        assert (answer.status_code, problem_of(answer)) == (422, "bad-value")
        assert answer.json()["detail"].startswith("kind is 'extract', which is for documents with a file; send the file")
    for sent in ("extract", None):
        query = {"customer": customer} | ({} if sent is None else {"kind": sent})
        answer = operator.post("/v1/documents", params=query, content=b"text", headers={"Content-Type": "text/plain"})
        assert server.queue.document(answer.json()["id"]).kind == "extract"
    assert server.queue.look(customer).waiting == 3


def test_pages_follow_each_other_without_gap_or_repeat(server: Server, client: httpx.Client, customer: str) -> None:
    made = [submit(client, {"n": number}).json()["id"] for number in range(7)]
    submit_other = server.queue.submit_many(f"{customer}, neighbour", [1] * 5)
    assert len(submit_other) == 5
    seen: list[str] = []
    address: str | None = "/v1/documents?limit=3&state=ready"
    while address:
        page = client.get(address).json()
        seen += [document["id"] for document in page["documents"]]
        address = page["next"]
    assert seen == made[::-1]
    assert client.get("/v1/documents", params={"state": "done"}).json() == {"documents": [], "next": None}
    assert problem_of(client.get("/v1/documents", params={"limit": 501})) == "bad-value"
    assert problem_of(client.get("/v1/documents", params={"before": "nobody"})) == "nothing-here"


def test_waiting_ends_with_the_document(server: Server, client: httpx.Client) -> None:
    id = submit(client, 1).json()["id"]
    assert client.get(f"/v1/documents/{id}", params={"wait": 0.05}).json()["state"] == "ready"
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.get, f"/v1/documents/{id}", params={"wait": 60})
        until(lambda: server.queue.document(id).state == "done" or server.finish(50, {"read": 1}))
        assert waiting.result().json()["state"] == "done"
    assert client.get(f"/v1/documents/{id}", params={"wait": 60}).json()["state"] == "done"  # at once
    assert client.get(f"/v1/documents/{id}/result").json() == {"read": 1}


def test_a_result_is_there_only_when_it_is_done(client: httpx.Client) -> None:
    id = submit(client, 1).json()["id"]
    assert problem_of(client.get(f"/v1/documents/{id}/result")) == "wrong-state"


def test_cancelling_and_retrying(server: Server, client: httpx.Client) -> None:
    id = submit(client, 1).json()["id"]
    assert problem_of(client.post(f"/v1/documents/{id}/retry")) == "wrong-state"
    assert client.delete(f"/v1/documents/{id}").json()["state"] == "cancelled"
    assert problem_of(client.delete(f"/v1/documents/{id}")) == "wrong-state"
    id = submit(client, 1).json()["id"]
    until(
        lambda: [
            claim
            for claim in server.claim(50)
            if claim.id == id and server.queue.engine.settle([(claim, Failed("torn"))]) == []
        ]
    )
    assert client.get(f"/v1/documents/{id}").json()["reason"] == "torn"
    assert client.post(f"/v1/documents/{id}/retry").json()["state"] == "ready"


def test_explaining_shows_why_but_not_which_worker(server: Server, client: httpx.Client) -> None:
    id = submit(client, 1).json()["id"]
    explanation = client.get(f"/v1/documents/{id}/explain").json()
    assert explanation["sentence"].startswith("Priority 1, because")
    assert explanation["ahead"] >= 0
    until(lambda: server.queue.document(id).state == "running" or server.claim(50))
    sentence = client.get(f"/v1/documents/{id}/explain").json()["sentence"]
    assert "running on a worker" in sentence
    assert "tester" not in sentence


def batch(client: httpx.Client, number: int, key: str | None = None, start: int = 0) -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    documents = [{"payload": {"n": start + index}} for index in range(number)]
    return client.post("/v1/batches", json={"documents": documents}, headers=headers)


def test_a_batch_is_taken_as_a_whole_and_shows_how_far_it_is(server: Server, client: httpx.Client, customer: str) -> None:
    answer = batch(client, 5)
    assert answer.status_code == 202
    body = answer.json()
    assert [document["counter"] for document in body["documents"]] == [0, -1, -2, -3, -4]
    standing = client.get(body["links"]["self"]).json()
    assert (standing["counts"], standing["progress"], standing["is_ended"]) == ({"ready": 5}, 0, False)
    assert standing["documents"] == [document["id"] for document in body["documents"]]
    client.delete(f"/v1/documents/{standing['documents'][0]}")
    standing = client.get(body["links"]["self"]).json()
    assert (standing["counts"], standing["progress"]) == ({"ready": 4, "cancelled": 1}, 0.2)
    for id in standing["documents"][1:]:
        client.delete(f"/v1/documents/{id}")
    assert client.get(body["links"]["self"]).json()["is_ended"]


def test_a_batch_sent_again_with_its_key_doubles_nothing(server: Server, client: httpx.Client, customer: str) -> None:
    first, again = batch(client, 4, "b 1").json(), batch(client, 4, "b 1").json()
    assert [document["id"] for document in first["documents"]] == [document["id"] for document in again["documents"]]
    assert first["id"] == again["id"]
    assert (
        {document["repeated"] for document in first["documents"]},
        {document["repeated"] for document in again["documents"]},
    ) == (
        {False},
        {True},
    )
    assert server.queue.look(customer).waiting == 4
    other = batch(client, 4, "b 1", start=1)
    assert (other.status_code, problem_of(other)) == (409, "key-conflict")
    assert server.queue.look(customer).waiting == 4


@pytest.mark.parametrize(
    "body",
    ['{"documents": []}', "{}", '{"documents": 7}', '{"documents": [1]}', '{"documents": [{"x": 1}]}',
     '{"documents": [{"payload": 1}, {"cost": 0}]}', '{"documents": [{"payload": {"fairlane.file": 1}}]}',
     '{"documents": [{}], "kind": "folder"}'],
)  # fmt: skip
def test_a_batch_with_something_wrong_leaves_nothing(server: Server, client: httpx.Client, customer: str, body: str) -> None:
    answer = client.post("/v1/batches", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, problem_of(answer)) == (422, "bad-value")
    assert list(server.queue.documents(customer)) == []


def test_a_check_without_a_document_moves_the_counter(server: Server, client: httpx.Client, customer: str) -> None:
    assert [client.post("/v1/checks", json={}).json()["counter"] for _ in range(3)] == [0, -1, -2]
    assert client.get("/v1/me").json()["standing"]["counter"] == -2


def test_operators_tune_customers_and_the_policy(operator: httpx.Client, customer: str) -> None:
    path = f"/v1/customers/{customer}"
    body = operator.patch(path, json={"weight": 2, "cap": 4, "paused": True}).json()
    none = dict.fromkeys(("waiting_max", "descendants_max", "documents_max", "bytes_max", "retries_max"))
    assert body["terms"] == {
        "weight": 2, "cap": 4, "paused": True, "reset_interval": None, "thresholds": None, "reset": None, "cost_min": 1, **none
    }  # fmt: skip
    body = operator.patch(path, json={"bytes_max": 5, "waiting_max": 0, "cost_min": 0.5}).json()
    assert (body["terms"] | {"bytes_max": None, "waiting_max": None, "cost_min": 1})["weight"] == 2
    assert (body["bytes_max"], body["waiting_max"], body["terms"]["cost_min"]) == (5, 0, 0.5)
    body = operator.patch(path, json=none | {"cost_min": 1}).json()
    assert (body["bytes_max"], body["waiting_max"]) == (None, 100_000)
    for wrong in ({"bytes_max": -1}, {"waiting_max": 1.5}, {"cost_min": 0}, {"cost_min": 2}, {"retries_max": "3"}):
        assert problem_of(operator.patch(path, json=wrong)) == "bad-value"
    assert operator.patch(path, json={"cap": None}).json()["terms"]["cap"] is None
    assert operator.get(path).json()["terms"]["weight"] == 2
    assert problem_of(operator.patch(path, json={"weight": 1000})) == "bad-value"
    assert operator.post(f"{path}/reset").json()["counter"] == 0
    rules = operator.get("/v1/policy").json()
    changed = operator.put("/v1/policy", json={"reset_interval": 900, "version": rules["version"]}).json()
    assert (changed["reset_interval"], changed["thresholds"]) == (900, rules["thresholds"])
    stale = operator.put("/v1/policy", json={"reset": "sliding", "version": rules["version"]})
    assert (stale.status_code, problem_of(stale)) == (409, "changed-meanwhile")
    assert operator.put("/v1/policy", json={"reset_interval": 1500}).json()["reset"] == "idle"
    assert operator.put("/v1/policy", json={"turns": "documents"}).json()["turns"] == "documents"
    assert operator.put("/v1/policy", json={"turns": "time"}).json() | {"version": 0} == rules | {"version": 0}
    for wrong in ({"turns": "pages"}, {"reset": "gradual"}, {"reset": "window"}, {"turns": 1}):
        assert problem_of(operator.put("/v1/policy", json=wrong)) == "bad-value"
    changed = operator.put("/v1/policy", json={"waiting_max": None, "documents_max": 70}).json()
    assert [changed[name] for name in none] == [None, 10_000, 70, None, 3]
    assert operator.put("/v1/policy", json={"waiting_max": 100_000, "documents_max": None}).json()["documents_max"] is None


@pytest.mark.parametrize("customer", ["a/b", "a b", "ünï", "?", "%41", "#", "a&b=c"])
def test_a_customer_of_any_name_can_be_addressed(server: Server, operator: httpx.Client, customer: str) -> None:
    server.queue.submit(customer, 1)
    path = b"/v1/customers/" + quote(customer, safe="").encode()
    answer = operator.get(httpx.URL(server.address).copy_with(raw_path=path))
    assert answer.json()["customer"] == customer
    assert answer.json()["waiting"] == 1


def test_documents_are_filtered(server: Server, client: httpx.Client, operator: httpx.Client, customer: str) -> None:
    began = time.time()
    scan = server.queue.submit(customer, 1, kind="scan").id
    failed = server.queue.submit(customer, 2, kind=customer).id
    (claim,) = server.queue.engine.claim("tester", 1, 600_000, {customer: 1})
    server.queue.engine.settle([(claim, Failed("corrupt: page 3 of 7 & 100%"))])

    def found(**query: object) -> list[str]:
        response = client.get("/v1/documents", params={name: str(value) for name, value in query.items()})
        assert response.status_code == 200, response.text
        return [document["id"] for document in response.json()["documents"]]

    assert found(kind="scan") == [scan]
    assert found(kind="fax") == []
    assert found(reason="page 3 of 7 & 100%") == [failed]
    assert found(since=began - 60) == [failed, scan]
    assert found(until=began - 60) == []
    assert found(since=began - 60, until=began + 600, kind="scan", state="ready") == [scan]
    first = client.get("/v1/documents", params={"since": began - 60, "limit": 1}).json()
    second = client.get(first["next"]).json()
    assert [first["documents"][0]["id"], second["documents"][0]["id"]] == [failed, scan]
    assert [document["id"] for document in operator.get("/v1/documents", params={"kind": customer}).json()["documents"]] == [
        failed
    ]
    with server.client(server.key(f"{customer}, neighbour")) as neighbour:
        assert neighbour.get("/v1/documents", params={"kind": customer}).json() == {"documents": [], "next": None}
        assert neighbour.get("/v1/documents", params={"reason": "corrupt"}).json()["documents"] == []


@pytest.mark.parametrize(
    "query", ["since=x", "since=-1", "since=5&until=5", "reason=x&state=done", "kind=", "state=gone", "reason="]
)
def test_a_filter_that_makes_no_sense_is_refused(client: httpx.Client, query: str) -> None:
    response = client.get(f"/v1/documents?{query}")
    assert (response.status_code, problem_of(response)) == (422, "bad-value")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/documents?kind=scan&color=red"),
        ("GET", "/v1/documents?Kind=scan"),
        ("GET", "/v1/documents/0199a3f2-1c5e-7d31-9f60-3b1de5a0c842?color=red"),
        ("GET", "/v1/events?since=1&color=red"),
        ("GET", "/v1/me?color=red"),
        ("GET", "/healthz?color=red"),
        ("GET", "/page/documents?color=red"),
        ("DELETE", "/v1/documents/0199a3f2-1c5e-7d31-9f60-3b1de5a0c842?color=red"),
        ("POST", "/v1/checks?color=red"),
    ],
)
def test_a_parameter_that_a_route_does_not_have_is_refused(client: httpx.Client, method: str, path: str) -> None:
    response = client.request(method, path)
    assert (response.status_code, problem_of(response)) == (422, "bad-value"), response.text
    assert "is not a parameter of this address; it takes " in response.json()["detail"]


def test_a_parameter_beside_json_or_a_form_is_refused(server: Server, client: httpx.Client, customer: str) -> None:
    as_json = client.post("/v1/documents?kind=extract", json={"payload": 1})
    form = client.post("/v1/documents?kind=extract", files={"file": ("a.txt", b"x")})
    bare = client.post("/v1/documents?color=red", content=b"x", headers={"Content-Type": "text/plain"})
    assert [(response.status_code, problem_of(response)) for response in (as_json, form, bare)] == [(422, "bad-value")] * 3
    assert server.queue.look(customer).waiting == 0


def test_whoever_has_no_key_learns_nothing_of_parameters(server: Server) -> None:
    with server.client(None) as client:
        assert client.get("/v1/documents?color=red").status_code == 401
        assert client.get("/v1/nowhere?color=red").status_code == 401
