"""Steps, slices and parts over HTTP, in the client, the commands and on the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlane import BadValue, Client, Queue
from fairlane.api.webhook_deliveries import DeliveryStore
from fairlane.api.webhook_recorder import EndingRecorder
from fairlane.api.webhooks import put_webhook
from fairlane.core.document import Claim, Continued, Done, Failed, Submission
from fairlane.queue import new_ids
from tests.api.running import Server, problem_of
from tests.console.page_client import signed_in

PDF = {"content-type": "application/pdf"}


def take(server: Server, kind: str) -> Claim:
    """Claim the next document of a kind."""
    (claim,) = server.queue.engine.claim("tester", 1, 60_000, {kind: 3})
    return claim


def split(server: Server, customer: str, count: int = 3) -> tuple[str, list[str]]:
    """Submit a document and split it; return its id and its parts'."""
    id = server.queue.submit(customer, 1, kind=customer, steps=[customer, f"{customer} index"]).id
    claim = take(server, customer)
    parts = tuple(
        Submission(part, customer, customer, "1", 1000 * number, made_from=id)
        for number, part in enumerate(new_ids(count), start=1)
    )
    payload = f'{{"fairlane.pipeline":{{"steps":["{customer}","{customer} index"],"parts":{count}}},"payload":1}}'
    assert server.queue.engine.settle([(claim, Continued(customer, payload, parts))]) == []
    return id, [part.id for part in parts]


def test_steps_are_submitted_in_every_way(server: Server, operator: httpx.Client, customer: str) -> None:
    steps = ["extract", f"{customer} index"]
    as_json = operator.post("/v1/documents", json={"payload": 1, "customer": customer, "steps": steps[::-1]})
    query = {"customer": customer, "name": "a.pdf", "steps": ",".join(steps), "slices": "20"}
    as_file = operator.post("/v1/documents", params=query, content=b"%PDF", headers=PDF)
    batch = operator.post("/v1/batches", json={"documents": [{"payload": 1}] * 2, "customer": customer, "steps": steps[::-1]})
    assert [answer.status_code for answer in (as_json, as_file, batch)] == [202, 202, 202], as_file.text
    shown = [[step.kind for step in server.queue.steps(document.id)] for document in server.queue.documents(customer)]
    assert shown == [steps[::-1], steps[::-1], steps, steps[::-1]]
    body = server.queue.engine.body(as_file.json()["id"])
    assert body is not None
    assert '"slices": 20' in body.payload


@pytest.mark.parametrize(("body", "said"), [
    ({"steps": []}, "steps"), ({"steps": "extract"}, "steps"), ({"steps": ["a", "a"]}, "steps"), ({"steps": ["a", 5]}, "steps"),
    ({"steps": ["a"], "kind": "b"}, "begins as the first of them"), ({"slices": 5}, "slices"),
    ({"steps": ["folder"]}, "kind is"),
])  # fmt: skip
def test_bad_steps_are_refused(server: Server, operator: httpx.Client, customer: str, body: Any, said: str) -> None:
    answer = operator.post("/v1/documents", json={"payload": 1, "customer": customer, **body})
    assert (answer.status_code, problem_of(answer)) == (422, "bad-value")
    assert said in answer.json()["detail"]


@pytest.mark.parametrize("slices", ["0", "x", "1.5", "-3"])
def test_bad_slices_are_refused(server: Server, operator: httpx.Client, customer: str, slices: str) -> None:
    answer = operator.post(
        "/v1/documents", params={"customer": customer, "name": "a.pdf", "slices": slices}, content=b"%PDF", headers=PDF
    )
    assert (answer.status_code, problem_of(answer)) == (422, "bad-value")


def test_a_customers_key_must_be_allowed_every_step(server: Server, client: httpx.Client, customer: str) -> None:
    answer = client.post("/v1/documents", json={"payload": 1, "steps": ["default", "secret step"]})
    assert (answer.status_code, problem_of(answer)) == (422, "bad-value")
    assert "kind is 'secret step'" in answer.json()["detail"]


