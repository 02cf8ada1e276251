"""Batches: the ids of documents that were submitted together, kept as records.

The ids are written down before the documents are submitted, each document with an idempotency key that follows from the batch:
a sender that was cut off sends the batch again with its key, and finds what was accepted instead of doubling it. Files are
stored under the ids of their documents, so with files it is the other way round: the documents are submitted first, and the
ids they got are written down then; the keys find them if the server died in between.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from itertools import takewhile
from typing import NamedTuple

from fairlane.api.auth import Caller, time_ms
from fairlane.api.problems import Problem, nothing_here
from fairlane.api.webhooks import webhook_of
from fairlane.core.document import ENDED, WAITING, DocumentRow, State
from fairlane.core.errors import KeyConflict
from fairlane.engine import Engine
from fairlane.engine.limits import refuse_full
from fairlane.engine.protocol import RECORD_BYTES_MAX, DocumentFilter
from fairlane.engine.walk import walk_documents
from fairlane.queue import Queue, new_ids

from .documents import is_id

GROUP = "batches"
TO_CHECK = "batches to check"  # by batch: it was written down after its documents, which may have ended before that
WATCHED = "batch ends"  # by batch: the index of a document that has not ended; null: the end of the batch was recorded
PAGE = 100


class BatchRecord(NamedTuple):
    """Documents that were submitted together."""

    id: str
    customer: str
    digest: str
    made_ms: int
    documents: tuple[str, ...]
    key: str | None = None  # the sender's idempotency key

    @property
    def watch_key(self) -> str:
        """The key under which its end is watched: a batch that was purged may come again under the same id."""
        return f"{self.id}/{self.made_ms}"

    def to_json(self) -> str:
        """Encode the record; refused if it is larger than a record may be."""
        value = json.dumps({name: field for name, field in self._asdict().items() if name != "id"})
        if len(value) > RECORD_BYTES_MAX:
            raise Problem("too-large", "too many documents in one batch; send them in several")
        return value

    @classmethod
    def from_json(cls, id: str, value: str) -> BatchRecord:
        fields = json.loads(value)
        return cls(**{**fields, "id": id, "documents": tuple(fields["documents"])})


class BatchProgress(NamedTuple):
    """How far a batch is."""

    batch: BatchRecord
    counts: dict[State, int]
    missing: int  # purged, or never submitted because the sender was cut off
    expected_in: float | None
    members: list[DocumentRow]  # those that exist, in the order of the batch

    @property
    def ended(self) -> int:
        return sum(self.counts.get(state, 0) for state in ENDED) + self.missing


class BatchAccess:
    """Reads and writes of batches on behalf of a caller."""

    def __init__(self, queue: Queue, caller: Caller) -> None:
        self._queue = queue
        self._engine = queue.engine
        self._caller = caller

    def get(self, id: str) -> BatchRecord:
        """Read a batch, if the caller may see it."""
        batch = self._read(id) if is_id(id) else None
        if batch is None or not self._caller.may_see(batch.customer):
            raise nothing_here()
        return batch

    def progress(self, id: str) -> BatchProgress:
        """Count a batch by state, and estimate when the last of it begins."""
        batch = self.get(id)
        members = _members(self._engine, batch)
        counts = dict(Counter(document.state for document in members))
        waiting = [document for document in members if document.state in WAITING]
        last = max(waiting, key=lambda document: (document.priority, document.number), default=None)
        expected_in = None if last is None else self._queue.explain(last.id).facts["expected_in"]
        if last is None and any(document.state not in ENDED for document in members):
            expected_in = 0.0
        positions = {id: position for position, id in enumerate(batch.documents)}
        in_order = sorted(members, key=lambda document: positions[document.id])
        return BatchProgress(batch, counts, len(batch.documents) - len(members), expected_in, in_order)

    def find(self, text: str, customer: str | None) -> BatchRecord | None:
        """Find a batch by its id or, where the customer is known, by the key it was sent with; None: there is none."""
        for id in (text.casefold(), batch_id(customer, text) if customer and text else ""):
            batch = self._read(id) if is_id(id) else None
            if batch is not None and self._caller.may_see(batch.customer) and customer in (None, batch.customer):
                return batch
        return None

    def of(self, document: DocumentRow) -> BatchRecord | None:
        """Read the batch that a document came with; its idempotency key tells which."""
        id, separator, _ = (document.key or "").rpartition("/")
        batch = self._read(id) if separator and is_id(id) else None
        if batch is None or batch.customer != document.customer or document.id not in batch.documents:
            return None  # anybody may choose a key with a slash
        return batch if self._caller.may_see(batch.customer) else None

    def ended_ms(self, id: str) -> int | None:
        """Return when the last document of a batch ended; None: some have not."""
        batch = self.get(id)
        members = _members(self._engine, batch)
        if any(document.ended_ms is None for document in members):
            return None
        return max((document.ended_ms or 0 for document in members), default=batch.made_ms)

    def create(self, batch: BatchRecord, key: str | None, size: int) -> tuple[BatchRecord, bool]:
        """Write a batch down; if it is there already, that one counts, and the second value says that it is a repeat.

        A new one of a customer that cannot take so many documents and bytes more is refused, and not written down.
        """
        if self._read(batch.id) is None:
            refuse_full(self._engine.customer(batch.customer), len(batch.documents), size)
        if self._engine.put_record(GROUP, batch.id, batch.to_json(), 0) is not None:
            return batch, False
        known = self._read(batch.id)
        if known is None or known.digest != batch.digest:
            raise _conflict(batch, key)
        return known, True

    def refuse_conflict(self, batch: BatchRecord, key: str | None) -> None:
        """Refuse a batch that cannot be written down, or whose key was used for another one."""
        batch.to_json()
        known = self._read(batch.id)
        if known is not None and known.digest != batch.digest:
            raise _conflict(batch, key)

    def put(self, batch: BatchRecord) -> None:
        """Write down a batch whose documents are submitted, unless that was done when it first came."""
        while self._engine.put_record(GROUP, batch.id, batch.to_json(), 0) is None:
            record = self._engine.record(GROUP, batch.id)
            if record is None or BatchRecord.from_json(batch.id, record.value).documents == batch.documents:
                break
            if self._engine.put_record(GROUP, batch.id, batch.to_json(), record.version) is not None:
                break  # the documents it named were purged, and it was submitted again
        if webhook_of(self._engine, batch.customer) is not None:
            self._engine.put_record(TO_CHECK, batch.id, "null")

    def _read(self, id: str) -> BatchRecord | None:
        return batch_by_id(self._engine, id)


def batch_id(customer: str, key: str | None) -> str:
    """Make the id of a batch: a random one, or the one that follows from its key, so that a repeat finds it."""
    return new_ids(1)[0] if key is None else hashlib.sha256(f"{customer}\n{key}".encode()).hexdigest()[:32]


def batch_by_id(engine: Engine, id: str) -> BatchRecord | None:
    """Read a batch on behalf of the service itself."""
    record = engine.record(GROUP, id) if id else None
    return None if record is None else BatchRecord.from_json(id, record.value)


def count_states(engine: Engine, batch: BatchRecord) -> tuple[dict[State, int], int]:
    """Count a batch's documents by state, and those that are not there any more."""
    members = _members(engine, batch)
    return dict(Counter(document.state for document in members)), len(batch.documents) - len(members)


