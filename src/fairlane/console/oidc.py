"""Signing in with OpenID Connect: the authorization code flow with PKCE, by Authlib.

Laws:
- A sign-in ends in the browser that began it: the cookie it got holds the state, the nonce and the PKCE verifier.
- The provider's metadata must name the configured issuer, and so must the ID token; the token is for this client, has the
  nonce, is signed by a key of the provider, with an asymmetric algorithm, and has not expired.
- Where the browser goes afterwards is the page of this service: no request can say otherwise.
- Access and refresh tokens are dropped; the ID token is kept to sign out with, and proves nothing.
- A provider that is away is asked again only after a moment, and holds up nothing but sign-ins.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx2
from authlib.integrations.starlette_client import OAuth, OAuthError  # type: ignore[import-untyped]
from joserfc.errors import BadSignatureError, JoseError

from .people import Person, make_person
from .sign_in_attempt import FLOW_SECONDS, SKEW_SECONDS, SignInAttempt, SignInFailed
from .sign_in_settings import OidcSettings

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
PROVIDER_SECONDS = 15  # for all calls of the provider that one request needs
CALL_SECONDS = 5  # without an answer
METADATA_SECONDS = 3600  # after which metadata and keys are read again
AWAY_SECONDS = 3  # for which a provider that did not answer is not asked again
ID_TOKEN_MAX = 4096  # characters; a longer one is not kept


class SignedIn(NamedTuple):
    """Somebody for whom the provider vouches."""

    person: Person
    groups: list[str]
    id_token: str  # empty: too long to be kept


class Provider:
    """The OpenID provider, as this service uses it."""

    def __init__(self, settings: OidcSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._clock = clock
        self._client: Any = None
        self._tried_at = 0.0
        self._failure: SignInFailed | None = None
        self._lock = asyncio.Lock()

    async def begin(self) -> tuple[str, SignInAttempt]:
        """Return where to send the browser, and what it has to bring back."""
        async with _calls():
            client = await self._ready_client()
            begun = await client.create_authorization_url(self.settings.redirect_uri)
        return begun["url"], SignInAttempt(begun["state"], begun["nonce"], begun["code_verifier"], int(time.time()))

    async def finish(self, attempt: SignInAttempt | None, query: Mapping[str, str]) -> SignedIn:
        """Find out who signed in, from what the browser brings back."""
        if attempt is None or not hmac.compare_digest(attempt.state.encode(), query.get("state", "").encode()):
            raise SignInFailed("stale", "the sign-in was not begun in this browser, or another one was begun since")
        if not -SKEW_SECONDS <= time.time() - attempt.began <= FLOW_SECONDS:
            raise SignInFailed("stale", f"the sign-in took longer than {FLOW_SECONDS} seconds")
        if error := query.get("error"):
            raise SignInFailed("denied" if error == "access_denied" else "invalid", f"the provider answered {error[:100]!r}")
        if not query.get("code"):
            raise SignInFailed("invalid", "the provider gave no code")
        async with _calls():
            client = await self._ready_client()
            self._refuse_other_issuer(client.server_metadata, query)
            token = await client.fetch_access_token(
                code=query["code"], code_verifier=attempt.code_verifier, redirect_uri=self.settings.redirect_uri
            )
            claims = await self._verified_claims(client, token, attempt.nonce)
            groups = await self._groups(client, token, claims)
        name = next(claims[name] for name in ("name", "preferred_username", "email", "sub") if _is_text(claims.get(name)))
        id_token = token["id_token"]
        return SignedIn(
            make_person(self.settings.issuer, claims["sub"], name),
            groups,
            id_token if len(id_token) <= ID_TOKEN_MAX else "",
        )

    async def _groups(self, client: Any, token: Mapping[str, Any], claims: Mapping[str, Any]) -> list[str]:
        """Return the values of the claims that hold groups; those that are not in the token, from the user info."""
        found = {name: values_of(claims, name) for name in self.settings.groups_claims}
        if None in found.values() and client.server_metadata.get("userinfo_endpoint"):
            more = await _user_info(client, token, claims["sub"])
            found |= {name: values_of(more, name) for name, values in found.items() if values is None}
        return [value for values in found.values() for value in values or ()]

    async def sign_out_url(self, id_token: str) -> str | None:
        """Return where the provider ends its own session; None: it offers no such thing, or does not answer."""
        try:
            async with _calls():
                client = await self._ready_client()
                if not client.server_metadata.get("end_session_endpoint"):
                    return None
                url = await client.create_logout_url(
                    f"{self.settings.public_url}/", id_token or None, client_id=self.settings.client_id
                )
                return str(url["url"])
        except SignInFailed:
            return None

    async def check(self) -> None:
        """Read the provider's metadata; raises SignInFailed if it cannot be used."""
        async with _calls():
            await self._ready_client()

    async def _ready_client(self) -> Any:
        """Return Authlib's client, with the provider's metadata; a failure to read them holds for a moment."""
        async with self._lock:
            now = self._clock()
            if self._failure is not None and now - self._tried_at < AWAY_SECONDS:
                raise self._failure
            if self._client is None or now - self._tried_at >= METADATA_SECONDS:
                self._client, self._failure, self._tried_at = None, None, now
                try:
                    async with _calls():
                        self._client = await self._load_client()
                except SignInFailed as failure:
                    self._failure, self._tried_at = failure, self._clock()
                    raise
            return self._client

    async def _load_client(self) -> Any:
        settings = self.settings
        client = OAuth().register(
            "provider",
            client_id=settings.client_id,
            client_secret=settings.client_secret,
            server_metadata_url=f"{settings.issuer.rstrip('/')}/.well-known/openid-configuration",
            client_kwargs={"scope": settings.scopes, "code_challenge_method": "S256", "timeout": CALL_SECONDS},
        )
        metadata = await client.load_server_metadata()
        if metadata.get("issuer") != settings.issuer:
            found = str(metadata.get("issuer"))[:200]
            raise SignInFailed("invalid", f"the provider calls itself {found!r}; give exactly that as --oidc-issuer")
        offered = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
        metadata["id_token_signing_alg_values_supported"] = [name for name in ALGORITHMS if name in offered]
        methods = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if "client_secret_basic" not in methods and "client_secret_post" in methods:
            client.client_kwargs["token_endpoint_auth_method"] = "client_secret_post"  # noqa: S105 the name of a method
        return client

    def _refuse_other_issuer(self, metadata: Mapping[str, Any], query: Mapping[str, str]) -> None:
        """Refuse an answer that another provider gave (RFC 9207)."""
        is_required = metadata.get("authorization_response_iss_parameter_supported") is True
        issuer = query.get("iss")
        if (issuer is None and is_required) or (issuer is not None and issuer != self.settings.issuer):
            raise SignInFailed("invalid", f"the answer is of the issuer {str(issuer)[:200]!r}, not of the one that was asked")

    async def _verified_claims(self, client: Any, token: Mapping[str, Any], nonce: str) -> dict[str, Any]:
        """Verify the ID token; with a key that was replaced under the same name, after the keys were read again."""
        if not _is_text(token.get("id_token")):
            raise SignInFailed("invalid", "the provider gave no ID token; check that openid is among --oidc-scopes")
        expected = {
            "iss": {"essential": True, "value": self.settings.issuer},
            "aud": {"essential": True, "value": self.settings.client_id},
            "sub": {"essential": True},
        }
        try:
            claims = await client.parse_id_token(token, nonce, claims_options=expected, leeway=SKEW_SECONDS)
        except BadSignatureError:
            await client.fetch_jwk_set(force=True)
            claims = await client.parse_id_token(token, nonce, claims_options=expected, leeway=SKEW_SECONDS)
        return dict(claims)


