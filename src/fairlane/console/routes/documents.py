"""Routes of documents: found by id or name, and the whole life of one: what happened, why its priority, when it will start.

Laws:
- Every document here came through the wall. Customers see their own, and nothing of workers.
- Everything that is searched is bounded: how many documents, how many changes, how long.
"""

from __future__ import annotations

import json
import time
from mimetypes import guess_type
from pathlib import PurePosixPath
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from fairlane.api.auth import Caller
from fairlane.api.dependencies import Asked, ByAnybody, IdInPath, answered, told_document
from fairlane.api.feed import first_since, newest
from fairlane.api.problems import Problem
from fairlane.blobs.envelope import unwrapped
from fairlane.console.read_model.model import code_of
from fairlane.core.document import WAITING, Change, Document, State
from fairlane.core.errors import Unknown
from fairlane.core.policy import from_thousandths
from fairlane.engine import Engine

from .customers import is_reset

LIMIT_MAX = 200
SEARCHED_MAX = 5000  # documents that one search looks at
SEARCH_SECONDS = 1.0
PAGE = 500
FEED_PAGE, FEED_PAGES_MAX = 1000, 20
routes = APIRouter(tags=["page"], include_in_schema=False)


@routes.get("/page/documents")
async def list_documents(
    asked: ByAnybody,
    search: Annotated[str, Query(max_length=200)] = "",
    state: State | None = None,
    customer: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    after: Annotated[str | None, Query(max_length=64)] = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 50,
) -> Response:
    """Documents, newest first; with `search` those whose id begins with it or whose name holds it."""
    found = _Search(asked, customer, state, search.strip().casefold(), limit)
    return answered(await asked.service.call(found.told, after))


class _Search:
    """One look through documents, on a thread."""

    def __init__(self, asked: Asked, customer: str | None, state: State | None, search: str, limit: int) -> None:
        self._asked = asked
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
        wall, size = self._asked.service.wall, PAGE if self._search else self._limit
        while True:
            page = wall.documents(self._asked.caller, self._customer, self._state, before, size)
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
            one = self._asked.service.wall.document(self._asked.caller, self._search)
        except Problem:
            return None
        fits = self._customer in (None, one.customer) and self._state in (None, one.state)
        return self._fitting(one) if fits else None

    def _fitting(self, one: Document) -> dict[str, Any] | None:
        file = file_told(self._asked.service.queue.engine, one)
        name = file["name"] or ""
        if self._search and not one.id.startswith(self._search) and self._search not in name.casefold():
            return None
        return told_document(self._asked.caller, one) | file


def file_told(engine: Engine, document: Document) -> dict[str, Any]:
    """What a document's file is called, how large it is, and its type as the name says."""
    body = engine.body(document.id)
    file, payload = unwrapped(None if body is None else json.loads(body.payload))
    name, size = None, None
    if file is not None:
        name, size = file.name, file.size
    elif isinstance(payload, dict) and isinstance(payload.get("path"), str):
        name = PurePosixPath(payload["path"]).name
    return {"name": name, "size": size, "media_type": guess_type(name)[0] if name else None}


@routes.get("/page/documents/{id}")
async def get_document(asked: ByAnybody, id: IdInPath) -> Response:
    """The whole life of one document."""

    def told() -> dict[str, Any]:
        queue, caller = asked.service.queue, asked.caller
        document = asked.service.wall.document(caller, id)
        return {
            "document": told_document(caller, document) | file_told(queue.engine, document),
            "life": life(queue.engine, caller, document),
            "why": _why(queue.engine, document),
            "outlook": _outlook(asked, document),
            "failure_code": code_of(document.reason) if document.state == "failed" else None,
        }

    return answered(await asked.service.call(told))


# -- what happened -----------------------------------------------------------------------------------------------------


def life(engine: Engine, caller: Caller, document: Document) -> list[dict[str, Any]]:
    """What happened to a document, oldest first; what the feed no longer tells is as the document itself says."""
    told = [_line(caller, one) for one in _changes_of(engine, document)]
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


def _line(caller: Caller, change: Change) -> dict[str, Any]:
    is_claim = change.what == "claimed"
    return {
        "at": change.at_ms,
        "what": change.what,
        "attempt": change.token or 0,
        "worker": change.note if is_claim and caller.is_operator else None,
        "note": None if is_claim or change.what == "submitted" else change.note,
    }


def _changes_of(engine: Engine, document: Document) -> list[Change]:
    """Its changes, looked for from its end, or from now, backwards, and then where it was submitted."""
    last = newest(engine)
    end = last if document.ended_ms is None else first_since(engine, document.ended_ms + 1)
    found: dict[int, Change] = {}
    for page in range(FEED_PAGES_MAX):
        after = max(0, end - (page + 1) * FEED_PAGE)
        changes = _page(engine, after)
        found |= {one.number: one for one in changes if one.document == document.id}
        if (
            any(one.what == "submitted" for one in found.values())
            or after == 0
            or (changes and changes[0].at_ms < document.submitted_ms)
        ):
            break
    if not any(one.what == "submitted" for one in found.values()):
        start = first_since(engine, document.submitted_ms)
        found |= {one.number: one for one in _page(engine, start) if one.document == document.id}
    return [one for _, one in sorted(found.items())]


def _page(engine: Engine, after: int) -> list[Change]:
    try:
        return engine.changes(after, FEED_PAGE)
    except Unknown:
        return engine.changes(None, FEED_PAGE)


# -- why and when ------------------------------------------------------------------------------------------------------


def _why(engine: Engine, document: Document) -> dict[str, Any]:
    check, rules, customer = document.check, engine.rules(), engine.customer(document.customer)
    before = engine.documents(document.customer, None, document.number, 1)
    policy = customer.terms.policy(rules.policy)
    is_same = check.policy_version == rules.version and check.terms_version == customer.terms_version
    threshold = policy.thresholds[check.priority - 2] if is_same and check.priority > 1 else None
    return {
        "counter": check.counter,
        "priority": check.priority,
        "threshold": threshold,  # the counter was below it; None: at the top of the table, or the rules were others then
        "was_reset": is_reset(document, customer.terms.weight_thousandths),
        "silence": max(0, check.checked_ms - before[0].check.checked_ms) / 1000 if before else None,
        "reset": policy.reset,
        "reset_interval": policy.reset_interval,
        "weight": customer.terms.weight,
        "cost": from_thousandths(document.cost),
    }


def _outlook(asked: Asked, document: Document) -> dict[str, Any]:
    told: dict[str, Any] = {"ahead": None, "low": None, "likely": None, "high": None, "not_before": None, "blocked": None}
    if document.state not in WAITING:
        return told
    facts = asked.service.wall.explain(asked.caller, document.id)
    customer = asked.service.queue.engine.customer(document.customer)
    told |= {"ahead": facts["ahead"], "not_before": facts.get("not_before_in"), "likely": facts["expected_in"]}
    told |= {"low": facts["expected_in_low"], "high": facts["expected_in_high"]}
    if customer.terms.paused:
        told["blocked"] = "paused"
    elif customer.terms.cap is not None and customer.running >= customer.terms.cap:
        told["blocked"] = "cap"
    elif facts["expected_in"] is None and facts["ahead"] is not None:
        told["blocked"] = "no_worker"
    return told
