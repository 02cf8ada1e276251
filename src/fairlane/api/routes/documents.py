"""Routes of documents: hand in, look, wait, result, explain, cancel, retry.

The first one is answered without the framework, as it is the one that must be fast; the OpenAPI document describes it all
the same.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from fairlane.api import schemas
from fairlane.api.dependencies import Asked, ByAnybody, IdInPath, answered, document_links, in_path, told_document
from fairlane.api.middleware import DOCUMENTS, Answer, Receive, Scope, is_json, whole_body
from fairlane.api.parsing import idempotency_key, one_document
from fairlane.api.problems import Problem, written
from fairlane.api.schemas import State
from fairlane.api.service import Service
from fairlane.api.submit_batcher import Accepted
from fairlane.api.uploads import Uploads
from fairlane.core.document import ENDED, Document

PAGE_DEFAULT = 50
routes = APIRouter(tags=["documents"])

SUBMIT: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/SubmissionBody"}},
            "multipart/form-data": {"schema": {"$ref": "#/components/schemas/FormBody"}},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    },
    "parameters": [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "description": "The same key with the same body is the same document: a repeat is harmless.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[ -~]+$"},
            "example": "invoice-17",
        }
    ],
}


def told_receipt(one: Accepted) -> dict[str, Any]:
    """A document that was taken, as it is answered."""
    receipt = one.receipt
    return {
        "id": receipt.id,
        "customer": receipt.customer,
        "priority": receipt.priority,
        "counter": receipt.counter,
        "ahead": one.ahead,
        "repeated": one.is_repeat,
        "links": document_links(receipt.id),
    }


class Submitting:
    """`POST /v1/documents`, as a bare application."""

    def __init__(self, service: Service, uploads: Uploads) -> None:
        self._service = service
        self._uploads = uploads

    async def __call__(self, scope: Scope, receive: Receive, send: Answer) -> None:
        headers, began = dict(scope["headers"]), time.time_ns()
        if is_json(headers.get(b"content-type", b"")):
            key = idempotency_key(headers.get(b"idempotency-key"))
            body = await whole_body(receive)
            one = await self._service.gatherer.submit(one_document(self._service, scope["caller"], body, key))
        else:
            one = await self._uploads.take(scope, receive, media_type(headers))
        self._service.trace(headers, began, [one])
        scope["told"] |= {"document": one.receipt.id, "customer": one.receipt.customer}
        told = written(told_receipt(one)).encode()
        await send.accepted(f"{DOCUMENTS}/{one.receipt.id}".encode(), told)


def media_type(headers: dict[bytes, bytes]) -> str:
    """The type of a file that is sent; a type that clients send by mistake is no type."""
    told = headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")
    if "/" not in told or told == "application/x-www-form-urlencoded":
        wanted = "application/json for a payload, multipart/form-data, or the type of the file that is the body"
        raise Problem("wrong-media-type", f"Content-Type is {told[:60]!r}; it must be {wanted}", close=True)
    return told


@routes.post("/v1/documents", status_code=202, responses={202: {"model": schemas.Receipt}}, openapi_extra=SUBMIT)
async def submit_document(request: Request) -> Response:
    """Hand in one document: one check of its customer, which decides its priority."""
    raise AssertionError("the edge answers this one itself")


@routes.get("/v1/documents", responses={200: {"model": schemas.Documents}})
async def list_documents(
    asked: ByAnybody,
    customer: Annotated[str | None, Query(min_length=1, max_length=200, description="For operators.")] = None,
    state: State | None = None,
    before: Annotated[str | None, Query(description="The id of a document: those older than it.", max_length=64)] = None,
    limit: Annotated[int | None, Query(ge=1, description="How many at most.")] = None,
) -> Response:
    """Documents, newest first, a page at a time."""
    most = asked.service.limits.page_documents
    if limit is not None and limit > most:
        raise Problem("bad-value", f"limit is {limit}; it must be a whole number from 1 to {most}")
    size = min(PAGE_DEFAULT, most) if limit is None else limit
    page = await asked.service.call(asked.service.wall.documents, asked.caller, customer, state, before, size)
    told = {"customer": customer, "state": state, "before": page[-1].id if page else None, "limit": limit}
    query = "&".join(f"{name}={in_path(str(value))}" for name, value in told.items() if value is not None)
    following = f"{DOCUMENTS}?{query}" if len(page) == size else None
    return answered({"documents": [told_document(asked.caller, one) for one in page], "next": following})


@routes.get("/v1/documents/{id}", responses={200: {"model": schemas.Document}})
async def get_document(
    asked: ByAnybody,
    id: IdInPath,
    wait: Annotated[float, Query(ge=0, le=86400, description="Wait up to that many seconds for its end.")] = 0,
) -> Response:
    """One document; with `wait` when it has ended, or after that long as it is then."""
    document = await _document(asked, id)
    if wait and document.state not in ENDED:

        async def is_ended() -> bool:
            return (await _document(asked, id)).state in ENDED

        with asked.service.aside():
            await asked.service.feed.ended(id, is_ended, min(wait, asked.service.limits.wait_seconds))
        document = await _document(asked, id)
    progress = None
    if document.state != "done" and document.attempts:
        progress = await asked.service.call(asked.service.wall.progress, asked.caller, id)
    told = told_document(asked.caller, document) | {"progress": progress._asdict() if progress else None}
    return answered(told)


async def _document(asked: Asked, id: str) -> Document:
    return await asked.service.call(asked.service.wall.document, asked.caller, id)


@routes.get(
    "/v1/documents/{id}/result",
    responses={200: {"description": "What the handler returned.", "content": {"application/json": {"schema": {}}}}},
)
async def get_result(asked: ByAnybody, id: IdInPath) -> Response:
    """What came out of a document that is done."""
    told = await asked.service.call(asked.service.wall.result, asked.caller, id)
    return Response(told.encode(errors="backslashreplace"), media_type="application/json")


@routes.get(
    "/v1/documents/{id}/text",
    responses={200: {"description": "Markdown.", "content": {"text/markdown": {"schema": {"type": "string"}}}}},
)
async def get_text(asked: ByAnybody, id: IdInPath) -> Response:
    """The text that came out of a document that is done."""
    told = await asked.service.call(asked.service.wall.text, asked.caller, id)
    return Response(told.encode(errors="replace"), media_type="text/markdown")


@routes.get(
    "/v1/documents/{id}/thumbnail",
    responses={
        200: {"description": "A picture.", "content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}}
    },
)
async def get_thumbnail(asked: ByAnybody, id: IdInPath) -> Response:
    """A picture of a document that is done."""
    told = await asked.service.call(asked.service.wall.thumbnail, asked.caller, id)
    return Response(told, media_type="image/png")


@routes.get("/v1/documents/{id}/explain", responses={200: {"model": schemas.Explanation}})
async def explain_document(asked: ByAnybody, id: IdInPath) -> Response:
    """Why it has its priority, about how much is ahead of it, and about when it will be served."""
    return answered(await asked.service.call(asked.service.wall.explain, asked.caller, id))


@routes.delete("/v1/documents/{id}", responses={200: {"model": schemas.Document}})
async def cancel_document(asked: ByAnybody, id: IdInPath) -> Response:
    """End a document that has not ended; a worker that runs it loses it."""
    return answered(told_document(asked.caller, await asked.service.call(asked.service.wall.cancel, asked.caller, id)))


@routes.post("/v1/documents/{id}/retry", responses={200: {"model": schemas.Document}})
async def retry_document(asked: ByAnybody, id: IdInPath) -> Response:
    """Another round of attempts for a failed document; not a new document, so no check."""
    return answered(told_document(asked.caller, await asked.service.call(asked.service.wall.retry, asked.caller, id)))
