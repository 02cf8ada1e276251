"""Each verb of the client, on a real server."""

from __future__ import annotations

import inspect
import json
import threading
from datetime import UTC, timedelta
from typing import Any

import pytest

from fairlane import AsyncClient, AsyncQueue, Client, Queue, Split, Worker
from fairlane.api.problems import TITLES, Problem
from fairlane.client.errors import ERRORS_BY_CODE, parse_problem, to_error
from fairlane.core.document import Failed
from fairlane.core.errors import BadValue, KeyConflict, LimitReached, Mistake, StoreError, Unknown, WrongState
from fairlane.worker import Document as JobDocument
from tests.api.running import Server


def finish_all(server: Server, result: object = None) -> None:
    """Everything that waits is done, also what other tests left."""
    while server.finish(1000, result):
        pass


def test_a_document_from_hand_in_to_result(server: Server, client: Client, customer: str) -> None:
    receipt = client.submit({"order": 17, "letters": "zażółć \ud800"}, cost=2.5)
    assert (receipt.customer, receipt.priority, receipt.counter, receipt.repeated) == (customer, 1, -1.5, False)
    document = client.document(receipt.id)
    assert (document.state, document.kind, document.cost, document.is_ended) == ("ready", "default", 2.5, False)
    assert document.key
    assert server.queue.payload(receipt.id) == {"order": 17, "letters": "zażółć \ud800"}
    with pytest.raises(WrongState, match="it is ready; only a document that is done has one"):
        client.result(receipt.id)
    finish_all(server, {"pages": 3})
    assert client.document(receipt.id).is_ended
    assert client.result(receipt.id) == {"pages": 3}


def test_values_are_those_of_the_queue(server: Server, client: Client, customer: str) -> None:
    receipt = client.submit({"order": 17}, delay=timedelta(hours=1))
    assert client.document(receipt.id) == server.queue.document(receipt.id)
    assert next(client.documents()) == next(server.queue.documents(customer))
    ours, theirs = client.look(), server.queue.look(customer)
    assert abs(ours.resets_in - theirs.resets_in) < timedelta(minutes=1)
    assert ours == theirs._replace(resets_in=ours.resets_in)
    assert client.batch(client.submit_many([1]).id).made_at.tzinfo is UTC


def test_steps_and_parts_are_those_of_the_queue_and_only_staff_sees_what_a_step_returned(
    server: Server, client: Client, operator: Client, customer: str
) -> None:
    worker = Worker(server.url, slots=2)

    @worker.handler("read two halves")
    async def read(document: JobDocument) -> Any:
        if document.parts is None:
            return Split([{"half": 1}, {"half": 2}], kind="read one half")
        return {"halves": document.parts}

    @worker.handler("read one half")
    async def read_half(document: JobDocument) -> Any:
        return document.payload["half"]

    submitted = server.queue.submit(customer, {"page": 1}, steps=["read two halves", "index"])
    split = server.queue.submit(customer, {"page": 2}, kind="read two halves")
    worker.run(until_empty=True)
    assert client.steps(submitted.id) == [("read two halves", "done", None), ("index", "ready", None)]
    assert operator.steps(submitted.id) == server.queue.steps(submitted.id)
    assert operator.steps(submitted.id)[0].result == {"halves": [1, 2]}
    assert operator.parts(split.id) == server.queue.parts(split.id)
    assert client.parts(split.id) == [part._replace(worker=None) for part in operator.parts(split.id)]
    assert [(part.whole, part.state) for part in client.parts(split.id)] == [(split.id, "done")] * 2


def test_the_same_key_is_the_same_document_and_another_body_is_a_conflict(client: Client) -> None:
    first = client.submit({"a": 1}, key="invoice ż 17")
    again = client.submit({"a": 1}, key="invoice ż 17")
    assert (again.id, first.repeated, again.repeated) == (first.id, False, True)
    with pytest.raises(KeyConflict, match="already belongs to document"):
        client.submit({"a": 2}, key="invoice ż 17")
    assert client.look().waiting == 1


def test_without_a_key_each_call_is_a_document_of_its_own(client: Client) -> None:
    assert client.submit(1).id != client.submit(1).id


