"""Signing in with OpenID Connect: what a session grants, and when it ends."""

from __future__ import annotations

import shlex
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlane.api.permissions import OF_ROLE
from tests.api.running import Server, problem_of, until
from tests.console.page_client import CSRF, open_stream
from tests.console.signing_in import PUBLIC_URL, begin, come_back, failures, oidc_server, session_of, sign_in
from tests.docs.snippets import snippet
from tests.servers.oidc import CLIENT_ID, CLIENT_SECRET, ForgingProvider

COOKIE = "fairlane-sign-in"


@pytest.mark.parametrize(
    ("groups", "role", "customer"),
    [
        (["staff"], "viewer", None),
        (["operators", "staff", "unknown"], "operator", None),
        (["acme people", "admins"], "admin", None),
        (["acme people"], "customer", "acme"),
        ("staff", "viewer", None),  # a text instead of a list
    ],
)
def test_somebody_signs_in_with_the_role_of_the_strongest_grant(
    browser: httpx.Client, provider: ForgingProvider, groups: Any, role: Any, customer: str | None
) -> None:
    provider.user["groups"] = groups
    assert sign_in(browser, provider) == ""
    session = session_of(browser)
    assert session is not None
    assert (session["role"], session["customer"]) == (role, customer)
    assert session["permissions"] == sorted(OF_ROLE[role])
    assert session["person"]["name"] == "Ada Lovelace"
    assert browser.get("/v1/me").json()["person"] == session["person"]
    assert COOKIE not in browser.cookies  # it counts once


@pytest.mark.parametrize(
    "groups", [[], ["strangers"], ["*"], None, [1, {"staff": 1}], {"staff": True}, ["acme people", "beta people"]]
)
def test_without_a_grant_nobody_gets_in(browser: httpx.Client, server: Server, provider: ForgingProvider, groups: Any) -> None:
    provider.user["groups"] = groups
    provider.user_info = {"sub": "ada"}
    assert sign_in(browser, provider) == "no_role"
    assert session_of(browser) is None
    assert "grant" in failures(server)[-1] or "several customers: acme, beta" in failures(server)[-1]


def test_changes_need_the_csrf_token_and_customers_see_their_own(
    browser: httpx.Client, server: Server, provider: ForgingProvider
) -> None:
    provider.user["groups"] = ["acme people"]
    sign_in(browser, provider)
    response = browser.post("/v1/documents", json={"payload": 1})
    assert (response.status_code, problem_of(response)) == (403, "not-from-page")
    session_of(browser)
    assert browser.post("/v1/documents", json={"payload": 1}).status_code == 202
    other = server.queue.submit("beta", 1).id
    assert browser.get(f"/v1/documents/{other}").status_code == 404
    assert browser.get("/v1/customers").status_code == 404


def test_the_same_person_has_the_same_id_and_another_issuer_or_subject_another_one(
    server: Server, provider: ForgingProvider
) -> None:
    ids = []
    for subject in ("ada", "ada", "bob"):
        provider.user["sub"] = subject
        with server.client(None) as client:
            assert sign_in(client, provider) == ""
            ids.append(client.get("/page/session").json()["person"]["id"])
    assert ids[0] == ids[1] != ids[2]


def test_a_name_is_shown_as_text_without_what_cannot_be_seen(browser: httpx.Client, provider: ForgingProvider) -> None:
    provider.user["name"] = "Ada\x1b[2J\ud800\u202e" + "x" * 300
    assert sign_in(browser, provider) == ""
    session = session_of(browser)
    assert session is not None
    assert session["person"]["name"].startswith("Ada\ufffd[2J\ufffd\ufffdx")
    assert len(session["person"]["name"]) == 200


def test_groups_that_are_not_in_the_token_are_read_from_the_user_info(browser: httpx.Client, provider: ForgingProvider) -> None:
    provider.user["groups"] = None
    provider.user_info = {"sub": "ada", "groups": ["operators"]}
    assert sign_in(browser, provider) == ""
    assert browser.get("/page/session").json()["role"] == "operator"


def test_the_user_info_of_somebody_else_is_refused(browser: httpx.Client, server: Server, provider: ForgingProvider) -> None:
    provider.user["groups"] = None
    provider.user_info = {"sub": "bob", "groups": ["admins"]}
    assert sign_in(browser, provider) == "invalid"
    assert "about somebody else" in failures(server)[-1]


