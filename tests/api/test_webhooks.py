"""Webhooks: signed, repeated until taken, not lost by a crash, and never led to an address that is not public."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlane import Queue
from fairlane.api import webhooks
from fairlane.api.webhook_transport import AddressRefused, is_public, post, resolve, signature, validate_url
from fairlane.core.errors import BadValue

from .running import Server, problem_of, until


class Listener(ThreadingHTTPServer):
    """Somebody else's server: notes what it is told, and answers as it is asked to."""

    daemon_threads = True

    def __init__(self) -> None:
        self.calls: list[tuple[dict[str, str], bytes]] = []
        self.statuses: list[int] = []  # of the next answers; then 200
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/hook?x=1"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Listener)
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:  # the sender died meanwhile
            self.close_connection = True
            return
        self.server.calls.append(({**dict(self.headers), "path": self.path}, body))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Server]:
    server = Server(folder, *options)
    try:
        yield server
    finally:
        server.close()


def hooked(server: Server, customer: str, url: str) -> str:
    """Set a webhook; returns its secret."""
    with server.client(server.operator) as client:
        answer = client.put(f"/v1/customers/{customer}/webhook", json={"url": url})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["secret"])


def test_an_ending_is_sent_signed_and_repeated_until_it_is_taken(tmp_path: Path, listener: Listener) -> None:
    with serving(tmp_path, "--allow-private-webhooks") as server:
        secret = hooked(server, "acme", listener.url)
        listener.statuses = [500, 302]
        server.queue.submit("somebody else", 1)
        id = server.queue.submit("acme", {"x": "secret of a payload"}).id
        server.finish(2)
        until(lambda: len(listener.calls) >= 3)
        assert {headers["path"] for headers, _ in listener.calls} == {"/hook?x=1"}  # a redirect is not followed
        headers, body = listener.calls[-1]
        assert json.loads(body)["document"] == id
        assert json.loads(body)["event"] == "done"
        assert headers["Fairlane-Signature"] == f"sha256={signature(secret, int(headers['Fairlane-Timestamp']), body)}"
        assert len({headers["Fairlane-Delivery"] for headers, _ in listener.calls}) == 1
        until(lambda: not server.queue.engine.records(webhooks.PENDING, "", 10))
        with server.client(server.operator) as client:
            figures = client.get("/metrics").text
        assert 'fairlane_webhooks_total{outcome="taken"} 1.0' in figures
        assert 'fairlane_webhooks_total{outcome="failed"} 2.0' in figures
        assert secret.encode() not in server.log.read_bytes()


def test_a_crash_loses_none(tmp_path: Path, listener: Listener) -> None:
    with serving(tmp_path, "--allow-private-webhooks") as server:
        hooked(server, "acme", listener.url)
        ended: set[str] = set()
        for _ in range(4):
            server.queue.submit_many("acme", [1] * 10)
            ended |= {claim.id for claim in server.finish(10)}
            listener.statuses = [503] * 3
            server.stop(signal.SIGKILL)
            server.queue.submit_many("acme", [1] * 5)
            ended |= {claim.id for claim in server.finish(5)}  # while nobody serves
            record = server.queue.engine.record(webhooks.STATE, "lease")
            if record is not None:  # its lease is over, as it would be after a minute
                server.queue.engine.put_record(webhooks.STATE, "lease", json.dumps({"name": "dead", "until_ms": 0}))
            server.start()
        until(lambda: {json.loads(body)["document"] for _, body in listener.calls} >= ended)
        until(lambda: not server.queue.engine.records(webhooks.PENDING, "", 10))


def test_private_addresses_are_refused_when_connecting(tmp_path: Path, listener: Listener) -> None:
    with serving(tmp_path) as server:
        hooked(server, "acme", listener.url)
        server.queue.submit("acme", 1)
        server.finish()
        refused = until(lambda: [line for line in server.logged() if line["event"] == "webhook"])
        assert refused[0]["outcome"] == "127.0.0.1 leads to an address that is not public"
        assert listener.calls == []


def test_without_its_webhook_nothing_is_sent(tmp_path: Path, listener: Listener) -> None:
    with serving(tmp_path, "--allow-private-webhooks") as server:
        hooked(server, "acme", listener.url)
        hooked(server, "other", listener.url)
        with server.client(server.operator) as client:
            assert client.delete("/v1/customers/acme/webhook").status_code == 204
            assert client.get("/v1/customers/acme").json()["webhook"] is None
        server.queue.submit("acme", 1)
        server.queue.submit("other", 1)
        server.finish(2)
        until(lambda: listener.calls)
        assert {json.loads(body)["customer"] for _, body in listener.calls} == {"other"}


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1",
     "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1",
     "2002:7f00:1::", "2001::1", "ff02::1", "::7f00:1", "240.0.0.1", "198.18.0.1"],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:93.184.216.34"])
def test_addresses_that_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f.1", "127.0.0.1"])
def test_names_of_this_machine_in_whatever_writing_are_refused(host: str) -> None:
    with pytest.raises((AddressRefused, OSError)):
        resolve(host, 80, allow_private=False)


@pytest.mark.parametrize(
    "url",
    ["", "example.com", "ftp://example.com", "https://", "https://user:word@example.com", "https://example.com:0",
     "https://example.com:99999", "https://example.com/ x", "https://exämple.com", "https://example.com/\r\nX: y",
     "https://[::1", "javascript:alert(1)", "https://example.com/" + 2000 * "x"],
)  # fmt: skip
def test_what_is_no_address_is_refused_when_it_is_set(url: str) -> None:
    with pytest.raises(BadValue):
        validate_url(url)


def test_a_secret_has_a_length(tmp_path: Path) -> None:
    with Queue("memory://") as queue:
        with pytest.raises(BadValue):
            webhooks.put_webhook(queue.engine, "acme", "https://example.com", "short")
        assert webhooks.put_webhook(queue.engine, "acme", "https://example.com", 16 * "x").secret == 16 * "x"


def test_an_answer_that_is_none_is_an_error(listener: Listener) -> None:
    listener.shutdown()
    listener.server_close()
    with pytest.raises(OSError):
        post(listener.url, "secret", 1, {}, allow_private=True)


def test_operators_see_what_is_wrong(tmp_path: Path) -> None:
    with serving(tmp_path) as server, server.client(server.operator) as client:
        answer: httpx.Response = client.put("/v1/customers/acme/webhook", json={"url": "nowhere"})
        assert (answer.status_code, problem_of(answer)) == (422, "bad-value")
