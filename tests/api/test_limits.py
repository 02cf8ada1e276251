"""Limits: what is over one is refused early, and the next client is served."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path

import httpx
import pytest

from fairlane.api.limits import ServiceLimits, parse_limits
from fairlane.core.errors import BadValue, Mistake

from .running import OPEN_LIMITS, HeldRequests, Server, problem_of, received, status_of, until

SMALL = ("requests_a_second=1", "requests_burst=20", "batch_documents=5", "viewers_a_key=2", "batch_bytes=2000",
         "page_documents=7")  # fmt: skip
JSON = "Content-Type: application/json"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(Path(tmp_path_factory.mktemp("small")), limits=SMALL)
    server.queue.configure(waiting_max=10)
    yield server
    server.close()


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for those who are too slow alone: a busy machine makes slow clients of all others."""
    server = Server(Path(tmp_path_factory.mktemp("hasty")), limits=("header_seconds=1", "body_idle_seconds=1"))
    yield server
    server.close()


def test_a_key_makes_so_many_requests_and_others_go_on(small: Server) -> None:
    with small.client(small.key("busy")) as busy, small.client(small.key("calm")) as calm:
        answers = [busy.get("/v1/me") for _ in range(60)]
        assert [answer.status_code for answer in answers[:20]] == [200] * 20
        over = [answer for answer in answers if answer.status_code != 200]
        assert {problem_of(answer) for answer in over} == {"too-many-requests"}
        assert {answer.headers["retry-after"] for answer in over} == {"1"}
        assert calm.get("/v1/me").status_code == 200
        until(lambda: busy.get("/v1/me").status_code == 200)


def test_so_many_documents_of_a_customer_wait(small: Server) -> None:
    with small.client(small.key("heap")) as client:
        answers = [client.post("/v1/documents", json={"payload": number}) for number in range(13)]
        assert [answer.status_code for answer in answers] == [202] * 10 + [429] * 3
        assert problem_of(answers[-1]) == "too-many-queued"
        assert int(answers[-1].headers["retry-after"]) > 0
        figures = {name: answers[-1].json()[name] for name in ("limit", "used", "adding", "most")}
        assert figures == {"limit": "waiting_max", "used": 10, "adding": 1, "most": 10}
        assert small.queue.look("heap").waiting == 10
        over = client.post("/v1/batches", json={"documents": [{"payload": 1}]})
        assert problem_of(over) == "too-many-queued"
        look = small.queue.look("heap")
        assert (look.waiting, look.counter) == (10, -9)  # what was refused was no check
        small.finish(100)
        assert client.post("/v1/documents", json={}).status_code == 202  # at once: nothing is counted now and then


def test_a_batch_has_a_length_and_a_size(small: Server) -> None:
    with small.client(small.key("batcher")) as client:
        over = client.post("/v1/batches", json={"documents": [{"payload": 1}] * 6})
        assert (over.status_code, problem_of(over)) == (422, "bad-value")
        over = client.post("/v1/batches", json={"documents": [{"payload": "x" * 2000}]})
        assert (over.status_code, problem_of(over)) == (413, "too-large")
        assert client.get("/v1/documents").json()["documents"] == []
        assert problem_of(client.get("/v1/documents", params={"limit": 8})) == "bad-value"


def test_headers_that_do_not_come_are_not_waited_for(hasty: Server) -> None:
    answer = hasty.raw(b"GET /v1/me HTTP/1.1\r\nHost: x\r\n")
    assert (status_of(answer), problem_of(answer)) == (408, "too-slow")


def test_a_connection_that_says_nothing_is_closed(hasty: Server) -> None:
    assert hasty.raw(b"") == b""


def test_a_body_that_does_not_come_is_not_waited_for(hasty: Server) -> None:
    head = hasty.head(hasty.key("slow"), "POST", "/v1/documents", JSON, "Content-Length: 100")
    answer = hasty.raw(head + b'\r\n{"payload":')
    assert (status_of(answer), problem_of(answer)) == (408, "too-slow")
    assert hasty.queue.look("slow").waiting == 0


def test_a_body_that_trickles_is_not_waited_for_either(hasty: Server) -> None:
    head = hasty.head(hasty.key("trickle"), "POST", "/v1/documents", JSON, "Content-Length: 100000")
    with socket.create_connection(("127.0.0.1", hasty.port), timeout=0.2) as line:
        line.sendall(head + b"\r\n")
        answer = b""

        def trickled() -> bytes:
            nonlocal answer
            try:
                line.sendall(b" ")
                answer += line.recv(65536)
            except TimeoutError:
                return b""
            except OSError:
                return answer or b"gone"
            return answer

        assert until(trickled, "an answer") == b"gone" or status_of(answer) == 408


def test_so_many_streams_for_a_key(small: Server) -> None:
    key = small.key("watcher")
    with ExitStack() as opened, small.client(key) as client:
        for _ in range(2):
            line = opened.enter_context(socket.create_connection(("127.0.0.1", small.port), timeout=30))
            line.sendall(small.head(key, "GET", "/v1/events") + b"\r\n")
            assert status_of(line.recv(1000)) == 200
        with client.stream("GET", "/v1/events") as over:
            over.read()
        assert (over.status_code, problem_of(over)) == (429, "too-many-requests")


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(Path(tmp_path_factory.mktemp("narrow")), limits=("requests_at_once=4", *OPEN_LIMITS))
    yield server
    server.close()


def test_overload_is_reported_early(narrow: Server) -> None:
    key = narrow.key("acme")
    head = narrow.head(key, "POST", "/v1/documents", JSON, "Content-Length: 2")
    with ExitStack() as opened, narrow.client(key) as client:
        held = HeldRequests(narrow, opened, head + b"\r\n{", 4)  # at work: their bodies are being read

        def refusal() -> httpx.Response | None:
            held.begin()
            return answer if (answer := client.get("/v1/me")).status_code == 503 else None

        over = until(refusal)
        assert (problem_of(over), over.headers["retry-after"]) == ("overloaded", "1")
        for line in held.lines:
            line.sendall(b"}")
            assert status_of(b"".join(received(line))) == 202
        until(lambda: client.get("/v1/me").status_code == 200)


def test_waiting_is_not_work(narrow: Server) -> None:
    key, id = narrow.key("waiter"), narrow.queue.submit("waiter", 1).id
    with ExitStack() as opened, narrow.client(key) as client:
        lines = [opened.enter_context(socket.create_connection(("127.0.0.1", narrow.port), timeout=60)) for _ in range(8)]
        for line in lines:
            line.sendall(narrow.head(key, "GET", f"/v1/documents/{id}?wait=60") + b"\r\n")
            until(lambda: client.get("/v1/me").status_code == 200)
        client.delete(f"/v1/documents/{id}")
        assert {status_of(b"".join(received(line))) for line in lines} == {200}


def test_limits_are_reported_by_name() -> None:
    assert parse_limits(["connections=5"]).connections == 5
    for wrong in ("connections", "nothing=1", "connections=x", "connections=-1", "connections=0", "=5"):
        with pytest.raises((BadValue, Mistake)):
            parse_limits([wrong])
    with pytest.raises(Mistake, match=r"not a limit of the server any more: .* `fairlane policy --waiting-max N`"):
        parse_limits(["queued_documents=5"])


def test_every_limit_is_written_down_with_its_default() -> None:
    written = (Path(__file__).parents[2] / "docs/service.md").read_text()
    for limit in fields(ServiceLimits):
        assert f"| `{limit.name}` | {getattr(ServiceLimits(), limit.name):,} |" in written, limit.name
