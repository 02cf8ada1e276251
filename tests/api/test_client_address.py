"""The client's address: what proxies say is believed of those that are named, from the right, and of nobody else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairlane.api.client_address import RequestSource, TrustedProxies, address_group
from fairlane.core.errors import BadValue
from tests.cli.running import run

from .running import Server, until

PROXIES = TrustedProxies(["10.0.0.1", "10.1.0.0/16", "2001:db8::/32"])


def source(peer: str, headers: dict[str, str], proxies: TrustedProxies = PROXIES, scheme: str = "http") -> RequestSource:
    scope: dict[str, Any] = {
        "client": (peer, 1234), "scheme": scheme,
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    return proxies.source(scope)


@pytest.mark.parametrize(
    ("peer", "header", "client"),
    [
        ("192.0.2.7", "203.0.113.9", "192.0.2.7"),  # not a proxy of ours
        ("127.0.0.1", "203.0.113.9", "127.0.0.1"),  # not named either
        ("10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("::ffff:10.0.0.1", "203.0.113.9", "203.0.113.9"),  # over an IPv6 socket
        ("10.0.0.1", "6.6.6.6, 203.0.113.9", "203.0.113.9"),  # the client has forged the first
        ("10.0.0.1", "6.6.6.6, 10.0.0.1, 203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "203.0.113.9, 10.1.2.3", "203.0.113.9"),  # two proxies of ours
        ("10.0.0.1", "203.0.113.9,10.1.2.3 , 2001:db8::5", "203.0.113.9"),
        ("10.0.0.1", "203.0.113.9:4711", "203.0.113.9"),
        ("10.0.0.1", "[2001:db9::1]:4711", "2001:db9::1"),
        ("10.0.0.1", "2001:DB9:0::1", "2001:db9::1"),
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("10.0.0.1", "6.6.6.6, evil'; --", "10.0.0.1"),
        ("10.0.0.1", "6.6.6.6, x, 10.1.0.9", "10.1.0.9"),  # as far as it is known
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "10.1.0.1, 10.1.0.2", "10.1.0.1"),  # nobody but proxies: the first of them
        ("10.0.0.1", "," * 30_000 + "203.0.113.9", "203.0.113.9"),
    ],
)
def test_the_first_address_from_the_right_that_is_no_proxy_is_the_client(peer: str, header: str, client: str) -> None:
    assert source(peer, {"X-Forwarded-For": header}).address == client


@pytest.mark.parametrize(
    ("header", "client"),
    [
        ("for=203.0.113.9", "203.0.113.9"),
        ('for=6.6.6.6, For="[2001:db9::1]:4711";proto=https;by=10.0.0.1', "2001:db9::1"),
        ("for=203.0.113.9;host=x, for=10.1.0.1", "203.0.113.9"),
        ("for=_hidden", "10.0.0.1"),
        ("proto=https", "10.0.0.1"),
        ('for="', "10.0.0.1"),
    ],
)
def test_forwarded_is_read_likewise(header: str, client: str) -> None:
    assert source("10.0.0.1", {"Forwarded": header}).address == client
    assert source("192.0.2.7", {"Forwarded": header}).address == "192.0.2.7"
    both = {"Forwarded": header, "X-Forwarded-For": "203.0.113.77"}
    assert source("10.0.0.1", both).address == "203.0.113.77"  # a proxy that sets this one passes the other on as it came


@pytest.mark.parametrize(
    ("headers", "is_https"),
    [
        ({"X-Forwarded-Proto": "https"}, True),
        ({"X-Forwarded-Proto": "https, http"}, True),  # TLS ends at the first of two proxies
        ({"X-Forwarded-Proto": "HTTPS,http"}, True),
        ({"X-Forwarded-Proto": "http, https"}, False),
        ({"X-Forwarded-Proto": "http"}, False),
        ({"Forwarded": "for=1.2.3.4;proto=https, for=10.1.0.1"}, True),
        ({"Forwarded": "for=1.2.3.4;proto=http"}, False),
        ({"X-Forwarded-Proto": "http", "Forwarded": "proto=https"}, False),
        ({}, False),
    ],
)
def test_the_scheme_is_the_one_that_the_browser_speaks(headers: dict[str, str], is_https: bool) -> None:
    assert source("10.0.0.1", headers).is_https is is_https
    assert source("127.0.0.1", headers).is_https is is_https  # a proxy on this machine
    assert source("192.0.2.7", headers).is_https is False
    assert source("192.0.2.7", headers, TrustedProxies(is_behind_proxy=True)).is_https is is_https
    assert source("192.0.2.7", headers, scheme="https").is_https is True


def test_addresses_are_counted_one_by_one_and_ipv6_by_its_64() -> None:
    assert address_group("203.0.113.9") == "203.0.113.9"
    assert address_group("2001:db9:1:2:3:4:5:6") == address_group("2001:db9:1:2::1") == "2001:db9:1:2::/64"
    assert address_group("2001:db9:1:3::1") != address_group("2001:db9:1:2::1")
    assert address_group("::ffff:203.0.113.9") == "203.0.113.9"
    assert address_group("") == ""


@pytest.mark.parametrize("network", ["proxy.example.com", "10.0.0.300", "10.0.0.1/8", "", "10.0.0.0/40"])
def test_what_is_neither_an_address_nor_a_network_is_refused(network: str, tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="an address or a network"):
        TrustedProxies([network])
    result = run("serve", "--port", "0", "--url", f"sqlite:///{tmp_path}/queue.db", "--trusted-proxy", network)
    assert (result.exit_code, "--trusted-proxy" in result.stderr) == (2, True), result.output


def requests(server: Server) -> list[dict[str, Any]]:
    return [line for line in server.logged() if line["event"] == "request"]


def test_the_log_has_the_client_of_each_request(tmp_path: Path) -> None:
    server = Server(tmp_path, "--trusted-proxy", "127.0.0.0/24")
    try:
        with server.client(server.key("acme")) as client:
            client.get("/v1/me", headers={"X-Forwarded-For": "6.6.6.6, 203.0.113.9"})
            client.get("/v1/me", headers={"Authorization": "no", "X-Forwarded-For": "203.0.113.10"})
            client.get("/v1/me")
        server.stop()  # writes the rest of the log
        assert [(line["client"], line["status"]) for line in requests(server)] == [
            ("203.0.113.9", 200), ("203.0.113.10", 401), ("127.0.0.1", 200)
        ]  # fmt: skip
    finally:
        server.close()


def test_the_log_says_what_is_needed_behind_a_proxy(tmp_path: Path) -> None:
    server = Server(tmp_path, "--behind-proxy", "--host", "0.0.0.0")
    try:
        (line,) = until(lambda: [line for line in server.logged() if line["event"] == "proxy not named"])
        assert "--trusted-proxy" in json.dumps(line)
    finally:
        server.close()