def test_a_batch_and_how_far_it_is(server: Server, client: Client) -> None:
    receipt = client.submit_many([{"n": n} for n in range(5)], key="batch", cost=1.5)
    assert [document.counter for document in receipt.documents] == [-0.5, -2, -3.5, -5, -6.5]
    assert client.submit_many([{"n": n} for n in range(5)], key="batch", cost=1.5).id == receipt.id
    batch = client.batch(receipt.id)
    assert batch.documents == tuple(document.id for document in receipt.documents)
    assert (batch.counts, batch.progress, batch.is_ended) == ({"ready": 5}, 0, False)
    finish_all(server)
    assert client.batch(receipt.id).is_ended
    with pytest.raises(BadValue, match="a list of payloads"):
        client.submit_many("abc")


def test_documents_come_page_by_page(server: Server, client: Client, operator: Client, customer: str) -> None:
    ids = [receipt.id for _ in range(2) for receipt in client.submit_many(range(300)).documents]
    assert [document.id for document in client.documents()] == ids[::-1]
    assert len(list(operator.documents(customer, "ready"))) == 600
    assert list(client.documents(state="failed")) == []
    with pytest.raises(BadValue, match="state is 'lost'"):
        list(client.documents(state="lost"))  # type: ignore[arg-type]


def test_customers_come_page_by_page(server: Server, operator: Client) -> None:
    names = {f"many {n}/ż?" for n in range(510)}
    for name in names:
        server.queue.check(name)
    assert names <= {look.customer for look in operator.customers()}
    assert operator.look("many 3/ż?").counter == 0


def test_a_customer_sees_itself_and_nobody_else(client: Client, operator: Client, customer: str) -> None:
    client.submit()
    assert client.me().customer == customer
    assert [look.customer for look in client.customers()] == [customer]
    assert client.look().customer == client.look(customer).customer == customer
    assert client.look().waiting == 1
    with pytest.raises(Unknown, match="may not read customer 'other'"):
        client.look("other")
    with pytest.raises(Unknown):
        client.rules()
    assert (operator.me().role, operator.me().standing) == ("operator", None)
    with pytest.raises(Unknown, match="name a customer"):
        operator.look()


def test_an_operator_says_whose_document_it_is(operator: Client, customer: str) -> None:
    assert operator.submit(1, customer=customer).customer == customer
    assert operator.submit_many([1, 2], customer=customer).customer == customer
    assert operator.check(customer).counter == -3
    with pytest.raises(BadValue, match="customer is missing"):
        operator.submit(1)


def test_why_and_when(server: Server, client: Client, operator: Client, customer: str) -> None:
    explanation = client.explain(client.submit().id)
    assert explanation.sentence.startswith(f"Priority 1, because {customer}'s counter stood at 0")
    assert explanation.facts["priority"] == 1
    assert "sentence" not in explanation.facts
    ours, theirs = operator.explain_customer(customer), server.queue.explain_customer(customer)
    assert ours.sentence.split(";")[0] == theirs.sentence.split(";")[0]
    assert set(ours.facts) == set(theirs.facts)
    with pytest.raises(Unknown):
        operator.explain_customer("never seen")


def test_tracebacks_are_for_operators(server: Server, client: Client, operator: Client) -> None:
    id = client.submit().id
    values = {
        "attempt": 1, "token": 1, "at": 1_700_000_000_000, "worker": "w", "seconds": 0.5, "reason": "r", "traceback": "T\nż",
        "output": None,
    }  # fmt: skip
    claims = iter(lambda: server.claim(50), [])
    claim = next(claim for page in claims for claim in page if claim.id == id)
    server.queue.engine.settle([(claim, Failed("r", details=json.dumps(values)))])
    assert operator.attempts(id) == server.queue.attempts(id)
    (attempt,) = operator.attempts(id)
    assert (attempt.traceback, attempt.at.year) == ("T\nż", 2023)
    with pytest.raises(Unknown):
        client.attempts(id)
    with pytest.raises(Unknown):
        operator.attempts("nothing")


def test_cancel_and_retry(server: Server, client: Client) -> None:
    id = client.submit().id
    with pytest.raises(WrongState, match="only a failed one can be retried"):
        client.retry(id)
    assert client.cancel(id)
    assert not client.cancel(id)
    with pytest.raises(Unknown):
        client.cancel("nothing")
    assert client.document(id).state == "cancelled"


