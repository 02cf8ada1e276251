"""What every route takes in and gives out: the request's context, names in paths, responses in JSON, streams of events."""

from __future__ import annotations

from collections.abc import AsyncIterator, MutableMapping
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, unquote

from fastapi import Depends, Path, Request
from pydantic import BeforeValidator
from starlette.responses import Response, StreamingResponse

from fairlane.core.document import DocumentRow
from fairlane.core.policy import from_thousandths
from fairlane.queue import Attempt, Check, HistoryEntry, Kind, Look, UnservedKind, WorkerStatus
from fairlane.queue.audit import AuditEntry
from fairlane.queue.audit import audit_json as to_audit_json
from fairlane.queue.audited_queue import AuditedQueue
from fairlane.queue.models import to_json

from .access import Access
from .auth import Caller
from .client_address import client_address
from .problems import encode_json, nothing_here
from .service import Service

ID_EXAMPLE = "0199a3f2-1c5e-7d31-9f60-3b1de5a0c842"


class RequestContext(NamedTuple):
    """The service, who calls it, with which credential, and from where."""

    service: Service
    caller: Caller
    credential: str
    address: str

    @property
    def access(self) -> Access:
        """What the caller may see and touch; what staff changes is in the audit log."""
        queue = self.service.queue
        if self.caller.sees_all:
            queue = AuditedQueue(queue, self.caller.actor(self.address))
        return Access(queue, self.caller, self.service.cursors)


def request_context(request: Request) -> RequestContext:
    """Return the context of the caller; the middleware has refused whoever may not use the route."""
    return context_of(request.app.state.service, request.scope)


def context_of(service: Service, scope: MutableMapping[str, Any]) -> RequestContext:
    """Return the context of a request that the middleware has let pass."""
    return RequestContext(service, scope["caller"], scope["credential"], client_address(scope))


def decode_name(value: str) -> str:
    """Decode a name in a path."""
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise nothing_here() from None


AnyCaller = Annotated[RequestContext, Depends(request_context)]
IdInPath = Annotated[str, BeforeValidator(decode_name), Path(examples=[ID_EXAMPLE])]
CustomerInPath = Annotated[str, BeforeValidator(decode_name), Path(examples=["acme"])]


def json_response(value: Any, status: int = 200, **headers: str) -> Response:
    """Respond with JSON; characters outside ASCII are escaped, so that anything can be sent."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Response(encode_json(value), status, named, "application/json")


def event_stream(frames: AsyncIterator[bytes]) -> Response:
    """Respond with server-sent events, which a proxy must pass on as they come: neither collected nor compressed."""
    headers = {"cache-control": "no-store, no-transform", "x-accel-buffering": "no"}
    return StreamingResponse(frames, headers=headers, media_type="text/event-stream")


def document_links(id: str) -> dict[str, str]:
    """Return the addresses of everything that belongs to a document."""
    address = f"/v1/documents/{id}"
    names = ("file", "result", "text", "thumbnail", "explain")
    return {"self": address, **{name: f"{address}/{name}" for name in names}}


def document_json(caller: Caller, document: DocumentRow) -> dict[str, Any]:
    """Return a document as the caller may see it."""
    return {
        "id": document.id,
        "customer": document.customer,
        "kind": document.kind,
        "state": document.state,
        "priority": document.priority,
        "no_better_than": document.no_better_than,
        "set_by_hand": document.is_set_by_hand,
        "counter": document.check.counter,
        "cost": from_thousandths(document.cost),
        "key": document.key,
        "submitted_at": document.submitted_ms / 1000,
        "ready_at": document.ready_ms / 1000,
        "ended_at": None if document.ended_ms is None else document.ended_ms / 1000,
        "attempts": document.attempts,
        "attempts_max": document.attempts_max,
        "reason": document.reason,
        "worker": document.worker if caller.sees_all else None,
        "bytes": document.bytes,
        "retries": document.retries,
        "whole": document.whole,
        "parts": document.parts,
        "parts_done": document.parts - document.parts_left,
        "links": document_links(document.id),
    }


def value_json(value: Attempt | Check | HistoryEntry | Kind | Look | WorkerStatus | UnservedKind) -> dict[str, Any]:
    """Return a value of the queue as JSON members, times in seconds."""
    return to_json(value)


def audit_json(entry: AuditEntry) -> dict[str, Any]:
    """Return an entry of the audit log as JSON members."""
    return to_audit_json(entry)


def quote_name(name: str) -> str:
    """Quote a name for an address."""
    return quote(name, safe="")
