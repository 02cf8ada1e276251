"""Routes of documents: search by id, name or key, and the details of one: its history, its priority and when it will start.

Laws:
- Every document comes through `access`. Customers see their own, and nothing of workers.
- Every search is bounded: in documents, in changes and in time.
"""

from __future__ import annotations

import time
from mimetypes import guess_type
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from fairlane.api.access.batches import BatchRecord
from fairlane.api.access.documents import WORKER_EVENTS, CheckContext, DocumentAccess, DocumentFilter, new_priority
from fairlane.api.dependencies import AnyCaller, IdInPath, RequestContext, document_json, json_response, value_json
from fairlane.api.problems import Problem
from fairlane.console.counter import is_reset
from fairlane.console.read_model.model import failure_code, may_help_again
from fairlane.core.document import WAITING, ChangeRow, DocumentRow, State
from fairlane.core.policy import from_thousandths, weight_of

LIMIT_MAX = 200
SEARCHED_MAX = 5000  # documents that one search reads
SEARCH_SECONDS = 1.0
PAGE = 500
NOTES_FOR_PROGRAMS = ("submitted", "revived", "prioritized", "rechecked")
PARTS_SHOWN = 20
router = APIRouter(tags=["page"], include_in_schema=False)


@router.get("/page/documents")
async def list_documents(
    context: AnyCaller,
    search: Annotated[str, Query(max_length=200)] = "",
    state: State | None = None,
    customer: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    kind: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    reason: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    since: float | None = None,
    until: float | None = None,
    after: Annotated[str | None, Query(max_length=64)] = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 50,
) -> Response:
    """Return documents, newest first; with `search` those whose id begins with it, whose name has it or whose key it is."""
    filter = context.access.documents.filter(customer, state, kind, reason, since, until)
    document_search = DocumentSearch(context, filter, search.strip(), limit)
    return json_response(await context.service.search(document_search.read_page, after))


class DocumentSearch:
    """A search through documents; its methods may block."""

    def __init__(self, context: RequestContext, filter: DocumentFilter, text: str, limit: int) -> None:
        self._context = context
        self._filter = filter
        self._key = text
        self._text = text.casefold()
        self._limit = limit

    def read_page(self, before: str | None) -> dict[str, Any]:
        exact = self._find_by_id() if before is None and self._text else None
        if exact is not None:
            return {"batch": None, "documents": [exact], "next": None, "reached": None}
        batch = self._context.access.batches.find(self._key, self._filter.customer) if before is None else None
        if batch is not None and batch.id == self._text:
            return {"batch": batch_json(batch), "documents": [], "next": None, "reached": None}
        return {"batch": None if batch is None else batch_json(batch)} | self._search(before)

    def _search(self, before: str | None) -> dict[str, Any]:
        """Walk through the documents, newest first."""
        deadline, searched = time.monotonic() + SEARCH_SECONDS, 0
        documents, size = self._context.access.documents, PAGE if self._text else self._limit
        matches: list[dict[str, Any]] = []
        while True:
            page = documents.page(self._filter, before, size)
            for document in page.documents:
                searched += 1
                match = self._match(document)
                if match is not None:
                    matches.append(match)
                if len(matches) == self._limit or searched == SEARCHED_MAX or time.monotonic() > deadline:
                    return {"documents": matches, "next": documents.cursor(document.number), "reached": document.submitted_ms}
            if page.next is None:
                return {"documents": matches, "next": None, "reached": None}
            before = page.next
            if time.monotonic() > deadline or not page.documents:
                return {"documents": matches, "next": before, "reached": documents.submitted_before(page.next)}

    def _find_by_id(self) -> dict[str, Any] | None:
        """Return the document whose id is the whole search text, however old it is."""
        try:
            document = self._context.access.documents.get(self._text)
        except Problem:
            return None
        return self._match(document) if self._filter.matches(document) else None

    def _match(self, document: DocumentRow) -> dict[str, Any] | None:
        file = file_json(self._context, document)
        name = file["name"] or ""
        is_named = document.id.startswith(self._text) or self._text in name.casefold() or document.key == self._key
        return document_json(self._context.caller, document) | file if is_named else None


def file_json(context: RequestContext, document: DocumentRow) -> dict[str, Any]:
    """Return the name and size of a document's file, and the media type that its name suggests."""
    name, size = context.access.documents.file_info(document)
    return {"name": name, "size": size, "has_file": size is not None, "media_type": guess_type(name)[0] if name else None}


def batch_json(batch: BatchRecord) -> dict[str, Any]:
    """Return what is known of a batch without looking at its documents."""
    return {
        "id": batch.id,
        "customer": batch.customer,
        "key": batch.key,
        "made_at": batch.made_ms / 1000,
        "documents": len(batch.documents),
    }


