"""How the service is put together: routes, errors and the OpenAPI document, behind the middleware."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fairlane import __version__
from fairlane.core.errors import FairlaneError

from . import key_schemas, schemas
from .extension import Extension
from .middleware import DOCUMENTS, DirectRoute, RequestMiddleware
from .permissions import ROUTES, Permission, refuse_unlisted
from .problems import MEDIA_TYPE, TITLES, Problem, encode_json, nothing_here, problem_of
from .routes import audit, batches, customers, documents, events, health, keys, kinds, policy, uploads, webhooks, workers
from .service import Service
from .uploads import Uploads

OPENAPI = "/v1/openapi.json"
ROUTERS = tuple(
    module.router
    for module in (documents, batches, uploads, customers, webhooks, policy, kinds, workers, events, keys, audit, health)
)
DESCRIPTION = """A fair priority queue for document processing. Every document steps its customer's counter down, silence sets
it back, and the counter picks the priority: 1 is served first, 9 last.

Send a key with every call: `Authorization: Bearer fl_...`. What a key may not see does not exist for it: the answer is 404."""
ANY_QUERY = (
    ("GET", "/"),
    ("GET", OPENAPI),
    ("GET", "/page/oidc/callback"),
    ("POST", DOCUMENTS),
)  # a page's address may carry anything, and so may a provider's answer; a submission reads its query itself
CALLED_BY: dict[Permission, str] = {"view": "staff", "metrics": "staff", "operate": "operators", "admin": "admins"}
COMMON_PROBLEMS = (
    "bad-request", "no-key", "not-allowed", "nothing-here", "too-large", "wrong-media-type", "bad-value", "too-many-requests",
    "too-many-headers", "too-slow", "overloaded", "store-full", "key-conflict", "wrong-method",
)  # fmt: skip


def make_app(service: Service, extension: Extension) -> RequestMiddleware:
    """Make the whole application, with what another package adds to it."""
    service.extension = extension

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.close()

    app = FastAPI(title="Fairlane", version=__version__, description=DESCRIPTION, lifespan=lifespan, openapi_url=None,
                  docs_url=None, redoc_url=None, redirect_slashes=False)  # fmt: skip
    app.state.service = service
    app.state.uploads = Uploads(service)
    service.closing.append(app.state.uploads.close)
    routers = (*extension.routers, *ROUTERS)
    for router in routers:
        app.include_router(router)
    app.add_api_route(OPENAPI, _openapi, methods=["GET"], include_in_schema=False)
    app.add_exception_handler(RequestValidationError, _validation_failed)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Problem, _problem_raised)
    app.add_exception_handler(FairlaneError, _problem_raised)
    api_routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    routes: dict[tuple[str, str], frozenset[str] | None] = {
        (method, route.path): query_names(route.dependant) for route in api_routes for method in route.methods or ()
    }
    routes |= dict.fromkeys(ANY_QUERY)
    refuse_unlisted(routes)
    # Called past FastAPI, which would double the cost of every submission.
    direct: dict[tuple[str, str], DirectRoute] = {("POST", DOCUMENTS): documents.submit_document}
    return RequestMiddleware(app, service, routes, direct)


def query_names(dependant: Dependant) -> frozenset[str]:
    """Return the names of a route's query parameters, those of its dependencies among them."""
    own = frozenset(field.alias for field in dependant.query_params)
    return own.union(*(query_names(dependency) for dependency in dependant.dependencies))


def _problem_response(problem: Problem) -> Response:
    response = Response(problem.body(), problem.status)
    response.raw_headers += problem.headers()
    return response


async def _problem_raised(request: Request, error: Exception) -> Response:
    if isinstance(error, Problem):
        return _problem_response(error)
    assert isinstance(error, FairlaneError)
    request.app.state.service.log_store_error(error)
    return _problem_response(problem_of(error))


async def _http_error(_: Request, error: Exception) -> Response:
    """Turn what the framework refuses into a problem."""
    assert isinstance(error, HTTPException)
    cause: BaseException | None = error
    while cause is not None:  # our own problem, raised while the framework read the body
        if isinstance(cause, Problem):
            return _problem_response(cause)
        cause = cause.__cause__
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "").replace("GET", "GET, HEAD")
        problem = Problem("wrong-method", f"this address answers to {allowed}" if allowed else "this address does not do that")
        return Response(problem.body(), 405, {"allow": allowed}, MEDIA_TYPE)
    return _problem_response(nothing_here() if error.status_code == 404 else Problem("bad-request", "the body cannot be read"))


async def _validation_failed(_: Request, error: Exception) -> Response:
    """Name the first value that is wrong, without repeating what was sent."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    location = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    return _problem_response(Problem("bad-value", f"{location[:100]}: {first['msg'][:200]}"))


async def _openapi(request: Request) -> Response:
    state = request.app.state
    if not hasattr(state, "openapi_text"):  # encoded once: anybody may ask for it
        state.openapi_text = encode_json(openapi(request.app)).encode()
    return Response(state.openapi_text, media_type="application/json")


def describe() -> dict[str, Any]:
    """Return the OpenAPI document without a service: for what is generated from it."""
    app = FastAPI(title="Fairlane", version=__version__, description=DESCRIPTION)
    for router in ROUTERS:
        app.include_router(router)
    return openapi(app)


def openapi(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document."""
    if app.openapi_schema is not None:
        return app.openapi_schema
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = document["components"]["schemas"]
    for model in (
        schemas.ProblemModel, schemas.SubmissionBody, schemas.FormBody, schemas.BatchBody, schemas.BatchForm,
        key_schemas.UploadForm,
    ):  # fmt: skip
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        components |= schema.pop("$defs", {})
        components[schema["title"]] = schema
    for name in ("HTTPValidationError", "ValidationError"):
        components.pop(name, None)
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _complete(path, ROUTES[method.upper(), path], operation)
    app.openapi_schema = document
    return document


def _complete(path: str, permission: Permission, operation: dict[str, Any]) -> None:
    """Add what every operation has: a key, who may call it, and problems."""
    if permission != "public":
        operation["security"] = [{"key": []}]
    if permission in CALLED_BY:
        operation["summary"] += f" ({CALLED_BY[permission]})"
    responses = operation["responses"]
    responses.pop("422", None)
    problem = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for type in (*COMMON_PROBLEMS, *(("events-purged",) if path == "/v1/events" else ())):
        status, title = TITLES[type]
        content = responses.get(str(status), {}).get("content", {})
        responses[str(status)] = {"description": title, "content": content | problem}
