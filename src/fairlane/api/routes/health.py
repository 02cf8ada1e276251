"""Routes for machines that watch the service: is it up, is it ready, its metrics; and what runs here."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from fairlane import __version__
from fairlane.api import schemas
from fairlane.api.dependencies import AnyCaller, json_response
from fairlane.api.service import Service
from fairlane.core.errors import FairlaneError

STORE_SECONDS = 2.0  # a health check must not wait as long for a store that is away as other calls do
router = APIRouter(tags=["health"])


@router.get("/", responses={200: {"model": schemas.HomeModel}})
async def home() -> Response:
    """What runs here, and where to go on; a browser gets the page."""
    links = {
        "openapi": "/v1/openapi.json", "documents": "/v1/documents", "me": "/v1/me", "events": "/v1/events",
        "health": "/healthz", "ready": "/readyz", "metrics": "/metrics",
    }  # fmt: skip
    return json_response({"name": "fairlane", "version": __version__, "links": links})


@router.get("/healthz", responses={200: {"model": schemas.HealthModel}})
async def healthz() -> Response:
    """Whether the process answers; it says nothing of the store."""
    return json_response({"status": "up", "reasons": []})


@router.get("/readyz", responses={200: {"model": schemas.HealthModel}, 503: {"model": schemas.HealthModel}})
async def readyz(request: Request) -> Response:
    """Whether requests can be served now; if not, why."""
    service: Service = request.app.state.service
    reasons = []
    if service.is_stopping:
        reasons.append("it stops")
    if service.active_requests > service.limits.requests_at_once:
        reasons.append("too many requests are being answered")
    try:
        async with asyncio.timeout(STORE_SECONDS):
            if await service.call(service.is_frozen):
                reasons.append("the queue is frozen, as it is being moved")
    except (FairlaneError, TimeoutError):
        reasons.append("the store does not answer")
    if service.feed.is_failing:
        reasons.append("the feed cannot be read")
    return json_response({"status": "not ready" if reasons else "ready", "reasons": reasons}, 503 if reasons else 200)


@router.get(
    "/metrics", responses={200: {"description": "For Prometheus.", "content": {"text/plain": {"schema": {"type": "string"}}}}}
)
async def metrics(context: AnyCaller) -> Response:
    """Figures to alarm on."""
    return Response(context.service.metrics.scrape(), headers={"content-type": CONTENT_TYPE_LATEST})
