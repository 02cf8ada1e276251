"""Shares: what one customer, or somebody without a key, may hold at once, and that everybody else is served meanwhile."""

from __future__ import annotations

import asyncio
import json
import select
import socket
from collections import Counter
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlane.api.middleware import PIECE_BYTES, Sender

from .running import OPEN_LIMITS, HeldRequests, Server, problem_of, received, status_of, until

JSON = "Content-Type: application/json"
FILE = "Content-Type: text/plain"
NO_PROXY_HERE = ("--trusted-proxy", "127.0.0.99")  # so that limits by address hold for this machine's own clients


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    limits = (
        "requests_at_once=12", "requests_a_customer=4", "uploads_at_once=6", "uploads_a_customer=2", "waiting_a_customer=3",
        "upload_wait_seconds=1", "open_requests_at_once=2", "body_idle_seconds=600", "body_bytes_a_second=1", *OPEN_LIMITS,
    )  # fmt: skip
    server = Server(Path(tmp_path_factory.mktemp("narrow")), limits=limits)
    yield server
    server.close()


@contextmanager
def begun(server: Server, head: bytes, first: bytes, count: int) -> Iterator[list[socket.socket]]:
    """So many requests that have begun and do not go on."""
    with ExitStack() as opened:
        lines = [opened.enter_context(server.connect()) for _ in range(count)]
        for line in lines:
            line.sendall(head + b"\r\n" + first)
        yield lines


def refused_with_429(client: httpx.Client, method: str, path: str, content: bytes = b"x") -> bool:
    """Whether a request is refused because its customer has its share already."""
    with client.stream(method, path, content=content, headers={"Content-Type": "text/plain"}) as answer:
        if answer.status_code != 429:
            return False
        answer.read()
    assert problem_of(answer) == "too-many-requests"
    assert "of one customer" in answer.json()["detail"]
    assert int(answer.headers["retry-after"]) > 0
    return True


def test_slow_uploads_of_a_customer_leave_room_for_others(narrow: Server, customer: str) -> None:
    other = narrow.key(f"{customer}, neighbour")
    first, second = narrow.key(customer), narrow.key(customer)  # two keys, one share
    head = narrow.head(first, "POST", "/v1/documents", FILE, "Content-Length: 100")
    with ExitStack() as opened, narrow.client(second) as same, narrow.client(other) as neighbour:
        held = HeldRequests(narrow, opened, head + b"\r\nx", 2)
        until(lambda: held.begin() and refused_with_429(same, "POST", "/v1/documents"), "a refusal")
        for _ in range(5):
            answer = neighbour.post("/v1/documents", content=b"x", headers={"Content-Type": "text/plain"})
            assert answer.status_code == 202, answer.text
        for line in held.lines:
            line.sendall(b"x" * 99)
            assert status_of(b"".join(received(line))) == 202
        until(lambda: not refused_with_429(same, "POST", "/v1/documents"), "room")


def test_an_upload_waits_for_the_turn_of_its_customer(tmp_path: Path) -> None:
    server = Server(tmp_path, limits=("uploads_a_customer=1", "upload_wait_seconds=600", *OPEN_LIMITS))
    try:
        key = server.key("acme")
        head = server.head(key, "POST", "/v1/documents", FILE, "Content-Length: 100")
        with begun(server, head, b"x", 1) as slow, begun(server, head, b"x" * 100, 20) as waiting:
            with server.client(server.key("other")) as other:
                answer = other.post("/v1/documents", content=b"x", headers={"Content-Type": "text/plain"})
                assert answer.status_code == 202
            slow[0].sendall(b"x" * 99)
            assert {status_of(b"".join(received(line))) for line in (*slow, *waiting)} == {202}
    finally:
        server.close()


def test_slow_bodies_of_a_customer_leave_room_for_others(narrow: Server, customer: str) -> None:
    key, other = narrow.key(customer), narrow.key(f"{customer}, neighbour")
    head = narrow.head(key, "POST", "/v1/documents", JSON, "Content-Length: 2")
    with ExitStack() as opened, narrow.client(key) as same, narrow.client(other) as neighbour:
        held = HeldRequests(narrow, opened, head + b"\r\n{", 4)
        until(lambda: held.begin() and refused_with_429(same, "GET", "/v1/me", b""), "a refusal")
        assert neighbour.get("/v1/me").status_code == 200
        assert neighbour.get("/readyz").status_code == 200
        for line in held.lines:
            line.sendall(b"}")
            assert status_of(b"".join(received(line))) == 202
        until(lambda: same.get("/v1/me").status_code == 200, "room")


