"""What-if replays the last hours, one question at a time."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from fairlane import Queue
from fairlane.console.what_if_process import answer
from fairlane.core.document import Done
from tests.api.running import Server, problem_of, until
from tests.console.page_client import signed_in

BAD = ({"thresholds": [-4, -2]}, {"reset_interval": 0}, {"workers": 0}, {"hours": 25}, {"reset": "x"}, {"turns": "x"}, {"x": 1})


def test_what_if(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        with signed_in(server, server.operator) as page:
            response = page.post("/page/what-if", json={})
            assert (response.status_code, problem_of(response)) == (409, "no-history")
            server.queue.submit_many("big", [1] * 60)
            server.queue.submit_many("small", [1] * 2)
            while server.finish(4):
                pass
            answer = page.post("/page/what-if", json={"reset": "sliding", "turns": "documents", "workers": 50}).json()
            assert answer["documents"] == 62
            assert (answer["now"]["workers"], answer["then"]["workers"]) == (4, 50)
            assert answer["then"]["waits"]["all"]["p95"] <= answer["now"]["waits"]["all"]["p95"]
            assert answer["now"]["waits"]["light"]["p50"] is not None
            assert (answer["measured"]["policy"], answer["measured"]["documents"]) == ("measured", 62)
            for question in BAD:
                response = page.post("/page/what-if", json=question)
                assert (response.status_code, problem_of(response)) == (422, "bad-value"), question
    finally:
        server.close()


def test_the_measured_past_is_beside_the_simulated_one(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        queue, now = server.queue, time.time()
        queue.submit_many("acme", [1] * 5, now=now - 120)
        claims = queue.engine.claim("worker", 5, 600_000, now_ms=round((now - 60) * 1000))
        queue.engine.settle([(claim, Done()) for claim in claims], now_ms=round((now - 59) * 1000))
        with signed_in(server, server.operator) as page:
            answer = page.post("/page/what-if", json={}).json()
        assert answer["measured"]["waits"]["all"]["p50"] == pytest.approx(60, abs=0.01)
        assert answer["now"]["waits"]["all"]["p50"] == 0
        assert [doubt["reason"] for doubt in answer["doubts"]] == ["downtime"]
        assert answer["doubts"][0]["values"]["seconds"] == pytest.approx(60, abs=0.01)
    finally:
        server.close()


def test_other_turns_are_tried(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    with Queue(url) as queue:
        queue.configure(thresholds=(), open_turn_every=0)
        queue.submit_many("short", [1] * 40, now=1000)
        queue.submit_many("long", [10] * 40, now=1000)
        now_ms = 1_000_000
        while claims := queue.engine.claim("worker", 1, 10**9, now_ms=now_ms):
            now_ms += 1000 * int(claims[0].payload)
            queue.engine.settle([(claims[0], Done())], now_ms=now_ms)
    same, other = (answer({"url": url, "since_ms": 0, "turns": turns}) for turns in ("time", "documents"))
    assert same["then"]["waits"] == same["now"]["waits"] == other["now"]["waits"]
    assert other["then"]["waits"]["all"]["mean"] > 1.2 * other["now"]["waits"]["all"]["mean"]


def test_one_question_at_a_time_and_it_ends_with_its_client(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        server.queue.submit_many("acme", [1] * 3)
        server.finish(3)
        with signed_in(server, server.operator) as page:
            request = page.build_request("POST", "/page/what-if", json={})
            head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items() if name.lower() != "host")
            question = f"POST /page/what-if HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode() + request.read()
            connection = socket.socket()

            def is_refused_meanwhile() -> bool:
                """Ask on a bare socket and again with the client; either may come first, so it may take more than one try."""
                nonlocal connection
                connection.close()
                connection = socket.create_connection(("127.0.0.1", server.port))
                connection.sendall(question)
                return bool(page.post("/page/what-if", json={}).status_code == 409)

            until(is_refused_meanwhile, "a question that is refused while another is answered")
            connection.close()
            until(lambda: page.post("/page/what-if", json={}).status_code == 200, "an answer after the other client left")
    finally:
        server.close()
