"""How is the service put together? Routes, errors and the OpenAPI document, behind the edge."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fairlane import __version__
from fairlane.console import assets
from fairlane.console.routes import customers as console_customers
from fairlane.console.routes import documents as console_documents
from fairlane.console.routes import live, session, what_if
from fairlane.core.errors import FairlaneError

from . import schemas
from .middleware import DOCUMENTS, FOR_OPERATORS, OPEN, Edge
from .problems import MEDIA_TYPE, TITLES, Problem, nothing_here, problem_of
from .routes import batches, customers, documents, events, health
from .service import Service
from .uploads import Uploads

ROUTES = (
    documents.routes,
    batches.routes,
    customers.routes,
    events.routes,
    health.routes,
    assets.routes,
    session.routes,
    live.routes,
    console_customers.routes,
    console_documents.routes,
    what_if.routes,
)
DESCRIPTION = """A fair priority queue for document processing. Every document steps its customer's counter down, silence sets
it back, and the counter picks the priority: 1 is served first, 9 last.

Send a key with every call: `Authorization: Bearer fl_...`. What a key may not see does not exist for it: the answer is 404."""
ALWAYS = ("bad-request", "no-key", "nothing-here", "too-large", "wrong-media-type", "bad-value", "too-many-requests",
          "too-many-headers", "too-slow", "overloaded", "store-full", "key-conflict", "wrong-method")  # fmt: skip


def make_app(service: Service) -> Edge:
    """The whole application."""

    @asynccontextmanager
    async def living(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.end()

    app = FastAPI(title="Fairlane", version=__version__, description=DESCRIPTION, lifespan=living, openapi_url=None,
                  docs_url=None, redoc_url=None, redirect_slashes=False)  # fmt: skip
    app.state.service = service
    app.state.uploads = Uploads(service)
    service.closing.append(app.state.uploads.close)
    for routes in ROUTES:
        app.include_router(routes)
    app.add_api_route("/v1/openapi.json", _openapi, methods=["GET"], include_in_schema=False)
    app.add_exception_handler(RequestValidationError, _unfit)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Problem, _raised)
    app.add_exception_handler(FairlaneError, _raised)
    paths = sorted({str(getattr(route, "path", "")) for routes in ROUTES for route in routes.routes})
    return Edge(app, service, paths, {("POST", DOCUMENTS): documents.Submitting(service, app.state.uploads)})


def _told(problem: Problem) -> Response:
    response = Response(problem.body(), problem.status)
    response.raw_headers += problem.headers()
    return response


async def _raised(request: Request, error: Exception) -> Response:
    """Problems of ours, and errors of the queue."""
    if isinstance(error, Problem):
        return _told(error)
    assert isinstance(error, FairlaneError)
    request.app.state.service.tell_store(error)
    return _told(problem_of(error))


async def _refused(_: Request, error: Exception) -> Response:
    """What the framework refuses, in our words."""
    assert isinstance(error, HTTPException)
    cause: BaseException | None = error
    while cause is not None:  # the body was refused while the framework read it
        if isinstance(cause, Problem):
            return _told(cause)
        cause = cause.__cause__
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        problem = Problem("wrong-method", f"this address answers to {allowed}" if allowed else "this address does not do that")
        return Response(problem.body(), 405, {"allow": allowed}, MEDIA_TYPE)
    return _told(nothing_here() if error.status_code == 404 else Problem("bad-request", "the body cannot be read"))


async def _unfit(_: Request, error: Exception) -> Response:
    """Values that the framework found unfit; the first of them is told, without what was sent."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    return _told(Problem("bad-value", f"{where[:100]}: {first['msg'][:200]}"))


async def _openapi(request: Request) -> Response:
    """What can be asked, and what is answered."""
    from .dependencies import answered

    return answered(openapi(request.app))


def openapi(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document."""
    if app.openapi_schema is not None:
        return app.openapi_schema
    told = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    kept = told["components"]["schemas"]
    for model in (schemas.Problem, schemas.SubmissionBody, schemas.FormBody, schemas.BatchBody, schemas.BatchForm):
        made = model.model_json_schema(ref_template="#/components/schemas/{model}")
        kept |= made.pop("$defs", {})
        kept[model.__name__] = made
    for name in ("HTTPValidationError", "ValidationError"):
        kept.pop(name, None)
    told["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for path, operations in told["paths"].items():
        for operation in operations.values():
            _complete(path, operation)
    app.openapi_schema = told
    return told


def _complete(path: str, operation: dict[str, Any]) -> None:
    """What every operation has: a key, and problems."""
    if path not in OPEN:
        operation["security"] = [{"key": []}]
    if path.startswith(FOR_OPERATORS):
        operation["summary"] += " (operators)"
    answers = operation["responses"]
    answers.pop("422", None)
    fits = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for word in (*ALWAYS, *(("events-purged",) if path == "/v1/events" else ())):
        status, title = TITLES[word]
        content = answers.get(str(status), {}).get("content", {})
        answers[str(status)] = {"description": title, "content": content | fits}
