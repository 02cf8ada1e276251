"""Reads a whole queue from a store into a read model, on a thread, a page at a time.

After every page `gc.freeze()` hides the model's objects from the cyclic garbage collector: there are millions of them, none in
a cycle, and a full collection would stop the whole server for seconds. The loader calls `gc.unfreeze()` when it drops a model.
"""

from __future__ import annotations

import gc
from collections import ChainMap
from collections.abc import Callable

from fairlane.api.auth import time_ms
from fairlane.api.problems import Problem
from fairlane.core.document import ENDED
from fairlane.engine import Engine
from fairlane.engine.protocol import DocumentFilter
from fairlane.engine.walk import ALL
from fairlane.queue.history import first_since, newest, read_changes

from .model import NEEDS_LOOKUP, DocumentFacts, ReadModel, facts_of

PAGE = 1000
PAST_CHANGES_MAX = 400_000  # changes that are read for the figures of the last day
PAST_MS = 24 * 3600 * 1000
TRACKED_MAX = 2_000_000  # documents that have not ended, or customers
LOOK_UP_SINGLY_MAX = 20  # more documents than this are first searched for among the newest

OnPage = Callable[[ReadModel], None]


def load_model(engine: Engine, until: int, on_page: OnPage = lambda model: None) -> tuple[ReadModel, int]:
    """Return the queue up to change `until`, and the newest change that may be in it already.

    `on_page` is called with the unfinished model after every page of documents."""
    model = ReadModel(engine.rules())
    now_ms = time_ms()
    start = min(until, max(first_since(engine, now_ms - PAST_MS), until - PAST_CHANGES_MAX))
    changes = read_changes(engine, start)
    model.since_ms = changes[0].at_ms if changes else now_ms
    ended = _load_documents(engine, model, on_page)
    _load_customers(engine, model)
    newest_change = newest(engine)
    while changes:
        due = [change for change in changes if change.number <= until]
        unknown = [
            change.document
            for change in due
            if change.what in NEEDS_LOOKUP and change.document is not None and change.document not in ended
        ]
        model.apply(due, ChainMap(look_up(engine, unknown), ended) if unknown else ended)
        if len(due) < len(changes):
            break
        changes = read_changes(engine, changes[-1].number)
    model.change = until
    model.is_stale = False  # customers that were forgotten before the load are not in it
    return model, newest_change


def look_up(engine: Engine, ids: list[str]) -> dict[str, DocumentFacts]:
    """Read the facts of documents; if they are many, search the newest page for them first."""
    facts: dict[str, DocumentFacts] = {}
    left = set(ids)
    if len(ids) > LOOK_UP_SINGLY_MAX:
        page = engine.documents(ALL, None, PAGE)
        facts = {document.id: facts_of(document) for document in page.documents if document.id in left}
    for id in left - facts.keys():
        document = engine.document(id)
        if document is not None:
            facts[id] = facts_of(document)
    return facts


def _load_documents(engine: Engine, model: ReadModel, on_page: OnPage) -> dict[str, DocumentFacts]:
    """Load every document that has not ended; return those that have, as far back as the figures go."""
    ended: dict[str, DocumentFacts] = {}
    before: int | None = None
    while True:
        page = engine.documents(ALL, before, PAGE)
        before = page.next
        for document in page.documents:
            if document.state in ENDED:
                ended[document.id] = facts_of(document)
            else:
                model.load(document)
        gc.freeze()
        on_page(model)
        is_past = bool(page.documents) and page.documents[-1].submitted_ms < model.since_ms
        if before is None or is_past or len(ended) > PAST_CHANGES_MAX:
            break
        _refuse_too_many(len(model.documents))
    for state in ("running", "ready", "delayed"):
        below = before
        while below is not None:
            page = engine.documents(DocumentFilter(state=state), below, PAGE)
            below = page.next
            for document in page.documents:
                model.load(document)
            if page.documents:
                gc.freeze()
                on_page(model)
                _refuse_too_many(len(model.documents))
    model.finish_loading()
    return ended


def _load_customers(engine: Engine, model: ReadModel) -> None:
    after = ""
    while page := engine.customers(after, PAGE):
        for customer in page:
            row = model.row(customer.id)
            row.standing = customer.standing
            if customer.terms_version:
                row.terms = customer.terms
        after = page[-1].id
        gc.freeze()
        _refuse_too_many(len(model.rows))


def _refuse_too_many(count: int) -> None:
    if count > TRACKED_MAX:
        raise Problem("overloaded", f"the live view can follow at most {TRACKED_MAX:,} waiting documents and customers")
