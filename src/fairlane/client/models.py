"""The values in a server's responses; those that a store gives too are the queue's own classes.

Laws:
- Unknown members are ignored, so that responses may grow. A missing member is an error, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeVar

from fairlane.core.document import State
from fairlane.core.errors import StoreError
from fairlane.core.policy import CustomerLimits, Policy, Rules, Terms
from fairlane.queue.audit import Actor, AuditEntry
from fairlane.queue.bulk import BulkStep
from fairlane.queue.models import (
    Attempt,
    Document,
    HistoryEntry,
    Kind,
    Look,
    Progress,
    Receipt,
    RunningDocument,
    WorkerStatus,
    to_datetime,
)
from fairlane.queue.validation import Cost

T = TypeVar("T")
DURATIONS = ("expected_in", "oldest_wait", "resets_in", "running_for", "silent_for")  # in seconds


class BatchReceipt(NamedTuple):
    """A batch that was accepted; `documents` in the order of submission."""

    id: str
    customer: str
    documents: tuple[Receipt, ...]


class Batch(NamedTuple):
    """How far a batch is."""

    id: str
    customer: str
    made_at: datetime
    documents: tuple[str, ...]
    counts: Mapping[State, int]
    missing: int  # purged since
    progress: float  # the share that has ended
    is_ended: bool
    expected_in: timedelta | None  # until about the start of its last document; None: not known


class Me(NamedTuple):
    """Whose key this is, and where that customer stands."""

    role: Literal["customer", "viewer", "operator", "admin"]
    permissions: tuple[str, ...]  # what this key may do
    key: str  # the public part of the key
    key_name: str
    key_expires_at: datetime | None
    customer: str | None  # None: staff
    standing: Look | None
    kinds: tuple[str, ...]  # what this key may submit


class KeyInfo(NamedTuple):
    """A key of the service, without its secret."""

    id: str  # its public part
    role: Literal["customer", "viewer", "operator", "admin"]
    customer: str | None
    scopes: tuple[str, ...]  # none: all that its role may do
    name: str
    state: Literal["active", "expired", "revoked"]
    made_at: datetime
    expires_at: datetime | None
    ends_soon: bool
    revoked_at: datetime | None
    replaced_by: str | None  # the id of the key that a rotation made
    last_used_at: datetime | None


class NewKey(NamedTuple):
    """A key that was made; `secret` is what to send, and is not shown again."""

    secret: str
    info: KeyInfo


class UploadTokenInfo(NamedTuple):
    """An upload token, without its secret."""

    id: str  # its public part
    customer: str
    kind: str
    bytes_max: int | None
    cost: Cost
    payload: Any
    state: Literal["unused", "used", "expired"]
    document: str | None  # the id of the one that it was used for
    made_at: datetime
    expires_at: datetime
    no_better_than: int | None = None  # the best priority of its document


class NewUploadToken(NamedTuple):
    """An upload token that was made; `secret` is what the browser sends, and is not shown again."""

    secret: str
    info: UploadTokenInfo


def unexpected_response(problem: str) -> StoreError:
    """Return the error for a response that is not Fairlane's."""
    return StoreError(f"the response is not Fairlane's: {problem}; check that the address is a Fairlane server of this version")


def members(value: Any) -> dict[str, Any]:
    """Return a JSON object, or raise."""
    if not isinstance(value, dict):
        raise unexpected_response("an object was expected")
    return value


def member(value: Any, name: str) -> Any:
    """Return one member of a JSON object, or raise."""
    values = members(value)
    if name not in values:
        raise unexpected_response(f"{name} is missing")
    return values[name]


def parse(kind: type[T], value: Any, **nested: Any) -> T:
    """Make a value of this kind from the members of a JSON object; `nested` members were parsed already."""
    names, optional = kind._fields, kind._field_defaults  # type: ignore[attr-defined]
    values = {**members(value), **nested}
    missing = [name for name in names if name not in values and name not in optional]
    if missing:
        raise unexpected_response(f"{missing[0]} is missing")
    try:
        return kind(**{name: _parse_time(name, values[name]) for name in names if name in values})
    except (OverflowError, ValueError):
        raise unexpected_response("a time is out of range") from None


def _parse_time(name: str, value: Any) -> Any:
    """Return a moment (…_at, at) as a datetime, a duration as a timedelta, and any other member as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if name == "at" or name.endswith("_at"):
        return to_datetime(round(value * 1000))
    return timedelta(seconds=value) if name in DURATIONS else value


def receipt(value: Any) -> Receipt:
    return parse(Receipt, value)


def batch_receipt(value: Any) -> BatchReceipt:
    return parse(BatchReceipt, value, documents=tuple(map(receipt, member(value, "documents"))))


def batch(value: Any) -> Batch:
    return parse(Batch, value, documents=tuple(member(value, "documents")))


def document(value: Any) -> Document:
    progress = members(value).get("progress")
    return parse(Document, value, progress=None if progress is None else parse(Progress, progress))


def attempt(value: Any) -> Attempt:
    return parse(Attempt, value)


def history_entry(value: Any) -> HistoryEntry:
    return parse(HistoryEntry, value)


def bulk_step(value: Any) -> BulkStep:
    return parse(BulkStep, value)


def kind(value: Any) -> Kind:
    return parse(Kind, value)


def look(value: Any) -> Look:
    return parse(Look, value)


def worker(value: Any) -> WorkerStatus:
    documents = tuple(parse(RunningDocument, document) for document in member(value, "documents"))
    kinds = member(value, "kinds")
    return parse(WorkerStatus, value, documents=documents, kinds=None if kinds is None else tuple(kinds))


def me(value: Any) -> Me:
    standing = member(value, "standing")
    lists = {name: tuple(member(value, name)) for name in ("permissions", "kinds")}
    return parse(Me, value, standing=None if standing is None else look(standing), **lists)


def key_info(value: Any) -> KeyInfo:
    return parse(KeyInfo, value, scopes=tuple(member(value, "scopes")))


def new_key(value: Any) -> NewKey:
    return NewKey(member(value, "key"), key_info(value))


def upload_token_info(value: Any) -> UploadTokenInfo:
    return parse(UploadTokenInfo, value)


def new_upload_token(value: Any) -> NewUploadToken:
    return NewUploadToken(member(value, "token"), upload_token_info(value))


def audit_entry(value: Any) -> AuditEntry:
    return parse(AuditEntry, value, who=parse(Actor, member(value, "who")))


def terms(value: Any) -> Terms:
    thresholds = member(value, "thresholds")
    own = {name: member(value, name) for name in ("weight", "cap", "paused", "reset_interval", "reset", "cost_min")}
    return Terms(**own, thresholds=None if thresholds is None else tuple(thresholds), limits=_limits(value))


def rules(value: Any) -> Rules:
    policy = Policy(member(value, "reset_interval"), tuple(member(value, "thresholds")), member(value, "reset"))
    others = {name: member(value, name) for name in ("dispatch", "turns", "open_turn_every", "frozen", "version")}
    return Rules(policy, **others, limits=_limits(value))


def _limits(value: Any) -> CustomerLimits:
    return CustomerLimits(*(member(value, name) for name in CustomerLimits._fields))
