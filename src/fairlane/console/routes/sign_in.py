"""Routes of signing in with OpenID Connect: which ways there are, the way to the provider, and the way back.

Laws:
- The way back ends on the page of this service, with a session or with a code that says why there is none.
- A session is always a new one: nothing that the browser had before becomes it.
- The cookie that belongs to the way is sent along when the provider sends the browser back (SameSite=Lax), and counts once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fairlane.api.client_address import client_address, is_https
from fairlane.api.dependencies import json_response
from fairlane.api.problems import nothing_here
from fairlane.api.service import Service
from fairlane.console.people import NoRole
from fairlane.console.sessions import SIGN_IN_COOKIE, cookie_name, find_cookie
from fairlane.console.sign_in_attempt import FLOW_SECONDS, FailureCode, SignInFailed, parse_attempt
from fairlane.console.sign_in_settings import SIGN_IN
from fairlane.console.state import ConsoleState, SharedState
from fairlane.core.errors import StoreError

from .session import begin_session, set_session_cookie

if TYPE_CHECKING:
    from fairlane.console.oidc import Provider

GROUPS_LOGGED = 50
router = APIRouter(tags=["page"], include_in_schema=False)


@router.get("/page/sign-in")
async def get_ways(request: Request, state: SharedState) -> Response:
    """Return the ways to sign in besides with a key."""
    oidc = state.sign_in.oidc
    proxy, named = state.sign_in.proxy, None
    if proxy is not None:
        named = proxy.named(dict(request.scope["headers"]))
    return json_response(
        {
            "oidc": None if oidc is None else {"name": oidc.name, "url": oidc.public_url + SIGN_IN},
            "proxy": None if named is None else {"name": named[0].name},
        }
    )


@router.get("/page/oidc/sign-in")
async def begin_sign_in(request: Request, state: SharedState) -> Response:
    """Send the browser to the provider."""
    provider = _provider(state)
    try:
        url, attempt = await provider.begin()
    except SignInFailed as failure:
        return _failed(request, failure.code, str(failure))
    response = RedirectResponse(url, 303)
    is_secure = is_https(request.scope)
    response.set_cookie(
        cookie_name(is_https=is_secure, base=SIGN_IN_COOKIE), attempt.to_cookie(), FLOW_SECONDS,
        path="/", secure=is_secure, httponly=True, samesite="lax",
    )  # fmt: skip
    return response


@router.get("/page/oidc/callback")
async def finish_sign_in(request: Request, state: SharedState) -> Response:
    """Take the browser back from the provider, with a session if all is well."""
    provider, service = _provider(state), _service(request)
    is_secure, address = is_https(request.scope), client_address(request.scope)
    cookie = find_cookie(dict(request.scope["headers"]), is_https=is_secure, base=SIGN_IN_COOKIE)
    try:
        signed_in = await provider.finish(parse_attempt(cookie), request.query_params)
        person = state.sign_in.grants.admit(signed_in.person, signed_in.groups)
        _, session = await begin_session(service, state, person, signed_in.id_token, address)
    except SignInFailed as failure:
        service.sign_ins.refused_person("", "", address, failure.code)
        response = _failed(request, failure.code, str(failure))
    except NoRole as refusal:
        known = {
            "person": signed_in.person.id,
            "person_name": signed_in.person.name,
            "groups": signed_in.groups[:GROUPS_LOGGED],
        }
        service.sign_ins.refused_person(signed_in.person.id, signed_in.person.name, address, "no-role")
        response = _failed(request, "no_role", str(refusal), **known)
    except StoreError as error:
        service.log_store_error(error)
        response = _failed(request, "busy", "the store could not keep the session")
    else:
        response = RedirectResponse("/", 303)
        set_session_cookie(request, response, session)
    name = cookie_name(is_https=is_secure, base=SIGN_IN_COOKIE)
    response.delete_cookie(name, path="/", secure=is_secure, httponly=True, samesite="lax")
    return response


async def check_provider(service: Service, state: ConsoleState) -> None:
    """Log if the provider cannot be used, at the start: a mistake in the settings should not wait for the first visitor."""
    if state.provider is None:
        return
    try:
        await state.provider.check()
    except SignInFailed as failure:
        service.log.event("no sign-in", issuer=state.provider.settings.issuer, reason=str(failure))


def _provider(state: ConsoleState) -> Provider:
    if state.provider is None:
        raise nothing_here()
    return state.provider


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _failed(request: Request, code: FailureCode, reason: str, **fields: object) -> Response:
    """Show the page with a code that it has words for; the log has the reason."""
    _service(request).log.event("sign-in failed", client=client_address(request.scope), code=code, reason=reason, **fields)
    return RedirectResponse(f"/?sign_in={code}", 303)