def _conflict(batch: BatchRecord, key: str | None) -> KeyConflict:
    return KeyConflict(batch.customer, key or "", f"batch {batch.id}")


def _members(engine: Engine, batch: BatchRecord) -> list[DocumentRow]:
    """Read the documents of a batch that still exist; they are neighbours among those of their customer."""
    ends = [document for id in (batch.documents[0], batch.documents[-1]) if (document := engine.document(id)) is not None]
    if len(ends) < 2:  # some were purged: read one by one
        return [document for id in batch.documents if (document := engine.document(id)) is not None]
    first, last = ends
    ids = set(batch.documents)
    walk = walk_documents(engine, DocumentFilter(customer=batch.customer), last.number + 1, page_size=len(ids))
    return [document for document in takewhile(lambda each: each.number >= first.number, walk) if document.id in ids]


def forget_batches(engine: Engine, older_seconds: float) -> None:
    """Remove old batches none of whose documents is left."""
    after = ""
    while page := engine.records(GROUP, after, PAGE):
        after = page[-1].key
        for record in page:
            batch = BatchRecord.from_json(record.key, record.value)
            is_old = batch.made_ms < time_ms() - older_seconds * 1000
            if is_old and all(engine.document(id) is None for id in batch.documents):
                engine.put_record(WATCHED, batch.watch_key, None)
                engine.put_record(GROUP, record.key, None, record.version)
