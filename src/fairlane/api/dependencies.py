"""Who asks, and how is it answered? What every route takes in and gives out."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, unquote

from fastapi import Depends, Path, Request
from pydantic import BeforeValidator
from starlette.responses import Response

from fairlane.core.document import Document
from fairlane.core.policy import from_thousandths

from .auth import Caller
from .problems import nothing_here, written
from .service import Service

ID_EXAMPLE = "0199a3f2-1c5e-7d31-9f60-3b1de5a0c842"


class Asked(NamedTuple):
    """The service, and who calls it."""

    service: Service
    caller: Caller


def asked(request: Request) -> Asked:
    """Anybody with a key; the edge has let nobody else in."""
    return Asked(request.app.state.service, request.scope["caller"])


def asked_by_operator(request: Request) -> Asked:
    """Operators; for others there is nothing here."""
    told = asked(request)
    if told.caller.customer is not None:
        raise nothing_here()
    return told


def decoded(told: str) -> str:
    """A name in a path, as it was meant."""
    try:
        return unquote(told, errors="strict")
    except UnicodeDecodeError:
        raise nothing_here() from None


ByAnybody = Annotated[Asked, Depends(asked)]
ByOperator = Annotated[Asked, Depends(asked_by_operator)]
IdInPath = Annotated[str, BeforeValidator(decoded), Path(examples=[ID_EXAMPLE])]
CustomerInPath = Annotated[str, BeforeValidator(decoded), Path(examples=["acme"])]


def answered(told: Any, status: int = 200, **headers: str) -> Response:
    """An answer in JSON; letters outside ASCII are escaped, so that anything can be sent."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(written(told), status, named, "application/json")


def document_links(id: str) -> dict[str, str]:
    """Where everything of a document is."""
    here = f"/v1/documents/{id}"
    names = ("result", "text", "thumbnail", "explain")
    return {"self": here, **{name: f"{here}/{name}" for name in names}}


def told_document(caller: Caller, one: Document) -> dict[str, Any]:
    """A document as it is answered."""
    return {
        "id": one.id,
        "customer": one.customer,
        "kind": one.kind,
        "state": one.state,
        "priority": one.priority,
        "counter": one.check.counter,
        "cost": from_thousandths(one.cost),
        "key": one.key,
        "submitted_at": one.submitted_ms / 1000,
        "ready_at": one.ready_ms / 1000,
        "ended_at": None if one.ended_ms is None else one.ended_ms / 1000,
        "attempts": one.attempts,
        "attempts_max": one.attempts_max,
        "reason": one.reason,
        "worker": one.worker if caller.is_operator else None,
        "links": document_links(one.id),
    }


def in_path(name: str) -> str:
    """A name as it stands in an address."""
    return quote(name, safe="")
