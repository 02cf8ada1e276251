"""Routes of workers: who works on this queue and what runs where, draining, and the capacity, for operators."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BeforeValidator
from starlette.responses import Response

from fairlane.api import schemas
from fairlane.api.capacity import capacity_json
from fairlane.api.dependencies import AnyCaller, RequestContext, decode_name, json_response, value_json

KINDS_MAX = 100  # in one response
router = APIRouter(tags=["workers"])
WorkerInPath = Annotated[
    str, BeforeValidator(decode_name), Path(description="A worker's name, or its instance id.", examples=["host-1234"])
]


@router.get("/v1/workers", responses={200: {"model": schemas.WorkersModel}})
async def list_workers(context: AnyCaller) -> Response:
    """Every worker by name, where it runs and what it has in hand; and kinds that wait although no worker takes them."""
    operator = context.access.operator
    workers = await context.service.call(operator.workers)
    unserved = await context.service.call(operator.unserved_kinds)
    return json_response({"workers": list(map(value_json, workers)), "unserved": list(map(value_json, unserved))})


@router.get("/v1/capacity", responses={200: {"model": schemas.CapacityModel}})
async def get_capacity(
    context: AnyCaller,
    kind: Annotated[str | None, Query(min_length=1, max_length=100, description="Only this kind, as flat figures.")] = None,
    target_wait: Annotated[float, Query(ge=0.1, le=86_400, description="How long a document may wait, in seconds.")] = 30.0,
) -> Response:
    """What waits and runs, the slots there are, and how many would keep waits at a target; for autoscalers."""
    metrics = context.service.metrics
    if metrics.snapshot is None:
        await metrics.refresh()
    assert metrics.snapshot is not None
    return json_response(capacity_json(metrics.snapshot, target_wait, kind, KINDS_MAX))


@router.post("/v1/workers/{worker}/drain", responses={200: {"model": schemas.DrainModel}})
async def drain_worker(context: AnyCaller, worker: WorkerInPath) -> Response:
    """Let a worker finish what it has and claim no more, within a few seconds; it lasts until it is undrained or ends."""
    return json_response(await _set_drain(context, worker, True))


@router.post("/v1/workers/{worker}/undrain", responses={200: {"model": schemas.DrainModel}})
async def undrain_worker(context: AnyCaller, worker: WorkerInPath) -> Response:
    """Let a worker claim again, within a few seconds."""
    return json_response(await _set_drain(context, worker, False))


async def _set_drain(context: RequestContext, worker: str, drain: bool) -> dict[str, Any]:
    instances = await context.service.call(context.access.operator.drain_worker, worker, drain)
    return {"worker": worker, "drain": drain, "instances": instances}
