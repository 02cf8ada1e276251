"""Routes for machines that watch the service: is it up, is it ready, its metrics; and what runs here."""

from __future__ import annotations

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from fairlane import __version__
from fairlane.api import schemas
from fairlane.api.dependencies import AnyCaller, json_response

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
    reasons = await request.app.state.service.readiness.reasons()
    return json_response({"status": "not ready" if reasons else "ready", "reasons": reasons}, 503 if reasons else 200)


@router.get(
    "/metrics", responses={200: {"description": "For Prometheus.", "content": {"text/plain": {"schema": {"type": "string"}}}}}
)
async def metrics(context: AnyCaller) -> Response:
    """Figures to alarm on."""
    return Response(context.service.metrics.scrape(), headers={"content-type": CONTENT_TYPE_LATEST})
