"""Routes of upload tokens: made and looked at by whoever may submit, and used by browsers for one document each."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BeforeValidator
from starlette.requests import Request
from starlette.responses import Response

from fairlane.api import key_schemas as schemas
from fairlane.api.auth import time_ms
from fairlane.api.cors import ROUTE as UPLOADS
from fairlane.api.dependencies import AnyCaller, decode_name, json_response
from fairlane.api.problems import Problem, problem_of
from fairlane.api.upload_tokens import TokenOptions, UploadToken, find
from fairlane.core.errors import LimitReached

from .documents import media_type

TOKENS = "/v1/upload-tokens"
router = APIRouter(tags=["upload tokens"])
TokenInPath = Annotated[
    str, BeforeValidator(decode_name), Path(description="The public part of a token.", examples=[schemas.UPLOAD_ID])
]
UPLOAD: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            "multipart/form-data": {"schema": {"$ref": "#/components/schemas/UploadForm"}},
        },
    }
}


def _token_json(token: UploadToken) -> dict[str, Any]:
    return {
        "id": token.id,
        "customer": token.customer,
        "kind": token.kind,
        "bytes_max": token.bytes_max,
        "cost": token.cost,
        "payload": token.payload,
        "no_better_than": token.no_better_than,
        "state": token.state(time_ms()),
        "document": token.document,
        "made_at": token.made_ms / 1000,
        "expires_at": token.expires_ms / 1000,
    }


@router.post(TOKENS, status_code=201, responses={201: {"model": schemas.NewUploadTokenModel}})
async def create_upload_token(context: AnyCaller, body: schemas.UploadTokenBody) -> Response:
    """Make a token with which a browser uploads one document of a customer; it is in the response, this once."""
    service, caller = context.service, context.caller
    customer = caller.customer_for(body.customer)
    service.refuse_kind(caller, body.kind)
    if not service.token_limiter.take(customer):
        most = service.limits.upload_tokens_a_second
        raise Problem("too-many-requests", f"more than {most} upload tokens a second for one customer", retry_after=1)
    options = TokenOptions(body.kind, body.bytes_max, body.cost, body.payload, body.expires_in, body.no_better_than)
    secret, token = await service.call(context.access.upload_tokens.create, body.customer, options)
    return json_response({"token": secret, **_token_json(token), "links": {"upload": UPLOADS}}, 201)


@router.get(f"{TOKENS}/{{token}}", responses={200: {"model": schemas.UploadTokenModel}})
async def get_upload_token(context: AnyCaller, token: TokenInPath) -> Response:
    """Whether a token was used, and for which document; a day after it expired it is gone."""
    return json_response(_token_json(await context.service.call(context.access.upload_tokens.get, token)))


@router.post(UPLOADS, status_code=202, responses={202: {"model": schemas.UploadedModel}}, openapi_extra=UPLOAD)
async def upload_document(
    context: AnyCaller,
    request: Request,
    name: Annotated[str | None, Query(max_length=255, description="What the file is called.", examples=["invoice.pdf"])] = None,
) -> Response:
    """Hand in the one document that an upload token allows: the body is the file, or a form with one."""
    scope, headers, began = request.scope, dict(request.scope["headers"]), time.time_ns()
    content_type = media_type(headers)
    token = await context.service.call(find, context.service.queue.engine, context.caller.id)
    try:
        accepted = await request.app.state.uploads.submit_with_token(scope, request.receive, content_type, token, name)
    except LimitReached as error:  # how much its customer has is not for whoever holds a token
        problem = problem_of(error)
        detail = "this customer can take no more documents now; the token was not used"
        raise Problem(problem.type, detail, retry_after=problem.retry_after, close=True) from None
    context.service.trace(headers, began, [accepted])
    scope["log"] |= {"document": accepted.receipt.id}
    return json_response({"id": accepted.receipt.id}, 202)
