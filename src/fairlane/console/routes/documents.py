"""Routes of documents: found by id or name, and the whole life of one: what happened, why its priority, when it will start.

Laws:
- Every document here came through access. Customers see their own, and nothing of workers.
- Everything that is searched is bounded: how many documents, how many changes, how long.
"""

from __future__ import annotations

import time
from mimetypes import guess_type
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from fairlane.api.access.documents import CheckContext, DocumentAccess
from fairlane.api.dependencies import AnyCaller, IdInPath, RequestContext, document_json, json_response
from fairlane.api.problems import Problem
from fairlane.console.read_model.model import code_of
from fairlane.core.document import WAITING, ChangeRow, DocumentRow, State
from fairlane.core.policy import from_thousandths

from .customers import is_reset

LIMIT_MAX = 200
SEARCHED_MAX = 5000  # documents that one search looks at
SEARCH_SECONDS = 1.0
PAGE = 500
router = APIRouter(tags=["page"], include_in_schema=False)


@router.get("/page/documents")
async def list_documents(
    context: AnyCaller,
    search: Annotated[str, Query(max_length=200)] = "",
    state: State | None = None,
    customer: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    after: Annotated[str | None, Query(max_length=64)] = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 50,
) -> Response:
    """Documents, newest first; with `search` those whose id begins with it or whose name holds it."""
    found = _Search(context, customer, state, search.strip().casefold(), limit)
    return json_response(await context.service.call(found.told, after))


class _Search:
    """One look through documents, on a thread."""

    def __init__(self, context: RequestContext, customer: str | None, state: State | None, search: str, limit: int) -> None:
        self._context = context
        self._customer = customer
        self._state = state
        self._search = search
        self._limit = limit

    def told(self, before: str | None) -> dict[str, Any]:
        whole = self._whole() if before is None and self._search else None
        if whole is not None:
            return {"documents": [whole], "next": None, "searched": 1}
        deadline, looked = time.monotonic() + SEARCH_SECONDS, 0
        found: list[dict[str, Any]] = []
        documents, size = self._context.access.documents, PAGE if self._search else self._limit
        while True:
            page = documents.page(self._customer, self._state, before, size)
            for one in page:
                looked, before = looked + 1, one.id
                told = self._fitting(one)
                if told is not None:
                    found.append(told)
                if len(found) == self._limit or looked == SEARCHED_MAX or time.monotonic() > deadline:
                    return {"documents": found, "next": one.id, "searched": looked}
            if len(page) < size:
                return {"documents": found, "next": None, "searched": looked}

    def _whole(self) -> dict[str, Any] | None:
        """The document whose whole id was given, however old it is."""
        try:
            one = self._context.access.documents.get(self._search)
        except Problem:
            return None
        fits = self._customer in (None, one.customer) and self._state in (None, one.state)
        return self._fitting(one) if fits else None

    def _fitting(self, one: DocumentRow) -> dict[str, Any] | None:
        file = file_json(self._context, one)
        name = file["name"] or ""
        if self._search and not one.id.startswith(self._search) and self._search not in name.casefold():
            return None
        return document_json(self._context.caller, one) | file


def file_json(context: RequestContext, document: DocumentRow) -> dict[str, Any]:
    """What a document's file is called, how large it is, and its type as the name says."""
    name, size = context.access.documents.file_info(document)
    return {"name": name, "size": size, "media_type": guess_type(name)[0] if name else None}


@router.get("/page/documents/{id}")
async def get_document(context: AnyCaller, id: IdInPath) -> Response:
    """The whole life of one document."""

    def told() -> dict[str, Any]:
        documents = context.access.documents
        document = documents.get(id)
        return {
            "document": document_json(context.caller, document) | file_json(context, document),
            "life": life(documents.changes(document), document),
            "why": _why(documents.check_context(document), document),
            "outlook": _outlook(documents, document),
            "failure_code": code_of(document.reason) if document.state == "failed" else None,
        }

    return json_response(await context.service.call(told))


# -- what happened -----------------------------------------------------------------------------------------------------


def life(changes: list[ChangeRow], document: DocumentRow) -> list[dict[str, Any]]:
    """What happened to a document, oldest first; what the feed no longer tells is as the document itself says."""
    told = [_line(change) for change in changes]
    whats = {one["what"] for one in told}
    if "submitted" not in whats:
        told.insert(0, {"at": document.submitted_ms, "what": "submitted", "attempt": 0, "worker": None, "note": None})
    if document.ended_ms is not None and document.state not in whats:
        told.append(
            {
                "at": document.ended_ms,
                "what": document.state,
                "attempt": document.token,
                "worker": None,
                "note": document.reason,
            }
        )
    return told


def _line(change: ChangeRow) -> dict[str, Any]:
    is_claim = change.what == "claimed"
    return {
        "at": change.at_ms,
        "what": change.what,
        "attempt": change.token or 0,
        "worker": change.note if is_claim else None,
        "note": None if is_claim or change.what == "submitted" else change.note,
    }


# -- why and when ------------------------------------------------------------------------------------------------------


def _why(known: CheckContext, document: DocumentRow) -> dict[str, Any]:
    check, rules, customer = document.check, known.rules, known.customer
    policy = customer.terms.policy(rules.policy)
    is_same = check.policy_version == rules.version and check.terms_version == customer.terms_version
    threshold = policy.thresholds[check.priority - 2] if is_same and check.priority > 1 else None
    return {
        "counter": check.counter,
        "priority": check.priority,
        "threshold": threshold,  # the counter was below it; None: at the top of the table, or the rules were others then
        "was_reset": is_reset(document, customer.terms.weight_thousandths),
        "silence": None if known.previous is None else max(0, check.checked_ms - known.previous.check.checked_ms) / 1000,
        "reset": policy.reset,
        "reset_interval": policy.reset_interval,
        "weight": customer.terms.weight,
        "cost": from_thousandths(document.cost),
    }


def _outlook(documents: DocumentAccess, document: DocumentRow) -> dict[str, Any]:
    told: dict[str, Any] = {"ahead": None, "low": None, "likely": None, "high": None, "not_before": None, "blocked": None}
    if document.state not in WAITING:
        return told
    facts = documents.explain(document.id)
    customer = documents.check_context(document).customer
    told |= {"ahead": facts["ahead"], "not_before": facts.get("not_before_in"), "likely": facts["expected_in"]}
    told |= {"low": facts["expected_in_low"], "high": facts["expected_in_high"]}
    if customer.terms.paused:
        told["blocked"] = "paused"
    elif customer.terms.cap is not None and customer.running >= customer.terms.cap:
        told["blocked"] = "cap"
    elif facts["expected_in"] is None and facts["ahead"] is not None:
        told["blocked"] = "no_worker"
    return told
