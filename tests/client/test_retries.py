"""Which requests are repeated, and which are not, when responses are lost or are errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import Client
from fairlane.core.errors import Mistake, StoreBusy, StoreError
from tests.api.running import Server

from .faulty_proxy import FaultyProxy, problem, response


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultyProxy]:
    with FaultyProxy(server.port) as instance:
        yield instance


@pytest.fixture
def client(server: Server, proxy: FaultyProxy, customer: str) -> Iterator[Client]:
    with Client(proxy.address, server.key(customer), timeout=30, patience=30) as instance:
        yield instance


def test_a_submission_whose_response_was_lost_is_repeated_and_makes_one_document(client: Client, proxy: FaultyProxy) -> None:
    proxy.responses_to_lose = 3
    receipt = client.submit({"a": 1})
    assert (proxy.lost, receipt.repeated, receipt.counter) == (3, True, 0)
    assert client.look().waiting == 1
    proxy.responses_to_lose = 2
    assert len(client.submit_many([1, 2]).documents) == 2
    assert client.look().waiting == 3


def test_a_check_whose_response_was_lost_is_not_repeated(client: Client, proxy: FaultyProxy) -> None:
    client.check()
    proxy.responses_to_lose = 1
    with pytest.raises(StoreError, match="whether it was done is not known; check before you repeat it"):
        client.check()
    assert client.look().counter == -1


def test_retryable_responses_of_server_and_proxies_are_retried(client: Client, proxy: FaultyProxy) -> None:
    proxy.canned = [
        problem(503, "stopping"), problem(429, "too-many-requests", "Retry-After: 1"), problem(503, "store-busy"),
        response(502, b"<h1>Bad gateway</h1>", "text/html"), response(504, b"", "text/html"),
    ]  # fmt: skip
    assert client.submit().repeated is False
    assert proxy.canned == []


def test_a_request_refused_before_it_began_is_repeated_even_if_it_is_not_idempotent(client: Client, proxy: FaultyProxy) -> None:
    proxy.canned = [problem(503, "overloaded"), problem(429, "too-many-requests")]
    assert client.check().counter == 0
    proxy.canned = [problem(503, "store-busy")]
    with pytest.raises(StoreBusy, match="the reason is store-busy"):
        client.check()
    proxy.canned = [response(502, b"", "text/html")]
    with pytest.raises(StoreError, match="responded 502 without a reason"):
        client.check()


def test_patience_ends(server: Server, proxy: FaultyProxy) -> None:
    with Client(proxy.address, server.operator, patience=0.3) as client:
        proxy.canned = [problem(503, "overloaded")] * 100
        with pytest.raises(StoreBusy, match="the reason is overloaded"):
            client.me()
        proxy.canned = [problem(429, "too-many-requests", "Retry-After: 60")]
        with pytest.raises(StoreBusy, match="the reason is too-many-requests"):
            client.me()


def test_a_permanent_error_is_not_repeated(client: Client, proxy: FaultyProxy) -> None:
    for canned, kind in (
        (problem(401, "no-key"), Mistake),
        (problem(500, "broken"), StoreError),
        (problem(413, "too-large"), Mistake),
    ):
        before = len(proxy.requests)
        proxy.canned = [canned]
        with pytest.raises(kind):
            client.me()
        assert len(proxy.requests) == before + 1


def test_an_unreachable_server_is_a_clear_error(server: Server) -> None:
    for address, reason in (("http://127.0.0.1:1", "connection refused"), ("http://nowhere.invalid", "")):
        with Client(address, server.operator, patience=0.2) as client, pytest.raises(StoreError) as caught:
            client.me()
        assert f"the server at {address} cannot be used: {reason}" in str(caught.value)
        assert caught.value.__cause__ is None


def test_responses_that_are_not_fairlanes_are_an_error(client: Client, proxy: FaultyProxy) -> None:
    ok = "application/json"
    for unexpected in (
        response(200, b"[]", ok),
        response(200, b"<html>", "text/html"),
        response(200, b'{"role":"operator"}', ok),
    ):
        proxy.canned = [unexpected]
        with pytest.raises(StoreError, match="the response is not Fairlane's"):
            client.me()
    proxy.canned = [response(200, b'{"customer":"a","priority":1,"counter":0,"checked_at":-1e300}', ok)]
    with pytest.raises(StoreError, match="a time is out of range"):
        client.check()
    proxy.canned = [response(302, b"", "text/html", "Location: http://127.0.0.1:1/")]
    with pytest.raises(StoreError, match="responded 302"):
        client.me()
    proxy.canned = [b"SSH-2.0-OpenSSH\r\n"] * 100
    with Client(proxy.address, "fl_x", patience=0.2) as hasty, pytest.raises(StoreError, match="does not speak HTTP"):
        hasty.me()


def test_a_truncated_response_is_requested_again(client: Client, proxy: FaultyProxy) -> None:
    proxy.canned = [response(200, b'{"role":', "application/json", "Connection: close").replace(b"Length: 8", b"Length: 80")]
    assert client.me().role == "customer"
    assert len(proxy.requests) == 2


def test_a_server_that_was_killed_and_comes_back_is_waited_for(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = Server(tmp_path_factory.mktemp("killed"))
    try:
        with FaultyProxy(server.port) as proxy, Client(proxy.address, server.key("acme"), patience=30) as client:
            first = client.submit(1)
            server.stop(9)
            server.start()
            proxy.server = ("127.0.0.1", server.port)
            assert client.document(first.id).state == "ready"  # on the connection that is gone
    finally:
        server.close()


def test_connections_are_used_again_and_never_in_a_child(client: Client, proxy: FaultyProxy) -> None:
    for _ in range(5):
        client.me()
    assert len(proxy.sockets) == 2  # ours and the one to the server
    child = os.fork()
    if child == 0:
        os._exit(0 if client.me().role == "customer" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(proxy.sockets) == 4
    assert client.me().role == "customer"
    assert len(proxy.sockets) == 4


def test_an_export_that_is_cut_off_begins_again_and_leaves_no_half(server: Server, proxy: FaultyProxy, tmp_path: Path) -> None:
    server.queue.submit("exported", content=b"bytes")
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    chunk = b"%x\r\n%s\r\n" % (1000, b"x" * 1000)
    with Client(proxy.address, server.admin, timeout=30, patience=30) as client:
        proxy.canned = [head + chunk, head + chunk]  # without the last chunk
        assert client.export("exported", tmp_path / "all.tar").documents == 1
        assert proxy.canned == []
        proxy.canned = [head + chunk + b"0\r\n\r\n"]  # whole for HTTP, and no archive
        with pytest.raises(StoreError, match="breaks off before its end"):
            client.export("exported", tmp_path / "other.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["all.tar"]
