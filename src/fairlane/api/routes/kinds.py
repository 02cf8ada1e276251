"""Routes of kinds: what all workers together may do with each, read by staff and changed by operators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BeforeValidator
from starlette.responses import Response

from fairlane.api import steering_schemas as schemas
from fairlane.api.dependencies import AnyCaller, decode_name, json_response, quote_name, value_json

PAGE_DEFAULT = 100
router = APIRouter(tags=["kinds"])
KindInPath = Annotated[str, BeforeValidator(decode_name), Path(description="The name of a kind.", examples=["extract"])]


@router.get("/v1/kinds", responses={200: {"model": schemas.KindPageModel}})
async def list_kinds(
    context: AnyCaller,
    after: Annotated[str, Query(max_length=100, description="Kinds after this name.")] = "",
    limit: Annotated[int, Query(ge=1, le=200)] = PAGE_DEFAULT,
) -> Response:
    """Kinds that have or had a limit, that workers take, or of which documents are ready; by name, a page at a time."""
    page = await context.service.call(context.access.operator.kinds, after, limit)
    following = f"/v1/kinds?after={quote_name(page[-1].kind)}&limit={limit}" if len(page) == limit else None
    return json_response({"kinds": [value_json(kind) for kind in page], "next": following})


@router.get("/v1/kinds/{kind}", responses={200: {"model": schemas.KindModel}})
async def get_kind(context: AnyCaller, kind: KindInPath) -> Response:
    """How many documents of a kind run, and its limit; one that nobody has heard of has none."""
    return json_response(value_json(await context.service.call(context.access.operator.kind, kind)))


@router.patch("/v1/kinds/{kind}", responses={200: {"model": schemas.KindModel}})
async def limit_kind(context: AnyCaller, kind: KindInPath, body: schemas.KindLimitBody) -> Response:
    """Limit what all workers together do with a kind, from the next claim on; what is not named stays, null is no limit."""
    changes = {name: getattr(body, name) for name in body.model_fields_set - {"version"}}
    return json_response(
        value_json(await context.service.call(context.access.operator.limit_kind, kind, body.version, changes))
    )
