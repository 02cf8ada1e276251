"""Signing in by the word of an authenticating proxy: a real nginx asks for passwords, and nobody else is believed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.running import SECONDS_MAX, Server, problem_of, until
from tests.cli.running import run
from tests.console.page_client import CSRF
from tests.console.signing_in import PROXY_OPTIONS, SECRET, authenticating_nginx, oidc_options, session_of
from tests.docs.snippets import snippet

UNTRUSTED = "127.0.0.2"  # another address of this machine than the proxy's
ADA = {"Remote-User": "ada", "Remote-Groups": "staff, operators"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(Path(tmp_path_factory.mktemp("proxied")), *PROXY_OPTIONS)
    yield running
    running.close()


@pytest.fixture(scope="module")
def proxied(server: Server) -> Iterator[str]:
    proxy = authenticating_nginx(server.port)
    yield f"http://127.0.0.1:{proxy.port}"
    proxy.close()


@pytest.fixture
def direct(server: Server) -> Iterator[httpx.Client]:
    """A client that is believed: it comes from the proxy's address."""
    with server.client(None) as client:
        yield client


def open_client(address: str, user: str | None = None, source: str | None = None) -> httpx.Client:
    auth = None if user is None else (user, f"{user}'s password")
    transport = httpx.HTTPTransport(local_address=source)
    return httpx.Client(base_url=address, auth=auth, transport=transport, timeout=SECONDS_MAX, trust_env=False)


def sign_in(client: httpx.Client, headers: dict[str, str] | None = None) -> httpx.Response:
    return client.post("/page/proxy-session", json={}, headers=headers)


def named(client: httpx.Client, headers: Any = None) -> str | None:
    """Whom the service takes the client for, before it signs in."""
    proxy: dict[str, str] | None = client.get("/page/sign-in", headers=headers).json()["proxy"]
    return None if proxy is None else proxy["name"]


def test_whom_nginx_names_signs_in_without_a_key_and_works(server: Server, proxied: str) -> None:
    with open_client(proxied, "ada") as client, server.client(server.admin) as admin:
        session = sign_in(client).json()
        assert (session["role"], session["person"]["name"]) == ("operator", "ada")
        assert client.patch("/v1/customers/acme", json={"paused": True}).status_code == 403  # without the CSRF token
        client.headers[CSRF] = session["csrf"]
        assert client.patch("/v1/customers/acme", json={"paused": True}).status_code == 200
        id = session["person"]["id"]
        entries = admin.get("/v1/audit", params={"who": id}).json()["entries"]
        assert [entry["action"] for entry in reversed(entries)] == ["session.begin", "customer.pause"]
        assert {entry["who"]["kind"] for entry in entries} == {"person"}
        assert id in run("sessions", "list", FAIRLANE_URL=server.url).output
        assert client.delete("/page/session").status_code == 204
        assert session_of(client) is None


def test_what_a_client_sends_under_these_names_does_not_pass_nginx(proxied: str) -> None:
    with open_client(proxied, "vic") as client:
        forged = {"Remote-User": "ada", "Remote-Groups": "admins"}
        assert named(client, forged) == "vic"
        assert sign_in(client, forged).json()["role"] == "viewer"
    with open_client(proxied) as client:
        assert client.get("/page/sign-in", headers=ADA).status_code == 401  # of nginx: nobody gets this far


def test_people_of_a_customer_are_that_customer(server: Server, proxied: str) -> None:
    other = server.queue.submit("beta", 1).id
    with open_client(proxied, "cleo") as client:
        session = sign_in(client).json()
        assert (session["role"], session["customer"]) == ("customer", "acme")
        assert client.get(f"/v1/documents/{other}").status_code == 404
        assert client.get("/v1/customers").status_code == 404


def test_whoever_has_no_role_is_refused_and_that_is_recorded(server: Server, proxied: str) -> None:
    with open_client(proxied, "eve") as client, server.client(server.admin) as admin:
        response = sign_in(client)
        assert (response.status_code, problem_of(response)) == (403, "not-allowed")
        assert session_of(client) is None

        def refused() -> list[Any]:
            entries = admin.get("/v1/audit", params={"who": "eve", "what": "session.refused"}).json()["entries"]
            return [(entry["error"], entry["who"]["kind"]) for entry in entries]

        until(lambda: refused() == [("no-role", "person")], "the entry of the refusal")
        line = next(line for line in server.logged() if line["event"] == "sign-in failed")
        assert (line["person_name"], line["groups"]) == ("eve", ["strangers"])


