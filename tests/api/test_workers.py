"""Workers over HTTP: the one beside the service is seen, drained and set to work again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlane import Client, Queue, Unknown, __version__
from fairlane.queue.workers import GONE_MS, REMOVE_MS, WORKERS, WorkerRecord

from .running import Server, problem_of, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(Path(tmp_path_factory.mktemp("http")), "--slots", "3", work=True)
    yield running
    running.close()


def the_worker(operator: httpx.Client) -> Any:
    workers = until(lambda: operator.get("/v1/workers").json()["workers"], "the start of the worker")
    assert len(workers) == 1
    return workers[0]


def test_the_worker_of_the_service_is_seen_with_what_it_takes(operator: httpx.Client) -> None:
    worker = the_worker(operator)
    assert (worker["state"], worker["slots"], worker["version"], worker["is_outdated"]) == ("working", 3, __version__, False)
    assert "extract" in worker["kinds"]


def test_a_drained_worker_takes_nothing_until_it_is_undrained(
    server: Server, operator: httpx.Client, client: httpx.Client
) -> None:
    name = the_worker(operator)["name"]
    answer = operator.post(f"/v1/workers/{name}/drain").json()
    assert answer == {"worker": name, "drain": True, "instances": [the_worker(operator)["instance"]]}
    until(lambda: the_worker(operator)["state"] == "drained", "the drain")
    headers = {"Content-Type": "text/plain"}
    receipt = client.post("/v1/documents", content=b"text", headers=headers, params={"name": "a.txt"}).json()
    with Client(server.address, server.operator) as python:
        (worker,) = python.workers()
        assert (worker.state, worker.documents) == ("drained", ())
        assert client.get(receipt["links"]["self"]).json()["state"] == "ready"
        assert python.undrain_worker(worker.instance) == [worker.instance]
    assert client.get(receipt["links"]["self"], params={"wait": 40}).json()["state"] == "done"


def test_draining_an_unknown_worker_is_refused(server: Server, operator: httpx.Client) -> None:
    answer = operator.post("/v1/workers/no%20such%2Fworker/drain")
    assert (answer.status_code, problem_of(answer)) == (404, "nothing-here")
    with Client(server.address, server.operator) as python, pytest.raises(Unknown):
        python.drain_worker("no such/worker")


def test_kinds_that_no_worker_takes_are_named(server: Server, operator: httpx.Client, customer: str) -> None:
    the_worker(operator)
    id = server.queue.submit(customer, 1, kind="fax").id
    (unserved,) = operator.get("/v1/workers").json()["unserved"]
    assert (unserved["kind"], unserved["is_draining"]) == ("fax", False)
    with server.client(server.key(customer)) as client:
        assert "no worker takes documents of kind 'fax'" in client.get(f"/v1/documents/{id}/explain").json()["sentence"]
    with Client(server.address, server.operator) as python:
        assert [kind.kind for kind in python.unserved_kinds()] == ["fax"]


def test_a_service_without_workers_removes_those_that_are_long_gone(tmp_path: Path) -> None:
    with Queue(url := f"sqlite:///{tmp_path}/queue.db") as queue:
        now_ms, schema = queue.engine.now(), queue.engine.schema
        for name, seen_ms in (("long", now_ms - REMOVE_MS - 1), ("recently", now_ms - GONE_MS - 1)):
            record = WorkerRecord(name, "host", 1, "0.1.0", schema, (), 4, seen_ms, seen_ms, "working", {}, drain=False)
            queue.engine.put_record(WORKERS, name, record.encode())
    server = Server(tmp_path, url=url)
    try:
        until(lambda: [worker.name for worker in server.queue.workers()] == ["recently"], "the removal")
    finally:
        server.close()
