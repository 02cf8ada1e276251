"""A customer cannot set its own price, nor retry for free: what its key may ask for, and what an operator may allow."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from fairlane import Client, Queue
from fairlane.api.submit_batcher import Accepted, SubmitBatcher
from fairlane.core.document import Failed, Submission
from fairlane.core.errors import BadValue, QueueFull, QuotaFull, RetriesSpent
from fairlane.queue import new_ids

from .running import Server, problem_of

TEXT = {"Content-Type": "text/plain"}


def send_json(client: httpx.Client, cost: Any) -> httpx.Response:
    return client.post("/v1/documents", json={"cost": cost})


def send_batch(client: httpx.Client, cost: Any) -> httpx.Response:
    return client.post("/v1/batches", json={"documents": [{"cost": 5}, {"cost": cost}]})


def send_bare(client: httpx.Client, cost: Any) -> httpx.Response:
    return client.post("/v1/documents", content=b"one", params={"cost": str(cost)}, headers=TEXT)


def send_form(client: httpx.Client, cost: Any) -> httpx.Response:
    return client.post("/v1/documents", files={"file": b"one"}, data={"cost": str(cost)})


def send_batch_form(client: httpx.Client, cost: Any) -> httpx.Response:
    return client.post("/v1/batches", files=[("file", ("a.txt", b"one"))], data={"cost": str(cost)})


def check(client: httpx.Client, cost: Any) -> httpx.Response:
    return client.post("/v1/checks", json={"cost": cost})


WAYS = [send_json, send_batch, send_bare, send_form, send_batch_form, check]


@pytest.mark.parametrize("send", WAYS)
@pytest.mark.parametrize("cost", [0.001, 0.999])
def test_a_customer_cannot_ask_for_less_than_1(
    server: Server, client: httpx.Client, customer: str, send: Any, cost: float
) -> None:
    answer = send(client, cost)
    assert (answer.status_code, problem_of(answer)) == (422, "bad-value")
    assert answer.json()["detail"] == (
        f"cost is {cost}; it must be at least 1 with this key, or left out; an operator can allow this customer less, "
        "with cost_min"
    )
    look = server.queue.look(customer)
    assert (look.counter, look.documents) == (0, 0)


@pytest.mark.parametrize("send", WAYS)
def test_1_or_more_is_for_everybody_and_less_for_whom_an_operator_allowed_it(
    server: Server, client: httpx.Client, customer: str, send: Any
) -> None:
    assert send(client, 1).status_code < 300
    assert send(client, 2.5).status_code < 300
    server.queue.tune(customer, cost_min=0.1)
    assert send(client, 0.1).status_code < 300
    assert problem_of(send(client, 0.099)) == "bad-value"
    server.queue.tune(customer, cost_min=1)
    assert problem_of(send(client, 0.1)) == "bad-value"


def test_two_hundred_cheap_documents_do_not_get_priority_1(server: Server, client: httpx.Client, customer: str) -> None:
    answers = [client.post("/v1/documents", json={"cost": 0.001}) for _ in range(30)]
    assert {answer.status_code for answer in answers} == {422}
    priorities = [client.post("/v1/documents", json={"cost": 1}).json()["priority"] for _ in range(30)]
    assert (priorities[0], priorities[-1]) == (1, 9)


def test_operators_and_programs_of_ones_own_choose_freely(server: Server, operator: httpx.Client, customer: str) -> None:
    assert operator.post("/v1/documents", json={"customer": customer, "cost": 0.001}).status_code == 202
    assert operator.post("/v1/checks", json={"customer": customer, "cost": 0.5}).status_code == 200
    assert server.queue.submit(customer, cost=0.001).priority == 1


def test_the_client_raises_the_librarys_errors(server: Server, customer: str) -> None:
    with Client(server.address, server.key(customer), patience=0) as client:
        with pytest.raises(BadValue, match="cost_min"):
            client.submit({}, cost=0.5)
        server.queue.tune(customer, waiting_max=1)
        client.submit({})
        with pytest.raises(QueueFull) as caught:
            client.submit({})
        error = caught.value
        assert (error.limit, error.used, error.adding, error.most) == ("waiting_max", 1, 1, 1)


# -- retries -----------------------------------------------------------------------------------------------------------


def fail(server: Server, id: str) -> None:
    claim = next(claim for claim in server.claim(100) if claim.id == id)
    server.queue.engine.settle([(claim, Failed("corrupt"))])


def failed_document(server: Server, customer: str) -> str:
    """A document of priority 1, which failed, of a customer at a counter of -60."""
    id = server.queue.submit(customer, {}).id
    fail(server, id)
    server.queue.check(customer, cost=60)
    return id


def test_a_customer_pays_for_its_retry(server: Server, client: httpx.Client, operator: httpx.Client, customer: str) -> None:
    id = failed_document(server, customer)
    retried = client.post(f"/v1/documents/{id}/retry").json()
    assert (retried["state"], retried["priority"], retried["counter"], retried["retries"]) == ("ready", 9, -61, 1)
    assert server.queue.look(customer).counter == -61
    fail(server, id)
    kept = operator.post(f"/v1/documents/{id}/retry").json()
    assert (kept["priority"], kept["retries"]) == (9, 1)
    assert server.queue.look(customer).counter == -61


def test_an_operators_retry_keeps_the_priority(server: Server, operator: httpx.Client, customer: str) -> None:
    id = failed_document(server, customer)
    kept = operator.post(f"/v1/documents/{id}/retry").json()
    assert (kept["priority"], kept["counter"], kept["retries"]) == (1, 0, 0)


def test_a_customer_retries_so_often_and_gets_a_clear_error_then(server: Server, client: httpx.Client, customer: str) -> None:
    id = failed_document(server, customer)
    for _ in range(3):
        assert client.post(f"/v1/documents/{id}/retry").status_code == 200
        fail(server, id)
    answer = client.post(f"/v1/documents/{id}/retry")
    assert (answer.status_code, problem_of(answer)) == (409, "retries-spent")
    assert (answer.json()["limit"], answer.json()["used"], answer.json()["most"]) == ("retries_max", 3, 3)
    with Client(server.address, server.key(customer), patience=0) as library, pytest.raises(RetriesSpent):
        library.retry(id)
    assert server.queue.look(customer).counter == -63


def test_a_bulk_retry_of_a_customer_is_a_check_each_and_says_what_was_refused(
    server: Server, client: httpx.Client, customer: str
) -> None:
    ids = [failed_document(server, customer) for _ in range(3)]
    server.queue.tune(customer, retries_max=1)
    assert client.post(f"/v1/documents/{ids[0]}/retry").status_code == 200
    fail(server, ids[0])
    before = server.queue.look(customer).counter
    step = client.post("/v1/documents/bulk", json={"action": "retry", "filter": {"state": "failed"}}).json()
    assert (step["matched"], step["changed"], step["refused"]) == (3, 2, 1)
    assert "retries_max" in step["reason"]
    assert server.queue.look(customer).counter == before - 2


def test_a_retry_that_would_wait_beyond_the_limit_is_refused_for_an_operator_too(
    server: Server, operator: httpx.Client, customer: str
) -> None:
    id = failed_document(server, customer)
    server.queue.tune(customer, waiting_max=0)
    assert problem_of(operator.post(f"/v1/documents/{id}/retry")) == "too-many-queued"
    step = operator.post("/v1/documents/bulk", json={"action": "retry", "filter": {"customer": customer}}).json()
    assert (step["matched"], step["changed"], step["refused"]) == (1, 0, 1)


# -- quotas ------------------------------------------------------------------------------------------------------------


def test_a_full_quota_is_507_with_the_figures_and_what_to_do(server: Server, client: httpx.Client, customer: str) -> None:
    server.queue.tune(customer, documents_max=2)
    assert client.post("/v1/batches", json={"documents": [{}, {}]}).status_code == 202
    for answer in (client.post("/v1/documents", json={}), client.post("/v1/batches", json={"documents": [{}]})):
        assert (answer.status_code, problem_of(answer)) == (507, "quota-full")
        body = answer.json()
        assert (body["limit"], body["used"], body["adding"], body["most"]) == ("documents_max", 2, 1, 2)
        assert "have an operator purge old ones, or raise the limit" in body["detail"]
    standing = client.get("/v1/me").json()["standing"]
    assert (standing["documents"], standing["documents_max"], standing["bytes"]) == (2, 2, 2 * len("null"))


def test_a_batch_that_does_not_fit_is_not_written_down(server: Server, client: httpx.Client, customer: str) -> None:
    """Records of batches are kept beside the documents: a customer must not fill the store with refused ones."""
    server.queue.tune(customer, waiting_max=1)
    before = len(server.queue.engine.records("batches", "", 1000))
    assert problem_of(client.post("/v1/batches", json={"documents": [{}, {}]})) == "too-many-queued"
    assert len(server.queue.engine.records("batches", "", 1000)) == before
    headers = {"Idempotency-Key": "k"}
    first = client.post("/v1/batches", json={"documents": [{}]}, headers=headers)
    again = client.post("/v1/batches", json={"documents": [{}]}, headers=headers)  # which is known, though no more may wait
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json()["documents"][0] | {"repeated": False, "ahead": 0} == first.json()["documents"][0] | {"ahead": 0}


def test_others_are_not_held_up_by_a_customer_at_its_limit(server: Server, client: httpx.Client, customer: str) -> None:
    server.queue.tune(customer, waiting_max=3)
    with server.client(server.key(f"other-{customer}")) as other:
        for number in range(10):
            pair = client.post("/v1/documents", json={"payload": number}), other.post("/v1/documents", json={"payload": number})
            assert [answer.status_code for answer in pair] == [202 if number < 3 else 429, 202]


def test_what_shares_a_commit_with_a_customer_at_its_limit_is_taken() -> None:
    """Submissions of one moment are one call of the store, which takes all or none: each gets its own answer all the same."""
    accepted: list[Accepted] = []
    with Queue("memory://") as queue:
        queue.tune("full", waiting_max=3)
        queue.tune("keeps", documents_max=2)
        customers = ["full", "other", "keeps"] * 5
        ids = new_ids(len(customers))
        submissions = [Submission(id, customer, "default", "null") for id, customer in zip(ids, customers, strict=True)]

        async def submit_at_once() -> list[Accepted | BaseException]:
            batcher = SubmitBatcher(queue.engine, asyncio.to_thread, 100, accepted.append)
            return await asyncio.gather(*map(batcher.submit, submissions), return_exceptions=True)

        answers = asyncio.run(submit_at_once())
        outcomes = {name: [type(answer) for answer in answers[at::3]] for at, name in enumerate(customers[:3])}
        assert outcomes == {
            "full": [Accepted] * 3 + [QueueFull] * 2,
            "other": [Accepted] * 5,
            "keeps": [Accepted] * 2 + [QuotaFull] * 3,
        }
        assert {name: queue.look(name).waiting for name in outcomes} == {"full": 3, "other": 5, "keeps": 2}
        assert [answer.receipt.id for answer in answers if isinstance(answer, Accepted)] == [
            document.receipt.id for document in accepted
        ]
