"""The route of the audit log: who changed what, for admins."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from fairlane.api import key_schemas as schemas
from fairlane.api.dependencies import AnyCaller, audit_json, json_response, quote_name

AUDIT = "/v1/audit"
PAGE_DEFAULT = 50
router = APIRouter(tags=["keys and audit"])


@router.get(AUDIT, responses={200: {"model": schemas.AuditPageModel}})
async def list_audit(
    context: AnyCaller,
    who: Annotated[
        str | None, Query(min_length=1, max_length=200, description="The id or the name of a key, or a user.")
    ] = None,
    what: Annotated[
        str | None, Query(min_length=1, max_length=200, description="`customer.tune`, or `customer` for all.")
    ] = None,
    customer: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    since: Annotated[float | None, Query(description="Then or later; seconds since the epoch.")] = None,
    until: Annotated[float | None, Query(description="Before then; seconds since the epoch.")] = None,
    after: Annotated[str | None, Query(max_length=64, description="The id of an entry: those older than it.")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = PAGE_DEFAULT,
) -> Response:
    """What operators, admins and the command line changed, and sign-ins; newest first. A page may be short."""
    page = await context.service.call(context.access.audit.page, who, what, customer, since, until, after, limit)
    parameters: dict[str, Any] = {
        "who": who, "what": what, "customer": customer, "since": since, "until": until, "after": page.next, "limit": limit,
    }  # fmt: skip
    query = "&".join(f"{name}={quote_name(str(value))}" for name, value in parameters.items() if value is not None)
    following = None if page.next is None else f"{AUDIT}?{query}"
    return json_response({"entries": [audit_json(entry) for entry in page.entries], "next": following})
