"""Sessions: a key becomes a cookie that grants what the key grants; changes need the CSRF token; it ends with its key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fairlane.api import auth
from fairlane.api.permissions import OF_ROLE
from fairlane.console.sessions import SESSIONS_MAX, SessionStore, csrf_token
from tests.api.running import Server, problem_of, until

from .page_client import CSRF, open_stream, signed_in


@pytest.fixture
def browser(server: Server, customer: str) -> Iterator[httpx.Client]:
    with signed_in(server, server.key(customer)) as made:
        yield made


def test_a_key_becomes_a_cookie_that_scripts_cannot_read(server: Server, customer: str) -> None:
    with server.client(None) as client:
        assert client.get("/page/session").status_code == 401
        response = client.post("/page/session", json={"key": server.key(customer)})
        session = response.json()
        assert (session["role"], session["customer"]) == ("customer", customer)
        cookie = response.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Path=/" in cookie
        assert "Secure" not in cookie  # the tests speak plain HTTP
        assert client.get("/page/session").json() == session
        assert client.get("/v1/me").json()["customer"] == customer


@pytest.mark.parametrize("scheme", ["https", "https, http"])
def test_behind_tls_the_cookie_is_for_tls_and_this_host_alone(server: Server, scheme: str) -> None:
    with server.client(None) as client:
        client.headers["X-Forwarded-Proto"] = scheme
        response = client.post("/page/session", json={"key": server.operator})
        name, _, attributes = response.headers["set-cookie"].partition("=")
        assert name == "__Host-fairlane"
        assert "Secure" in attributes
        assert "Path=/" in attributes
        assert "Domain" not in attributes
        expected = {"role": "operator", "customer": None, "person": None, "permissions": sorted(OF_ROLE["operator"])}
        assert response.json() | {"csrf": ""} == expected | {"csrf": ""}
        cookie = attributes.partition(";")[0]
        client.cookies.clear()
        assert (
            client.get("/v1/me", headers={"Cookie": f"fairlane={cookie}"}).status_code == 401
        )  # any neighbour may have set it
        signed_in = {"Cookie": f"fairlane=forged; __Host-fairlane={cookie}", CSRF: response.json()["csrf"]}
        assert client.get("/v1/me", headers=signed_in).status_code == 200
        response = client.delete("/page/session", headers=signed_in)
        assert response.headers["set-cookie"].startswith('__Host-fairlane="";')
        assert "Secure" in response.headers["set-cookie"]  # or browsers would not delete it


def test_a_key_that_may_not_read_does_not_open_the_page(server: Server, customer: str) -> None:
    for key in (server.key(customer, scopes=["submit"]), server.key(None, role="viewer", scopes=["metrics"])):
        with server.client(None) as client:
            response = client.post("/page/session", json={"key": key})
            assert (response.status_code, problem_of(response)) == (403, "not-allowed")
            assert "set-cookie" not in response.headers


@pytest.mark.parametrize("key", ["", "fl_", "x", "fl_0123456789abcdef_" + "A" * 43, "0123456789abcdef." + "A" * 43])
def test_what_is_not_a_key_signs_nobody_in(server: Server, key: str) -> None:
    with server.client(None) as client:
        response = client.post("/page/session", json={"key": key})
        assert (response.status_code, problem_of(response)) == (401, "no-key")
        assert "set-cookie" not in response.headers


def test_a_cookie_does_not_sign_in_again(server: Server, browser: httpx.Client) -> None:
    response = browser.post("/page/session", json={"key": browser.cookies["fairlane"]})
    assert problem_of(response) == "no-key"


def test_another_site_cannot_sign_anybody_in(server: Server, customer: str) -> None:
    key = server.key(customer)
    with server.client(None) as client:
        as_form = client.post("/page/session", content=json.dumps({"key": key}), headers={"Content-Type": "text/plain"})
        assert as_form.status_code in (415, 422)
        elsewhere = client.post("/page/session", json={"key": key}, headers={"Sec-Fetch-Site": "cross-site"})
        assert (elsewhere.status_code, problem_of(elsewhere)) == (403, "not-from-page")
        assert not client.cookies


@pytest.mark.parametrize("token", [None, "", "0" * 64, "ü" * 64])
def test_nothing_is_changed_without_the_csrf_token(server: Server, browser: httpx.Client, token: str | None) -> None:
    del browser.headers[CSRF]
    headers = {} if token is None else {CSRF.encode(): token.encode()}
    id = browser.get("/v1/me").json()["customer"]
    for method, path in (("POST", "/v1/documents"), ("DELETE", "/page/session"), ("POST", "/v1/checks")):
        response = browser.request(method, path, json={"payload": 1}, headers=headers)
        assert (response.status_code, problem_of(response)) == (403, "not-from-page")
    assert server.queue.look(id).waiting == 0
    assert browser.get("/v1/documents").status_code == 200  # looking takes the cookie alone


def test_with_the_token_the_cookie_does_what_the_key_does(server: Server, browser: httpx.Client, customer: str) -> None:
    id = browser.post("/v1/documents", json={"payload": 1}).json()["id"]
    assert browser.delete(f"/v1/documents/{id}").json()["state"] == "cancelled"
    other = server.queue.submit("somebody else", 1).id
    assert browser.get(f"/v1/documents/{other}").status_code == 404
    assert browser.get("/v1/customers").status_code == 404


def test_the_token_of_one_session_does_not_serve_another(server: Server, customer: str) -> None:
    key = server.key(customer)
    with signed_in(server, key) as first, signed_in(server, key) as second:
        first.headers[CSRF] = second.headers[CSRF]
        assert first.post("/v1/checks", json={}).status_code == 403


def test_signing_out_ends_the_cookie_for_everybody_who_has_it(server: Server, browser: httpx.Client) -> None:
    stolen = browser.cookies["fairlane"]
    assert browser.delete("/page/session").status_code == 204
    assert "fairlane" not in browser.cookies
    with server.client(None) as thief:
        thief.cookies.set("fairlane", stolen)
        assert thief.get("/v1/me").status_code == 401


def test_a_session_ends_with_its_key(server: Server, customer: str) -> None:
    secret, key = auth.create(server.queue.engine, customer=customer)
    with signed_in(server, secret) as browser:
        assert browser.get("/v1/me").status_code == 200
        auth.revoke(server.queue.engine, key.id)
        until(lambda: browser.get("/v1/me").status_code == 401)


def test_events_are_watched_with_a_cookie_and_end_with_its_session(server: Server, customer: str) -> None:
    with signed_in(server, server.key(customer)) as browser, open_stream(browser, "/v1/events?after=0") as stream:
        id = server.queue.submit(customer, 1).id
        until(lambda: any(event["document"] == id for event in stream.events))
        browser.delete("/page/session")
        until(lambda: stream.is_ended)


def test_a_key_has_few_sessions_and_the_oldest_goes(server: Server, customer: str) -> None:
    key = server.key(customer)
    with signed_in(server, key) as oldest:
        for _ in range(SESSIONS_MAX):
            with signed_in(server, key):
                pass
        until(lambda: oldest.get("/v1/me").status_code == 401)


def test_a_session_ends_by_itself(server: Server, customer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, key = auth.create(server.queue.engine, customer=customer)
    sessions = SessionStore(server.queue.engine)
    monkeypatch.setattr("fairlane.console.sessions.SESSION_SECONDS", -1)
    cookie = sessions.begin(key.id)
    with server.client(None) as client:
        client.cookies.set("fairlane", cookie)
        assert client.get("/v1/me").status_code == 401
        monkeypatch.undo()
        client.cookies.clear()
        client.cookies.set("fairlane", sessions.begin(key.id))
        until(lambda: client.get("/v1/me").status_code == 200)


def test_a_session_that_another_server_began_counts_at_once(server: Server, customer: str) -> None:
    secret, key = auth.create(server.queue.engine, customer=customer)
    elsewhere = SessionStore(server.queue.engine)
    with signed_in(server, secret) as first, server.client(None) as second:
        for _ in range(5):  # the server has the sessions of this key in its cache
            assert first.get("/v1/me").status_code == 200
            second.cookies.set("fairlane", elsewhere.begin(key.id))
            assert second.get("/v1/me").status_code == 200
            second.cookies.clear()
            elsewhere.end(elsewhere.begin(key.id))


def test_the_store_holds_no_cookie(server: Server, browser: httpx.Client) -> None:
    cookie = browser.cookies["fairlane"]
    secret = cookie.partition(".")[2]
    written = b"".join(path.read_bytes() for path in Path(server.folder).iterdir() if path.is_file())
    assert secret.encode() not in written
    assert csrf_token(cookie).encode() not in written


def test_everything_is_answered_with_a_strict_policy(server: Server, browser: httpx.Client) -> None:
    for path in ("/", "/v1/me", "/v1/nowhere", "/static/nothing.js", "/page/session", "/healthz"):
        headers = browser.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers.get_list("cache-control") == ["no-store"]