def holding(server: Server, head: bytes) -> socket.socket:
    """A connection with a request that waits, or whose response is not read."""
    line = server.connect()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.sendall(head)
    return line


def was_refused(line: socket.socket) -> bool:
    """Whether a response has come that says so."""
    is_readable = bool(select.select([line], [], [], 0)[0])
    return is_readable and status_of(line.recv(100, socket.MSG_PEEK)) == 429


@pytest.mark.parametrize("path", ["/v1/documents/{id}?wait=60", "/v1/events", "/v1/documents/{id}/file"])
def test_what_waits_of_a_customer_leaves_room_for_others(narrow: Server, customer: str, path: str) -> None:
    neighbour = f"{customer}, neighbour"
    key, other, ids = narrow.key(customer), narrow.key(neighbour), {}
    for name, its_key in ((customer, key), (neighbour, other)):
        with narrow.client(its_key) as client:
            body = {"content": bytes(30_000_000), "headers": {"Content-Type": "text/plain"}}
            ids[name] = client.post("/v1/documents", **body).json()["id"]  # type: ignore[arg-type]
    with ExitStack() as opened, narrow.client(key) as same:
        head = narrow.head(key, "GET", path.format(id=ids[customer])) + b"\r\n"
        lines: list[socket.socket] = []

        def is_full() -> bool:
            """Whether one more is refused; a line that was refused because of the one before that is sent again."""
            for line in [line for line in lines if was_refused(line)]:
                lines.remove(line)
            lines.extend(opened.enter_context(holding(narrow, head)) for _ in range(3 - len(lines)))
            return refused_with_429(same, "GET", path.format(id=ids[customer]).replace("wait=60", "wait=0.1"), b"")

        until(is_full, "a refusal")
        assert same.get("/v1/me").status_code == 200  # it may do other things
        own = opened.enter_context(narrow.connect())
        own.sendall(narrow.head(other, "GET", path.format(id=ids[neighbour])) + b"\r\n")
        narrow.queue.cancel(ids[neighbour])
        assert status_of(own.recv(1000)) == 200
    with narrow.client(key) as same:  # the places are free again when they have gone
        narrow.queue.cancel(ids[customer])
        until(lambda: same.get(f"/v1/documents/{ids[customer]}/file").status_code == 200, "room")


# -- without a key -----------------------------------------------------------------------------------------------------


def sign_in_head(server: Server, length: int) -> bytes:
    return server.head(None, "POST", "/page/session", JSON, f"Content-Length: {length}")


def test_slow_sign_ins_keep_nobody_from_anything(narrow: Server, customer: str) -> None:
    key = narrow.key(customer)
    body = json.dumps({"key": key})
    with begun(narrow, sign_in_head(narrow, 500), b"{", 60) as lines, narrow.client(key) as client, narrow.client(None) as page:
        for _ in range(3):
            assert client.get("/v1/me").status_code == 200
            assert page.get("/readyz").status_code == 200
            assert page.get("/healthz").status_code == 200
            assert page.get("/static/main.js").status_code == 200
            assert page.post("/page/session", content=body, headers={"Content-Type": "application/json"}).status_code == 200
        answers = Counter(status_of(b"".join(received(line))) for line in lines)
        assert answers == {408: 60}  # after five seconds


def test_clients_that_read_nothing_keep_nobody_from_the_page(narrow: Server, customer: str) -> None:
    request = narrow.head(None, "GET", "/v1/openapi.json").replace(b"Connection: close\r\n", b"") + b"\r\n"
    body = json.dumps({"key": narrow.key(customer)})
    with ExitStack() as opened, narrow.client(None) as page:
        held = HeldRequests(narrow, opened, request * 8, 10)
        held.begin()
        until(lambda: len(select.select(held.lines, [], [], 0)[0]) == 10, "ten responses that begin")
        for _ in range(3):
            assert page.get("/static/main.js").status_code == 200
            assert page.post("/page/session", content=body, headers={"Content-Type": "application/json"}).status_code == 200


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 200_000])
def test_a_long_response_is_sent_piece_by_piece(size: int) -> None:
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    body = bytes(number % 251 for number in range(size))
    sender = Sender(send, {"method": "GET", "headers": []})
    asyncio.run(sender({"type": "http.response.body", "body": body}))
    assert b"".join(message["body"] for message in sent) == body
    assert all(len(message["body"]) <= PIECE_BYTES for message in sent)
    assert [message.get("more_body", False) for message in sent] == [True] * (len(sent) - 1) + [False]


