"""What becomes of a body that was sent? Documents for the queue, checked as the library checks them.

Laws:
- The same key with the same body is the same document, over HTTP and with the library.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from fairlane.core.document import Submission, validate_text
from fairlane.queue import DEFAULT_KIND, new_ids
from fairlane.queue.validation import Common, cost_of, payload_text

from .access import Batch
from .auth import Caller
from .problems import Problem, bad_value
from .service import Service

FIELDS = frozenset(("payload", "kind", "cost", "delay", "customer"))
BATCH_FIELDS = frozenset(("documents", "kind", "delay", "customer"))
MEMBER_FIELDS = frozenset(("payload", "cost"))
KEY_MAX = 200


def parsed(body: bytes) -> Any:
    """A body as JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:  # a UnicodeDecodeError is a ValueError
        raise Problem("bad-request", f"the body is not JSON: {str(error)[:200]}") from None


def idempotency_key(told: bytes | None) -> str | None:
    """The header, as text."""
    if told is None:
        return None
    try:
        return validate_text("Idempotency-Key", told.decode(), KEY_MAX)
    except UnicodeDecodeError:
        raise bad_value("Idempotency-Key", told, "text in UTF-8") from None


def fields_of(told: Any, known: frozenset[str], what: str) -> dict[str, Any]:
    """An object with known members only."""
    if type(told) is not dict:
        raise bad_value(what, told, "an object with members such as payload")
    if not told.keys() <= known:
        unknown = sorted(told.keys() - known)[0]
        raise Problem("bad-value", f"{what} has a member {unknown[:60]!r} that is not known; known: {', '.join(sorted(known))}")
    return told


def common_of(service: Service, caller: Caller, told: dict[str, Any]) -> Common:
    """Whose documents, of which kind, from when on."""
    customer = service.wall.customer(caller, told.get("customer"))
    kind = validate_text("kind", told.get("kind", DEFAULT_KIND), 100)
    service.refuse_kind(caller, kind)
    return Common.checked(customer, kind, 1, told.get("delay", 0), None)


def submission(common: Common, id: str, told: dict[str, Any], key: str | None) -> Submission:
    """One document."""
    return common.submission(id, payload_text(told.get("payload")), key, cost_of(told.get("cost", 1)))


def one_document(service: Service, caller: Caller, body: bytes, key: str | None) -> Submission:
    """The document that a JSON body describes."""
    told = fields_of(parsed(body), FIELDS, "the body")
    return submission(common_of(service, caller, told), new_ids(1)[0], told, key)


def batch_of(service: Service, caller: Caller, body: bytes, key: str | None, now_ms: int) -> tuple[Batch, list[Submission]]:
    """The batch that a JSON body describes; with a key its id follows from the key, so that a repeat finds it."""
    told = fields_of(parsed(body), BATCH_FIELDS, "the body")
    common = common_of(service, caller, told)
    listed, most = told.get("documents"), service.limits.batch_documents
    if type(listed) is not list or not 1 <= len(listed) <= most:
        shown = f"a list of {len(listed):,}" if type(listed) is list else listed
        raise bad_value("documents", shown, f"a list of 1 to {most:,} documents")
    members = [fields_of(one, MEMBER_FIELDS, f"document {place} of the batch") for place, one in enumerate(listed)]
    id = batch_id(common.customer, key)
    ids = new_ids(len(members))
    submissions = [
        submission(common, document, one, f"{id}/{place}")
        for place, (document, one) in enumerate(zip(ids, members, strict=True))
    ]
    return made_batch(id, submissions, now_ms), submissions


def batch_id(customer: str, key: str | None) -> str:
    """The id of a batch: a new one, or the one that follows from its key."""
    return new_ids(1)[0] if key is None else hashlib.sha256(f"{customer}\n{key}".encode()).hexdigest()[:32]


def made_batch(id: str, submissions: list[Submission], now_ms: int) -> Batch:
    """A batch of these documents."""
    whole = "\n".join(f"{one.digest} {one.cost}" for one in submissions)
    ids = tuple(one.id for one in submissions)
    return Batch(id, submissions[0].customer, hashlib.sha256(whole.encode()).hexdigest(), now_ms, ids)
