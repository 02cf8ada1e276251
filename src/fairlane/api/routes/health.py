"""Routes for machines that watch: is it up, is it ready, how is it going; and what runs here."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from fairlane import __version__
from fairlane.api import schemas
from fairlane.api.dependencies import ByOperator, answered
from fairlane.api.service import Service
from fairlane.console.assets import INDEX, sent, wants_page
from fairlane.core.errors import FairlaneError

STORE_SECONDS = 2.0  # calls wait longer for a store that is away; whoever asks whether it is there does not
routes = APIRouter(tags=["health"])


@routes.get("/", responses={200: {"model": schemas.Home}})
async def home(request: Request) -> Response:
    """What runs here, and where to go on; a browser gets the page."""
    if wants_page(request):
        return sent(request, INDEX, "Accept, Accept-Encoding")
    links = {
        "openapi": "/v1/openapi.json", "documents": "/v1/documents", "me": "/v1/me", "events": "/v1/events",
        "health": "/healthz", "ready": "/readyz", "metrics": "/metrics",
    }  # fmt: skip
    return answered({"name": "fairlane", "version": __version__, "links": links})


@routes.get("/healthz", responses={200: {"model": schemas.Health}})
async def healthz() -> Response:
    """Whether the process answers; it says nothing of the store."""
    return answered({"status": "up", "reasons": []})


@routes.get("/readyz", responses={200: {"model": schemas.Health}, 503: {"model": schemas.Health}})
async def readyz(request: Request) -> Response:
    """Whether requests can be served now; if not, why."""
    service: Service = request.app.state.service
    reasons = []
    if service.is_stopping:
        reasons.append("it stops")
    if service.at_work > service.limits.requests_at_once:
        reasons.append("too many requests are being answered")
    try:
        async with asyncio.timeout(STORE_SECONDS):
            if (await service.call(service.queue.rules)).frozen is not None:
                reasons.append("the queue is frozen, as it is being moved")
    except (FairlaneError, TimeoutError):
        reasons.append("the store does not answer")
    if service.feed.is_failing:
        reasons.append("the feed cannot be read")
    return answered({"status": "not ready" if reasons else "ready", "reasons": reasons}, 503 if reasons else 200)


@routes.get(
    "/metrics", responses={200: {"description": "For Prometheus.", "content": {"text/plain": {"schema": {"type": "string"}}}}}
)
async def metrics(asked: ByOperator) -> Response:
    """Figures to alarm on."""
    return Response(asked.service.metrics.scraped(), headers={"content-type": CONTENT_TYPE_LATEST})
