"""Services that people sign in to as themselves: with a provider that can be made to lie, or behind an nginx that asks for
passwords; and a browser's way through a sign-in without a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from tests.api.running import Server
from tests.servers.oidc import CLIENT_ID, CLIENT_SECRET, ForgingProvider
from tests.servers.proxies import Proxy, nginx

from .page_client import CSRF

PUBLIC_URL = "http://127.0.0.1:8000"  # only browsers go there
SECRET = {"FAIRLANE_OIDC_CLIENT_SECRET": CLIENT_SECRET}
GRANTS = ("staff=viewer", "operators=operator", "admins=admin", "acme people=customer:acme", "beta people=customer:beta")

PROXY_OPTIONS = (
    "--trusted-proxy", "127.0.0.1", "--proxy-user-header", "Remote-User", "--proxy-groups-header", "Remote-Groups",
    *(part for grant in GRANTS for part in ("--grant", grant)),
)  # fmt: skip
PROXY_USERS = {"ada": "staff,operators", "vic": "staff", "cleo": "acme people", "eve": "strangers"}  # with their groups


def authenticating_nginx(upstream_port: int) -> Proxy:
    """Start an nginx that asks for a password, and tells the service whose it was."""
    groups = " ".join(f'{user} "{groups}";' for user, groups in PROXY_USERS.items())
    headers = "proxy_set_header Remote-User $remote_user; proxy_set_header Remote-Groups $user_groups;"
    password = 'auth_basic "people"; auth_basic_user_file FOLDER/passwords;'
    service = f'proxy_pass http://127.0.0.1:{upstream_port}; proxy_http_version 1.1; proxy_set_header Connection "";'
    site = f"""
        map $remote_user $user_groups {{ default ""; {groups} }}
        server {{ listen 127.0.0.1:PORT; location / {{ {password} {headers} {service} }} }}
    """
    passwords = "".join(f"{user}:{{PLAIN}}{user}'s password\n" for user in PROXY_USERS)
    return nginx(site, {"passwords": passwords.encode()})


def oidc_options(issuer: str, *grants: str, public_url: str = PUBLIC_URL) -> list[str]:
    options = ["--oidc-issuer", issuer, "--oidc-client-id", CLIENT_ID, "--public-url", public_url]
    return [*options, *(part for grant in grants or GRANTS for part in ("--grant", grant))]


def oidc_server(folder: Path, provider: ForgingProvider, *options: str, grants: tuple[str, ...] = GRANTS) -> Server:
    return Server(folder, *oidc_options(provider.issuer, *grants), *options, variables=SECRET)


def begin(client: httpx.Client) -> str:
    """Begin a sign-in; the address at the provider that the browser is sent to."""
    response = client.get("/page/oidc/sign-in")
    assert response.status_code == 303, response.text
    return response.headers["location"]


def come_back(client: httpx.Client, query: dict[str, str]) -> str:
    """Bring back what the provider gave; returns why it failed, or nothing."""
    response = client.get("/page/oidc/callback", params=query)
    assert response.status_code == 303, response.text
    target = urlsplit(response.headers["location"])
    assert (target.scheme, target.netloc, target.path) == ("", "", "/")
    return parse_qs(target.query).get("sign_in", [""])[0]


def sign_in(client: httpx.Client, provider: ForgingProvider, **more: str) -> str:
    """Sign in as the provider's user; returns why it failed, or nothing."""
    return come_back(client, provider.authorize(begin(client)) | more)


def session_of(client: httpx.Client) -> dict[str, Any] | None:
    """Who is signed in; from then on the client sends the CSRF token."""
    response = client.get("/page/session")
    if response.status_code == 401:
        return None
    client.headers[CSRF] = response.json()["csrf"]
    session: dict[str, Any] = response.json()
    return session


def failures(server: Server) -> list[str]:
    return [line["reason"] for line in server.logged() if line["event"] == "sign-in failed"]