def test_terms_and_rules(server: Server, operator: Client, customer: str) -> None:
    assert operator.terms(customer) == server.queue.terms(customer)
    tuned = operator.tune(customer, weight=2, cap=3, thresholds=(-1, -2.5), reset="sliding", reset_interval=9.5)
    assert tuned == server.queue.terms(customer) == operator.tune(customer)
    operator.pause(customer)
    assert operator.look(customer).paused
    operator.resume(customer)
    assert operator.tune(customer, cap=None).cap is None
    with pytest.raises(BadValue, match="weight"):
        operator.tune(customer, weight=1000)
    server.queue.check(customer)
    server.queue.check(customer)
    operator.reset(customer)
    assert operator.look(customer).counter == 0
    changed = operator.configure(open_turn_every=12, turns="documents")
    assert changed.turns == "documents"
    assert changed == server.queue.rules() == operator.rules() == operator.configure()
    assert operator.configure(open_turn_every=16, turns="time").version == changed.version + 1
    with pytest.raises(BadValue, match="turns"):
        operator.configure(turns="pages")  # type: ignore[arg-type]


def test_wait_returns_when_it_has_ended_and_after_the_timeout_as_it_is(server: Server, client: Client) -> None:
    id = client.submit().id
    assert client.wait(id, timeout=0.05).state == "ready"
    ended: list[str] = []
    waiting = threading.Thread(target=lambda: ended.append(client.wait(id).state))
    waiting.start()
    finish_all(server)
    waiting.join(timeout=40)
    assert ended == ["done"]
    with pytest.raises(BadValue, match="timeout"):
        client.wait(id, timeout=-1)


def test_ids_that_would_lead_elsewhere_lead_nowhere(client: Client) -> None:
    for id in ("..", "../me", "x?wait=30", "x/result", "ż", "%2e%2e"):
        with pytest.raises(Unknown):
            client.document(id)
    with pytest.raises(BadValue, match="document id"):
        client.document("a\r\nHost: b")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:///x", "as in http://127.0.0.1:8000"),
        ("http://", "as in http://127.0.0.1:8000"),
        ("http://name:secret@host", "url is '…'"),
        ("http://host?x=1", "the address of the server alone"),
        ("http://host:99999", "a port from 0 to 65535"),
    ],
)
def test_addresses_that_cannot_be_are_refused(url: str, message: str) -> None:
    with pytest.raises(BadValue) as refused:
        Client(url, "key")
    assert message in str(refused.value)
    assert "secret" not in str(refused.value)


def test_the_key_is_shown_nowhere(server: Server) -> None:
    wrong = server.operator[:-4] + "abcd"
    with Client(server.address, wrong) as client:
        with pytest.raises(Mistake, match="send a key that is in use") as refused:
            client.me()
        shown = [repr(client), str(client), repr(AsyncClient(server.address, wrong)), str(refused.value), repr(refused.value)]
    assert all(wrong not in text and wrong[-20:] not in text for text in shown)
    for key in ("a key with spaces", "ż", "", "a\nb"):
        with pytest.raises(Mistake, match="the key is not one of Fairlane's") as refused:
            Client(server.address, key)
        assert not key or key not in str(refused.value)


def test_every_word_of_the_service_is_one_of_our_errors() -> None:
    assert set(ERRORS_BY_CODE) == set(TITLES)
    for word, (status, _) in TITLES.items():
        body = Problem(word, "the reason").body()
        error = to_error(parse_problem(status, "application/problem+json", body))
        assert type(error) is ERRORS_BY_CODE[word]
        assert str(error) == "the reason"
        is_mistake = status in (400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 431) or isinstance(error, LimitReached)
        assert isinstance(error, Mistake) == is_mistake
    assert isinstance(to_error(parse_problem(502, "text/html", b"<h1>")), StoreError)
    assert isinstance(to_error(parse_problem(418, "text/html", b"<h1>")), Mistake)


def test_the_verbs_of_both_faces_are_the_same_and_named_as_the_queue_names_them() -> None:
    verbs = {name: verb for name, verb in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")}
    awaited = {name for name, _ in inspect.getmembers(AsyncClient, inspect.isfunction) if not name.startswith("_")}
    assert set(verbs) == awaited
    for name in set(verbs) - {"submit", "submit_many", "look", "check"}:
        ours = list(inspect.signature(verbs[name]).parameters)
        theirs = (
            [
                parameter
                for parameter in inspect.signature(getattr(Queue, name)).parameters
                if parameter not in ("now", "as_customer", "for_customer")  # a server has a clock, and sees whose key it is
            ]
            if hasattr(Queue, name)
            else ours
        )
        assert ours == theirs, name
    assert set(verbs) - set(dir(AsyncQueue)) == {
        "audit", "batch", "create_key", "create_keys", "create_upload_token", "events", "keys", "me", "revoke_key",
        "rotate_key", "upload_token",
    }  # fmt: skip
