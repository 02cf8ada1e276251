"""Connections of hostile clients: counted before TLS, bounded in memory and time, and never in the way of others."""

from __future__ import annotations

import errno
import resource
import socket
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlane.api.arrivals import ARRIVALS_MAX
from fairlane.api.connection_table import CLOSING_MAX
from fairlane.api.limits import ServiceLimits
from fairlane.api.lingering import LINGER_BYTES
from fairlane.api.logging import REFUSED_LINES_A_SECOND

from .running import OPEN_LIMITS, Server, problem_of, received, status_of, until
from .test_tls import Pair, made

NO_PROXY_HERE = ("--trusted-proxy", "127.0.0.99")  # so that limits by address hold for this machine's own clients
JSON = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"
MEGABYTE = 1024 * 1024


@pytest.fixture
def key(server: Server, customer: str) -> str:
    return server.key(customer)


def sent_until_cut(line: socket.socket, piece: bytes, bytes_max: int) -> int:
    """Send pieces until the other side has had enough; return how many bytes were sent."""
    sent = 0
    with suppress(OSError):
        while sent < bytes_max:
            line.sendall(piece)
            sent += len(piece)
    return sent


# -- trailers and chunks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("beginning", "piece"),
    [
        (b"0\r\n", b"X-Trailer: " + b"y" * 1000 + b"\r\n"),
        (b"0\r\nX-Trailer: ", b"y" * 1000),
        (b"0\r\nX-", b"y" * 1000),
        (b"1;extension=", b"y" * 1000),
    ],
    ids=["many trailers", "a long trailer", "a long name", "a long extension"],
)
def test_what_follows_a_body_is_counted_and_cut_off(server: Server, beginning: bytes, piece: bytes) -> None:
    before = server.memory()
    with server.connect() as line:
        line.sendall(server.head(None, "POST", "/page/session", JSON, CHUNKED) + b"\r\n2\r\n{}\r\n" + beginning)
        sent = sent_until_cut(line, piece * 64, 200 * MEGABYTE)
    assert sent < LINGER_BYTES + 10 * MEGABYTE  # what is dropped while the response is on its way, and what systems buffer
    assert server.memory() - before < 20 * MEGABYTE


def test_trailers_change_nothing_that_the_headers_said(server: Server, key: str, customer: str) -> None:
    """A form, whose fields and idempotency key are read after the body."""
    form = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhello\r\n--x--\r\n'
    head = server.head(key, "POST", "/v1/documents", "Content-Type: multipart/form-data; boundary=x", CHUNKED)
    trailers = b"Idempotency-Key: from a trailer\r\nAuthorization: Bearer fl_x\r\nContent-Type: text/plain\r\n"
    answer = server.raw(head + b"\r\n%x\r\n%b\r\n0\r\n" % (len(form), form) + trailers + b"\r\n")
    assert status_of(answer) == 202, answer
    (document,) = server.queue.documents(customer=customer)
    assert document.key is None


def test_small_chunks_are_a_body_like_any_other(server: Server, key: str) -> None:
    body = b'{"payload": "' + b"x" * 40_000 + b'"}'
    head = server.head(key, "POST", "/v1/documents", JSON, CHUNKED)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    assert status_of(server.raw(head + b"\r\n" + chunks + b"0\r\n\r\n")) == 202


# -- requests sent ahead, bodies that nobody reads -----------------------------------------------------------------------


def test_few_requests_are_read_ahead_of_their_responses(server: Server) -> None:
    before = server.memory()
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = server.raw(request * 50_000)
    assert 1 <= answer.count(b"HTTP/1.1 ") <= 2 + ServiceLimits().pipelined_requests
    assert server.memory() - before < 20 * MEGABYTE


def test_a_response_before_the_end_of_the_body_ends_the_connection(server: Server, key: str) -> None:
    head = server.head(key, "GET", "/v1/me", "Content-Length: 1000000").replace(b"Connection: close\r\n", b"")
    with server.connect() as line:
        line.sendall(head + b"\r\n" + bytes(100_000))
        answer = b"".join(received(line))
    assert (status_of(answer), answer.count(b"HTTP/1.1 ")) == (200, 1)
    assert b"connection: close" in answer


