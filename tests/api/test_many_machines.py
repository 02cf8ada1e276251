"""Many machines: two servers and a worker on one PostgreSQL, and on one Redis, with their files on S3."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlane import Client, Queue
from fairlane.core.errors import StoreFrozen
from tests.cli.running import run_json, start
from tests.docs.snippets import snippet
from tests.servers import postgres, redis
from tests.servers.s3 import BUCKET, s3_server
from tests.terminal import bash

from .receivers import Listener, hooked
from .running import OPEN_LIMITS, Server, problem_of, until
from .test_events import watching
from .test_metrics import figures
from .test_webhooks import listener as listener  # a fixture
from .test_webhooks import no_delivery_is_pending

QUEUED_MAX = 40
LIMITS = OPEN_LIMITS
TEXT = {"Content-Type": "text/plain"}
_numbers = count(1)


class Machines:
    """Two servers, and a worker, that share nothing but a store and a bucket."""

    def __init__(self, folder: Path, url: str, running: ExitStack) -> None:
        self.variables = variables = running.enter_context(s3_server())
        blobs = ("--blobs", f"s3://{BUCKET}/of-tests")
        self.url = url
        self.servers = []
        for name in ("one", "other"):
            (folder / name).mkdir()
            server = Server(
                folder / name, *blobs, "--allow-private-webhooks", limits=LIMITS, variables=variables, url=url
            )  # fmt: skip
            running.callback(server.close)
            self.servers.append(server)
        self.primary, self.other = self.servers
        worker = start("work", "--json", "--url", url, *blobs, stdout=subprocess.DEVNULL, cwd=folder, environment=variables)
        running.enter_context(worker)
        running.callback(worker.send_signal, signal.SIGTERM)


@pytest.fixture(scope="module", params=["postgres", "redis"])
def machines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    url = postgres.empty_queue(postgres.shared(), "machines") if request.param == "postgres" else redis.shared("redis").url()
    with ExitStack() as running:
        running.callback(redis.drop_url, url)
        yield Machines(tmp_path_factory.mktemp("machines"), url, running)


@pytest.fixture
def customer() -> str:
    return f"customer-{next(_numbers)}"


@pytest.fixture
def clients(machines: Machines, customer: str) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """The same customer at both servers; its key was made at the first one."""
    key = machines.primary.key(customer)
    with machines.primary.client(key) as primary, machines.other.client(key) as other:
        yield primary, other


Both = tuple[httpx.Client, httpx.Client]


def test_a_file_handed_in_at_one_server_is_read_and_shown_by_the_other(clients: Both) -> None:
    primary, other = clients
    receipt = primary.post("/v1/documents", content=b"three words here\n", headers=TEXT, params={"name": "a.txt"}).json()
    document = other.get(receipt["links"]["self"], params={"wait": 60}).json()
    assert (document["state"], document["attempts"]) == ("done", 1)
    for client in clients:
        assert "three words here" in client.get(receipt["links"]["text"]).text
        assert client.get(receipt["links"]["result"]).json()["media_type"] == "text/plain"
        assert client.get(receipt["links"]["thumbnail"]).content.startswith(b"\x89PNG")


def test_events_reach_a_listener_of_the_other_server_and_go_on_at_the_first(
    machines: Machines, clients: Both, customer: str
) -> None:
    key = machines.other.key(customer)
    with watching(machines.other, key) as stream:
        first = clients[0].post("/v1/documents", content=b"one", headers=TEXT).json()["id"]
        until(lambda: len(stream.events) >= 3, "three events at the other server")
    assert [(event["event"], event["document"]) for _, event in stream.events] == [
        (word, first) for word in ("submitted", "started", "done")
    ]
    second = clients[1].post("/v1/documents", content=b"two", headers=TEXT).json()["id"]
    with watching(machines.primary, key, stream.events[1][0]) as resumed:  # after "started"
        until(lambda: len(resumed.events) >= 4, "four events at the first server")
    seen = [(event["event"], event["document"]) for _, event in resumed.events]
    assert seen == [("done", first), *((word, second) for word in ("submitted", "started", "done"))]


def test_a_batch_is_the_same_at_both_servers(clients: Both) -> None:
    primary, other = clients
    body = {"documents": [{"payload": number} for number in range(5)]}
    headers = {"Idempotency-Key": "monday"}
    first = primary.post("/v1/batches", json=body, headers=headers)
    again = other.post("/v1/batches", json=body, headers=headers)
    assert (first.status_code, again.status_code) == (202, 202), (first.text, again.text)
    assert [member["id"] for member in again.json()["documents"]] == [member["id"] for member in first.json()["documents"]]
    refused = other.post("/v1/batches", json={"documents": [{"payload": "other"}]}, headers=headers)
    assert (refused.status_code, problem_of(refused)) == (409, "key-conflict")
    here = first.json()["links"]["self"]
    for member in first.json()["documents"]:  # no worker takes documents without files
        assert other.delete(member["links"]["self"]).status_code == 200
    ended: dict[str, Any] = until(lambda: (batch := other.get(here).json())["is_ended"] and batch, "the batch's end")
    assert (ended["progress"], ended["counts"]) == (1, {"cancelled": 5})
    assert primary.get(here).json() == ended


def test_a_form_of_files_is_a_batch_at_both_servers(clients: Both) -> None:
    primary, other = clients
    files = [("file", (f"{number}.txt", f"file {number}".encode(), "text/plain")) for number in range(3)]
    batch = primary.post("/v1/batches", files=files, data={"cost": "1"}).json()
    until(lambda: other.get(batch["links"]["self"]).json()["counts"] == {"done": 3}, "the files to be read")
    assert [other.get(member["links"]["text"]).text.strip() for member in batch["documents"]] == ["file 0", "file 1", "file 2"]


def test_one_idempotency_key_at_both_servers_at_once_is_one_document(clients: Both, customer: str, machines: Machines) -> None:
    headers = {"Idempotency-Key": "once"}

    def send(number: int) -> httpx.Response:
        return clients[number % 2].post("/v1/documents", content=b"the same bytes", headers=headers | TEXT)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(24)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum(not answer.json()["repeated"] for answer in answers) == 1
    assert clients[1].get("/v1/me").json()["standing"]["counter"] == 0  # one check
    for client in clients:
        refused = client.post("/v1/documents", content=b"other bytes", headers=headers | TEXT)
        assert (refused.status_code, problem_of(refused)) == (409, "key-conflict")
    assert sum(document.customer == customer for document in machines.primary.queue.documents(customer)) == 1


def test_a_key_holds_everywhere_and_ends_everywhere(machines: Machines, customer: str) -> None:
    (made,) = run_json("keys", "create", "--customer", customer, "--url", machines.url)
    with machines.primary.client(made["key"]) as primary, machines.other.client(made["key"]) as other:
        assert {client.get("/v1/me").json()["customer"] for client in (primary, other)} == {customer}
        with watching(machines.other, made["key"]) as stream:
            run_json("keys", "revoke", made["id"], "--url", machines.url)
            until(lambda: [client.get("/v1/me").status_code for client in (primary, other)] == [401, 401], "the key's end")
            until(lambda: stream.is_ended, "the stream's end")


def test_what_an_operator_changes_at_one_server_holds_at_the_other(machines: Machines, clients: Both, customer: str) -> None:
    with machines.primary.client(machines.primary.operator) as operator:
        changed = operator.patch(f"/v1/customers/{customer}", json={"paused": True, "weight": 2})
        assert changed.status_code == 200, changed.text
    receipt = clients[1].post("/v1/documents", json={}).json()
    with machines.other.client(machines.other.operator) as operator:
        assert operator.get(f"/v1/customers/{customer}").json()["terms"]["paused"] is True
    assert "pause" in clients[0].get(receipt["links"]["explain"]).text
    assert clients[0].delete(receipt["links"]["self"]).json()["state"] == "cancelled"
    assert clients[1].get(receipt["links"]["self"]).json()["state"] == "cancelled"


def test_a_customer_with_too_much_waiting_is_refused_by_both(machines: Machines, clients: Both, customer: str) -> None:
    with machines.primary.client(machines.primary.operator) as operator:
        operator.patch(f"/v1/customers/{customer}", json={"paused": True, "waiting_max": QUEUED_MAX})
    filling = clients[0].post("/v1/batches", json={"documents": [{}] * QUEUED_MAX})
    assert filling.status_code == 202, filling.text
    for client in clients:
        refused = client.post("/v1/documents", json={})
        assert (problem_of(refused), "retry-after" in refused.headers) == ("too-many-queued", True)
    assert machines.primary.queue.look(customer).waiting == QUEUED_MAX


def test_every_ending_is_sent_by_webhook_once_whoever_took_it(
    machines: Machines, clients: Both, customer: str, listener: Listener
) -> None:
    hooked(machines.primary, customer, listener.url)
    ids = {client.post("/v1/documents", content=b"one", headers=TEXT).json()["id"] for client in clients * 3}
    until(lambda: {json.loads(body)["data"]["id"] for _, body in listener.calls} == ids, "all endings to be told")
    until(lambda: no_delivery_is_pending(machines.primary), "nothing to be left to tell")
    assert len(listener.calls) == len(ids)
    with machines.other.client(machines.other.operator) as operator:
        assert operator.delete("/v1/webhook", params={"customer": customer}).status_code == 204


def test_both_servers_show_the_same_figures(machines: Machines, clients: Both) -> None:
    def totals(server: Server) -> dict[str, float]:
        with server.client(server.operator) as operator:
            seen = figures(operator.get("/metrics").text)
        return {
            name: value for name, value in seen.items() if re.match("fairlane_(documents_total|running|wait_seconds_c)", name)
        }

    def same() -> dict[str, float] | None:
        primary, other = map(totals, machines.servers)
        return primary if primary == other and primary.get("fairlane_running_documents") == 0 else None

    before = until(same, "the same figures")
    receipt = clients[0].post("/v1/documents", content=b"one", headers=TEXT).json()
    assert clients[1].get(receipt["links"]["self"], params={"wait": 60}).json()["state"] == "done"
    done = 'fairlane_documents_total{event="done",kind="extract"}'
    until(lambda: (figures := same()) and figures.get(done) == before.get(done, 0) + 1, "one more document")


def test_the_client_and_the_commands_work_on_it(machines: Machines, customer: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a file of the client")
    with Client(machines.primary.address, machines.primary.key(customer), timeout=60) as client:
        receipt = client.submit(path=tmp_path / "a.txt")
        assert client.wait(receipt.id, timeout=60).state == "done"
        assert "a file of the client" in client.text(receipt.id)
    ((look,),) = run_json("status", customer, "--url", machines.url)
    assert (look["waiting"], look["counter"]) == (0, 0)


def test_a_queue_in_a_file_moves_to_their_store_and_bucket(
    machines: Machines, customer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Queue(f"sqlite:///{tmp_path}/fairlane.db") as source:
        ids = [source.submit(customer, content=b"file %d" % number).id for number in range(3)]
    target = f"{machines.url}_moved"
    command = snippet("docs/how-to/upgrades.md", "fairlane move").replace("postgresql://user@host/database", f"'{target}'")
    bash(command.replace("s3://bucket/", f"s3://{BUCKET}/"), tmp_path, **machines.variables)
    for name, value in machines.variables.items():
        monkeypatch.setenv(name, value)
    try:
        with Queue(target, blobs=f"s3://{BUCKET}/fairlane") as moved:
            look = moved.look(customer)
            assert (look.counter, look.waiting) == (-2, 3)
            assert [claim.id for claim in moved.engine.claim("tester", 3, 600_000)] == ids
            with moved.file(ids[2]) as file:
                assert file.read() == b"file 2"
        with Queue(f"sqlite:///{tmp_path}/fairlane.db") as source, pytest.raises(StoreFrozen, match="was moved to"):
            source.submit(customer)
    finally:
        redis.drop_url(target)


def test_a_server_that_is_killed_loses_nothing_that_the_other_cannot_show(machines: Machines, customer: str) -> None:
    key = machines.primary.key(customer)
    with machines.primary.client(key) as primary:
        id = primary.post("/v1/documents", content=b"one", headers={**TEXT, "Idempotency-Key": "k"}).json()["id"]
    machines.primary.stop(signal.SIGKILL)
    with machines.other.client(key) as other:
        again = other.post("/v1/documents", content=b"one", headers={**TEXT, "Idempotency-Key": "k"}).json()
        assert (again["id"], again["repeated"]) == (id, True)
        assert other.get(f"/v1/documents/{id}", params={"wait": 60}).json()["state"] == "done"
    machines.primary.start()
    with machines.primary.client(key) as primary:
        assert primary.get(f"/v1/documents/{id}/text").status_code == 200


def test_while_the_store_is_away_it_says_so_and_what_is_refused_may_be_sent_again(tmp_path: Path) -> None:
    store = redis.Server("valkey", "--appendonly", "yes", "--appendfsync", "always")
    server = Server(tmp_path, url=store.url("away"))
    try:
        with server.client(server.key("acme")) as client, server.client(None) as anybody:
            first = client.post("/v1/documents", json={}).json()["id"]
            store.kill()
            client.timeout = anybody.timeout = httpx.Timeout(20)  # all are answered before a call gives the store up
            answer = until(
                lambda: (response := anybody.get("/readyz")).status_code == 503 and response, "a server that is not ready"
            )
            assert "the store does not answer" in answer.json()["reasons"]
            assert anybody.get("/healthz").status_code == 200
            headers = {"Idempotency-Key": "while away"}
            refused = client.post("/v1/documents", json={}, headers=headers)
            assert (refused.status_code, problem_of(refused), "retry-after" in refused.headers) == (503, "store-busy", True)
            store.start()
            until(lambda: anybody.get("/readyz").status_code == 200, "a server that is ready")
            second = client.post("/v1/documents", json={}, headers=headers).json()["id"]
            assert [document["id"] for document in client.get("/v1/documents").json()["documents"]] == [second, first]
    finally:
        server.close()
        store.remove()
