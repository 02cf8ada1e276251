"""Routes of documents: submit, read, wait, result, file, explain, steps, parts, cancel, retry, prioritize."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from fairlane.api import schemas, steering_schemas
from fairlane.api.dependencies import (
    AnyCaller,
    IdInPath,
    RequestContext,
    document_json,
    document_links,
    json_response,
    quote_name,
    value_json,
)
from fairlane.api.download import file_response
from fairlane.api.middleware import DOCUMENTS, is_json, read_body, refuse_unknown_query
from fairlane.api.parsing import cost_of, idempotency_key, parse_document
from fairlane.api.problems import Problem
from fairlane.api.schemas import State
from fairlane.api.submit_batcher import Accepted
from fairlane.core.document import ENDED, DocumentRow

PAGE_DEFAULT = 50
router = APIRouter(tags=["documents"])

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


def receipt_json(accepted: Accepted) -> dict[str, Any]:
    receipt = accepted.receipt
    return {
        "id": receipt.id,
        "customer": receipt.customer,
        "priority": receipt.priority,
        "counter": receipt.counter,
        "ahead": accepted.ahead,
        "repeated": accepted.is_repeat,
        "links": document_links(receipt.id),
    }


def media_type(headers: dict[bytes, bytes]) -> str:
    """Return the media type of a file; refused if it is none, or the one that clients send by mistake."""
    content_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")
    if "/" not in content_type or content_type == "application/x-www-form-urlencoded":
        wanted = "application/json for a payload, multipart/form-data, or the type of the file that is the body"
        raise Problem("wrong-media-type", f"Content-Type is {content_type[:60]!r}; it must be {wanted}", close=True)
    return content_type


@router.post("/v1/documents", status_code=202, responses={202: {"model": schemas.ReceiptModel}}, openapi_extra=SUBMIT)
async def submit_document(context: AnyCaller, request: Request) -> Response:
    """Hand in one document: one check of its customer, which decides its priority."""
    service, headers, began = context.service, dict(request.scope["headers"]), time.time_ns()
    content_type = headers.get(b"content-type", b"")
    if request.scope["query_string"] and (is_json(content_type) or content_type.startswith(b"multipart/")):
        refuse_unknown_query(request.scope["query_string"], frozenset())  # a bare file alone has parameters beside it
    if is_json(content_type):
        key = idempotency_key(headers)
        body = await read_body(request.receive)
        submission = parse_document(service, context.caller, body, key)
        await service.refuse_cost(context.caller, cost_of([submission]))
        accepted = await service.batcher.submit(submission)
    else:
        accepted = await request.app.state.uploads.submit(request.scope, request.receive, media_type(headers))
    service.trace(headers, began, [accepted])
    receipt = accepted.receipt
    request.scope["log"] |= {"document": receipt.id, "customer": receipt.customer}
    return json_response(receipt_json(accepted), 202, location=f"{DOCUMENTS}/{receipt.id}")


@router.get("/v1/documents", responses={200: {"model": schemas.DocumentPageModel}})
async def list_documents(
    context: AnyCaller,
    customer: Annotated[str | None, Query(min_length=1, max_length=200, description="For operators.")] = None,
    state: State | None = None,
    kind: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    reason: Annotated[
        str | None, Query(min_length=1, max_length=200, description="A part of the reason of failed ones.")
    ] = None,
    since: Annotated[float | None, Query(description="Submitted then or later; seconds since the epoch.")] = None,
    until: Annotated[float | None, Query(description="Submitted before then; seconds since the epoch.")] = None,
    before: Annotated[str | None, Query(description="The id of a document: those older than it.", max_length=64)] = None,
    limit: Annotated[int | None, Query(ge=1, description="How many at most.")] = None,
) -> Response:
    """Documents, newest first, a page at a time. A page may be short, or empty, while `next` leads on."""
    most = context.service.limits.page_documents
    if limit is not None and limit > most:
        raise Problem("bad-value", f"limit is {limit}; it must be a whole number from 1 to {most}")
    size = min(PAGE_DEFAULT, most) if limit is None else limit
    filter = context.access.documents.filter(customer, state, kind, reason, since, until)
    page = await context.service.search(context.access.documents.page, filter, before, size)
    parameters = {
        "customer": customer, "state": state, "kind": kind, "reason": reason, "since": since, "until": until,
        "before": page.next, "limit": limit,
    }  # fmt: skip
    query = "&".join(f"{name}={quote_name(str(value))}" for name, value in parameters.items() if value is not None)
    following = None if page.next is None else f"{DOCUMENTS}?{query}"
    documents = [document_json(context.caller, document) for document in page.documents]
    return json_response({"documents": documents, "next": following})


@router.get("/v1/documents/{id}", responses={200: {"model": schemas.DocumentModel}})
async def get_document(
    context: AnyCaller,
    id: IdInPath,
    wait: Annotated[float, Query(ge=0, le=86400, description="Wait up to that many seconds for its end.")] = 0,
) -> Response:
    """One document; with `wait` when it has ended, or after that long as it is then."""
    document = await _document(context, id)
    if wait and document.state not in ENDED:

        async def is_ended() -> bool:
            return (await _document(context, id)).state in ENDED

        context.service.refuse_waiting()
        with context.service.while_waiting():
            await context.service.feed.wait_for_end(id, is_ended, min(wait, context.service.limits.wait_seconds))
        document = await _document(context, id)
    progress = None
    if document.state != "done" and document.attempts:
        progress = await context.service.call(context.access.documents.progress, id)
    return json_response(document_json(context.caller, document) | {"progress": progress._asdict() if progress else None})


async def _document(context: RequestContext, id: str) -> DocumentRow:
    return await context.service.call(context.access.documents.get, id)


@router.get(
    "/v1/documents/{id}/result",
    responses={200: {"description": "What the handler returned.", "content": {"application/json": {"schema": {}}}}},
)
async def get_result(context: AnyCaller, id: IdInPath) -> Response:
    """What came out of a document that is done."""
    result = await context.service.call(context.access.documents.result, id)
    return Response(result.encode(errors="backslashreplace"), media_type="application/json")


@router.get(
    "/v1/documents/{id}/file",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "The bytes that were submitted, to be saved.",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def get_file(context: AnyCaller, id: IdInPath) -> Response:
    """The file that was submitted, as an attachment."""
    file, content = await context.service.call(context.access.documents.file, id)
    return file_response(context.service, content, file.name or id, file.size)


@router.get(
    "/v1/documents/{id}/text",
    responses={200: {"description": "Markdown.", "content": {"text/markdown": {"schema": {"type": "string"}}}}},
)
async def get_text(context: AnyCaller, id: IdInPath) -> Response:
    """The text that came out of a document that is done."""
    text = await context.service.call(context.access.documents.text, id)
    return Response(text.encode(errors="replace"), media_type="text/markdown")


@router.get(
    "/v1/documents/{id}/thumbnail",
    responses={
        200: {"description": "A picture.", "content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}}
    },
)
async def get_thumbnail(context: AnyCaller, id: IdInPath) -> Response:
    """A picture of a document that is done."""
    thumbnail = await context.service.call(context.access.documents.thumbnail, id)
    return Response(thumbnail, media_type="image/png")


@router.get("/v1/documents/{id}/explain", responses={200: {"model": schemas.ExplanationModel}})
async def explain_document(context: AnyCaller, id: IdInPath) -> Response:
    """Why it has its priority, about how much is ahead of it, and about when it will be served."""
    return json_response(await context.service.call(context.access.documents.explain, id))


@router.get("/v1/documents/{id}/history", responses={200: {"model": schemas.HistoryModel}})
async def get_history(context: AnyCaller, id: IdInPath) -> Response:
    """What happened to it, oldest first, as far as the feed still has it."""
    history = await context.service.search(context.access.documents.history, id)
    return json_response({"history": [value_json(entry) for entry in history]})


@router.get("/v1/documents/{id}/steps", responses={200: {"model": schemas.StepsModel}})
async def get_steps(context: AnyCaller, id: IdInPath) -> Response:
    """The kinds that it passes through, in order, and how far it is; one that was submitted without `steps` has one."""
    return json_response({"steps": await context.service.call(context.access.documents.steps, id)})


@router.get("/v1/documents/{id}/parts", responses={200: {"model": schemas.PartsModel}})
async def get_parts(context: AnyCaller, id: IdInPath) -> Response:
    """The parts into which it was split last, in order; 1,000 at most."""
    parts = await context.service.call(context.access.documents.parts, id)
    return json_response({"parts": [document_json(context.caller, part) for part in parts]})


@router.get("/v1/documents/{id}/attempts", responses={200: {"model": schemas.AttemptsModel}})
async def get_attempts(context: AnyCaller, id: IdInPath) -> Response:
    """What is kept of its last failed attempts, with tracebacks; for operators."""
    attempts = await context.service.call(context.access.operator.attempts, id)
    return json_response({"attempts": [value_json(attempt) for attempt in attempts]})


@router.post("/v1/documents/bulk", responses={200: {"model": schemas.BulkStepModel}})
async def change_documents(context: AnyCaller, body: schemas.BulkBody) -> Response:
    """Cancel or retry every document that matches, a step at a time; go on with `next` as the cursor until it is null."""
    filter = context.access.documents.filter(**body.filter.model_dump())
    step = await context.service.search(context.access.documents.bulk, body.action, filter, body.cursor, body.dry_run)
    return json_response(step._asdict())


@router.post("/v1/documents/prioritize", responses={200: {"model": schemas.BulkStepModel}})
async def prioritize_documents(context: AnyCaller, body: steering_schemas.PrioritizeBody) -> Response:
    """Set the priority of every waiting document that matches, a step at a time; go on with `next` as the cursor until it is
    null."""
    documents = context.access.documents
    filter = documents.filter(**body.filter.model_dump())
    step = await context.service.search(documents.prioritize_all, body.priority, filter, body.cursor, body.dry_run)
    return json_response(step._asdict())


@router.patch("/v1/documents/{id}", responses={200: {"model": schemas.DocumentModel}})
async def prioritize_document(context: AnyCaller, id: IdInPath, body: steering_schemas.PriorityBody) -> Response:
    """Set the priority of a waiting document by hand; it stays until it is set again."""
    document = await context.service.call(context.access.documents.prioritize, id, body.priority)
    return json_response(document_json(context.caller, document))


@router.delete("/v1/documents/{id}", responses={200: {"model": schemas.DocumentModel}})
async def cancel_document(context: AnyCaller, id: IdInPath) -> Response:
    """End a document that has not ended; a worker that runs it loses it."""
    return json_response(document_json(context.caller, await context.service.call(context.access.documents.cancel, id)))


@router.post("/v1/documents/{id}/retry", responses={200: {"model": schemas.DocumentModel}})
async def retry_document(context: AnyCaller, id: IdInPath) -> Response:
    """Another round of attempts for a failed document. For a customer it is a check, as for a new document."""
    return json_response(document_json(context.caller, await context.service.call(context.access.documents.retry, id)))
