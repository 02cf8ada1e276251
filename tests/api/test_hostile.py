"""Requests that lie, dawdle or smuggle, on bare sockets: a clear 4xx, and nothing left behind."""

from __future__ import annotations

import gzip
import json
import socket

import pytest

from .running import Server, problem_of, received, status_of, until

JSON = "Content-Type: application/json"


def waiting(server: Server) -> int:
    return sum(customer.waiting for customer in server.queue.customers())


@pytest.fixture
def key(server: Server, customer: str) -> str:
    return server.key(customer)


def test_no_key_no_body_read(server: Server) -> None:
    """It answers although the body never comes, and takes no more of it."""
    answer = server.raw(server.head(None, "POST", "/v1/documents", JSON, "Content-Length: 1000000") + b"\r\n")
    assert (status_of(answer), problem_of(answer)) == (401, "no-key")
    assert b"connection: close" in answer.lower()


def test_100_continue_is_not_said_to_somebody_without_a_key(server: Server, key: str) -> None:
    more = (JSON, "Content-Length: 2", "Expect: 100-continue")
    assert status_of(server.raw(server.head(None, "POST", "/v1/documents", *more) + b"\r\n")) == 401
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as line:
        line.sendall(server.head(key, "POST", "/v1/documents", *more) + b"\r\n")
        assert line.recv(100).startswith(b"HTTP/1.1 100 ")
        line.sendall(b"{}")
        assert status_of(b"".join(received(line))) == 202


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: -1",),
        ("Content-Length: x",),
        ("Content-Length: 2", "Content-Length: 3"),
        ("Content-Length: 2, 3",),
        ("Content-Length: 99999999999999999999999",),
        ("Content-Length: 2", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 2"),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding : chunked",),
        ("Content-Length : 2",),
        ("X: a\x00b",),
        ("X\x7f: b",),
        (" folded: x",),
    ],
)
def test_lengths_and_codings_that_lie_are_refused(server: Server, key: str, headers: tuple[str, ...]) -> None:
    before = waiting(server)
    body = b"2\r\n{}\r\n0\r\n\r\nGET /v1/me HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = server.raw(server.head(key, "POST", "/v1/documents", JSON, *headers) + b"\r\n" + body)
    assert 400 <= status_of(answer) < 500, answer
    assert answer.count(b"HTTP/1.1 ") == 1  # what was smuggled behind it is not answered
    assert waiting(server) == before


@pytest.mark.parametrize("chunk", [b"zz\r\n{}\r\n", b"-2\r\n{}\r\n", b"ffffffffffffffffff\r\n{}", b"2\r\n{}XX0\r\n\r\n"])
def test_chunks_that_lie_are_refused(server: Server, key: str, chunk: bytes) -> None:
    before = waiting(server)
    head = server.head(key, "POST", "/v1/documents", JSON, "Transfer-Encoding: chunked")
    answer = server.raw(head + b"\r\n" + chunk)
    assert status_of(answer) == 400, answer
    assert waiting(server) == before


def test_a_body_in_chunks_is_counted_while_it_comes(server: Server, key: str) -> None:
    piece = b"x" * 60_000
    head = server.head(key, "POST", "/v1/documents", JSON, "Transfer-Encoding: chunked")
    chunks = b'c\r\n{"payload":"\r\n' + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for _ in range(40))
    answer = server.raw(head + b"\r\n" + chunks)
    assert (status_of(answer), problem_of(answer)) == (413, "too-large")


def test_a_body_that_is_cut_off_is_no_document(server: Server, key: str, customer: str) -> None:
    for cut in range(1, 12):
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as line:
            line.sendall(
                server.head(key, "POST", "/v1/documents", JSON, "Content-Length: 13") + b'\r\n{"payload":1}'[: 2 + cut]
            )
    with server.client(key) as client:
        assert client.post("/v1/documents", json={}).status_code == 202  # it came after all of them
    assert server.queue.look(customer).waiting == 1


def test_requests_sent_in_one_go_are_answered_in_their_order(server: Server, key: str, customer: str) -> None:
    last = server.head(key, "POST", "/v1/documents", JSON, "Content-Length: 2") + b"\r\n{}"
    kept_alive = last.replace(b"Connection: close\r\n", b"")
    look = server.head(key, "GET", "/v1/me").replace(b"Connection: close\r\n", b"") + b"\r\n"
    answers = server.raw(kept_alive * 5 + look + kept_alive + last).split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"202"] * 5 + [b"200"] + [b"202"] * 2
    taken = [json.loads(answer.partition(b"\r\n\r\n")[2]) for answer in answers]
    assert [receipt["counter"] for receipt in taken if "counter" in receipt] == [0, -1, -2, -3, -4, -5, -6]
    kept, ended = (
        {line.partition(b":")[0] for line in answers[index].split(b"\r\n\r\n")[0].split(b"\r\n")[1:]} for index in (0, -1)
    )
    assert ended - kept == {b"connection"}  # a kept connection has the same headers
    assert {b"date", b"cache-control", b"content-security-policy", b"location"} <= kept