@asynccontextmanager
async def _calls() -> AsyncIterator[None]:
    """Turn everything that can go wrong between this service and a provider into SignInFailed."""
    try:
        async with asyncio.timeout(PROVIDER_SECONDS):
            yield
    except (TimeoutError, httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise SignInFailed("away", f"the provider does not answer: {type(error).__name__} {str(error)[:200]}") from None
    except OAuthError as error:
        raise SignInFailed("invalid", f"the provider refused: {str(error)[:200]}") from None
    except JoseError as error:
        raise SignInFailed("invalid", f"the ID token is not valid: {str(error)[:200]}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:  # what it sent is not what was expected
        raise SignInFailed(
            "invalid", f"the provider's answer cannot be used: {type(error).__name__} {str(error)[:200]}"
        ) from None


async def _user_info(client: Any, token: Mapping[str, Any], subject: str) -> dict[str, Any]:
    claims = await client.userinfo(token=token)
    if claims.get("sub") != subject:
        raise SignInFailed("invalid", "the user info is about somebody else than the ID token")
    return dict(claims)


def values_of(claims: Mapping[str, Any], name: str) -> list[str] | None:
    """Return the values of a claim, which is a text or a list of texts; None: there is none. A dotted name leads into objects.

    An address counts only if the provider has verified it: elsewhere anybody can call themselves by somebody else's.
    """
    value: Any = claims.get(name)
    if value is None:
        value = claims
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    if value is None:
        return None
    if name == "email" and claims.get("email_verified") is not True:
        return []
    values = value if isinstance(value, list) else [value]
    return [text for text in values if _is_text(text)]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""