def test_a_request_sent_ahead_is_not_dropped_because_its_body_is_still_coming(server: Server, key: str) -> None:
    body = b'{"payload": "' + b"x" * 200_000 + b'"}'
    first = server.head(key, "GET", "/v1/me").replace(b"Connection: close\r\n", b"") + b"\r\n"
    second = server.head(key, "POST", "/v1/documents", JSON, f"Content-Length: {len(body)}") + b"\r\n"
    with server.connect() as line:
        line.sendall(first + second + body[:1000])
        answer = b""
        while b"HTTP/1.1 200" not in answer or not answer.endswith(b"}"):
            answer += line.recv(65536)
        line.sendall(body[1000:])
        assert status_of(b"".join(received(line))) == 202


@pytest.mark.parametrize(("key_sent", "status"), [(False, 401), (True, 413)])
def test_whoever_sends_on_still_gets_the_response(server: Server, key: str, key_sent: bool, status: int) -> None:
    """Closed at once, the connection would be reset, and a client that sends a large body would see nothing but that."""
    size = 8 * MEGABYTE
    head = server.head(key if key_sent else None, "POST", "/v1/documents", JSON, f"Content-Length: {size}")
    with server.connect() as line:
        line.sendall(head + b"\r\n")
        for _ in range(size // MEGABYTE):
            line.sendall(bytes(MEGABYTE))
        assert status_of(b"".join(received(line))) == status


def test_after_an_upgrade_that_is_not_made_the_connection_ends(server: Server, key: str) -> None:
    more = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")
    head = server.head(key, "GET", "/v1/me", *more).replace(b"Connection: close\r\n", b"")
    answer = server.raw(head + b"\r\n" + head + b"\r\n")
    assert (status_of(answer), answer.count(b"HTTP/1.1 ")) == (200, 1)
    assert b"connection: close" in answer


@pytest.mark.parametrize(
    "request_text",
    [
        "POST /v1/documents HTTP/1.1\r\nHost: x\r\nContent-Length: +2\r\n\r\n{}",
        "POST /v1/documents HTTP/1.1\r\nHost: x\r\nContent-Length: 0x2\r\n\r\n{}",
        "POST /v1/documents HTTP/1.1\r\nHost: x\r\nContent-Length: \r\n\r\n{}",
        "POST /v1/documents HTTP/1.1\r\nHost: x\r\nContent-Length: 2 2\r\n\r\n{}",
        "POST /v1/documents HTTP/1.1\r\nHost: x\nContent-Length: 2\r\n\r\n{}",
        "POST /v1/documents HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
        "POST /v1/documents HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        "POST /v1/documents HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n",
        "POST /v1/documents HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n",
        "POST /v1/documents HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2;x\n{}\r\n0\r\n\r\n",
        "POST /v1/documents HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n 2\r\n{}\r\n0\r\n\r\n",
        "POST /v1/documents HTTP/1.1\r\n Host: x\r\n\r\n",
    ],
)  # fmt: skip
def test_what_a_proxy_may_read_in_another_way_is_refused(server: Server, request_text: str) -> None:
    """Nothing that follows it on the same connection is read as a request."""
    answer = server.raw(request_text.encode("latin-1") + b"GET /v1/me HTTP/1.1\r\nHost: x\r\n\r\n")
    assert status_of(answer) in (400, 401), answer
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in answer


# -- who does not read -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    limits = ("response_idle_seconds=1", "response_bytes_a_second=1000000", *OPEN_LIMITS)
    server = Server(Path(tmp_path_factory.mktemp("impatient")), limits=limits)
    yield server
    server.close()


@pytest.mark.parametrize("connection", ["close", "keep-alive"])
def test_who_does_not_read_is_cut_off(impatient: Server, connection: str) -> None:
    size = 40 * MEGABYTE
    key = impatient.key("slow reader")
    with impatient.client(key) as client:
        id = client.post("/v1/documents", content=bytes(size), headers={"Content-Type": "text/plain"}).json()["id"]
        with impatient.connect() as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            head = impatient.head(key, "GET", f"/v1/documents/{id}/file").replace(b"close", connection.encode())
            line.sendall(head + b"\r\n")
            until(lambda: line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNRESET, "the end of the connection")
        whole = client.get(f"/v1/documents/{id}/file")  # whoever reads, at whatever speed above the least, gets all of it
        assert len(whole.content) == size


# -- TLS, and how many ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return made(tmp_path_factory.mktemp("certificate"), "localhost")


@pytest.fixture(scope="module")
def with_tls(tmp_path_factory: pytest.TempPathFactory, pair: Pair) -> Iterator[Server]:
    options = ("--tls-certificate", pair.certificate, "--tls-key", pair.key, *NO_PROXY_HERE)
    limits = ("connections=20", "connections_an_address=12", "handshake_seconds=2", *OPEN_LIMITS)
    server = Server(tmp_path_factory.mktemp("tls"), *options, limits=limits)
    yield server
    server.close()


def hello() -> bytes:
    """The beginning of a TLS handshake."""
    sent, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    speaker = ssl.create_default_context().wrap_bio(sent, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        speaker.do_handshake()
    return outgoing.read()


def get_me(server: Server, pair: Pair, key: str, own: str) -> int:
    transport = httpx.HTTPTransport(verify=ssl.create_default_context(cafile=pair.certificate), local_address=own)
    with httpx.Client(transport=transport, timeout=30, trust_env=False) as client:
        return client.get(f"https://localhost:{server.port}/v1/me", headers={"Authorization": f"Bearer {key}"}).status_code


@pytest.mark.parametrize("said", ["nothing", "half a hello", "hello"])
def test_connections_count_before_the_handshake_and_keep_nobody_out(with_tls: Server, pair: Pair, said: str) -> None:
    first = {"nothing": b"", "half a hello": hello()[:100], "hello": hello()}[said]
    key = with_tls.key("acme")
    with ExitStack() as opened:
        for number in range(400):
            line = opened.enter_context(with_tls.connect(f"127.0.1.{number % 50}"))
            with suppress(OSError):  # displaced already
                line.sendall(first)
        assert get_me(with_tls, pair, key, "127.0.0.2") == 200  # while they are open
        assert with_tls.sockets() <= 20 + CLOSING_MAX + ARRIVALS_MAX + 10  # and what the process has beside


@pytest.mark.parametrize("first", [b"", hello()[:100], hello()], ids=["nothing", "half a hello", "hello"])
def test_a_handshake_that_does_not_go_on_is_cut_off(with_tls: Server, first: bytes) -> None:
    with with_tls.connect() as line:
        line.sendall(first)
        assert b"200" not in b"".join(received(line))  # returns when the other side has closed it


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    limits = ("connections=30", "connections_an_address=12", "new_connections_a_second=100000", *OPEN_LIMITS)
    server = Server(Path(tmp_path_factory.mktemp("crowded")), *NO_PROXY_HERE, limits=limits)
    yield server
    server.close()


def healthz_status(line: socket.socket) -> int:
    """Ask whether the server is up, read the whole response, and return its status; 0: the connection is closed."""
    answer = b""
    with suppress(OSError):
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        while not answer.endswith(b"}") and (piece := line.recv(65536)):
            answer += piece
    return status_of(answer)


def test_one_address_displaces_its_own_connections_first(crowded: Server) -> None:
    with ExitStack() as opened:
        calm = [opened.enter_context(crowded.connect("127.0.2.1")) for _ in range(3)]
        assert [healthz_status(line) for line in calm] == [200] * 3
        many = [opened.enter_context(crowded.connect("127.0.2.2")) for _ in range(40)]
        answers = Counter(map(healthz_status, many))
        assert answers == {200: 12, 503: 28}
        assert [healthz_status(line) for line in calm] == [200] * 3


def test_strangers_from_many_addresses_displace_no_request_with_a_key(crowded: Server) -> None:
    key = crowded.key("watcher")
    with ExitStack() as opened:
        watching = opened.enter_context(crowded.connect("127.0.3.1"))
        watching.sendall(crowded.head(key, "GET", "/v1/events") + b"\r\n")
        assert status_of(watching.recv(1000)) == 200
        strangers = [opened.enter_context(crowded.connect(f"127.0.4.{number}")) for number in range(200)]
        with crowded.client(key) as client:  # and a newcomer gets in
            assert client.get("/v1/me").status_code == 200
            id = client.post("/v1/documents", json={}).json()["id"]
        until(lambda: id.encode() in watching.recv(65536), "the event")
        assert crowded.sockets() <= 30 + CLOSING_MAX + 10
        del strangers


def test_when_all_are_busy_with_requests_of_keys_a_new_one_is_told_so(crowded: Server) -> None:
    with ExitStack() as opened:
        for number in range(30):
            line = opened.enter_context(crowded.connect("127.0.5.1"))
            line.sendall(crowded.head(crowded.key(f"watcher {number}"), "GET", "/v1/events") + b"\r\n")
            assert status_of(line.recv(1000)) == 200
        answer = crowded.raw(crowded.head(crowded.operator, "GET", "/v1/me") + b"\r\n")
        assert (status_of(answer), problem_of(answer)) == (503, "overloaded")
    until(lambda: status_of(crowded.raw(crowded.head(crowded.operator, "GET", "/v1/me") + b"\r\n")) == 200)


def test_what_is_no_request_is_logged_with_its_client_within_bounds(crowded: Server) -> None:
    sent = 0

    def refused() -> list[dict[str, Any]]:
        nonlocal sent
        with crowded.connect("127.0.6.1") as line:
            line.sendall(b"garbage\r\n\r\n")
            assert status_of(b"".join(received(line))) == 400
        sent += 1
        return [line for line in crowded.logged() if line["event"] == "refused" and line["client"] == "127.0.6.1"]

    until(lambda: any(line.get("unlogged") for line in refused()), "a line that says how many were left out")
    lines = refused()
    assert {line["problem"] for line in lines} == {"bad-request"}
    seconds = Counter(int(line["at"]) for line in lines)
    assert max(seconds.values()) <= 2 * REFUSED_LINES_A_SECOND  # the clock's seconds begin at other moments than the log's
    assert len(lines) < sent


# -- open files ------------------------------------------------------------------------------------------------------------


def allowed_files(server: Server) -> int:
    limits = Path(f"/proc/{server.process.pid}/limits").read_text()
    return int(limits.partition("Max open files")[2].split()[0])


def test_as_many_open_files_as_needed_are_allowed_at_start(tmp_path: Path) -> None:
    server = Server(tmp_path, open_files=(256, 4096))
    try:
        needed = 2 * ServiceLimits().connections + CLOSING_MAX + 256
        assert allowed_files(server) == needed
        assert not [line for line in server.logged() if line["event"] == "few open files"]
    finally:
        server.close()


def test_with_few_open_files_there_are_fewer_connections_and_no_resets(tmp_path: Path) -> None:
    server = Server(tmp_path, *NO_PROXY_HERE, open_files=(256, 600))
    try:
        (line,) = [line for line in server.logged() if line["event"] == "few open files"]
        assert (line["files"], line["connections"]) == (600, (600 - CLOSING_MAX - 256) // 2)
        key = server.key("acme")
        with ExitStack() as opened:
            lines = [opened.enter_context(server.connect(f"127.0.7.{number % 100}")) for number in range(200)]
            answers = Counter(map(healthz_status, lines))
            assert set(answers) == {200, 503}
            with server.client(key) as client:
                assert client.post("/v1/documents", json={}).status_code == 202
        assert not [line for line in server.logged() if line["event"] == "not accepting"]
    finally:
        server.close()


def test_too_few_open_files_are_reported(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fairlane.cli", "serve", "--port", "0", "--url", f"sqlite:///{tmp_path}/queue.db"]
    limited = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (300, 300))
    ended = subprocess.run(command, preexec_fn=limited, capture_output=True, text=True, timeout=60, check=False)
    message = "only 300 open files are allowed, and the service needs at least 416; raise ulimit -n"
    assert (ended.returncode, message in ended.stderr) == (2, True), ended.stderr
