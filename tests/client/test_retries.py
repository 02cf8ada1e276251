"""What is asked again, and what is not, when answers are lost or the server says no."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from fairlane import Client
from fairlane.core.errors import Mistake, StoreBusy, StoreError
from tests.api.running import Server

from .between import Between, answer, problem


@pytest.fixture
def between(server: Server) -> Iterator[Between]:
    with Between(server.port) as made:
        yield made


@pytest.fixture
def client(server: Server, between: Between, customer: str) -> Iterator[Client]:
    with Client(between.address, server.key(customer), timeout=30, patience=30) as made:
        yield made


def test_a_submission_whose_answer_was_lost_is_sent_again_and_doubles_nothing(client: Client, between: Between) -> None:
    between.losing = 3
    receipt = client.submit({"a": 1})
    assert (between.lost, receipt.repeated, receipt.counter) == (3, True, 0)
    assert client.look().waiting == 1
    between.losing = 2
    assert len(client.submit_many([1, 2]).documents) == 2
    assert client.look().waiting == 3


def test_a_check_whose_answer_was_lost_is_not_made_twice(client: Client, between: Between) -> None:
    client.check()
    between.losing = 1
    with pytest.raises(StoreError, match="whether it was done is not known; look before you ask again"):
        client.check()
    assert client.look().counter == -1


def test_the_ask_again_answers_of_server_and_proxies_are_heeded(client: Client, between: Between) -> None:
    between.instead = [
        problem(503, "stopping"), problem(429, "too-many-requests", "Retry-After: 1"), problem(503, "store-busy"),
        answer(502, b"<h1>Bad gateway</h1>", "text/html"), answer(504, b"", "text/html"),
    ]  # fmt: skip
    assert client.submit().repeated is False
    assert between.instead == []


def test_what_was_refused_before_it_began_is_asked_again_even_if_it_may_not_be_done_twice(
    client: Client, between: Between
) -> None:
    between.instead = [problem(503, "overloaded"), problem(429, "too-many-requests")]
    assert client.check().counter == 0
    between.instead = [problem(503, "store-busy")]
    with pytest.raises(StoreBusy, match="told by store-busy"):
        client.check()
    between.instead = [answer(502, b"", "text/html")]
    with pytest.raises(StoreError, match="answered 502 without saying why"):
        client.check()


def test_patience_ends(server: Server, between: Between) -> None:
    with Client(between.address, server.operator, patience=0.3) as client:
        between.instead = [problem(503, "overloaded")] * 100
        with pytest.raises(StoreBusy, match="told by overloaded"):
            client.me()
        between.instead = [problem(429, "too-many-requests", "Retry-After: 60")]
        with pytest.raises(StoreBusy, match="told by too-many-requests"):
            client.me()


def test_what_is_wrong_for_good_is_not_asked_again(client: Client, between: Between) -> None:
    for told, kind in (
        (problem(401, "no-key"), Mistake),
        (problem(500, "broken"), StoreError),
        (problem(413, "too-large"), Mistake),
    ):
        before = len(between.asked)
        between.instead = [told]
        with pytest.raises(kind):
            client.me()
        assert len(between.asked) == before + 1


def test_nobody_there_is_told_without_a_traceback(server: Server) -> None:
    for address, why in (("http://127.0.0.1:1", "connection refused"), ("http://nowhere.invalid", "")):
        with Client(address, server.operator, patience=0.2) as client, pytest.raises(StoreError) as told:
            client.me()
        assert f"the server at {address} cannot be used: {why}" in str(told.value)
        assert told.value.__cause__ is None


def test_odd_answers_are_told(client: Client, between: Between) -> None:
    ok = "application/json"
    for odd in (answer(200, b"[]", ok), answer(200, b"<html>", "text/html"), answer(200, b'{"role":"operator"}', ok)):
        between.instead = [odd]
        with pytest.raises(StoreError, match="otherwise than Fairlane does"):
            client.me()
    between.instead = [answer(302, b"", "text/html", "Location: http://127.0.0.1:1/")]
    with pytest.raises(StoreError, match="answered 302"):
        client.me()
    between.instead = [b"SSH-2.0-OpenSSH\r\n"] * 100
    with Client(between.address, "fl_x", patience=0.2) as hasty, pytest.raises(StoreError, match="does not speak HTTP"):
        hasty.me()


def test_an_answer_that_was_cut_short_is_asked_for_again(client: Client, between: Between) -> None:
    between.instead = [answer(200, b'{"role":', "application/json", "Connection: close").replace(b"Length: 8", b"Length: 80")]
    assert client.me().role == "customer"
    assert len(between.asked) == 2


def test_a_server_that_was_killed_and_comes_back_is_waited_for(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = Server(tmp_path_factory.mktemp("killed"))
    try:
        with Between(server.port) as between, Client(between.address, server.key("acme"), patience=30) as client:
            first = client.submit(1)
            server.stop(9)
            server.start()
            between._server = ("127.0.0.1", server.port)
            assert client.document(first.id).state == "ready"  # on the connection that is gone
    finally:
        server.close()


def test_connections_are_used_again_and_never_in_a_child(client: Client, between: Between) -> None:
    for _ in range(5):
        client.me()
    assert len(between._sockets) == 2  # ours and the one to the server
    child = os.fork()
    if child == 0:
        os._exit(0 if client.me().role == "customer" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(between._sockets) == 4
    assert client.me().role == "customer"
    assert len(between._sockets) == 4
