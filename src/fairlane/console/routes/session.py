"""Routes of sessions: sign in, read the session, sign out.

Laws:
- The cookie is for the browser alone: scripts cannot read it, other sites cannot send it.
- Only a JSON body signs in, which a form of another site cannot send: a visitor is never signed in without noticing.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import Field, StrictStr
from starlette.requests import Request
from starlette.responses import Response

from fairlane.api.auth import Caller
from fairlane.api.client_address import client_address, is_https
from fairlane.api.dependencies import AnyCaller, json_response
from fairlane.api.middleware import is_json
from fairlane.api.problems import Problem
from fairlane.api.schemas import StrictBody
from fairlane.api.service import Service
from fairlane.console.people import Person
from fairlane.console.sessions import SESSION_SECONDS, cookie_name, csrf_token, owner_of
from fairlane.console.state import ConsoleState, SharedState

router = APIRouter(tags=["page"], include_in_schema=False)


class KeyBody(StrictBody):
    """A key to sign in with."""

    key: StrictStr = Field(max_length=200)


@router.post("/page/session")
async def sign_in(request: Request, state: SharedState, body: KeyBody) -> Response:
    """Exchange a key for a cookie."""
    service: Service = request.app.state.service
    refuse_other_sites(request)
    key = body.key.strip()
    caller = None if owner_of(key) else await service.caller(key)  # a cookie is not a key
    address = client_address(request.scope)
    if caller is None:
        service.refused_sign_in(key, address)
        raise Problem("no-key", "this key is not valid")
    if "read" not in caller.permissions:
        raise Problem("not-allowed", "this key may not read, and the page shows things to read; use a key with scope read")
    if not service.rate_limiter.take(caller.id):
        raise Problem("too-many-requests", "too many requests with this key", retry_after=1)
    if caller.customer is not None:
        service.sign_ins.accepted(caller, address)
    cookie = await service.call(state.sessions.begin, caller.id, caller.actor(address) if caller.sees_all else None)
    return signed_in_response(request, caller, cookie)


def refuse_other_sites(request: Request) -> None:
    """Refuse a sign-in that another site may have sent."""
    if not is_json(request.headers.get("content-type", "").encode()):
        raise Problem("wrong-media-type", "Content-Type must be application/json")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Problem("not-from-page", "sign-in is possible only from the page of this server")


def signed_in_response(request: Request, caller: Caller, cookie: str) -> Response:
    """Say who has signed in, and give the browser the cookie."""
    response = json_response(_session_json(caller, csrf_token(cookie)))
    set_session_cookie(request, response, cookie)
    return response


async def begin_session(
    service: Service, state: ConsoleState, person: Person, id_token: str, address: str
) -> tuple[Caller, str]:
    """Begin a session of somebody who has a role, and return its cookie too; it is in the audit log and in the log."""
    caller = state.caller_of(person)
    assert caller is not None  # it was just admitted
    if caller.customer is not None:
        service.sign_ins.accepted(caller, address)
    actor = caller.actor(address) if caller.sees_all else None
    cookie = await service.call(state.sessions.begin, person, actor, id_token)
    fields = {"person": person.id, "person_name": person.name, "role": person.role, "customer": person.customer}
    service.log.event("signed in", client=address, **fields)
    return caller, cookie


def set_session_cookie(request: Request, response: Response, cookie: str) -> None:
    """Give the browser the cookie of a session."""
    is_secure = is_https(request.scope)
    name = cookie_name(is_https=is_secure)
    response.set_cookie(name, cookie, SESSION_SECONDS, path="/", secure=is_secure, httponly=True, samesite="strict")


@router.get("/page/session")
async def get_session(context: AnyCaller) -> Response:
    """Return who is signed in."""
    is_cookie = owner_of(context.credential) != ""
    return json_response(_session_json(context.caller, csrf_token(context.credential) if is_cookie else None))


@router.delete("/page/session")
async def sign_out(request: Request, context: AnyCaller, state: SharedState) -> Response:
    """End the session, and say where the provider ends its own, if it offers that."""
    actor = context.caller.actor(context.address) if context.caller.sees_all else None
    ended = await context.service.call(state.sessions.end, context.credential, actor)
    url = None
    if ended is not None and ended.person is not None and state.provider is not None:
        url = await state.provider.sign_out_url(ended.id_token)
    response = Response(status_code=204) if url is None else json_response({"continue_at": url})
    is_secure = is_https(request.scope)
    response.delete_cookie(cookie_name(is_https=is_secure), path="/", secure=is_secure, httponly=True, samesite="strict")
    return response


def _session_json(caller: Caller, csrf: str | None) -> dict[str, Any]:
    """Say who is signed in, and what the page may offer."""
    return {
        "role": caller.role,
        "customer": caller.customer,
        "person": {"id": caller.id, "name": caller.name} if caller.is_person else None,
        "permissions": sorted(caller.permissions),
        "csrf": csrf,
    }
