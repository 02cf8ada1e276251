"""Batches: the ids of documents that were submitted together, kept as records.

The ids are written down before the documents are submitted, each document with an idempotency key that follows from the batch:
a sender that was cut off sends the batch again with its key, and finds what was accepted instead of doubling it. Files are
stored under the ids of their documents, so with files it is the other way round: the documents are submitted first, and the
ids they got are written down then; the keys find them if the server died in between.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from fairlane.api.auth import Caller, time_ms
from fairlane.api.problems import Problem, nothing_here
from fairlane.core.document import ENDED, RECORD_BYTES_MAX, WAITING, DocumentRow, State
from fairlane.core.errors import KeyConflict
from fairlane.engine import Engine
from fairlane.queue import Queue

from .documents import is_id

GROUP = "batches"
PAGE = 100


class BatchRecord(NamedTuple):
    """Documents that were submitted together."""

    id: str
    customer: str
    digest: str
    made_ms: int
    documents: tuple[str, ...]

    def to_json(self) -> str:
        """Encode the record; refused if it is larger than a record may be."""
        fields = {"customer": self.customer, "digest": self.digest, "made_ms": self.made_ms, "documents": self.documents}
        value = json.dumps(fields)
        if len(value) > RECORD_BYTES_MAX:
            raise Problem("too-large", "too many documents in one batch; send them in several")
        return value

    @classmethod
    def from_json(cls, id: str, value: str) -> BatchRecord:
        fields = json.loads(value)
        return cls(id, fields["customer"], fields["digest"], fields["made_ms"], tuple(fields["documents"]))


class BatchProgress(NamedTuple):
    """How far a batch is."""

    batch: BatchRecord
    counts: dict[State, int]
    missing: int  # purged, or never submitted because the sender was cut off
    expected_in: float | None

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
        counts: dict[State, int] = {}
        for document in members:
            counts[document.state] = counts.get(document.state, 0) + 1
        waiting = [document for document in members if document.state in WAITING]
        last = max(waiting, key=lambda document: (document.priority, document.number), default=None)
        expected_in = None if last is None else self._queue.explain(last.id).facts["expected_in"]
        if last is None and any(document.state not in ENDED for document in members):
            expected_in = 0.0
        return BatchProgress(batch, counts, len(batch.documents) - len(members), expected_in)

    def create(self, batch: BatchRecord, key: str | None) -> tuple[BatchRecord, bool]:
        """Write a batch down; if it is there already, that one counts, and the second value says that it is a repeat."""
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
                return
            if self._engine.put_record(GROUP, batch.id, batch.to_json(), record.version) is not None:
                return  # the documents it named were purged, and it was submitted again

    def _read(self, id: str) -> BatchRecord | None:
        record = self._engine.record(GROUP, id)
        return None if record is None else BatchRecord.from_json(id, record.value)


def _conflict(batch: BatchRecord, key: str | None) -> KeyConflict:
    return KeyConflict(batch.customer, key or "", f"batch {batch.id}")


def _members(engine: Engine, batch: BatchRecord) -> list[DocumentRow]:
    """Read the documents of a batch that still exist; they are neighbours among those of their customer."""
    ends = [document for id in (batch.documents[0], batch.documents[-1]) if (document := engine.document(id)) is not None]
    if len(ends) < 2:  # some were purged: read one by one
        return [document for id in batch.documents if (document := engine.document(id)) is not None]
    first, last = ends
    ids, before = set(batch.documents), last.number + 1
    members: list[DocumentRow] = []
    while before > first.number:
        page = engine.documents(batch.customer, None, before, len(ids))
        if not page:
            break
        members += [document for document in page if document.id in ids]
        before = page[-1].number
    return members


def forget_batches(engine: Engine, older_seconds: float) -> None:
    """Remove old batches none of whose documents is left."""
    after = ""
    while page := engine.records(GROUP, after, PAGE):
        after = page[-1].key
        for record in page:
            batch = BatchRecord.from_json(record.key, record.value)
            is_old = batch.made_ms < time_ms() - older_seconds * 1000
            if is_old and all(engine.document(id) is None for id in batch.documents):
                engine.put_record(GROUP, record.key, None, record.version)
