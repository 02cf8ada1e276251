"""ID tokens that are wrong in one way, and keys that are exchanged: forgeries must fail, a rotation must not."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from tests.api.running import Server
from tests.console.signing_in import failures, session_of, sign_in
from tests.servers.oidc import CLIENT_ID, CLIENT_SECRET, ForgingProvider, new_key


def unsigned(header: dict[str, Any], claims: dict[str, Any]) -> str:
    parts = (json.dumps(part).encode() for part in (header | {"alg": "none"}, claims))
    return ".".join([*(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts), ""])


def test_a_token_without_a_signature_is_refused(browser: httpx.Client, server: Server, provider: ForgingProvider) -> None:
    """Although the provider's own metadata offers `none`."""
    provider.forge = unsigned
    assert sign_in(browser, provider) == "invalid"
    assert session_of(browser) is None
    assert "the ID token is not valid" in failures(server)[-1]


def test_a_token_that_is_signed_with_what_everybody_knows_is_refused(
    browser: httpx.Client, server: Server, provider: ForgingProvider
) -> None:
    """HS256 with the public key, or with the client's secret, as the secret."""
    for known in (provider.key.as_pem(private=False), CLIENT_SECRET.encode()):
        secret = OctKey.import_key(base64.urlsafe_b64encode(known).decode().rstrip("="))
        provider.forge = lambda header, claims, secret=secret: jwt.encode(header | {"alg": "HS256"}, claims, secret)  # type: ignore[misc]
        assert sign_in(browser, provider) == "invalid"
        assert "the ID token is not valid" in failures(server)[-1]


@pytest.mark.parametrize("name", ["first", "another", None])
def test_a_token_of_another_key_is_refused(
    browser: httpx.Client, server: Server, provider: ForgingProvider, name: str | None
) -> None:
    other = new_key("another")
    provider.forge = lambda header, claims: provider.sign(
        {key: value for key, value in (header | {"kid": name}).items() if value}, claims, other
    )
    assert sign_in(browser, provider) == "invalid"
    assert session_of(browser) is None
    assert "the ID token is not valid" in failures(server)[-1]


def test_a_token_with_its_own_key_in_the_header_is_refused(browser: httpx.Client, provider: ForgingProvider) -> None:
    other = new_key("another")
    provider.forge = lambda header, claims: provider.sign(
        header | {"jwk": other.as_dict(private=False), "kid": "another"}, claims, other
    )
    assert sign_in(browser, provider) == "invalid"


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "wrong"},
        {"nonce": None},
        {"aud": "another client"},
        {"aud": ["another client"]},
        {"aud": ["another client", "a third"], "azp": CLIENT_ID},
        {"aud": [CLIENT_ID, "another client"], "azp": "another client"},
        {"aud": None},
        {"iss": "https://another.example"},
        {"iss": None},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"exp": 1},
        {"exp": None},
        {"exp": "tomorrow"},
        {"iat": None},
        {"nbf": 4_000_000_000},
        {"at_hash": "of another access token"},
    ],
    ids=str,
)
def test_a_token_that_is_wrong_in_one_claim_is_refused(
    browser: httpx.Client, server: Server, provider: ForgingProvider, claims: dict[str, Any]
) -> None:
    provider.claims = claims
    assert sign_in(browser, provider) == "invalid"
    assert session_of(browser) is None
    assert "the ID token is not valid" in failures(server)[-1]
    provider.claims = {}
    assert sign_in(browser, provider) == ""  # it was this claim


@pytest.mark.parametrize(("skew", "expected"), [(-30, ""), (-90, "invalid")])
def test_clocks_may_differ_by_a_minute(browser: httpx.Client, provider: ForgingProvider, skew: int, expected: str) -> None:
    now = int(time.time())
    provider.claims = {"exp": now + skew, "iat": now - 600}
    assert sign_in(browser, provider) == expected
    provider.claims = {"exp": now + 600, "iat": now - skew, "nbf": now - skew}
    assert sign_in(browser, provider) == expected


def test_what_is_no_token_is_refused(browser: httpx.Client, provider: ForgingProvider) -> None:
    tokens: list[Any] = ["", "x", "a.b.c", "\ud800", "." * 1000, None, 7, {}]
    for token in tokens:
        provider.forge = lambda header, claims, token=token: token  # type: ignore[misc]
        assert sign_in(browser, provider) == "invalid"
    assert session_of(browser) is None


def test_an_answer_of_another_issuer_is_refused(browser: httpx.Client, server: Server, provider: ForgingProvider) -> None:
    """Mix-up (RFC 9207): the code must not be sent to a provider that did not issue it."""
    calls = len(provider.token_requests)
    assert sign_in(browser, provider, iss="https://another.example") == "invalid"
    assert len(provider.token_requests) == calls
    assert "not of the one that was asked" in failures(server)[-1]
    assert sign_in(browser, provider, iss=provider.issuer) == ""


def test_keys_may_be_rotated(browser: httpx.Client, provider: ForgingProvider) -> None:
    """A new key is read when a token names it; one that replaces another under its name, when the signature does not fit."""
    assert sign_in(browser, provider) == ""
    for second in (new_key("second"), new_key("second")):
        provider.published = [second]
        provider.forge = lambda header, claims, key=second: provider.sign(header | {"kid": "second"}, claims, key)  # type: ignore[misc]
        assert sign_in(browser, provider) == ""
    provider.reset()
    assert sign_in(browser, provider) == ""
    calls = provider.paths.count("/jwks")
    assert sign_in(browser, provider) == ""
    assert provider.paths.count("/jwks") == calls  # and not every time
