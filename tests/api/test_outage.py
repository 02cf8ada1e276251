"""A store that goes away and comes back: 503 at once, streams that go on, an end in time, and a worker that is there again."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from chaos.proxy import FaultyProxy
from fairlane import Queue
from fairlane.api import auth
from tests.servers import postgres
from tests.worker.conftest import is_alive, process_tree

from .running import Server, problem_of, until

ANSWER_SECONDS = 8.0  # far less than the 30 of a call to a store that is away, and enough for a busy machine
Start = Callable[..., Server]


@pytest.fixture
def proxy() -> Iterator[FaultyProxy]:
    with FaultyProxy(postgres.shared().port) as proxy:
        yield proxy


@pytest.fixture
def queue() -> Iterator[Queue]:
    """The queue, past the proxy."""
    with Queue(postgres.empty_queue(postgres.shared(), "outages")) as queue:
        yield queue


@pytest.fixture
def start(proxy: FaultyProxy, queue: Queue, tmp_path: Path) -> Iterator[Start]:
    """A server behind the proxy."""
    servers = []

    def start(*options: str, **arguments: Any) -> Server:
        url = queue.url.replace(str(postgres.shared().port), str(proxy.port))
        servers.append(Server(tmp_path, "--blobs", str(tmp_path / "blobs"), *options, url=url, **arguments))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


class Stream:
    """Events as they come, read on a thread."""

    def __init__(self, client: httpx.Client, path: str = "/v1/events") -> None:
        self.lines: list[str] = []
        self.is_over = False
        self._client = client
        self._path = path
        threading.Thread(target=self._read, daemon=True).start()
        until(lambda: self.lines, "the beginning of the stream")

    def _read(self) -> None:
        try:
            with self._client.stream("GET", self._path, timeout=60) as response:
                for line in response.iter_lines():
                    self.lines.append(line)
        except httpx.HTTPError:
            pass
        self.is_over = True


def is_ready(client: httpx.Client) -> bool:
    return client.get("/readyz").status_code == 200


def get_documents(client: httpx.Client) -> None:
    with contextlib.suppress(httpx.HTTPError):  # the server may have ended first
        client.get("/v1/documents")


@pytest.mark.parametrize("fault", ["freeze", "refuse"])
def test_everything_that_needs_the_store_is_503_at_once_until_it_is_back(
    start: Start, proxy: FaultyProxy, queue: Queue, fault: str
) -> None:
    server = start()
    key = auth.create(queue.engine, customer="acme")[0]
    with server.client(key) as client, server.client(None) as anybody, server.client(server.operator) as operator:
        client.timeout = anybody.timeout = operator.timeout = httpx.Timeout(ANSWER_SECONDS)
        first = client.post("/v1/documents", json={}).json()
        stream, frames = Stream(client), Stream(operator, "/page/frames")
        until(lambda: any(line.startswith("data:") for line in frames.lines), "a frame of the page")
        getattr(proxy, fault)()
        requests: list[Callable[[], httpx.Response]] = [
            lambda: client.post("/v1/documents", json={}),
            lambda: client.post("/v1/documents", content=b"one", headers={"Content-Type": "text/plain"}),
            lambda: client.post("/v1/batches", files=[("file", ("a.txt", b"one"))]),
            lambda: client.post("/v1/batches", json={"documents": [{"payload": 1}]}),
            lambda: client.get("/v1/documents"),
            lambda: client.get(first["links"]["self"]),
            lambda: operator.get("/v1/customers"),
            lambda: anybody.post("/page/session", json={"key": server.operator}),
            lambda: anybody.get("/v1/me", headers={"Authorization": f"Bearer fl_{'a' * 16}_{'b' * 43}"}),
        ]
        for _ in range(2):  # before and after it is known to be away
            with ThreadPoolExecutor(36) as threads:  # three times as many as the server has threads for its store
                responses = list(threads.map(lambda request: request(), requests * 4))
            assert {response.status_code for response in responses} == {503}
            assert {problem_of(response) for response in responses} == {"store-busy"}
            assert all(int(response.headers["retry-after"]) <= 5 for response in responses)
        assert anybody.get("/healthz").status_code == 200
        ready = anybody.get("/readyz")
        assert (ready.status_code, "the store does not answer" in ready.json()["reasons"]) == (503, True)
        assert operator.get("/metrics").status_code == 200  # needs no store
        seen, frames_seen = len(stream.lines), len(frames.lines)
        proxy.restore()
        until(lambda: is_ready(anybody), "the recovery")
        last = client.post("/v1/documents", json={}).json()
        until(lambda: any(last["id"] in line for line in stream.lines[seen:]), "an event after the outage")
        until(lambda: any(line.startswith("data:") for line in frames.lines[frames_seen:]), "a frame after the outage")
        assert not stream.is_over
        assert not frames.is_over
    events = [line["event"] for line in server.logged()]
    assert (events.count("store away"), events.count("store back")) == (1, 1)


@pytest.mark.parametrize("fault", ["freeze", "refuse"])
def test_a_signal_ends_it_and_its_worker_while_the_store_is_away(
    start: Start, proxy: FaultyProxy, queue: Queue, fault: str
) -> None:
    server = start("--limit", "stop_seconds=6", work=True)
    until(queue.workers, "the registration of the worker")
    with server.client(server.operator) as client:
        stream = Stream(client)
        tree = process_tree(server.process.pid)
        getattr(proxy, fault)()
        hanging = threading.Thread(target=get_documents, args=[client])
        hanging.start()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=20) == 0
        until(lambda: not any(map(is_alive, tree)), "the end of every process")
        until(lambda: stream.is_over)
        hanging.join()


def test_a_worker_that_ended_while_the_store_was_away_is_started_when_it_is_back(
    start: Start, proxy: FaultyProxy, queue: Queue
) -> None:
    server = start(work=True)

    def events(name: str) -> list[dict[str, Any]]:
        return [line for line in server.logged() if line["event"] == name]

    (first,) = until(lambda: events("worker started"))
    until(queue.workers, "the registration of the worker")
    proxy.refuse()
    until(lambda: events("store away"))
    os.kill(first["pid"], signal.SIGKILL)
    (ended,) = until(lambda: events("worker ended"))
    assert ended["again_in"] == 0.5
    with server.client(None) as anybody:
        until(lambda: anybody.get("/readyz").status_code == 503)
        assert len(events("worker started")) == 1
        proxy.restore()
        until(lambda: is_ready(anybody), "the recovery")
    until(lambda: len(events("worker started")) == 2, "the worker's start")