def test_the_log_has_the_person_and_neither_codes_nor_tokens(
    browser: httpx.Client, server: Server, provider: ForgingProvider
) -> None:
    query = provider.authorize(begin(browser))
    secret = browser.cookies[COOKIE].split(".")
    come_back(browser, query)
    id = browser.get("/page/session").json()["person"]["id"]
    entry = next(line for line in reversed(server.logged()) if line["event"] == "signed in")
    assert (entry["person"], entry["person_name"], entry["role"]) == (id, "Ada Lovelace", "viewer")
    browser.get("/v1/me")
    until(lambda: any(line.get("route") == "/v1/me" and line.get("person") == id for line in server.logged()), "a line")
    log = server.log.read_text()
    for part in (query["code"], query["state"], *secret[:3], CLIENT_SECRET, "opaque"):
        assert part not in log


def test_signing_out_ends_the_session_and_the_providers_where_that_is_offered(
    tmp_path: Path, provider: ForgingProvider
) -> None:
    """The service is started with the options of the docs."""
    provider.metadata = {"end_session_endpoint": f"{provider.issuer}/end"}
    provider.user["groups"] = ["pipeline", "support"]
    export, serve = snippet("docs/service.md", "export FAIRLANE_OIDC_CLIENT_SECRET").split("\n", 1)
    (name, _) = export.removeprefix("export ").split("=…")
    serve = serve.replace("https://login.example.com/realms/main", provider.issuer)
    options = shlex.split(serve.replace("--oidc-client-id fairlane", f"--oidc-client-id {CLIENT_ID}").replace("\\\n", ""))[2:]
    with closing(Server(tmp_path, *options, variables={name: CLIENT_SECRET})) as server, server.client(None) as client:
        assert client.get("/page/sign-in").json()["oidc"]["name"] == "Example Login"
        assert httpx.URL(begin(client)).params["redirect_uri"] == "https://fairlane.example.com/page/oidc/callback"
        sign_in(client, provider)
        session = session_of(client)
        assert session is not None
        assert session["role"] == "operator"
        stolen = client.cookies["fairlane"]
        response = client.delete("/page/session")
        url = httpx.URL(response.json()["continue_at"])
        assert str(url.copy_with(query=None)) == f"{provider.issuer}/end"
        assert url.params["post_logout_redirect_uri"] == "https://fairlane.example.com/"
        assert url.params["client_id"] == CLIENT_ID
        assert len(url.params["id_token_hint"].split(".")) == 3
        client.cookies.set("fairlane", stolen)
        assert session_of(client) is None


def test_where_the_provider_offers_no_sign_out_only_the_session_ends(browser: httpx.Client, provider: ForgingProvider) -> None:
    sign_in(browser, provider)
    session_of(browser)
    assert browser.delete("/page/session").status_code == 204
    assert session_of(browser) is None


def test_a_stream_ends_with_its_session(browser: httpx.Client, provider: ForgingProvider) -> None:
    sign_in(browser, provider)
    session_of(browser)
    with open_stream(browser, "/v1/events?after=0") as stream:
        browser.delete("/page/session")
        until(lambda: stream.is_ended)


def test_a_grant_that_is_taken_away_ends_sessions_and_another_one_changes_them(
    tmp_path: Path, provider: ForgingProvider
) -> None:
    provider.user["groups"] = ["operators", "staff"]
    with closing(oidc_server(tmp_path, provider)) as server, server.client(None) as client:
        sign_in(client, provider)
        session_of(client)
        cookie = client.cookies["fairlane"]
    roles = {}
    for grants in (("operators=viewer",), ("staff=admin",), ("admins=admin",), ("operators=customer:acme",)):
        with closing(oidc_server(tmp_path, provider, grants=grants)) as server, server.client(None) as client:
            client.cookies.set("fairlane", cookie)
            session = session_of(client)
            roles[grants] = session and (session["role"], session["customer"])
    assert list(roles.values()) == [("viewer", None), ("admin", None), None, ("customer", "acme")]


def test_sessions_end_when_the_provider_is_no_longer_the_one_that_is_configured(
    tmp_path: Path, provider: ForgingProvider
) -> None:
    with closing(oidc_server(tmp_path, provider)) as server, server.client(None) as client:
        sign_in(client, provider)
        cookie = client.cookies["fairlane"]
    with closing(ForgingProvider()) as other:
        for is_on in (False, True):
            with closing(oidc_server(tmp_path, other) if is_on else Server(tmp_path)) as server, server.client(None) as client:
                client.cookies.set("fairlane", cookie)
                assert session_of(client) is None


def test_signing_in_with_a_key_still_works_beside_it(browser: httpx.Client, server: Server) -> None:
    session = browser.post("/page/session", json={"key": server.viewer}).json()
    assert (session["role"], session["person"]) == ("viewer", None)
    assert browser.get("/page/sign-in").json()["oidc"]["url"] == f"{PUBLIC_URL}/page/oidc/sign-in"
    assert browser.delete("/page/session", headers={CSRF: session["csrf"]}).status_code == 204
