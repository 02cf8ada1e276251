"""Documents on behalf of a caller: lists, results, explanations, and what happened to each."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any, BinaryIO, NamedTuple

from fairlane.api.auth import Caller
from fairlane.api.cursors import Cursors
from fairlane.api.feed import EVENT_NAMES, without_actor
from fairlane.api.problems import bad_value, nothing_here
from fairlane.blobs.envelope import File, unwrap_payload
from fairlane.core.document import ChangeRow, Customer, DocumentRow, State
from fairlane.core.errors import WrongState
from fairlane.core.policy import Rules
from fairlane.engine import Engine
from fairlane.engine.protocol import DocumentFilter
from fairlane.engine.walk import read_page, walk_documents
from fairlane.queue import HistoryEntry, Progress, Queue
from fairlane.queue.audit import actor_name
from fairlane.queue.audited_queue import audited_bulk
from fairlane.queue.bulk import Action, BulkChange, BulkStep
from fairlane.queue.history import changes_of, history_of
from fairlane.queue.models import WORKER_EVENTS, new_priority
from fairlane.queue.validation import document_filter

__all__ = ["WORKER_EVENTS", "CheckContext", "DocumentAccess", "DocumentFilter", "FileInfo", "new_priority"]

READS_MAX = 10  # of the store for one page: then it is short


class FileInfo(NamedTuple):
    """A document's file: what its sender calls it, and its size."""

    name: str | None
    size: int | None


class VisiblePage(NamedTuple):
    """A page of documents that a caller may see, and the cursor of the next page; None: it was the last."""

    documents: list[DocumentRow]
    next: str | None


class CheckContext(NamedTuple):
    """What a document's check is explained with."""

    rules: Rules
    customer: Customer
    previous: DocumentRow | None  # the customer's document before it


