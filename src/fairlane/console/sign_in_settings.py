"""Settings of signing in as oneself: the OpenID provider or the proxy that says who it is, and who gets which role.

One frozen object, made and checked before the server listens. A client secret comes from a file or from the environment, never
from an argument, which other users of the machine could read.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from fairlane.api.client_address import TrustedProxies
from fairlane.core.document import validate_text
from fairlane.core.errors import BadValue, Mistake
from fairlane.file_modes import warn_if_open

from .people import Grants, parse_grants
from .proxy_people import PREFIX_MIN, ProxySettings, header_name

SECRET_VARIABLE = "FAIRLANE_OIDC_CLIENT_SECRET"  # noqa: S105 the name of a variable
SECRET_BYTES_MAX = 4096
CALLBACK = "/page/oidc/callback"
SIGN_IN = "/page/oidc/sign-in"


@dataclass(frozen=True, slots=True)
class SignInOptions:
    """What the command line says; None or empty: not given."""

    oidc_issuer: str | None = None
    oidc_client_id: str | None = None
    oidc_client_secret_file: str | None = None
    oidc_scopes: str | None = None
    oidc_groups_claims: tuple[str, ...] = ()
    oidc_name: str | None = None
    public_url: str | None = None
    proxy_user_header: str | None = None
    proxy_groups_header: str | None = None
    grants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """An OpenID provider, and what this service is for it."""

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    public_url: str  # scheme, host and port under which browsers reach this service
    scopes: str = "openid profile email"
    groups_claims: tuple[str, ...] = ("groups",)
    name: str = ""  # on the button

    @property
    def redirect_uri(self) -> str:
        return self.public_url + CALLBACK


@dataclass(frozen=True, slots=True)
class SignInSettings:
    """How people sign in besides with a key; by default they do not."""

    grants: Grants = field(default_factory=Grants)
    oidc: OidcSettings | None = None
    proxy: ProxySettings | None = None


def make_sign_in_settings(
    options: SignInOptions, environment: Mapping[str, str], proxies: TrustedProxies | None = None
) -> SignInSettings:
    """Check what was given; everything that cannot work is refused here."""
    grants, oidc = parse_grants(options.grants), _oidc_settings(options, environment)
    if oidc is not None and options.proxy_user_header is not None:
        raise Mistake("--oidc-issuer and --proxy-user-header are two ways to sign in as oneself; give one of them")
    proxy = _proxy_settings(options, proxies or TrustedProxies())
    if oidc is None and proxy is None and grants:
        raise Mistake("--grant is given, but no way to sign in: give --oidc-issuer or --proxy-user-header too")
    if (oidc is not None or proxy is not None) and not grants:
        raise Mistake("nobody could sign in: give --grant GROUP=ROLE, as in --grant support=viewer")
    if proxy is not None and proxy.groups_header is None and grants.groups:
        raise Mistake(
            f"--grant names the group {grants.groups[0]!r}, but nothing says who is in it: give --proxy-groups-header"
        )
    return SignInSettings(grants, oidc, proxy)


def _proxy_settings(options: SignInOptions, proxies: TrustedProxies) -> ProxySettings | None:
    if options.proxy_user_header is None:
        if options.proxy_groups_header is not None:
            raise Mistake("--proxy-groups-header is given without --proxy-user-header; give both, or neither")
        return None
    user = header_name("--proxy-user-header", options.proxy_user_header)
    groups = options.proxy_groups_header and header_name("--proxy-groups-header", options.proxy_groups_header)
    if groups == user:
        raise Mistake(f"--proxy-user-header and --proxy-groups-header are both {user!r}; a header holds one or the other")
    if not proxies:
        raise Mistake(
            "--proxy-user-header needs --trusted-proxy, the address of the proxy that sets it: anybody else could send it too"
        )
    for network in proxies.networks:
        if network.prefixlen < PREFIX_MIN[network.version]:
            expected = (
                "the address of the proxy itself: with --proxy-user-header, whoever has one of these addresses can be anybody"
            )
            raise BadValue("--trusted-proxy", str(network), expected)
    return ProxySettings(user, groups)


def _oidc_settings(options: SignInOptions, environment: Mapping[str, str]) -> OidcSettings | None:
    if options.oidc_issuer is None:
        _refuse_without_issuer(options)
        return None
    issuer = _checked_url("--oidc-issuer", options.oidc_issuer)
    if options.oidc_client_id is None:
        raise Mistake("--oidc-issuer needs --oidc-client-id: the id that the provider has given this service")
    if options.public_url is None:
        raise Mistake(
            "--oidc-issuer needs --public-url: the address of the page in browsers, as in https://fairlane.example.com"
        )
    public = urlsplit(_checked_url("--public-url", options.public_url))
    if public.path not in ("", "/"):
        raise BadValue("--public-url", options.public_url, "an address without a path, as in https://fairlane.example.com")
    scopes = "openid profile email" if options.oidc_scopes is None else validate_text("--oidc-scopes", options.oidc_scopes)
    if "openid" not in scopes.split():
        raise BadValue("--oidc-scopes", scopes, "scopes with openid among them, separated by spaces")
    return OidcSettings(
        issuer,
        validate_text("--oidc-client-id", options.oidc_client_id),
        _client_secret(options.oidc_client_secret_file, environment),
        f"{public.scheme}://{public.netloc}",
        " ".join(scopes.split()),
        tuple(validate_text("--oidc-groups-claim", name) for name in options.oidc_groups_claims or ("groups",)),
        validate_text("--oidc-name", urlsplit(issuer).netloc if options.oidc_name is None else options.oidc_name, 60),
    )


def _refuse_without_issuer(options: SignInOptions) -> None:
    others = {
        "--oidc-client-id": options.oidc_client_id,
        "--oidc-client-secret-file": options.oidc_client_secret_file,
        "--oidc-scopes": options.oidc_scopes,
        "--oidc-groups-claim": options.oidc_groups_claims or None,
        "--oidc-name": options.oidc_name,
        "--public-url": options.public_url,
    }
    for name, value in others.items():
        if value is not None:
            raise Mistake(f"{name} is given without --oidc-issuer; give both, or neither")


def _checked_url(option: str, url: str) -> str:
    """Return an address that passwords and codes may be sent to: with TLS, or on this machine."""
    expected = "an address with https, as in https://login.example.com (http only for localhost and 127.0.0.1)"
    try:
        parts = urlsplit(validate_text(option, url, 1000))
        host, has_more = parts.hostname or "", "@" in parts.netloc or parts.query or parts.fragment
        parts.port  # noqa: B018 raises if it is not a number
    except ValueError:
        raise BadValue(option, url, expected) from None
    if not host or has_more or not (parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))):
        raise BadValue(option, url, expected)
    return url


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _client_secret(path: str | None, environment: Mapping[str, str]) -> str:
    from_environment = environment.get(SECRET_VARIABLE)
    if path is None and from_environment is None:
        raise Mistake(
            f"--oidc-issuer needs the client's secret: in {SECRET_VARIABLE}, or in the file of --oidc-client-secret-file"
        )
    if path is not None and from_environment is not None:
        raise Mistake(f"the client's secret is given twice, in {SECRET_VARIABLE} and in {path}; give one of them")
    secret = from_environment if path is None else _read_secret(path)
    source = SECRET_VARIABLE if path is None else path
    if not secret or not secret.isascii() or not secret.isprintable():  # never shown: a message may end in a log
        raise Mistake(f"the client's secret in {source} is empty, or has characters that a secret cannot have; check it")
    return secret


def _read_secret(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            warn_if_open(path, "the client's secret")
            return file.read(SECRET_BYTES_MAX).decode("latin-1").strip()
    except OSError as error:
        raise Mistake(
            f"the client's secret cannot be read from {path}: {error.strerror}; check --oidc-client-secret-file"
        ) from None