def test_nobody_else_is_believed(server: Server, direct: httpx.Client) -> None:
    """Neither a header alone nor a stolen cookie is worth anything from an address that is not the proxy's."""
    assert named(direct, ADA) == "ada"
    assert sign_in(direct, ADA).status_code == 200
    stolen = direct.cookies["fairlane"]
    with open_client(server.address, source=UNTRUSTED) as client:
        assert named(client, ADA) is None
        response = sign_in(client, ADA)
        assert (response.status_code, problem_of(response)) == (401, "no-key")
        client.cookies.set("fairlane", stolen)
        assert client.get("/v1/me", headers=ADA).status_code == 401
        assert client.get("/v1/me", headers=ADA | {"X-Forwarded-For": "127.0.0.1"}).status_code == 401
        assert client.get("/v1/me", headers={"Authorization": f"Bearer {stolen}"}).status_code == 401
    assert direct.get("/v1/me", headers=ADA).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Remote-Groups": "staff, operators"},
        ADA | {"Remote-User": "bob"},
        ADA | {"Remote-User": "Ada"},
        {"Remote-User": "ada", "Remote-Groups": "staff"},
        {"Remote-User": "ada", "Remote-Groups": "staff, operators, admins"},
        {"Remote-User": "ada"},
    ],
    ids=str,
)
def test_a_session_counts_while_the_proxy_says_the_same(direct: httpx.Client, headers: dict[str, str]) -> None:
    sign_in(direct, ADA)
    assert direct.get("/v1/me", headers=headers).status_code == 401
    assert direct.get("/v1/me", headers=ADA | {"Remote-Groups": "operators,unknown"}).status_code == 200  # the same role


@pytest.mark.parametrize(
    "headers",
    [
        [("Remote-User", "")],
        [("Remote-User", "x" * 201)],
        [("Remote-User", b"\xff\xfe")],
        [("Remote-User", "eve"), ("Remote-User", "ada")],
        [("Remote-User", "ada"), ("remote-user", "ada")],
        [("Remote_User", "ada")],
        [("X-Remote-User", "ada")],
    ],
    ids=str,
)
def test_what_names_nobody(direct: httpx.Client, headers: list[tuple[str, str | bytes]]) -> None:
    encoded = [(name.encode(), value.encode() if isinstance(value, str) else value) for name, value in headers]
    assert named(direct, encoded) is None


@pytest.mark.parametrize(
    "groups",
    [
        [("Remote-Groups", "staff"), ("Remote-Groups", "admins")],
        [("Remote-Groups", "admins," + "x" * 8200)],
        [("Remote-Groups", b"admins,\xff")],
        [("Remote-Groups", "admins;staff")],
        [],
    ],
    ids=lambda groups: str(groups)[:60],
)
def test_groups_that_cannot_be_read_grant_nothing(direct: httpx.Client, groups: list[tuple[str, str | bytes]]) -> None:
    encoded = [(name.encode(), value.encode() if isinstance(value, str) else value) for name, value in groups]
    headers: Any = [(b"Remote-User", b"ada"), *encoded]
    assert direct.post("/page/proxy-session", json={}, headers=headers).status_code == 403


def test_a_name_in_utf_8_is_shown_as_it_is(direct: httpx.Client) -> None:
    assert named(direct, [(b"Remote-User", "Zoë Łąka".encode())]) == "Zoë Łąka"


def test_another_site_cannot_sign_anybody_in(direct: httpx.Client) -> None:
    refused = direct.post("/page/proxy-session", json={}, headers=ADA | {"Sec-Fetch-Site": "cross-site"})
    assert problem_of(refused) == "not-from-page"
    plain = direct.post("/page/proxy-session", content=b"{}", headers=ADA | {"Content-Type": "text/plain"})
    assert plain.status_code in (415, 422)
    assert "fairlane" not in direct.cookies


def test_keys_count_for_themselves_and_the_header_alone_is_no_credential(server: Server, direct: httpx.Client) -> None:
    assert direct.get("/v1/me", headers=ADA).status_code == 401
    with server.client(server.viewer) as viewer:
        assert viewer.get("/v1/me", headers=ADA | {"Remote-Groups": "admins"}).json()["role"] == "viewer"
        session = direct.post("/page/session", json={"key": server.viewer}).json()
        assert (session["role"], session["person"]) == ("viewer", None)
        assert direct.get("/v1/me").status_code == 200  # a session of a key needs no proxy


def test_it_is_off_without_the_options_of_the_docs_and_sessions_end_when_it_is_turned_off(tmp_path: Path) -> None:
    ada = {"Remote-User": "ada", "Remote-Groups": "support, pipeline"}
    serve = snippet("docs/service.md", "fairlane serve --trusted-proxy").replace("\\\n", "")
    options = shlex.split(re.sub(r"10\.0\.0\.\d", "127.0.0.1", serve))[2:]
    with closing(Server(tmp_path, *options)) as server, server.client(None) as client:
        assert sign_in(client, ada).json()["role"] == "operator"
        cookie = client.cookies["fairlane"]
        assert client.get("/v1/me", headers=ada).status_code == 200
    with closing(Server(tmp_path, "--trusted-proxy", "127.0.0.1")) as server, server.client(None) as client:
        assert named(client, ada) is None
        assert problem_of(sign_in(client, ada)) == "nothing-here"
        client.cookies.set("fairlane", cookie)
        assert client.get("/v1/me", headers=ada).status_code == 401
    options = oidc_options("http://127.0.0.1:1", "support=viewer", "pipeline=operator")  # the same, for people of a provider
    with closing(Server(tmp_path, *options, variables=SECRET)) as server, server.client(None) as client:
        client.cookies.set("fairlane", cookie)
        assert client.get("/v1/me", headers=ada).status_code == 401


def test_revoking_ends_the_session(server: Server, direct: httpx.Client) -> None:
    person = sign_in(direct, ADA).json()["person"]["id"]
    with server.client(server.admin) as admin:
        assert admin.delete(f"/v1/sessions/{person}").status_code == 204
    assert direct.get("/v1/me", headers=ADA).status_code == 401
