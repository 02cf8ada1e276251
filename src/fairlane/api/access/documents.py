"""Documents on behalf of a caller: lists, results, explanations, and what happened to each."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from fairlane.api.auth import Caller
from fairlane.api.feed import first_since, newest, read_changes
from fairlane.api.problems import nothing_here
from fairlane.blobs.envelope import unwrap_payload
from fairlane.core.document import ChangeRow, Customer, DocumentRow, State, validate_text
from fairlane.core.errors import WrongState
from fairlane.core.policy import Rules
from fairlane.engine import Engine
from fairlane.queue import Progress, Queue

FEED_PAGE, FEED_PAGES_MAX = 1000, 20


class FileInfo(NamedTuple):
    """A document's file: what its sender calls it, and its size."""

    name: str | None
    size: int | None


class CheckContext(NamedTuple):
    """What a document's check is explained with."""

    rules: Rules
    customer: Customer
    previous: DocumentRow | None  # the customer's document before it


class DocumentAccess:
    """Reads and changes of documents on behalf of a caller."""

    def __init__(self, queue: Queue, caller: Caller) -> None:
        self._queue = queue
        self._engine = queue.engine
        self._caller = caller

    def get(self, id: str) -> DocumentRow:
        """Read one document, if the caller may see it."""
        document = self._engine.document(id) if is_id(id) else None
        if document is None or not self._caller.may_see(document.customer):
            raise nothing_here()
        return document

    def page(self, customer: str | None, state: State | None, before: str | None, limit: int) -> list[DocumentRow]:
        """Read a page, newest first: documents older than the document `before`."""
        if self._caller.customer is not None:
            customer = self._caller.customer_for(customer)
        elif customer is not None:
            validate_text("customer", customer)
        number = None if before is None else self.get(before).number
        return self._engine.documents(customer, state, number, limit)

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
        document = self.get(id)
        explanation = self._queue.explain(id)
        sentence = explanation.sentence
        if self._caller.customer is not None and document.worker:
            sentence = sentence.replace(f"on {document.worker}", "on a worker")
        return {"sentence": sentence, **explanation.facts}

    def cancel(self, id: str) -> DocumentRow:
        """End a document that has not ended."""
        self.get(id)
        is_cancelled = self._engine.cancel([id])
        document = self.get(id)
        if not is_cancelled:
            raise WrongState(f"document {id} is {document.state}; only one that has not ended can be cancelled")
        return document

    def retry(self, id: str) -> DocumentRow:
        """Give a failed document another round of attempts."""
        self.get(id)
        self._queue.retry(id)
        return self.get(id)

    # -- details for people --------------------------------------------------------------------------------------------

    def file_info(self, document: DocumentRow) -> FileInfo:
        """Read what a document's file is called and how large it is."""
        body = self._engine.body(self._visible(document).id)
        file, payload = unwrap_payload(None if body is None else json.loads(body.payload))
        if file is not None:
            return FileInfo(file.name, file.size)
        path = payload.get("path") if isinstance(payload, dict) else None
        return FileInfo(PurePosixPath(path).name if isinstance(path, str) else None, None)

    def check_context(self, document: DocumentRow) -> CheckContext:
        """Read the rules, the customer and the document before, by which a check is explained."""
        before = self._engine.documents(self._visible(document).customer, None, document.number, 1)
        customer = self._engine.customer(document.customer)
        return CheckContext(self._engine.rules(), customer, before[0] if before else None)

    def changes(self, document: DocumentRow) -> list[ChangeRow]:
        """Read a document's changes, oldest first, as far as the feed still has them; customers see no worker's name."""
        changes = _changes_of(self._engine, self._visible(document))
        if self._caller.is_operator:
            return changes
        return [change._replace(note=None) if change.what == "claimed" else change for change in changes]

    def _visible(self, document: DocumentRow) -> DocumentRow:
        if not self._caller.may_see(document.customer):
            raise nothing_here()
        return document


def is_id(value: str) -> bool:
    """Whether this can be an id at all; what cannot be is not looked up."""
    return 0 < len(value) <= 64 and value.isascii() and value.isprintable()


def _changes_of(engine: Engine, document: DocumentRow) -> list[ChangeRow]:
    """Search the feed backwards from the document's end, or from now, and then where it was submitted."""
    end = newest(engine) if document.ended_ms is None else first_since(engine, document.ended_ms + 1)
    known: dict[int, ChangeRow] = {}
    for page in range(FEED_PAGES_MAX):
        after = max(0, end - (page + 1) * FEED_PAGE)
        changes = read_changes(engine, after, FEED_PAGE)
        known |= {change.number: change for change in changes if change.document == document.id}
        if _has_submission(known) or after == 0 or (changes and changes[0].at_ms < document.submitted_ms):
            break
    if not _has_submission(known):
        start = first_since(engine, document.submitted_ms)
        known |= {change.number: change for change in read_changes(engine, start, FEED_PAGE) if change.document == document.id}
    return [change for _, change in sorted(known.items())]


def _has_submission(changes: dict[int, ChangeRow]) -> bool:
    return any(change.what == "submitted" for change in changes.values())
