"""The route of signing in as whom an authenticating proxy names: its word is exchanged for a session, as a key is."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from fairlane.api.client_address import client_address
from fairlane.api.problems import Problem, nothing_here
from fairlane.api.schemas import StrictBody
from fairlane.api.service import Service
from fairlane.console.people import NoRole
from fairlane.console.state import SharedState

from .session import begin_session, refuse_other_sites, signed_in_response

GROUPS_LOGGED = 50
router = APIRouter(tags=["page"], include_in_schema=False)


class EmptyBody(StrictBody):
    """Nothing: the proxy's headers say everything."""


@router.post("/page/proxy-session")
async def sign_in_by_proxy(request: Request, state: SharedState, body: EmptyBody) -> Response:
    """Sign in whom the proxy names; the middleware has taken out headers that are not the proxy's."""
    service: Service = request.app.state.service
    proxy = state.sign_in.proxy
    if proxy is None:
        raise nothing_here()
    refuse_other_sites(request)
    named, address = proxy.named(dict(request.scope["headers"])), client_address(request.scope)
    if named is None:
        raise Problem("no-key", "no trusted proxy says who this is; sign in with a key")
    someone, groups = named
    if not service.rate_limiter.take(someone.id):
        raise Problem("too-many-requests", "too many requests of this person", retry_after=1)
    try:
        person = state.sign_in.grants.admit(someone, groups)
    except NoRole as refusal:
        service.sign_ins.refused_person(someone.id, someone.name, address, "no-role")
        known = {"person": someone.id, "person_name": someone.name, "groups": groups[:GROUPS_LOGGED]}
        service.log.event("sign-in failed", client=address, code="no_role", reason=str(refusal), **known)
        raise Problem("not-allowed", "the proxy knows who you are, but none of your groups has a role here") from None
    caller, cookie = await begin_session(service, state, person, "", address)
    return signed_in_response(request, caller, cookie)
