"""Forgeries that a browser brings: answers of others, replays, planted cookies, addresses to go on to. Each must fail."""

from __future__ import annotations

import httpx
import pytest

from fairlane.console.sign_in_attempt import FLOW_SECONDS
from tests.api.running import Server, problem_of
from tests.console.signing_in import PUBLIC_URL, begin, come_back, session_of, sign_in
from tests.servers.oidc import ForgingProvider

COOKIE = "fairlane-sign-in"
EVIL = "https://evil.example"


@pytest.mark.parametrize("state", ["", "wrong", None])
def test_a_wrong_state_is_refused_before_the_code_is_used(
    browser: httpx.Client, provider: ForgingProvider, state: str | None
) -> None:
    query = provider.authorize(begin(browser))
    calls = len(provider.token_requests)
    wrong = {name: value for name, value in query.items() if name != "state"} | ({} if state is None else {"state": state})
    assert come_back(browser, wrong) == "stale"
    assert len(provider.token_requests) == calls
    assert session_of(browser) is None
    assert come_back(browser, query) == "stale"  # and that sign-in is over


def test_an_answer_for_another_browser_signs_nobody_in(server: Server, provider: ForgingProvider) -> None:
    """Whoever gets a victim to open the attacker's own answer must not sign the victim in as the attacker."""
    with server.client(None) as attacker, server.client(None) as victim:
        query = provider.authorize(begin(attacker))
        assert come_back(victim, query) == "stale"
        begin(victim)  # also while the victim has begun a sign-in of its own
        assert come_back(victim, query) == "stale"
        assert session_of(victim) is None


def test_a_stolen_code_is_worth_nothing_in_another_browser(server: Server, provider: ForgingProvider) -> None:
    """PKCE: the thief's own sign-in has another verifier."""
    with server.client(None) as victim, server.client(None) as thief:
        code = provider.authorize(begin(victim))["code"]
        own = provider.authorize(begin(thief))
        assert come_back(thief, own | {"code": code}) == "invalid"
        assert session_of(thief) is None


def test_a_code_counts_once(browser: httpx.Client, provider: ForgingProvider) -> None:
    query = provider.authorize(begin(browser))
    cookie = browser.cookies[COOKIE]
    assert come_back(browser, query) == ""
    browser.cookies.clear()
    browser.cookies.set(COOKIE, cookie)  # somebody has copied everything
    assert come_back(browser, query) == "invalid"
    assert session_of(browser) is None


def test_a_sign_in_that_took_too_long_is_refused(browser: httpx.Client, provider: ForgingProvider) -> None:
    query = provider.authorize(begin(browser))
    *parts, began = browser.cookies[COOKIE].split(".")
    for moved, expected in ((-FLOW_SECONDS - 5, "stale"), (600, "stale"), (-FLOW_SECONDS + 60, "")):
        browser.cookies.clear()
        browser.cookies.set(COOKIE, ".".join([*parts, str(int(began) + moved)]))
        assert come_back(browser, query) == expected


@pytest.mark.parametrize(
    "cookie", ["", "x", "a.b.c", "a.b.c.d", "....", "a.b.c.1.2", "a" * 5000, "ü.b.c.1", "a.b.c." + "9" * 4000]
)
def test_what_is_not_our_cookie_is_refused(server: Server, provider: ForgingProvider, cookie: str) -> None:
    with server.client(None) as client:
        query = provider.authorize(begin(client)) | {"state": cookie.split(".")[0]}
        headers = {b"Cookie": f"{COOKIE}={cookie}".encode()}
        response = client.get("/page/oidc/callback", params=query, headers=headers)
        assert response.headers["location"] == "/?sign_in=stale"


def test_over_tls_a_cookie_that_any_neighbour_could_set_does_not_count(server: Server, provider: ForgingProvider) -> None:
    """A page on a neighbouring host could plant the cookie of its own sign-in, and so sign a visitor in as somebody else."""
    with server.client(None) as client:
        client.headers["X-Forwarded-Proto"] = "https"
        response = client.get("/page/oidc/sign-in")
        name, _, attributes = response.headers["set-cookie"].partition("=")
        assert name == f"__Host-{COOKIE}"
        assert {"Secure", "HttpOnly", "Path=/", "SameSite=lax"} <= set(attributes.split("; "))
        query, value = provider.authorize(response.headers["location"]), attributes.partition(";")[0]
        client.cookies.clear()
        planted = client.get("/page/oidc/callback", params=query, headers={"Cookie": f"{COOKIE}={value}"})
        assert planted.headers["location"] == "/?sign_in=stale"
        own = client.get("/page/oidc/callback", params=query, headers={"Cookie": f"__Host-{COOKIE}={value}"})
        assert own.headers["location"] == "/"
        assert any(cookie.startswith("__Host-fairlane=person_") for cookie in own.headers.get_list("set-cookie"))


def test_a_session_is_always_a_new_one(server: Server, provider: ForgingProvider) -> None:
    """Session fixation: a cookie that an attacker knows, planted before, must not become the victim's session."""
    with server.client(None) as attacker, server.client(None) as victim:
        provider.user |= {"sub": "attacker", "groups": ["staff"]}
        sign_in(attacker, provider)
        planted = attacker.cookies["fairlane"]
        victim.cookies.set("fairlane", planted, domain="127.0.0.1")
        provider.user |= {"sub": "victim", "groups": ["admins"]}
        sign_in(victim, provider)
        own = next(cookie.value for cookie in victim.cookies.jar if cookie.name == "fairlane" and cookie.value != planted)
        assert own is not None
        assert own.partition(".")[0] != planted.partition(".")[0]
        assert attacker.get("/page/session").json()["role"] == "viewer"


@pytest.mark.parametrize("name", ["next", "redirect", "redirect_uri", "return_to", "url", "continue"])
def test_nothing_in_a_request_says_where_the_browser_goes(browser: httpx.Client, provider: ForgingProvider, name: str) -> None:
    assert problem_of(browser.get("/page/oidc/sign-in", params={name: EVIL})) == "bad-value"
    headers = {"Host": "evil.example", "X-Forwarded-Host": "evil.example", "Referer": EVIL}
    begun = browser.get("/page/oidc/sign-in", headers=headers)
    assert httpx.URL(begun.headers["location"]).params["redirect_uri"] == f"{PUBLIC_URL}/page/oidc/callback"
    response = browser.get(
        "/page/oidc/callback", params=provider.authorize(begun.headers["location"]) | {name: EVIL}, headers=headers
    )
    assert response.headers["location"] == "/"
    failed = browser.get("/page/oidc/callback", params={name: EVIL, "error": EVIL}, headers=headers)
    assert failed.headers["location"] == "/?sign_in=stale"


@pytest.mark.parametrize(("error", "code"), [("access_denied", "denied"), ("server_error", "invalid"), ("<script>", "invalid")])
def test_an_error_of_the_provider_is_a_word_that_the_page_knows(
    browser: httpx.Client, provider: ForgingProvider, error: str, code: str
) -> None:
    state = provider.authorize(begin(browser))["state"]
    assert come_back(browser, {"state": state, "error": error, "error_description": "<b>no</b>"}) == code


def test_an_answer_without_a_code_is_refused(browser: httpx.Client, provider: ForgingProvider) -> None:
    assert come_back(browser, {"state": provider.authorize(begin(browser))["state"]}) == "invalid"
