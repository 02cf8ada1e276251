"""Routes of batches: many documents of one customer under one id.

The ids of the documents are written down before they are handed in, each with a key that follows from the batch: a sender
that was cut off sends the batch again with its key, and what was there is found instead of doubled. Files lie under the ids
of their documents, so with files it is the other way round: the documents are handed in, and the ids that they have are
written down then; the keys find them if it came to an end in between.
"""

from __future__ import annotations

import json
import time
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from fairlane.api import schemas
from fairlane.api.access import BATCHES as GROUP
from fairlane.api.access import Batch
from fairlane.api.auth import wall_ms
from fairlane.api.dependencies import Asked, ByAnybody, IdInPath, answered
from fairlane.api.middleware import BATCHES, is_json, whole_body
from fairlane.api.parsing import batch_of, idempotency_key, made_batch
from fairlane.api.problems import Problem
from fairlane.api.service import Service
from fairlane.api.submit_batcher import Accepted
from fairlane.blobs.files import dropped
from fairlane.core.document import ENDED, RECORD_BYTES_MAX
from fairlane.core.errors import KeyConflict
from fairlane.engine import Engine
from fairlane.queue.files import NOT_DONE, drop_repeated

from .documents import SUBMIT, media_type, told_receipt

routes = APIRouter(tags=["batches"])
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


def _noted(engine: Engine, batch: Batch, key: str | None) -> tuple[Batch, bool]:
    """Write a batch down, unless it is there already: then that one counts, and it is a repeat."""
    if engine.put_record(GROUP, batch.id, _written(batch), 0) is not None:
        return batch, False
    record = engine.record(GROUP, batch.id)
    there = None if record is None else json.loads(record.value)
    if there is None or there["digest"] != batch.digest:
        raise KeyConflict(batch.customer, key or "", f"batch {batch.id}")
    return batch._replace(made_ms=there["made_ms"], documents=tuple(there["documents"])), True


def _written(batch: Batch) -> str:
    told = {"customer": batch.customer, "digest": batch.digest, "made_ms": batch.made_ms, "documents": batch.documents}
    written = json.dumps(told)
    if len(written) > RECORD_BYTES_MAX:
        raise Problem("too-large", "too many documents in one batch; send them in several")
    return written


def _refuse_other(engine: Engine, batch: Batch, key: str | None) -> None:
    """Refuse a batch that cannot be written down, or whose key was used for another one."""
    _written(batch)
    record = engine.record(GROUP, batch.id)
    if record is not None and json.loads(record.value)["digest"] != batch.digest:
        raise KeyConflict(batch.customer, key or "", f"batch {batch.id}")


def _note_taken(engine: Engine, batch: Batch) -> None:
    """Write down a batch whose documents are there, unless that was done when it came first."""
    while engine.put_record(GROUP, batch.id, _written(batch), 0) is None:
        record = engine.record(GROUP, batch.id)
        if record is None or tuple(json.loads(record.value)["documents"]) == batch.documents:
            return
        if engine.put_record(GROUP, batch.id, _written(batch), record.version) is not None:
            return  # those that it named were purged, and it was handed in again


@routes.post("/v1/batches", status_code=202, responses={202: {"model": schemas.BatchReceipt}}, openapi_extra=SUBMIT_BATCH)
async def submit_batch(asked: ByAnybody, request: Request) -> Response:
    """Hand in many documents of one customer: all or none, a check each, in their order."""
    headers, began = dict(request.scope["headers"]), time.time_ns()
    key = idempotency_key(headers.get(b"idempotency-key"))
    if is_json(headers.get(b"content-type", b"")):
        batch, taken = await _from_json(asked, request, key)
    elif media_type(headers) == "multipart/form-data":
        batch, taken = await _from_form(asked.service, request, key)
    else:
        raise Problem("wrong-media-type", "Content-Type must be application/json or multipart/form-data", close=True)
    asked.service.trace(headers, began, taken)
    request.scope["told"] |= {"batch": batch.id, "customer": batch.customer, "documents": len(taken)}
    here = f"{BATCHES}/{batch.id}"
    told = {
        "id": batch.id, "customer": batch.customer, "documents": [told_receipt(one) for one in taken], "links": {"self": here}
    }  # fmt: skip
    return answered(told, 202, location=here)


async def _from_json(asked: Asked, request: Request, key: str | None) -> tuple[Batch, list[Accepted]]:
    service = asked.service
    body = await whole_body(request.receive)
    batch, submissions = await service.call(batch_of, service, asked.caller, body, key, wall_ms())
    batch, is_repeat = await service.call(_noted, service.queue.engine, batch, key)
    named = [one._replace(id=id) for one, id in zip(submissions, batch.documents, strict=True)]
    return batch, [one._replace(is_repeat=is_repeat) for one in await service.gatherer.submit_all(named)]


async def _from_form(service: Service, request: Request, key: str | None) -> tuple[Batch, list[Accepted]]:
    """Every file is written while it arrives; then all are handed in, in one step."""
    engine, uploads = service.queue.engine, request.app.state.uploads
    id, submissions = await uploads.write_batch(request.scope, request.receive, request.headers["content-type"])
    batch, files = made_batch(id, submissions, wall_ms()), service.queue.filing.files()
    try:
        await service.call(_refuse_other, engine, batch, key)
        taken = await service.gatherer.submit_all(submissions)
    except (Problem, *NOT_DONE):
        await service.call(dropped, files, batch.customer, batch.documents)
        raise
    receipts = [one.receipt for one in taken]
    await service.call(drop_repeated, files, submissions, receipts)
    batch = batch._replace(documents=tuple(one.id for one in receipts))
    await service.call(_note_taken, engine, batch)
    return batch, taken


@routes.get("/v1/batches/{id}", responses={200: {"model": schemas.Batch}})
async def get_batch(asked: ByAnybody, id: IdInPath) -> Response:
    """How far a batch is, and when the last of it is expected to begin."""
    standing = await asked.service.call(asked.service.wall.batch_standing, asked.caller, id)
    batch, total = standing.batch, len(standing.batch.documents)
    ended = sum(standing.counts.get(state, 0) for state in ENDED) + standing.missing
    return answered(
        {
            "id": batch.id,
            "customer": batch.customer,
            "made_at": batch.made_ms / 1000,
            "documents": list(batch.documents),
            "counts": standing.counts,
            "missing": standing.missing,
            "progress": ended / total,
            "is_ended": ended == total,
            "expected_in": standing.expected_in,
            "links": {"self": f"{BATCHES}/{batch.id}"},
        }
    )