def test_a_document_says_how_far_its_parts_are(server: Server, client: httpx.Client, customer: str) -> None:
    id, parts = split(server, customer)
    claim = take(server, customer)
    server.queue.engine.settle([(claim, Done("1"))])
    shown = client.get(f"/v1/documents/{id}").json()
    assert (shown["state"], shown["parts"], shown["parts_done"], shown["whole"]) == ("delayed", 3, 1, None)
    assert client.get(f"/v1/documents/{parts[1]}").json()["whole"] == id
    explained = client.get(f"/v1/documents/{id}/explain").json()
    assert "It waits for 2 of its 3 parts, and goes on when all are done." in explained["sentence"]
    assert (explained["parts"], explained["parts_done"], explained["expected_in"]) == (3, 1, None)
    assert client.delete(f"/v1/documents/{id}").status_code == 200
    assert {server.queue.document(part).state for part in parts[1:]} == {"cancelled"}


def test_the_client_submits_steps_and_slices(server: Server, customer: str) -> None:
    with Client(server.address, server.key(None, role="operator")) as desk:
        steps = ["extract", f"{customer} index"]
        file = desk.submit(content=b"%PDF", name="a.pdf", steps=steps, slices=20, customer=customer)
        plain = desk.submit({"n": 1}, steps=steps[::-1], customer=customer)
        desk.submit_many([1, 2], steps=steps[::-1], customer=customer)
        assert [step.kind for step in server.queue.steps(file.id)] == steps
        assert [step.kind for step in server.queue.steps(plain.id)] == steps[::-1]
        assert desk.document(plain.id) == server.queue.document(plain.id)
        bad_values: tuple[dict[str, Any], ...] = ({"steps": []}, {"slices": 5}, {"steps": ["a"], "kind": "b"})
        for bad in bad_values:
            with pytest.raises(BadValue):
                desk.submit(1, customer=customer, **bad)


def test_the_page_shows_steps_and_parts(server: Server, page: httpx.Client, customer: str) -> None:
    id, parts = split(server, customer)
    first = take(server, customer)
    server.queue.engine.settle([(first, Done("1"))])
    take(server, customer)
    body = page.get(f"/page/documents/{id}").json()
    assert body["steps"] == [
        {"kind": customer, "state": "delayed"}, {"kind": f"{customer} index", "state": "to come"}
    ]  # fmt: skip
    assert body["parts"] == {"cost": 6, "cost_done": 1, "shown": [{"id": parts[1], "number": 2, "state": "running"}]}
    assert [change["what"] for change in body["life"]] == ["submitted", "claimed", "split"]
    assert page.get(f"/page/documents/{parts[0]}").json()["document"]["whole"] == id
    second = take(server, customer)
    server.queue.engine.settle([(second, Failed("encrypted: it needs a password"))])
    failed = page.get(f"/page/documents/{id}").json()
    assert (failed["document"]["state"], failed["failure_code"]) == ("failed", "encrypted")
    with signed_in(server, server.key(customer)) as owner:
        assert owner.get(f"/page/documents/{id}").json()["parts"]["shown"][0]["id"] == parts[2]


def test_webhooks_tell_the_end_of_the_whole_and_not_of_its_parts(tmp_path: Path) -> None:
    with Queue(f"sqlite:///{tmp_path}/queue.db") as queue:
        put_webhook(queue.engine, "acme", "https://example.com/hook", None, is_by_operator=True)
        deliveries = DeliveryStore(queue.engine)
        recorder = EndingRecorder(queue.engine, deliveries)
        recorder.record_endings()
        id = queue.submit("acme", 1, kind="scan").id
        (claim,) = queue.engine.claim("w", 1, 60_000)
        parts = tuple(Submission(part, "acme", "scan", "1", made_from=id) for part in new_ids(2))
        queue.engine.settle([(claim, Continued("scan", "2", parts))])
        queue.engine.settle([(claim, Done()) for claim in queue.engine.claim("w", 2, 60_000)])
        queue.engine.settle([(claim, Done()) for claim in queue.engine.claim("w", 1, 60_000)])
        recorder.record_endings()
        recorded = [delivery.document for _, delivery in deliveries.page("acme", "pending", "", 10)]
    assert recorded == [id]
