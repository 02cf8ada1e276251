"""The events that webhooks deliver: how endings of documents and batches become deliveries, and the body of each.

Whether a batch has ended is found without counting: one of its documents that has not ended is remembered, and only when that
one has ended, another one is looked for. So a batch costs about one read for each of its documents.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from fairlane.api.access.batches import WATCHED, BatchRecord, batch_by_id, count_states
from fairlane.api.access.documents import file_info
from fairlane.core.document import ENDED, ChangeRow, DocumentRow
from fairlane.engine import Engine

from .problems import encode_json
from .webhook_deliveries import Delivery, document_event


def change_event(change: ChangeRow) -> Delivery | None:
    """Make the delivery of a change; None: it is not an ending."""
    if change.what not in ENDED or change.customer is None or change.document is None:
        return None
    reason = change.note if change.what != "done" else None
    return document_event(change.customer, change.document, change.what, change.at_ms, reason)


def batch_of(engine: Engine, document: DocumentRow) -> BatchRecord | None:
    """Read the batch that a document was submitted in; its key follows from the batch's id."""
    id, separator, index = (document.key or "").rpartition("/")
    batch = batch_by_id(engine, id) if separator and index.isdecimal() and index.isascii() else None
    if batch is None or batch.customer != document.customer or document.id not in batch.documents:
        return None
    return batch


def has_batch_ended(engine: Engine, batch: BatchRecord) -> bool:
    """Return whether all documents of a batch have ended and no event was made for it; `mark_batch_ended` records it."""
    record = engine.record(WATCHED, batch.watch_key)
    watched = 0 if record is None else json.loads(record.value)
    if watched is None:
        return False
    if record is not None and not _has_ended(engine, batch.documents[watched]):
        return False
    # From the one that was watched backwards, then those after it: documents end about in their order.
    indexes = [*range(watched - 1, -1, -1), *range(len(batch.documents) - 1, watched - 1, -1)]
    left = next((index for index in indexes if not _has_ended(engine, batch.documents[index])), None)
    if left is not None:
        engine.put_record(WATCHED, batch.watch_key, json.dumps(left))
    return left is None


def mark_batch_ended(engine: Engine, batch: BatchRecord) -> None:
    """Record that the event of a batch was made: a retry of one of its documents makes no second one."""
    engine.put_record(WATCHED, batch.watch_key, "null")


def body(engine: Engine, delivery: Delivery) -> bytes:
    """Make the body of a delivery."""
    data = _batch_data(engine, delivery) if delivery.batch is not None else _document_data(engine, delivery)
    at = datetime.fromtimestamp(delivery.at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return encode_json({"type": delivery.type, "timestamp": at, "data": data}).encode()


def _document_data(engine: Engine, delivery: Delivery) -> dict[str, Any]:
    """Describe a document that has ended; of one that was purged meanwhile only what the event says."""
    document = engine.document(delivery.document or "")
    batch = None if document is None else batch_of(engine, document)
    return {
        "id": delivery.document,
        "customer": delivery.customer,
        "state": delivery.type.removeprefix("document."),
        "reason": delivery.reason,
        "kind": None if document is None else document.kind,
        "priority": None if document is None else document.priority,
        "attempts": None if document is None else document.attempts,
        "key": None if document is None else document.key,
        "file_name": None if document is None else file_info(engine, document).name,
        "batch": None if batch is None else batch.id,
        "submitted_at": None if document is None else document.submitted_ms / 1000,
        "ended_at": delivery.at_ms / 1000,
    }


def _batch_data(engine: Engine, delivery: Delivery) -> dict[str, Any]:
    batch = batch_by_id(engine, delivery.batch or "")
    counts, missing = ({}, 0) if batch is None else count_states(engine, batch)
    return {
        "id": delivery.batch,
        "customer": delivery.customer,
        "key": None if batch is None else batch.key,
        "documents": None if batch is None else len(batch.documents),
        "counts": counts,
        "missing": missing,
        "made_at": None if batch is None else batch.made_ms / 1000,
        "ended_at": delivery.at_ms / 1000,
    }


def _has_ended(engine: Engine, id: str) -> bool:
    document = engine.document(id)
    return document is None or document.state in ENDED  # purged ones have ended
