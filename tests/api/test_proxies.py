"""The service behind nginx, Caddy and Traefik: with nothing but an address to pass on to, and with the files of deploy/."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlane import AsyncClient, Client
from fairlane.api.limits import ServiceLimits
from tests.servers.proxies import Proxy, caddy, nginx, stock_nginx, traefik

from .running import OPEN_LIMITS, Server, until
from .test_tls import Pair, made

DEPLOY = Path(__file__).parents[2] / "deploy" / "proxies"
UPSTREAM = "127.0.0.1:8000"  # in the files
LARGE = bytes(3_000_000)  # more than nginx accepts by default


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    limits = (*OPEN_LIMITS, "upload_bytes=10000000")
    running = Server(tmp_path_factory.mktemp("behind"), "--trusted-proxy", "127.0.0.1", limits=limits)
    yield running
    running.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return made(tmp_path_factory.mktemp("certificate"), "localhost")


@pytest.fixture(scope="module", params=["nginx", "caddy"])
def stock(request: pytest.FixtureRequest, server: Server, pair: Pair) -> Iterator[str]:
    """The address of a proxy that knows the service's port and nothing else."""
    if request.param == "nginx":
        proxy = stock_nginx(server.port, Path(pair.certificate), Path(pair.key))
        yield f"https://localhost:{proxy.port}"
    else:
        proxy = caddy(f"http://127.0.0.1:PORT {{\n\treverse_proxy 127.0.0.1:{server.port}\n}}\n")
        yield f"http://127.0.0.1:{proxy.port}"
    proxy.close()


@contextmanager
def browse(address: str, pair: Pair, key: str | None) -> Iterator[httpx.Client]:
    """A client that trusts the certificate and accepts compressed responses, as browsers do."""
    headers = {"Accept-Encoding": "gzip"} | ({} if key is None else {"Authorization": f"Bearer {key}"})
    trusted = ssl.create_default_context(cafile=pair.certificate)
    with httpx.Client(base_url=address, headers=headers, verify=trusted, timeout=30, trust_env=False) as client:
        yield client


def test_events_come_as_they_happen(server: Server, stock: str, pair: Pair, customer: str) -> None:
    with browse(stock, pair, server.key(customer)) as client, client.stream("GET", "/v1/events?after=0") as response:
        assert "content-encoding" not in response.headers
        data = (line for line in response.iter_lines() if line.startswith("data: "))
        for number in range(3):  # one at a time: the next is submitted when the last one's event has come
            receipt = server.queue.submit(customer, number)
            assert receipt.id in next(data)


def test_responses_and_problems_pass_unchanged(server: Server, stock: str, pair: Pair) -> None:
    with browse(stock, pair, None) as client:
        direct = httpx.get(f"{server.address}/v1/me", trust_env=False)
        response = client.get("/v1/me")
        assert (response.status_code, response.json()) == (401, direct.json())
        assert client.get("/healthz").status_code == 200


@pytest.fixture(scope="module")
def nginx_site(server: Server, pair: Pair) -> Iterator[str]:
    """The address of nginx with the file of the docs, in which only the names are replaced."""
    site = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    for name, value in (
        ("/etc/ssl/fairlane.example.com.pem", "FOLDER/certificate"),
        ("/etc/ssl/private/fairlane.example.com.key", "FOLDER/key"),
        ("fairlane.example.com", "localhost"),
        ("listen 443 ", "listen 127.0.0.1:PORT "),
        (UPSTREAM, f"127.0.0.1:{server.port}"),
    ):
        assert name in site
        site = site.replace(name, value)
    proxy = nginx(site, {"certificate": Path(pair.certificate).read_bytes(), "key": Path(pair.key).read_bytes()})
    yield f"https://localhost:{proxy.port}"
    proxy.close()


@pytest.fixture(scope="module")
def caddy_site(server: Server) -> Iterator[Proxy]:
    """Caddy with the file of the docs, without the certificate that it would fetch for the name."""
    site = (DEPLOY / "Caddyfile").read_text(encoding="utf-8")
    for name, value in (("fairlane.example.com {", "http://127.0.0.1:PORT {"), (UPSTREAM, f"127.0.0.1:{server.port}")):
        assert name in site
        site = site.replace(name, value)
    proxy = caddy(site)
    yield proxy
    proxy.close()


def use(client: Client, server: Server, folder: Path) -> None:
    """Upload a large file, wait for it, and watch it."""
    (folder / "large.bin").write_bytes(LARGE)
    with client.events(after=0) as events:
        receipt = client.submit(path=folder / "large.bin")
        assert server.queue.input(receipt.id).size == len(LARGE)
        assert next(events).document == receipt.id
    until(lambda: server.queue.document(receipt.id).state == "done" or server.finish(100))
    assert client.wait(receipt.id).state == "done"


