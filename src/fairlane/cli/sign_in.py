"""Options of `fairlane serve` for people who sign in as themselves."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fairlane.core.errors import Mistake

if TYPE_CHECKING:
    from fairlane.api.client_address import TrustedProxies
    from fairlane.console.sign_in_settings import SignInSettings

META = "fairlane.sign_in"  # a key of click's context.meta
MISSING = "--oidc-issuer needs packages that are not installed; run in the clone: pip install '.[serve,oidc]'"
F = TypeVar("F", bound=Callable[..., Any])


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Keep a value in the context, so that the command needs no parameter for it."""
    context.meta.setdefault(META, {})[parameter.name] = value


def _option(*names: str, metavar: str, help: str, multiple: bool = False) -> Callable[[F], F]:
    return click.option(*names, metavar=metavar, help=help, multiple=multiple, expose_value=False, callback=_keep)


def sign_in_options(command: F) -> F:
    """Add the options to a command."""
    for option in reversed((
        _option("--oidc-issuer", metavar="URL", help="Let people sign in to the page with this OpenID provider."),
        _option("--oidc-client-id", metavar="ID", help="The id that the provider has given this service."),
        _option("--oidc-client-secret-file", metavar="FILE",
                help="A file with the client's secret. Default: the secret in FAIRLANE_OIDC_CLIENT_SECRET."),
        _option("--oidc-scopes", metavar="SCOPES", help="What to ask the provider for. Default: openid profile email."),
        _option("--oidc-groups-claim", "oidc_groups_claims", metavar="CLAIM", multiple=True,
                help="A claim with a person's groups or roles; may be given several times. Default: groups."),
        _option("--oidc-name", metavar="NAME", help="The provider's name on the page. Default: its host."),
        _option("--public-url", metavar="URL", help="The address of the page in browsers, as in https://fairlane.example.com."),
        _option("--proxy-user-header", metavar="NAME",
                help="Let people sign in whom the trusted proxy names in this header, as in Remote-User."),
        _option("--proxy-groups-header", metavar="NAME",
                help="The header with their groups, separated by commas, as in Remote-Groups."),
        _option("--grant", "grants", metavar="GROUP=ROLE", multiple=True,
                help="Give people of this group a role: viewer, operator, admin or customer:NAME; the group * is everybody."),
    )):  # fmt: skip
        command = option(command)
    return command


def sign_in_settings(proxies: TrustedProxies) -> SignInSettings:
    """Return the settings that the options of this command make."""
    from fairlane.console.sign_in_settings import SignInOptions, make_sign_in_settings

    options = SignInOptions(**click.get_current_context().meta.get(META, {}))
    settings = make_sign_in_settings(options, os.environ, proxies)
    if settings.oidc is not None:
        try:
            import fairlane.console.oidc  # noqa: F401 only whether it can be
        except ImportError as error:
            raise Mistake(f"{MISSING} ({error})") from None
    return settings
