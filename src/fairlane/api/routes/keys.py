"""Routes of keys: made, listed, rotated and revoked by admins."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BeforeValidator
from starlette.responses import Response

from fairlane.api import key_schemas as schemas
from fairlane.api.access.keys import KeyFilter, KeyView
from fairlane.api.auth import EXPIRES_SECONDS, KeyState, time_ms
from fairlane.api.dependencies import AnyCaller, decode_name, json_response, quote_name
from fairlane.api.key_expiry import ends_soon
from fairlane.api.permissions import Role

KEYS = "/v1/keys"
PAGE_DEFAULT = 50
router = APIRouter(tags=["keys and audit"])
KeyInPath = Annotated[
    str, BeforeValidator(decode_name), Path(description="The public part of a key.", examples=[schemas.KEY_ID])
]


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _key_json(view: KeyView) -> dict[str, Any]:
    key, now_ms = view.key, time_ms()
    return {
        "id": key.id,
        "role": key.role,
        "customer": key.customer,
        "scopes": list(key.scopes),
        "name": key.name,
        "state": key.state(now_ms),
        "made_at": key.made_ms / 1000,
        "expires_at": _seconds(key.expires_ms),
        "ends_soon": ends_soon(key, now_ms),
        "revoked_at": _seconds(key.revoked_ms),
        "replaced_by": key.replaced_by,
        "last_used_at": _seconds(view.last_used_ms),
    }


def _new_key_json(view: KeyView) -> dict[str, Any]:
    return {"key": view.secret, **_key_json(view)}


@router.post(KEYS, status_code=201, responses={201: {"model": schemas.NewKeysModel}})
async def create_keys(context: AnyCaller, body: schemas.KeysBody) -> Response:
    """Make keys, for customers or for staff; each is in the response, this once. If one cannot be made, none is."""
    wanted = [
        wish.model_dump(exclude={"expires_in"})
        | {"expires_seconds": wish.expires_in if "expires_in" in wish.model_fields_set else EXPIRES_SECONDS}
        for wish in body.keys
    ]
    made = await context.service.call(context.access.keys.create, wanted)
    return json_response({"keys": [_new_key_json(view) for view in made]}, 201)


@router.get(KEYS, responses={200: {"model": schemas.KeyPageModel}})
async def list_keys(
    context: AnyCaller,
    customer: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    role: Role | None = None,
    state: KeyState | None = None,
    after: Annotated[str, Query(max_length=200, description="Keys after this id.")] = "",
    limit: Annotated[int, Query(ge=1, le=200)] = PAGE_DEFAULT,
) -> Response:
    """Keys without their secrets, by their id, a page at a time. A page may be short, or empty, while `next` leads on."""
    page = await context.service.call(context.access.keys.page, KeyFilter(customer, role, state), after, limit)
    parameters = {"customer": customer, "role": role, "state": state, "after": page.next, "limit": limit}
    query = "&".join(f"{name}={quote_name(str(value))}" for name, value in parameters.items() if value is not None)
    following = None if page.next is None else f"{KEYS}?{query}"
    return json_response({"keys": [_key_json(view) for view in page.keys], "next": following})


@router.get(f"{KEYS}/{{key}}", responses={200: {"model": schemas.KeyModel}})
async def get_key(context: AnyCaller, key: KeyInPath) -> Response:
    """One key, without its secret."""
    return json_response(_key_json(await context.service.call(context.access.keys.get, key)))


@router.post(f"{KEYS}/{{key}}/rotate", status_code=201, responses={201: {"model": schemas.NewKeyModel}})
async def rotate_key(context: AnyCaller, key: KeyInPath, body: schemas.KeyRotationBody) -> Response:
    """A new key of the same holder, role and scopes; the old one stays valid for as long as they overlap."""
    expiry = {"expires_seconds": body.expires_in} if "expires_in" in body.model_fields_set else {}
    rotate = context.access.keys.rotate
    return json_response(_new_key_json(await context.service.call(lambda: rotate(key, body.overlap, **expiry))), 201)


@router.delete(f"{KEYS}/{{key}}", responses={200: {"model": schemas.KeyModel}})
async def revoke_key(context: AnyCaller, key: KeyInPath) -> Response:
    """End a key for good; within a second every server refuses it, and ends its streams."""
    return json_response(_key_json(await context.service.call(context.access.keys.revoke, key)))