@router.get("/page/documents/{id}")
async def get_document(context: AnyCaller, id: IdInPath) -> Response:
    """Return the details of one document."""

    def read_document() -> dict[str, Any]:
        documents = context.access.documents
        document = documents.get(id)
        code = failure_code(document.reason) if document.state == "failed" else None
        changes = documents.changes(document)
        return {
            "document": document_json(context.caller, document) | file_json(context, document),
            "life": history_json(changes, document),
            "steps": [{"kind": step["kind"], "state": step["state"]} for step in documents.steps(id)],
            "parts": _parts_json(context, document),
            "why": _check_json(documents.check_context(document), document),
            "outlook": _outlook_json(documents, document),
            "attempts": _attempts_json(context, document, changes),
            "batch": _place_json(context.access.batches.of(document), document),
            "failure_code": code,
            "can_retry": code is not None and may_help_again(code),
        }

    return json_response(await context.service.search(read_document))


def _parts_json(context: RequestContext, document: DocumentRow) -> dict[str, Any] | None:
    """Return how far the parts of a document are, by their cost, which are pages of slices; and those that run or failed."""
    if not document.parts:
        return None
    parts = context.access.documents.parts(document.id)
    shown = [part for part in parts if part.state in ("running", "failed")][:PARTS_SHOWN]
    return {
        "cost": from_thousandths(sum(part.cost for part in parts)),
        "cost_done": from_thousandths(sum(part.cost for part in parts if part.state == "done")),
        "shown": [{"id": part.id, "number": parts.index(part) + 1, "state": part.state} for part in shown],
    }


def _attempts_json(context: RequestContext, document: DocumentRow, changes: list[ChangeRow]) -> list[dict[str, Any]]:
    """Return the failed attempts with their tracebacks; for operators only."""
    if not context.caller.sees_all:
        return []
    attempts = context.access.operator.attempts(document.id)
    return [value_json(attempt) | {"number": attempt_number(attempt.token, changes)} for attempt in attempts]


def _place_json(batch: BatchRecord | None, document: DocumentRow) -> dict[str, Any] | None:
    """Return the batch that a document came with, and which of its documents it is."""
    return None if batch is None else batch_json(batch) | {"position": batch.documents.index(document.id) + 1}


def attempt_number(token: int, changes: list[ChangeRow]) -> int:
    """Return which claim of its document a token belongs to; one that was taken over has had several."""
    return token - sum(change.what == "taken_over" and (change.token or 0) <= token for change in changes)


def history_json(changes: list[ChangeRow], document: DocumentRow) -> list[dict[str, Any]]:
    """Return what happened to a document, oldest first; its submission and end are known even when the feed was purged."""
    history = [_change_json(change) | {"attempt": attempt_number(change.token or 0, changes)} for change in changes]
    known = {change.what for change in changes}
    if "submitted" not in known:
        start = {"at": document.submitted_ms, "what": "submitted", "attempt": 0}
        history.insert(0, start | {"worker": None, "note": None, "priority": None, "by": None})
    if document.ended_ms is not None and document.state not in known:
        end = {"at": document.ended_ms, "what": document.state, "attempt": attempt_number(document.token, changes)}
        history.append(end | {"worker": None, "note": document.reason, "priority": None, "by": None})
    return history


def _change_json(change: ChangeRow) -> dict[str, Any]:
    names_worker = change.what in WORKER_EVENTS
    priority, by = new_priority(change)
    return {
        "at": change.at_ms,
        "what": change.what,
        "worker": change.note if names_worker else None,
        "note": None if names_worker or change.what in NOTES_FOR_PROGRAMS else change.note,
        "priority": priority,
        "by": by,
    }


def _check_json(context: CheckContext, document: DocumentRow) -> dict[str, Any]:
    """Return what explains the priority of a document."""
    check, rules, customer = document.check, context.rules, context.customer
    policy = customer.terms.policy(rules.policy)
    is_same = check.policy_version == rules.version and check.terms_version == customer.terms_version
    level = policy.level(check.counter_thousandths)
    threshold = policy.thresholds[level - 2] if is_same and check.priority == level > 1 else None
    return {
        "counter": check.counter,
        "priority": check.priority,
        "threshold": threshold,  # the counter was below it; None: it was above all, or the rules have changed since
        "no_better_than": document.no_better_than,
        "was_reset": is_reset(document, weight_of(customer.terms)),
        "was_retried": document.retries > 0,  # by its customer, and that was the check
        "silence": None if context.previous is None else max(0, check.checked_ms - context.previous.submitted_ms) / 1000,
        "reset": policy.reset,
        "reset_interval": policy.reset_interval,
        "weight": customer.terms.weight,
        "cost": from_thousandths(document.cost),
    }


def _outlook_json(documents: DocumentAccess, document: DocumentRow) -> dict[str, Any]:
    """Return how many documents are ahead of a waiting one, when it will start, and what blocks it."""
    if document.state not in WAITING:
        return {"ahead": None, "low": None, "likely": None, "high": None, "not_before": None, "blocked": None}
    explanation = documents.explain(document.id)
    blocked = None
    if explanation["held_by"]:
        blocked = explanation["held_by"].replace(" ", "_")
    elif explanation["service"] in ("unserved", "draining"):
        blocked = explanation["service"]
    elif explanation["expected_in"] is None and explanation["ahead"] is not None:
        blocked = "no_worker"
    return {
        "ahead": explanation["ahead"],
        "low": explanation["expected_in_low"],
        "likely": explanation["expected_in"],
        "high": explanation["expected_in_high"],
        "not_before": explanation.get("not_before_in"),
        "blocked": blocked,
    }
