"""Routes of everybody's sessions, for admins: who is signed in to the page, and ending their sessions."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from fairlane.api.dependencies import AnyCaller, IdInPath, json_response
from fairlane.api.permissions import Role
from fairlane.api.schemas import ResponseModel
from fairlane.console.sessions import SessionEntry
from fairlane.console.state import SharedState

PAGE_DEFAULT, PAGE_MAX = 50, 500
router = APIRouter(tags=["sessions"])


class SessionModel(ResponseModel, title="Session"):
    """Who is signed in to the page."""

    id: str = Field(description="Of the person, or the public part of the key.")
    is_person: bool = Field(description="Whether this is a person who signed in as such, and not with a key.")
    name: str
    role: Role = Field(description="At sign-in.")
    customer: str | None
    sessions: int = Field(description="How many: one for each browser.")
    expires_at: float = Field(description="When the last of them ends.")


class SessionPageModel(ResponseModel, title="SessionPage"):
    """Who is signed in, people first, a page at a time."""

    sessions: list[SessionModel]
    next: str | None


@router.get("/v1/sessions", responses={200: {"model": SessionPageModel}})
async def list_sessions(
    context: AnyCaller,
    state: SharedState,
    after: Annotated[str, Query(max_length=100, description="Those after this id.")] = "",
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = PAGE_DEFAULT,
) -> Response:
    """Who is signed in to the page: people, and keys that were exchanged for a session."""
    page = await context.service.call(lambda: list(islice(state.sessions.entries(after), limit)))
    following = f"/v1/sessions?after={page[-1].id}&limit={limit}" if len(page) == limit else None
    return json_response({"sessions": [_to_json(entry) for entry in page], "next": following})


@router.delete("/v1/sessions/{id}", status_code=204)
async def end_sessions(context: AnyCaller, state: SharedState, id: IdInPath) -> Response:
    """End all sessions of a person or a key; servers refuse them within a second."""
    await context.service.call(state.sessions.revoke, id, context.caller.actor(context.address))
    return Response(status_code=204)


def _to_json(entry: SessionEntry) -> dict[str, Any]:
    members = entry._asdict()
    return {**members, "expires_at": members.pop("expires_ms") / 1000}