def test_the_file_for_nginx(
    server: Server, nginx_site: str, pair: Pair, customer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", pair.certificate)
    with Client(nginx_site, server.key(customer)) as client:
        use(client, server, tmp_path)
    with browse(nginx_site, pair, None) as browser:
        signed_in = browser.post("/page/session", json={"key": server.operator})
        assert "; Secure" in signed_in.headers["set-cookie"]
        assert signed_in.headers["set-cookie"].startswith("__Host-fairlane=")
        assert browser.get("/v1/me").status_code == 200

    async def awaited() -> None:
        async with AsyncClient(nginx_site, server.operator) as operator:
            assert (await operator.look(customer)).waiting == 0

    asyncio.run(awaited())


def test_the_file_for_caddy(server: Server, caddy_site: Proxy, customer: str, tmp_path: Path) -> None:
    with Client(f"http://127.0.0.1:{caddy_site.port}", server.key(customer)) as client:
        use(client, server, tmp_path)


def test_the_file_for_traefik(server: Server, customer: str, tmp_path: Path) -> None:
    site = (DEPLOY / "traefik.yaml").read_text(encoding="utf-8")
    for name, value in (
        ("Host(`fairlane.example.com`)", "Host(`127.0.0.1`)"),
        ("      tls: { certResolver: letsencrypt }\n", ""),
        (UPSTREAM, f"127.0.0.1:{server.port}"),
    ):
        assert name in site
        site = site.replace(name, value)
    proxy = traefik(site)
    try:
        address, key = f"http://127.0.0.1:{proxy.port}", server.key(customer)
        until(lambda: httpx.get(f"{address}/healthz", trust_env=False).status_code == 200, "the router")
        with Client(address, key) as client:
            use(client, server, tmp_path)
        transport = httpx.HTTPTransport(local_address="127.0.0.8")
        with httpx.Client(base_url=address, transport=transport, headers={"Authorization": f"Bearer {key}"}) as sender:
            receipt = sender.post("/v1/documents", json={}, headers=FORGED)
        assert until(partial(_logged, server, receipt.json()["id"]), "a line in the log")["client"] == "127.0.0.8"
    finally:
        proxy.close()


FORGED = {"X-Forwarded-For": "6.6.6.6", "Forwarded": "for=6.6.6.7", "X-Real-IP": "6.6.6.8"}


def test_the_client_is_known_behind_the_files(
    server: Server, nginx_site: str, caddy_site: Proxy, pair: Pair, customer: str
) -> None:
    """Clients at 127.0.0.5 and .6, which is not named as a proxy, forge what they can."""
    key, trusted = server.key(customer), ssl.create_default_context(cafile=pair.certificate)
    for address, verify, own in (
        (nginx_site, trusted, "127.0.0.5"), (f"http://127.0.0.1:{caddy_site.port}", True, "127.0.0.6"),
    ):  # fmt: skip
        transport = httpx.HTTPTransport(verify=verify, local_address=own)
        with httpx.Client(base_url=address, transport=transport, headers={"Authorization": f"Bearer {key}"}) as client:
            receipt = client.post("/v1/documents", json={}, headers=FORGED)
            assert receipt.status_code == 202, receipt.text
        line = until(partial(_logged, server, receipt.json()["id"]), "a line in the log")
        assert line["client"] == own
    direct = httpx.HTTPTransport(local_address="127.0.0.7")
    with httpx.Client(base_url=server.address, transport=direct, headers={"Authorization": f"Bearer {key}"}) as client:
        receipt = client.post("/v1/documents", json={}, headers=FORGED)
    line = until(partial(_logged, server, receipt.json()["id"]), "a line in the log")
    assert line["client"] == "127.0.0.7"


def _logged(server: Server, id: str) -> dict[str, Any] | None:
    """The line of a submission; asks for another one, as lines are written several at a time."""
    with server.client(None) as client:
        client.get("/healthz")
    return next((line for line in server.logged() if line.get("document") == id), None)


def test_the_files_allow_as_much_as_the_service() -> None:
    limits, files = ServiceLimits(), {name: (DEPLOY / name).read_text(encoding="utf-8") for name in ("nginx.conf", "Caddyfile")}
    (nginx_megabytes,) = re.findall(r"client_max_body_size (\d+)m;", files["nginx.conf"])
    (caddy_megabytes,) = re.findall(r"max_size (\d+)MB", files["Caddyfile"])
    (nginx_seconds,) = re.findall(r"proxy_read_timeout (\d+)s;", files["nginx.conf"])
    assert int(nginx_megabytes) * 2**20 > limits.upload_bytes
    assert int(caddy_megabytes) * 10**6 > limits.upload_bytes
    assert int(nginx_seconds) > limits.wait_seconds
    assert limits.wait_seconds < 60  # after which an nginx without this file gives a response up
