"""What may this caller see and touch? The one layer between the routes and the store.

Laws:
- Every function takes the caller. There is no way to a document, a batch or an event that goes past it.
- What belongs to somebody else and what is not there take the same steps and end in the same answer.
- Customers are told nothing of workers, of other customers, or of how many documents the whole queue has had.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, NamedTuple

from fairlane.core.document import ENDED, WAITING, Document, State, validate_text
from fairlane.core.errors import Unknown, WrongState
from fairlane.engine import Engine
from fairlane.queue import Look, Progress, Queue

from .auth import Caller, wall_ms
from .problems import Problem, nothing_here

BATCHES = "batches"


class Batch(NamedTuple):
    """Documents that were handed in together."""

    id: str
    customer: str
    digest: str
    made_ms: int
    documents: tuple[str, ...]


class Standing(NamedTuple):
    """How far a batch is."""

    batch: Batch
    counts: dict[State, int]
    missing: int  # not there: purged, or never handed in because the sender was cut off
    expected_in: float | None


class Wall:
    """Looks and changes, each on behalf of a caller; every function may block."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    @property
    def _engine(self) -> Engine:
        return self._queue.engine

    @staticmethod
    def customer(caller: Caller, told: str | None) -> str:
        """Whose documents are meant: a customer's own, or those an operator names."""
        if caller.customer is None:
            if told is None:
                raise Problem("bad-value", "customer is missing; an operator's key says for whom: customer=NAME")
            return validate_text("customer", told)
        if told is not None and told != caller.customer:
            raise nothing_here()
        return caller.customer

    # -- documents -----------------------------------------------------------------------------------------------------

    def document(self, caller: Caller, id: str) -> Document:
        """One document, if the caller may see it."""
        if not is_id(id):
            raise nothing_here()
        found = self._engine.document(id)
        if found is None or (caller.customer is not None and found.customer != caller.customer):
            raise nothing_here()
        return found

    def documents(
        self, caller: Caller, customer: str | None, state: State | None, before: str | None, limit: int
    ) -> list[Document]:
        """A page, newest first: those older than the document `before`."""
        if caller.customer is not None:
            customer = self.customer(caller, customer)
        elif customer is not None:
            validate_text("customer", customer)
        number = None if before is None else self.document(caller, before).number
        return self._engine.documents(customer, state, number, limit)

    def result(self, caller: Caller, id: str) -> str:
        """What came out of a document, as JSON text."""
        found = self.document(caller, id)
        if found.state != "done":
            why = f": {found.reason}" if found.reason else ""
            raise WrongState(f"document {id} has no result: it is {found.state}{why}; only a document that is done has one")
        body = self._engine.body(id)
        if body is None:
            raise nothing_here()
        return "null" if body.result is None else body.result

    def text(self, caller: Caller, id: str) -> str:
        """The text that came out of a document."""
        self.document(caller, id)
        return self._queue.text(id)

    def thumbnail(self, caller: Caller, id: str) -> bytes:
        """The picture that came out of a document."""
        self.document(caller, id)
        return self._queue.thumbnail(id)

    def progress(self, caller: Caller, id: str) -> Progress | None:
        """What the handler told so far."""
        self.document(caller, id)
        return self._queue.progress(id)

    def explain(self, caller: Caller, id: str) -> dict[str, Any]:
        """Why this priority, how much is ahead, about when."""
        found = self.document(caller, id)
        told = self._queue.explain(id)
        sentence = told.sentence
        if caller.customer is not None and found.worker:
            sentence = sentence.replace(f"on {found.worker}", "on a worker")
        return {"sentence": sentence, **told.facts}

    def cancel(self, caller: Caller, id: str) -> Document:
        """End a document that has not ended."""
        found = self.document(caller, id)
        if not self._engine.cancel([id]):
            raise WrongState(
                f"document {id} is {self.document(caller, id).state}; only one that has not ended can be cancelled"
            )
        return self.document(caller, found.id)

    def retry(self, caller: Caller, id: str) -> Document:
        """Another round of attempts for a failed document."""
        self.document(caller, id)
        self._queue.retry(id)
        return self.document(caller, id)

    # -- batches -------------------------------------------------------------------------------------------------------

    def batch(self, caller: Caller, id: str) -> Batch:
        """A batch, if the caller may see it."""
        record = self._engine.record(BATCHES, id) if is_id(id) else None
        if record is None:
            raise nothing_here()
        told = json.loads(record.value)
        if caller.customer is not None and told["customer"] != caller.customer:
            raise nothing_here()
        return Batch(id, told["customer"], told["digest"], told["made_ms"], tuple(told["documents"]))

    def batch_standing(self, caller: Caller, id: str) -> Standing:
        """How many of a batch are in which state, and when the last of it is expected to begin."""
        batch = self.batch(caller, id)
        found = self._members(batch)
        counts: dict[State, int] = {}
        for one in found:
            counts[one.state] = counts.get(one.state, 0) + 1
        waiting = [one for one in found if one.state in WAITING]
        last = max(waiting, key=lambda one: (one.priority, one.number), default=None)
        expected_in = None if last is None else self._queue.explain(last.id).facts["expected_in"]
        if last is None and any(one.state not in ENDED for one in found):
            expected_in = 0.0
        return Standing(batch, counts, len(batch.documents) - len(found), expected_in)

    def _members(self, batch: Batch) -> list[Document]:
        """The documents of a batch that are there; they stand side by side among those of their customer."""
        there = [one for id in (batch.documents[0], batch.documents[-1]) if (one := self._engine.document(id)) is not None]
        if len(there) < 2:  # some were purged: no shortcut
            return [one for id in batch.documents if (one := self._engine.document(id)) is not None]
        wanted, before = set(batch.documents), there[-1].number + 1
        members: list[Document] = []
        while before > there[0].number:
            page = self._engine.documents(batch.customer, None, before, len(wanted))
            if not page:
                break
            members += [one for one in page if one.id in wanted]
            before = page[-1].number
        return members

    def forget_batches(self, older_seconds: float) -> None:
        """Upkeep, for nobody: forget old batches none of whose documents is left."""
        after = ""
        while page := self._engine.records(BATCHES, after, 100):
            after = page[-1].key
            for record in page:
                told = json.loads(record.value)
                is_old = told["made_ms"] < wall_ms() - older_seconds * 1000
                if is_old and all(self._engine.document(id) is None for id in told["documents"]):
                    self._engine.put_record(BATCHES, record.key, None, record.version)

    def progress_of(self, running: list[tuple[str, str]]) -> dict[tuple[str, str], Progress]:
        """For the feed, which tells each to its customer: what handlers told of documents that run."""
        found = {}
        for id, customer in running:
            with suppress(Unknown):  # purged meanwhile
                if (progress := self._queue.progress(id)) is not None:
                    found[id, customer] = progress
        return found

    # -- customers -----------------------------------------------------------------------------------------------------

    def look(self, caller: Caller, customer: str) -> Look:
        """Where a customer stands; moves nothing."""
        return self._queue.look(self.customer(caller, customer))


def is_id(told: str) -> bool:
    """Whether this can be the id of anything; what cannot is not looked for."""
    return 0 < len(told) <= 64 and told.isascii() and told.isprintable()