def test_the_body_of_a_sign_in_is_small(narrow: Server) -> None:
    answer = narrow.raw(sign_in_head(narrow, 1025) + b"\r\n{")
    assert (status_of(answer), problem_of(answer)) == (413, "too-large")
    chunked = narrow.head(None, "POST", "/page/session", JSON, "Transfer-Encoding: chunked")
    answer = narrow.raw(chunked + b"\r\n401\r\n" + b" " * 1025 + b"\r\n0\r\n\r\n")
    assert (status_of(answer), problem_of(answer)) == (413, "too-large")


@pytest.mark.parametrize("header", ["Authorization: Bearer x", "Host: other", JSON, "Idempotency-Key: x", "X-Fairlane-CSRF: x"])
def test_a_header_that_must_not_come_twice_is_refused(narrow: Server, customer: str, header: str) -> None:
    head = narrow.head(narrow.key(customer), "POST", "/v1/documents", JSON, "Idempotency-Key: y", "X-Fairlane-CSRF: y", header)
    answer = narrow.raw(head + b"Content-Length: 2\r\n\r\n{}")
    assert (status_of(answer), problem_of(answer)) == (400, "bad-request")
    assert narrow.queue.look(customer).waiting == 0


# -- by address ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def wary(tmp_path: Path) -> Iterator[Server]:
    limits = ("strangers_a_second=1", "strangers_burst=20", *OPEN_LIMITS)
    server = Server(tmp_path, *NO_PROXY_HERE, limits=limits)
    yield server
    server.close()


def client_at(server: Server, address: str, key: str | None) -> httpx.Client:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    transport = httpx.HTTPTransport(local_address=address)
    return httpx.Client(base_url=server.address, transport=transport, headers=headers, timeout=30)


@pytest.mark.parametrize("path", ["/v1/me", "/healthz", "/static/main.js", "/v1/openapi.json"])
def test_an_address_sends_so_many_requests_without_a_key_and_others_go_on(wary: Server, path: str) -> None:
    key = wary.key("acme")
    with client_at(wary, "127.0.2.2", key) as colleague, client_at(wary, "127.0.2.2", "fl_wrong") as hostile:
        assert colleague.get("/v1/me").status_code == 200
        answers = [hostile.get(path).status_code for _ in range(15)]
        assert set(answers) == {401 if path == "/v1/me" else 200}
        with client_at(wary, "127.0.2.2", "fl_0123456789abcdef_" + "x" * 43) as guessing:
            last = until(lambda: (answer := guessing.get("/v1/me")).status_code == 429 and answer, "a refusal")
        assert problem_of(last) == "too-many-requests"
        assert colleague.get("/v1/me").status_code == 200  # behind the same address, with a key
    with client_at(wary, "127.0.2.3", None) as other:
        assert other.get("/healthz").status_code == 200


def test_an_address_opens_so_many_connections_and_those_with_a_key_do_not_count(wary: Server) -> None:
    key = wary.key("acme")
    for _ in range(100):  # more than a burst: each shows a key
        with client_at(wary, "127.0.3.2", key) as client:
            assert client.get("/v1/me").status_code == 200
    answers = []
    for _ in range(40):
        with wary.connect("127.0.3.2") as line, suppress(OSError):
            line.shutdown(socket.SHUT_WR)
            answers.append(status_of(b"".join(received(line))))
    assert set(answers) == {0, 429}  # 0: it was accepted, and closed by both sides
    assert answers[-1] == 429
    with client_at(wary, "127.0.3.3", key) as other:
        assert other.get("/v1/me").status_code == 200
    until(lambda: [line for line in wary.logged() if line["event"] == "refused" and line["client"] == "127.0.3.2"])


def test_behind_a_named_proxy_its_clients_are_counted(tmp_path: Path) -> None:
    server = Server(tmp_path, "--trusted-proxy", "127.0.0.1", limits=("strangers_a_second=1", "strangers_burst=5"))
    try:
        with server.client(None) as proxy:

            def status(client: str) -> int:
                return proxy.get("/healthz", headers={"X-Forwarded-For": client}).status_code

            assert [status("203.0.113.9") for _ in range(5)] == [200] * 5
            until(lambda: status("203.0.113.9") == 429, "a refusal")
            assert status("2001:db9::1") == 200
            until(lambda: status("2001:db9::1") == 429 and status("2001:db9::2") == 429, "a refusal of the whole /64")
            assert status("2001:db9:0:1::1") == 200
            assert [status("127.0.0.1") for _ in range(50)] == [200] * 50  # the proxy's own
    finally:
        server.close()
