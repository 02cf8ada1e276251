"""The provider itself: metadata that cannot be trusted, a provider that is away, and the claims it gives."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlane.console.oidc import AWAY_SECONDS, METADATA_SECONDS, Provider, values_of
from fairlane.console.sign_in_attempt import SignInAttempt, SignInFailed
from fairlane.console.sign_in_settings import OidcSettings
from tests.api.running import until
from tests.console.signing_in import PUBLIC_URL, come_back, oidc_server
from tests.servers.oidc import CLIENT_ID, CLIENT_SECRET, ForgingProvider

COOKIE = "fairlane-sign-in"


def made(issuer: str) -> Provider:
    return Provider(OidcSettings(issuer, CLIENT_ID, CLIENT_SECRET, PUBLIC_URL))


def test_metadata_of_another_issuer_are_refused(provider: ForgingProvider) -> None:
    provider.metadata = {"issuer": "https://another.example"}
    with pytest.raises(SignInFailed, match=r"calls itself 'https://another\.example'; give exactly that") as refused:
        asyncio.run(made(provider.issuer).begin())
    assert refused.value.code == "invalid"


def test_a_provider_that_promises_its_name_in_answers_must_keep_it(provider: ForgingProvider) -> None:
    provider.metadata = {"authorization_response_iss_parameter_supported": True}

    async def finish(more: dict[str, str]) -> None:
        used = made(provider.issuer)
        url, attempt = await used.begin()
        await used.finish(attempt, provider.authorize(url) | more)

    with pytest.raises(SignInFailed, match="of the issuer 'None'"):
        asyncio.run(finish({}))
    asyncio.run(finish({"iss": provider.issuer}))


@pytest.mark.parametrize(
    "metadata", [{"token_endpoint": None}, {"token_endpoint": 7}, {"jwks_uri": "not a URL"}, {"jwks_uri": None}]
)
def test_metadata_that_make_no_sense_are_a_failure_and_not_a_crash(provider: ForgingProvider, metadata: dict[str, Any]) -> None:
    provider.metadata = metadata

    async def finish() -> None:
        used = made(provider.issuer)
        url, attempt = await used.begin()
        await used.finish(attempt, provider.authorize(url))

    with pytest.raises(SignInFailed):
        asyncio.run(finish())


def test_a_client_that_must_send_its_secret_in_the_body_does(provider: ForgingProvider) -> None:
    async def finish() -> None:
        used = made(provider.issuer)
        url, attempt = await used.begin()
        await used.finish(attempt, provider.authorize(url))

    asyncio.run(finish())
    assert "client_secret" not in provider.token_requests[-1]
    provider.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    asyncio.run(finish())
    assert provider.token_requests[-1]["client_secret"] == CLIENT_SECRET


def test_a_provider_that_is_away_is_asked_once_in_a_moment_and_one_that_is_there_once_an_hour() -> None:
    provider, now = ForgingProvider(), 1000.0
    used = Provider(made(provider.issuer).settings, lambda: now)

    async def ask(times: int) -> set[str]:
        results = await asyncio.gather(*(used.check() for _ in range(times)), return_exceptions=True)
        return {result.code if isinstance(result, SignInFailed) else str(result) for result in results}

    async def story() -> None:
        nonlocal now
        provider.is_broken = True
        assert await ask(20) == {"away"}
        assert len(provider.paths) == 1
        provider.is_broken = False
        assert await ask(1) == {"away"}
        now += AWAY_SECONDS
        assert await ask(20) == {"None"}
        assert len(provider.paths) == 2
        now += METADATA_SECONDS
        assert await ask(20) == {"None"}
        assert len(provider.paths) == 3

    try:
        asyncio.run(story())
    finally:
        provider.close()


def test_while_the_provider_is_away_the_page_says_so_and_keys_work(tmp_path: Path) -> None:
    gone = ForgingProvider()
    gone.close()
    server = oidc_server(tmp_path, gone)
    try:
        with server.client(None) as client:
            assert client.get("/page/oidc/sign-in").headers["location"] == "/?sign_in=away"
            cookie = SignInAttempt("s", "n", "v", int(time.time())).to_cookie()
            client.cookies.set(COOKIE, cookie)
            assert come_back(client, {"state": "s", "code": "c"}) == "away"
            assert client.post("/page/session", json={"key": server.operator}).status_code == 200
        logged = until(lambda: [line for line in server.logged() if line["event"] == "no sign-in"])
        assert logged[0]["issuer"] == gone.issuer
        assert "does not answer" in logged[0]["reason"]
    finally:
        server.close()


def test_groups_may_be_in_several_claims_in_the_token_or_the_user_info(provider: ForgingProvider) -> None:
    provider.user |= {"groups": None, "hd": "example.com", "email": "ada@example.com"}
    provider.user_info = {"sub": "ada", "groups": ["staff"], "email_verified": True, "email": "eve@example.com"}
    settings = replace(made(provider.issuer).settings, groups_claims=("hd", "groups", "email"))

    async def finish() -> list[str]:
        used = Provider(settings)
        url, attempt = await used.begin()
        return (await used.finish(attempt, provider.authorize(url))).groups

    assert asyncio.run(finish()) == ["example.com", "staff"]  # the address in the token is not verified


@pytest.mark.parametrize(
    ("claims", "name", "values"),
    [
        ({"groups": ["a", "b"]}, "groups", ["a", "b"]),
        ({"groups": "a b"}, "groups", ["a b"]),
        ({"realm_access": {"roles": ["a"]}}, "realm_access.roles", ["a"]),
        ({"https://example.com/roles": ["a"]}, "https://example.com/roles", ["a"]),
        ({"realm_access": ["roles"]}, "realm_access.roles", None),
        ({"realm_access": {"roles": {}}}, "realm_access.roles", []),
        ({"hd": "example.com"}, "hd", ["example.com"]),
        ({"email": "ada@example.com", "email_verified": True}, "email", ["ada@example.com"]),
        ({"email": "ada@example.com", "email_verified": False}, "email", []),
        ({"email": "ada@example.com", "email_verified": "true"}, "email", []),
        ({"email": "ada@example.com"}, "email", []),
        ({}, "groups", None),
        ({"groups": []}, "groups", []),
        ({"groups": ["", None, 3, "a"]}, "groups", ["a"]),
    ],
)
def test_the_values_of_a_claim(claims: dict[str, Any], name: str, values: list[str] | None) -> None:
    assert values_of(claims, name) == values
