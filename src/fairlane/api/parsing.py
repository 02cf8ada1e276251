"""Request bodies in JSON become submissions, validated as the library validates them.

Laws:
- The same key with the same body is the same document, over HTTP and with the library.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from fairlane.api.access.batches import BatchRecord, batch_id
from fairlane.core.document import Submission, validate_text
from fairlane.core.policy import STEP
from fairlane.engine.limits import submission_bytes
from fairlane.queue import DEFAULT_KIND, FILE_KIND, new_ids
from fairlane.queue.validation import SubmitOptions, cost_thousandths, first_kind, make_pipeline, payload_text

from .auth import Caller
from .problems import Problem, bad_value
from .service import Service

FIELDS = frozenset(("payload", "kind", "cost", "delay", "customer", "no_better_than", "steps"))
BATCH_FIELDS = frozenset(("documents", "kind", "delay", "customer", "no_better_than", "steps"))
MEMBER_FIELDS = frozenset(("payload", "cost"))
KEY_MAX = 200


def parse_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:  # a UnicodeDecodeError is a ValueError
        raise Problem("bad-request", f"the body is not JSON: {str(error)[:200]}") from None


def idempotency_key(headers: dict[bytes, bytes]) -> str | None:
    """Return the Idempotency-Key header as text."""
    value = headers.get(b"idempotency-key")
    if value is None:
        return None
    try:
        return validate_text("Idempotency-Key", value.decode(), KEY_MAX)
    except UnicodeDecodeError:
        raise bad_value("Idempotency-Key", value, "text in UTF-8") from None


def parse_document(service: Service, caller: Caller, body: bytes, key: str | None) -> Submission:
    """Return the document that a JSON body describes."""
    fields = _object(parse_json(body), FIELDS, "the body")
    return _submission(_common(service, caller, fields), new_ids(1)[0], fields, key)


def parse_batch(
    service: Service, caller: Caller, body: bytes, key: str | None, now_ms: int
) -> tuple[BatchRecord, list[Submission]]:
    """Return the batch that a JSON body describes."""
    fields = _object(parse_json(body), BATCH_FIELDS, "the body")
    common = _common(service, caller, fields)
    listed, most = fields.get("documents"), service.limits.batch_documents
    if type(listed) is not list or not 1 <= len(listed) <= most:
        value = f"a list of {len(listed):,}" if type(listed) is list else listed
        raise bad_value("documents", value, f"a list of 1 to {most:,} documents")
    members = [_object(member, MEMBER_FIELDS, f"document {index} of the batch") for index, member in enumerate(listed)]
    id = batch_id(common.customer, key)
    ids = new_ids(len(members))
    submissions = [
        _submission(common, document_id, member, f"{id}/{index}")
        for index, (document_id, member) in enumerate(zip(ids, members, strict=True))
    ]
    return make_batch(id, submissions, now_ms, key), submissions


def make_batch(id: str, submissions: list[Submission], now_ms: int, key: str | None) -> BatchRecord:
    """Make the batch of these documents; its digest tells a repeat from another batch with the same key."""
    content = "\n".join(f"{submission.digest} {submission.cost}" for submission in submissions)
    ids = tuple(submission.id for submission in submissions)
    return BatchRecord(id, submissions[0].customer, hashlib.sha256(content.encode()).hexdigest(), now_ms, ids, key)


def _object(value: Any, known: frozenset[str], name: str) -> dict[str, Any]:
    """Return a JSON object; refused if it is none, or has a member that is not known."""
    if type(value) is not dict:
        raise bad_value(name, value, "an object with members such as payload")
    if not value.keys() <= known:
        unknown = sorted(value.keys() - known)[0]
        raise Problem("bad-value", f"{name} has a member {unknown[:60]!r} that is not known; known: {', '.join(sorted(known))}")
    return value


def _common(service: Service, caller: Caller, fields: dict[str, Any]) -> SubmitOptions:
    """Validate what the documents of one request share, which have no files: customer, kind, delay and best priority."""
    customer, steps = caller.customer_for(fields.get("customer")), fields.get("steps")
    kind = first_kind(fields.get("kind"), steps, DEFAULT_KIND)
    for each in steps or [validate_text("kind", kind, 100)]:
        service.refuse_kind(caller, each)
    if kind == FILE_KIND:
        raise Problem(
            "bad-value", f"kind is {kind!r}, which is for documents with a file; send the file, or leave kind out for a payload"
        )
    best, pipeline = fields.get("no_better_than"), make_pipeline(steps, None)
    return SubmitOptions.validate(customer, kind, 1, fields.get("delay", 0), None, best, pipeline)


def cost_of(submissions: Iterable[Submission]) -> float:
    """Return the lowest cost of some documents."""
    return min(submission.cost for submission in submissions) / STEP


def bytes_of(submissions: Iterable[Submission]) -> int:
    """Return how many bytes some documents take."""
    return sum(map(submission_bytes, submissions))


def _submission(common: SubmitOptions, id: str, fields: dict[str, Any], key: str | None) -> Submission:
    return common.submission(
        id, payload_text(fields.get("payload"), common.pipeline), key, cost_thousandths(fields.get("cost", 1))
    )
