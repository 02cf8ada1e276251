"""TLS: a real certificate, a client that trusts it and one that does not, and whoever speaks without TLS."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from fairlane import AsyncClient, Client
from fairlane.core.errors import StoreError
from tests.cli.running import run
from tests.conftest import need_program

from .running import Server, until

PATIENCE = 0.2  # what is not told at once is told after this


class Pair(NamedTuple):
    """The files of a certificate and its key."""

    certificate: str
    key: str


def made(folder: Path, name: str, *options: str, host: str = "localhost") -> Pair:
    """A certificate of its own for a host, with its key."""
    pair = Pair(str(folder / f"{name}.pem"), str(folder / f"{name}-key.pem"))
    command = [
        need_program("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
        "-days", "2", "-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}",
        "-keyout", pair.key, "-out", pair.certificate,
    ]  # fmt: skip
    subprocess.run([*command, *(options or ("-nodes",))], check=True, capture_output=True)
    return pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return made(tmp_path_factory.mktemp("certificate"), "localhost")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, pair: Pair) -> Iterator[Server]:
    """A server that others could reach, as it has TLS."""
    running = Server(
        tmp_path_factory.mktemp("tls"), "--host", "0.0.0.0", "--tls-certificate", pair.certificate, "--tls-key", pair.key,
    )  # fmt: skip
    yield running
    running.close()


@pytest.fixture
def address(server: Server) -> str:
    return f"https://localhost:{server.port}"


@pytest.fixture
def trusted(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", pair.certificate)


@pytest.mark.usefixtures("trusted")
def test_everything_works_with_a_certificate_that_is_trusted(server: Server, address: str, tmp_path: Path) -> None:
    assert server.address.startswith("https://")
    (tmp_path / "a.bin").write_bytes(bytes(3_000_000))
    with Client(address, server.key("acme")) as client, client.events(after=0) as events:
        receipt = client.submit(path=tmp_path / "a.bin")
        assert server.queue.input(receipt.id).size == 3_000_000
        assert next(events).document == receipt.id
        assert client.document(receipt.id).state == "ready"

    async def awaited() -> None:
        async with AsyncClient(address, server.operator) as operator:
            assert (await operator.look("acme")).waiting == 1

    asyncio.run(awaited())
    result = run("status", "acme", "--server", address, FAIRLANE_KEY=server.operator)
    assert (result.exit_code, "acme" in result.stdout) == (0, True), result.output


@pytest.mark.usefixtures("trusted")
def test_browsers_come_back_with_tls_and_with_a_cookie_for_tls_alone(address: str, server: Server, pair: Pair) -> None:
    trusted_context = ssl.create_default_context(cafile=pair.certificate)
    with httpx.Client(base_url=address, verify=trusted_context, timeout=30, trust_env=False) as client:
        response = client.post("/page/session", json={"key": server.operator}, headers={"Host": "fairlane.example.com"})
        assert response.headers["strict-transport-security"] == "max-age=31536000"
        assert response.headers["set-cookie"].startswith("__Host-fairlane=")
        for host in ("localhost:8000", "LOCALHOST", "x.localhost"):  # other programs of a developer may have no TLS
            assert "strict-transport-security" not in client.get("/healthz", headers={"Host": host}).headers
    (folder := server.folder / "plain").mkdir()
    plain = Server(folder)
    try:
        with plain.client(None) as client:
            headers = {"Host": "fairlane.example.com"}
            assert "strict-transport-security" not in client.get("/v1/me", headers=headers).headers
            response = client.get("/v1/me", headers=headers | {"X-Forwarded-Proto": "https"})
            assert response.headers["strict-transport-security"] == "max-age=31536000"
    finally:
        plain.close()


def test_a_certificate_that_is_not_trusted_is_reported_at_once(server: Server, address: str) -> None:
    with Client(address, server.operator) as client, pytest.raises(StoreError) as raised:  # with a minute of patience
        client.me()
    assert f"the server at {address} cannot be used: its certificate is not trusted: self-signed certificate" in str(
        raised.value
    )
    assert "SSL_CERT_FILE" in str(raised.value)
    result = run("status", "--server", address, FAIRLANE_KEY=server.operator)
    assert (result.exit_code, "is not trusted" in result.stderr) == (3, True), result.output


@pytest.mark.usefixtures("trusted")
def test_a_certificate_for_another_name_is_reported(server: Server) -> None:
    refused = pytest.raises(StoreError, match=r"mismatch.*; use the host name in the certificate")
    with Client(f"https://127.0.0.1:{server.port}", server.operator) as client, refused:
        client.me()


def test_whoever_speaks_without_tls_gets_nothing_and_a_hint(server: Server) -> None:
    assert server.raw(server.head(server.operator, "GET", "/v1/policy") + b"\r\n") == b""
    refused = pytest.raises(StoreError, match=r"the connection was lost; .* if it uses TLS, its address begins with https://")
    with Client(f"http://localhost:{server.port}", server.operator, patience=PATIENCE) as client, refused:
        client.rules()
    lines = server.logged()  # every line of it is JSON; those of earlier requests, none for the policy, may still come
    assert {line["event"] for line in lines} <= {"started", "unlimited", "request"}
    assert not [line for line in lines if line.get("route") == "/v1/policy"]


@pytest.mark.usefixtures("trusted")
def test_a_server_without_tls_is_reported_at_once(tmp_path: Path) -> None:
    plain = Server(tmp_path)
    try:
        refused = pytest.raises(StoreError, match="it does not speak TLS; its address may begin with http:// instead")
        with Client(f"https://localhost:{plain.port}", plain.operator) as client, refused:
            client.me()
        lines = until(lambda: [line for line in plain.logged() if line["event"] == "refused"], "a line in the log, in JSON")
        assert (lines[0]["client"], lines[0]["problem"]) == ("127.0.0.1", "bad-request")
    finally:
        plain.close()


def test_a_pair_that_cannot_be_used_is_reported(tmp_path: Path, pair: Pair) -> None:
    other, locked = made(tmp_path, "other"), made(tmp_path, "locked", "-passout", "pass:secret")
    for certificate, key, message in (
        (None, pair.key, "--tls-key is given without --tls-certificate"),
        (pair.certificate, None, "they are not valid PEM"),
        (pair.certificate, other.key, "the key does not belong to the certificate"),
        (pair.key, pair.certificate, "they are not valid PEM"),
        (locked.certificate, locked.key, "has a password; give --tls-key a key without one"),
    ):
        files = {"--tls-certificate": certificate, "--tls-key": key}
        options = [part for name, value in files.items() if value is not None for part in (name, value)]
        result = run("serve", "--port", "0", "--url", f"sqlite:///{tmp_path}/queue.db", *options)
        assert (result.exit_code, result.stdout, message in result.stderr) == (2, "", True), result.output
    assert not list(tmp_path.glob("*.db"))