def test_a_body_longer_than_declared_is_not_another_request(server: Server, key: str) -> None:
    head = server.head(key, "POST", "/v1/documents", JSON, "Content-Length: 2").replace(b"Connection: close\r\n", b"")
    answer = server.raw(head + b"\r\n{}" + b'{"payload": "too much"}\r\n\r\n')
    assert (status_of(answer), answer.count(b"HTTP/1.1 ")) == (202, 1)  # the answer of what arrived whole, and no more


@pytest.mark.parametrize(
    "headers",
    [
        [f"X-{number}: y" for number in range(10_000)],
        [f"X-{number}: y" for number in range(101)],
        ["X: " + "y" * 40_000],
        ["X: " + "y" * 4_000_000],
        ["X-" + "y" * 40_000 + ": z"],
    ],
    ids=["10,000 headers", "101 headers", "40 kB", "4 MB", "40 kB name"],
)
def test_headers_have_a_limit(server: Server, key: str, headers: list[str]) -> None:
    answer = server.raw(server.head(key, "GET", "/v1/me", *headers) + b"\r\n")
    assert status_of(answer) in (431, 0), answer[:300]  # 0: the line was cut before the answer could be read
    with server.client(key) as client:
        assert client.get("/v1/me").status_code == 200


def test_an_address_has_a_limit(server: Server, key: str) -> None:
    assert status_of(server.raw(server.head(key, "GET", "/v1/documents/" + "x" * 60_000) + b"\r\n")) in (431, 0)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "GZIP", "identity, gzip"])
def test_a_compressed_body_is_refused_before_it_is_read(server: Server, key: str, coding: str) -> None:
    bomb = gzip.compress(b'{"payload":"' + b"0" * 900_000 + b'"}')
    head = server.head(key, "POST", "/v1/documents", JSON, f"Content-Encoding: {coding}", f"Content-Length: {len(bomb)}")
    answer = server.raw(head + b"\r\n" + bomb)
    assert (status_of(answer), problem_of(answer)) == (415, "wrong-media-type")


@pytest.mark.parametrize(
    "path",
    ["/v1/documents/../customers", "/v1/documents/..%2Fcustomers", "//v1/customers", "/v1//customers", "/v1/customers/",
     "/v1/./customers", "/V1/customers", "/v1/customers%00", "/v1/customers;x=1", "/v1/%63ustomers", "/v1/documents/%ff%fe",
     "/v1/documents/%00", "/v1/documents/" + "x" * 3000, "/v1/documents/%2e%2e%2f%2e%2e%2fetc%2fpasswd"],
)  # fmt: skip
@pytest.mark.parametrize("who", ["customer", "operator"])
def test_paths_that_play_tricks_lead_nowhere(server: Server, key: str, path: str, who: str) -> None:
    answer = server.raw(server.head(key if who == "customer" else server.operator, "GET", path) + b"\r\n")
    assert (status_of(answer), problem_of(answer)) == (404, "nothing-here"), answer


@pytest.mark.parametrize(
    "data",
    [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"\x00" * 100, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"],
)
def test_what_is_not_http_is_refused_as_such(server: Server, data: bytes) -> None:
    assert status_of(server.raw(data)) == 400


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "OPTIONS", "PROPFIND", "POST"])
def test_methods_that_are_not_there(server: Server, key: str, method: str) -> None:
    answer = server.raw(server.head(key, method, "/v1/me", "Content-Length: 0") + b"\r\n")
    assert status_of(answer) in (400, 405), answer


def test_an_upgrade_is_not_answered_with_one(server: Server, key: str) -> None:
    more = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x", "Sec-WebSocket-Version: 13")
    head = server.head(key, "GET", "/v1/me", *more).replace(b"Connection: close\r\n", b"")
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as line:
        line.sendall(head + b"\r\n")
        assert b" 101 " not in line.recv(1000)


def test_hundreds_who_go_away_in_the_middle_leave_nothing(server: Server, key: str) -> None:
    before = waiting(server)
    for number in range(200):
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as line:
            line.sendall(server.head(key, "POST", "/v1/documents", JSON, "Content-Length: 5000")[: 20 + number])
    with server.client(key) as client:
        until(lambda: client.get("/readyz").status_code == 200)
    assert waiting(server) == before
