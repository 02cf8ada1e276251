"""Settings of signing in: what cannot work is refused before the server listens, with the option and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fairlane.api.client_address import TrustedProxies
from fairlane.console.people import NoRole, Person, make_person, parse_grants
from fairlane.console.proxy_people import ProxySettings
from fairlane.console.sign_in_settings import SECRET_VARIABLE, SignInOptions, make_sign_in_settings
from fairlane.core.errors import Mistake

SECRET = {SECRET_VARIABLE: "s3cret"}
COMPLETE = SignInOptions(
    oidc_issuer="https://login.example.com/realms/x",
    oidc_client_id="fairlane",
    public_url="https://fairlane.example.com",
    grants=("staff=viewer",),
)


def _with_url(name: str, url: str) -> SignInOptions:
    return replace(COMPLETE, oidc_issuer=url) if name == "oidc_issuer" else replace(COMPLETE, public_url=url)


def test_nothing_given_is_no_sign_in() -> None:
    settings = make_sign_in_settings(SignInOptions(), SECRET)
    assert settings.oidc is None
    assert not settings.grants


def test_what_is_left_out_has_a_default_and_the_secret_is_never_shown() -> None:
    oidc = make_sign_in_settings(replace(COMPLETE, public_url="https://fairlane.example.com/"), SECRET).oidc
    assert oidc is not None
    assert oidc.redirect_uri == "https://fairlane.example.com/page/oidc/callback"
    assert (oidc.scopes, oidc.groups_claims, oidc.name) == ("openid profile email", ("groups",), "login.example.com")
    assert oidc.client_secret == "s3cret"
    assert "s3cret" not in repr(oidc)


@pytest.mark.parametrize(
    "url", ["http://localhost:9000", "http://127.0.0.1:9000", "http://[::1]:9000", "https://x.example:8443"]
)
def test_plain_http_is_for_this_machine_only(url: str) -> None:
    settings = make_sign_in_settings(replace(COMPLETE, oidc_issuer=url, public_url=url), SECRET)
    assert settings.oidc is not None
    assert settings.oidc.public_url == url


@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        (replace(COMPLETE, oidc_client_id=None), SECRET, "--oidc-issuer needs --oidc-client-id"),
        (replace(COMPLETE, oidc_client_id=""), SECRET, "--oidc-client-id is ''"),
        (replace(COMPLETE, public_url=None), SECRET, "--oidc-issuer needs --public-url"),
        (COMPLETE, {}, f"needs the client's secret: in {SECRET_VARIABLE}"),
        (COMPLETE, {SECRET_VARIABLE: ""}, f"secret in {SECRET_VARIABLE} is empty"),
        (COMPLETE, {SECRET_VARIABLE: "s3cret\nmore"}, "has characters that a secret cannot have"),
        (replace(COMPLETE, oidc_client_secret_file="/no/such/file"), {}, "cannot be read from /no/such/file: No such file"),
        (replace(COMPLETE, oidc_client_secret_file="/no/such/file"), SECRET, "given twice"),
        (replace(COMPLETE, grants=()), SECRET, "nobody could sign in: give --grant"),
        (SignInOptions(grants=("a=viewer",)), {}, "--grant is given, but no way to sign in"),
        (replace(COMPLETE, proxy_user_header="Remote-User"), SECRET, "two ways to sign in as oneself; give one of them"),
        (SignInOptions(oidc_client_id="x"), {}, "--oidc-client-id is given without --oidc-issuer"),
        (SignInOptions(oidc_client_secret_file="x"), {}, "--oidc-client-secret-file is given without --oidc-issuer"),
        (SignInOptions(public_url="x"), {}, "--public-url is given without --oidc-issuer"),
        (replace(COMPLETE, oidc_scopes="profile"), SECRET, "--oidc-scopes is 'profile'; it must be scopes with openid"),
        (replace(COMPLETE, oidc_groups_claims=("roles", "")), SECRET, "--oidc-groups-claim is ''"),
        (SignInOptions(oidc_groups_claims=("x",)), {}, "--oidc-groups-claim is given without --oidc-issuer"),
        (replace(COMPLETE, oidc_name="x" * 61), SECRET, "--oidc-name is "),
        (replace(COMPLETE, public_url="https://x.example/fairlane"), SECRET, "an address without a path"),
        *(
            (_with_url(name, url), SECRET, f"--{name.replace('_', '-')} is ")
            for name in ("oidc_issuer", "public_url")
            for url in ("", "x.example", "http://x.example", "http://10.0.0.1", "ftp://x.example", "https://", "https://u:p@x.example",
                        "https://x.example?a=b", "https://x.example#a", "https://x.example:port", "https://[x", "http://localhost.evil.example")
        ),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(options: SignInOptions, environment: dict[str, str], message: str) -> None:
    with pytest.raises(Mistake) as refused:
        make_sign_in_settings(options, environment)
    assert message in str(refused.value)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(("mode", "warnings"), [(0o600, 0), (0o640, 0), (0o644, 1)])
def test_the_secret_is_read_from_a_file_and_one_that_everybody_can_read_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warnings: int
) -> None:
    path = tmp_path / "secret"
    path.write_text("s3cret of the file\n")
    path.chmod(mode)
    settings = make_sign_in_settings(replace(COMPLETE, oidc_client_secret_file=str(path)), {})
    assert settings.oidc is not None
    assert settings.oidc.client_secret == "s3cret of the file"
    assert [str(path) in message and "s3cret" not in message for message in caplog.messages] == [True] * warnings


@pytest.mark.parametrize(
    "grant",
    ["", "staff", "staff=", "=viewer", "staff=root", "staff=customer", "staff=customer:", "staff=Viewer", "staff\n=viewer",
     "x" * 201 + "=viewer", "a=customer:\x00"],
)  # fmt: skip
def test_what_is_not_a_grant_is_refused(grant: str) -> None:
    with pytest.raises(Mistake, match=r"--grant"):
        parse_grants([grant])


def admitted(grants: list[str], groups: list[str]) -> Person:
    return parse_grants(grants).admit(make_person("https://x.example", "ada", "Ada"), groups)


def test_groups_with_equals_signs_and_customers_with_colons_are_kept() -> None:
    person = admitted(["cn=staff,dc=x=customer:a:b"], ["cn=staff,dc=x"])
    assert (person.role, person.customer, person.groups) == ("customer", "a:b", ("cn=staff,dc=x",))


def test_a_star_is_everybody_and_more_is_granted_to_some() -> None:
    grants = ["*=viewer", "staff=operator"]
    assert admitted(grants, []).role == "viewer"
    assert admitted(grants, ["staff"]).role == "operator"
    caller = parse_grants(grants).caller(admitted(grants, ["staff"]))
    assert caller is not None
    assert (caller.role, caller.is_person, caller.name) == ("operator", True, "Ada")


def test_a_group_that_is_called_star_is_not_everybody() -> None:
    with pytest.raises(NoRole):
        admitted(["staff=viewer"], ["*"])


PROXIED = SignInOptions(proxy_user_header="Remote-User", proxy_groups_header="Remote-Groups", grants=("staff=viewer",))


@pytest.mark.parametrize("trusted", [("127.0.0.1",), ("10.1.0.0/16", "10.2.3.4"), ("::1",), ("fd00:1:2:3::/64",)])
def test_the_headers_of_a_trusted_proxy(trusted: tuple[str, ...]) -> None:
    settings = make_sign_in_settings(PROXIED, {}, TrustedProxies(trusted))
    assert settings.proxy == ProxySettings("remote-user", "remote-groups")
    assert settings.oidc is None


@pytest.mark.parametrize(
    ("options", "trusted", "message"),
    [
        (PROXIED, (), "--proxy-user-header needs --trusted-proxy"),
        (PROXIED, ("0.0.0.0/0",), "--trusted-proxy is '0.0.0.0/0'; it must be the address of the proxy itself"),
        (PROXIED, ("127.0.0.1", "::/0"), "--trusted-proxy is '::/0'"),
        (PROXIED, ("10.0.0.0/15",), "--trusted-proxy is '10.0.0.0/15'"),
        (PROXIED, ("fd00::/63",), "--trusted-proxy is 'fd00::/63'"),
        (replace(PROXIED, proxy_user_header=None), ("127.0.0.1",), "--proxy-groups-header is given without"),
        (replace(PROXIED, proxy_groups_header=None), ("127.0.0.1",), "names the group 'staff', but nothing says who is in it"),
        (replace(PROXIED, grants=()), ("127.0.0.1",), "nobody could sign in: give --grant"),
        (replace(PROXIED, proxy_groups_header="remote-user"), ("127.0.0.1",), "are both 'remote-user'"),
        *(
            (replace(PROXIED, proxy_user_header=name), ("127.0.0.1",), "--proxy-user-header is ")
            for name in ("", "Remote User", "Remote_User", "Remote-User:", "x" * 62, "-", "Żółw", "Cookie", "authorization",
                         "X-Forwarded-For", "host", "Sec-Fetch-Site", "x-fairlane-csrf")
        ),
        (replace(PROXIED, proxy_groups_header="Cookie"), ("127.0.0.1",), "--proxy-groups-header is 'Cookie', which means"),
    ],
)  # fmt: skip
def test_headers_that_make_no_sense_are_refused(options: SignInOptions, trusted: tuple[str, ...], message: str) -> None:
    with pytest.raises(Mistake) as refused:
        make_sign_in_settings(options, {}, TrustedProxies(trusted))
    assert message in str(refused.value)


def test_without_groups_everybody_may_have_a_grant() -> None:
    options = replace(PROXIED, proxy_groups_header=None, grants=("*=viewer",))
    assert make_sign_in_settings(options, {}, TrustedProxies(["127.0.0.1"])).proxy == ProxySettings("remote-user")


def test_the_command_says_it_in_one_line(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
    command = [sys.executable, "-m", "fairlane.cli", "serve", "--port", "0", "--oidc-issuer", "http://x.example"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "--oidc-issuer is 'http://x.example'; it must be an address with https" in done.stderr
    assert list(tmp_path.iterdir()) == []  # nothing was opened
