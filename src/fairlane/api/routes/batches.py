"""Routes of batches: many documents of one customer under one id."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from fairlane.api import schemas
from fairlane.api.access.batches import BatchRecord
from fairlane.api.auth import time_ms
from fairlane.api.dependencies import AnyCaller, IdInPath, RequestContext, json_response
from fairlane.api.middleware import BATCHES, is_json, read_body
from fairlane.api.parsing import bytes_of, cost_of, idempotency_key, parse_batch
from fairlane.api.problems import Problem
from fairlane.api.submit_batcher import Accepted

from .documents import SUBMIT, media_type, receipt_json

router = APIRouter(tags=["batches"])
SUBMIT_BATCH: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/BatchBody"}},
            "multipart/form-data": {"schema": {"$ref": "#/components/schemas/BatchForm"}},
        },
    },
    "parameters": SUBMIT["parameters"],
}


@router.post("/v1/batches", status_code=202, responses={202: {"model": schemas.BatchReceiptModel}}, openapi_extra=SUBMIT_BATCH)
async def submit_batch(context: AnyCaller, request: Request) -> Response:
    """Hand in many documents of one customer: all or none, a check each, in their order."""
    headers, began = dict(request.scope["headers"]), time.time_ns()
    key = idempotency_key(headers)
    if is_json(headers.get(b"content-type", b"")):
        batch, accepted = await _submit_json(context, request, key)
    elif media_type(headers) == "multipart/form-data":
        batch, accepted = await request.app.state.uploads.submit_batch(request.scope, request.receive, context.access.batches)
    else:
        raise Problem("wrong-media-type", "Content-Type must be application/json or multipart/form-data", close=True)
    context.service.trace(headers, began, accepted)
    request.scope["log"] |= {"batch": batch.id, "customer": batch.customer, "documents": len(accepted)}
    address = f"{BATCHES}/{batch.id}"
    receipts = [receipt_json(document) for document in accepted]
    return json_response(
        {"id": batch.id, "customer": batch.customer, "documents": receipts, "links": {"self": address}}, 202, location=address
    )


async def _submit_json(context: RequestContext, request: Request, key: str | None) -> tuple[BatchRecord, list[Accepted]]:
    service = context.service
    body = await read_body(request.receive)
    batch, submissions = await service.call(parse_batch, service, context.caller, body, key, time_ms())
    await service.refuse_cost(context.caller, cost_of(submissions))
    batch, is_repeat = await service.call(context.access.batches.create, batch, key, bytes_of(submissions))
    named = [submission._replace(id=id) for submission, id in zip(submissions, batch.documents, strict=True)]
    accepted = await service.batcher.submit_all(named)
    return batch, [document._replace(is_repeat=is_repeat) for document in accepted]


@router.get("/v1/batches/{id}", responses={200: {"model": schemas.BatchModel}})
async def get_batch(context: AnyCaller, id: IdInPath) -> Response:
    """How far a batch is, and when the last of it is expected to begin."""
    progress = await context.service.call(context.access.batches.progress, id)
    batch, total = progress.batch, len(progress.batch.documents)
    return json_response(
        {
            "id": batch.id,
            "customer": batch.customer,
            "made_at": batch.made_ms / 1000,
            "documents": list(batch.documents),
            "counts": progress.counts,
            "missing": progress.missing,
            "progress": progress.ended / total,
            "is_ended": progress.ended == total,
            "expected_in": progress.expected_in,
            "links": {"self": f"{BATCHES}/{batch.id}"},
        }
    )
