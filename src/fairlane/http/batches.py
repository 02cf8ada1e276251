"""Routes of batches: many documents of one customer under one id.

The ids of the documents are written down before they are handed in, each with a key that follows from the batch: a sender
that was cut off sends the batch again with its key, and what was there is found instead of doubled.
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from fairlane.core.document import ENDED, RECORD_BYTES_MAX
from fairlane.core.errors import KeyConflict
from fairlane.engine import Engine

from . import shapes
from .asked import ByAnybody, IdInPath, answered
from .documents import SUBMIT, told_receipt
from .edge import BATCHES, is_json, whole_body
from .intake import batch_of, idempotency_key
from .keys import wall_ms
from .problems import Problem
from .wall import BATCHES as GROUP
from .wall import Batch

routes = APIRouter(tags=["batches"])
SUBMIT_BATCH: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/BatchBody"}}},
    },
    "parameters": SUBMIT["parameters"],
}


def _noted(engine: Engine, batch: Batch, key: str | None) -> tuple[Batch, bool]:
    """Write a batch down, unless it is there already: then that one counts, and it is a repeat."""
    told = {"customer": batch.customer, "digest": batch.digest, "made_ms": batch.made_ms, "documents": batch.documents}
    written = json.dumps(told)
    if len(written) > RECORD_BYTES_MAX:
        raise Problem("too-large", "too many documents in one batch; send them in several")
    if engine.put_record(GROUP, batch.id, written, 0) is not None:
        return batch, False
    record = engine.record(GROUP, batch.id)
    there = None if record is None else json.loads(record.value)
    if there is None or there["digest"] != batch.digest:
        raise KeyConflict(batch.customer, key or "", f"batch {batch.id}")
    return batch._replace(made_ms=there["made_ms"], documents=tuple(there["documents"])), True


@routes.post("/v1/batches", status_code=202, responses={202: {"model": shapes.BatchReceipt}}, openapi_extra=SUBMIT_BATCH)
async def submit_batch(asked: ByAnybody, request: Request) -> Response:
    """Hand in many documents of one customer: all or none, a check each, in their order."""
    service = asked.service
    if not is_json(request.headers.get("content-type", "").encode()):
        raise Problem("wrong-media-type", "Content-Type must be application/json", close=True)
    key = idempotency_key(dict(request.scope["headers"]).get(b"idempotency-key"))
    body = await whole_body(request.receive)
    batch, submissions = await service.call(batch_of, service, asked.caller, body, key, wall_ms())
    batch, is_repeat = await service.call(_noted, service.queue.engine, batch, key)
    named = [one._replace(id=id) for one, id in zip(submissions, batch.documents, strict=True)]
    taken = [one._replace(is_repeat=is_repeat) for one in await service.gatherer.submit_all(named)]
    request.scope["told"] |= {"batch": batch.id, "customer": batch.customer, "documents": len(taken)}
    here = f"{BATCHES}/{batch.id}"
    told = {
        "id": batch.id, "customer": batch.customer, "documents": [told_receipt(one) for one in taken], "links": {"self": here}
    }  # fmt: skip
    return answered(told, 202, location=here)


@routes.get("/v1/batches/{id}", responses={200: {"model": shapes.Batch}})
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