class DocumentAccess:
    """Reads and changes of documents on behalf of a caller."""

    def __init__(self, queue: Queue, caller: Caller, cursors: Cursors) -> None:
        self._queue = queue
        self._engine = queue.engine
        self._caller = caller
        self._cursors = cursors

    def get(self, id: str) -> DocumentRow:
        """Read one document, if the caller may see it."""
        document = self._engine.document(id) if is_id(id) else None
        if document is None or not self._caller.may_see(document.customer):
            raise nothing_here()
        return document

    def filter(
        self,
        customer: str | None,
        state: State | None,
        kind: str | None,
        reason: str | None,
        since: float | None,
        until: float | None,
    ) -> DocumentFilter:
        """Return a filter that lets nothing pass which the caller may not see."""
        if self._caller.customer is not None:
            customer = self._caller.customer_for(customer)
        return document_filter(customer, state, kind, reason, since, until)

    def page(self, filter: DocumentFilter, before: str | None, limit: int) -> VisiblePage:
        """Read a page, newest first: older than the document `before`, or from where the last page ended. It may be short."""
        following = None if before is None else self._number_in(before) or self.get(before).number
        found: list[DocumentRow] = []
        for _ in range(READS_MAX):
            documents, following = read_page(self._engine, filter, following, limit - len(found))
            found += documents
            if len(found) == limit or following is None:
                break
        return VisiblePage(found, None if following is None else self.cursor(following))

    def cursor(self, number: int) -> str:
        """Return a number as the caller may see it, to go on from."""
        return self._cursors.encode(self._caller.customer, number)

    def _number_in(self, cursor: str) -> int | None:
        """Return the number in a cursor; None: it is an id of a document, which is never digits alone, or nothing."""
        return self._cursors.decode(self._caller.customer, cursor)

    def submitted_before(self, cursor: str) -> int | None:
        """Read when the caller's newest document below a cursor was submitted: how far a search has come."""
        own = DocumentFilter(customer=self._caller.customer)
        document = next(walk_documents(self._engine, own, self._number_in(cursor), page_size=1), None)
        return None if document is None else document.submitted_ms

    def result(self, id: str) -> str:
        """Read the result as JSON text."""
        document = self.get(id)
        if document.state != "done":
            why = f": {document.reason}" if document.reason else ""
            raise WrongState(f"document {id} has no result: it is {document.state}{why}; only a document that is done has one")
        body = self._engine.body(id)
        if body is None:
            raise nothing_here()
        return "null" if body.result is None else body.result

    def file(self, id: str) -> tuple[File, BinaryIO]:
        """Open the file that was submitted, after checking its hash, and say what it is."""
        self.get(id)
        return self._queue.input(id), self._queue.file(id)

    def payload(self, id: str) -> tuple[File | None, Any]:
        """Read what is known of the file that was submitted, if there is one, and the payload."""
        self.get(id)
        body = self._engine.body(id)
        if body is None:
            raise nothing_here()
        return unwrap_payload(json.loads(body.payload))

    def text(self, id: str) -> str:
        """Read the extracted text."""
        self.get(id)
        return self._queue.text(id)

    def thumbnail(self, id: str) -> bytes:
        self.get(id)
        return self._queue.thumbnail(id)

    def progress(self, id: str) -> Progress | None:
        """Read what the handler has reported so far."""
        self.get(id)
        return self._queue.progress(id)

    def explain(self, id: str) -> dict[str, Any]:
        """Explain the priority, how much is ahead, and about when it is served."""
        self.get(id)
        explanation = self._queue.explain(id, for_customer=not self._caller.sees_all)
        return {"sentence": explanation.sentence, **explanation.facts}

    def steps(self, id: str) -> list[dict[str, Any]]:
        """Read the steps of a document; what they returned is for staff."""
        self.get(id)
        steps = self._queue.steps(id)
        return [step._asdict() if self._caller.sees_all else step._replace(result=None)._asdict() for step in steps]

    def parts(self, id: str) -> list[DocumentRow]:
        """Read the parts into which a document was split last, in order."""
        self.get(id)
        return [part.document for part in self._engine.parts(id)]

    def cancel(self, id: str) -> DocumentRow:
        """End a document that has not ended."""
        self.get(id)
        is_cancelled = self._queue.cancel(id)
        document = self.get(id)
        if not is_cancelled:
            raise WrongState(f"document {id} is {document.state}; only one that has not ended can be cancelled")
        return document

    def retry(self, id: str) -> DocumentRow:
        """Give a failed document another round of attempts; for a customer that is a check, as for a new document."""
        self.get(id)
        self._queue.retry(id, as_customer=not self._caller.sees_all)
        return self.get(id)

    def prioritize(self, id: str, priority: int) -> DocumentRow:
        """Set the priority of a waiting document by hand; for operators."""
        self._refuse_customers()
        self.get(id)
        self._queue.prioritize(id, priority)
        return self.get(id)

    def prioritize_all(self, priority: int, filter: DocumentFilter, cursor: str | None, is_dry_run: bool) -> BulkStep:
        """Set the priority of the next waiting documents that match, or count them; for operators."""
        self._refuse_customers()
        return self._bulk("prioritize", priority, filter, cursor, is_dry_run)

    def _refuse_customers(self) -> None:
        if not self._caller.sees_all:
            raise nothing_here()

    def bulk(self, action: Action, filter: DocumentFilter, cursor: str | None, is_dry_run: bool) -> BulkStep:
        """Cancel or retry the next documents that match, or count them."""
        return self._bulk(action, None, filter, cursor, is_dry_run)

    def _bulk(
        self, action: Action, priority: int | None, filter: DocumentFilter, cursor: str | None, is_dry_run: bool
    ) -> BulkStep:
        number = None if cursor is None else self._number_in(cursor)
        if cursor is not None and number is None:
            raise bad_value("cursor", cursor, "what a step gave as start or next")
        start, as_customer = None if number is None else str(number), not self._caller.sees_all
        change = BulkChange(action, priority, actor_name(self._caller.actor("")), as_customer)
        step = audited_bulk(self._queue, change, filter, start, is_dry_run=is_dry_run)
        following = None if step.next is None else self.cursor(int(step.next))
        return step._replace(start=self.cursor(int(step.start)), next=following)

    # -- details for people --------------------------------------------------------------------------------------------

    def file_info(self, document: DocumentRow) -> FileInfo:
        """Read what a document's file is called and how large it is."""
        return file_info(self._engine, self._visible(document))

    def check_context(self, document: DocumentRow) -> CheckContext:
        """Read the rules, the customer and the document before, by which a check is explained."""
        same_customer = DocumentFilter(customer=self._visible(document).customer)
        previous = next(walk_documents(self._engine, same_customer, document.number, page_size=1), None)
        return CheckContext(self._engine.rules(), self._engine.customer(document.customer), previous)

    def changes(self, document: DocumentRow) -> list[ChangeRow]:
        """Read a document's changes, oldest first, as far as the feed still has them; customers see no worker's name."""
        changes = changes_of(self._engine, self._visible(document))
        if self._caller.sees_all:
            return changes
        return [change._replace(note=None) if change.what in WORKER_EVENTS else without_actor(change) for change in changes]

    def history(self, id: str) -> list[HistoryEntry]:
        """Read what happened to a document, with the public names of events; customers see no worker's name."""
        entries = history_of(self._engine, self.get(id))
        return [
            entry._replace(
                event=EVENT_NAMES.get(entry.event, entry.event),
                worker=entry.worker if self._caller.sees_all else None,
                by=entry.by if self._caller.sees_all else None,
            )
            for entry in entries
        ]

    def _visible(self, document: DocumentRow) -> DocumentRow:
        if not self._caller.may_see(document.customer):
            raise nothing_here()
        return document


def file_info(engine: Engine, document: DocumentRow) -> FileInfo:
    """Read what a document's file is called and how large it is, on behalf of the service itself."""
    body = engine.body(document.id)
    file, payload = unwrap_payload(None if body is None else json.loads(body.payload))
    if file is not None:
        return FileInfo(file.name, file.size)
    path = payload.get("path") if isinstance(payload, dict) else None
    return FileInfo(PurePosixPath(path).name if isinstance(path, str) else None, None)


def is_id(value: str) -> bool:
    """Whether this can be an id at all; what cannot be is not looked up."""
    return 0 < len(value) <= 64 and value.isascii() and value.isprintable()
