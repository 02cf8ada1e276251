"""The values in a server's responses: documents, receipts, events …, immutable.

Laws:
- Times are seconds since the epoch, durations are seconds.
- Unknown members are ignored, so that responses may grow. A missing member is an error, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, TypeVar

from fairlane.core.document import ENDED, State
from fairlane.core.errors import StoreError
from fairlane.core.policy import Policy, Rules, Terms
from fairlane.queue import Look, Progress

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Receipt:
    """A document that was accepted."""

    id: str
    customer: str
    priority: int
    counter: float
    ahead: int  # about how many documents go first
    repeated: bool  # it was accepted before, with the same key


@dataclass(frozen=True, slots=True)
class BatchReceipt:
    """A batch that was accepted; `documents` in the order of submission."""

    id: str
    customer: str
    documents: tuple[Receipt, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """How far a batch is."""

    id: str
    customer: str
    made_at: float
    documents: tuple[str, ...]
    counts: Mapping[State, int]
    missing: int  # purged since
    progress: float  # the share that has ended
    is_ended: bool
    expected_in: float | None  # seconds until about the start of its last document; None: not known


@dataclass(frozen=True, slots=True)
class Document:
    """A document as it is now."""

    id: str
    customer: str
    kind: str
    state: State
    priority: int
    counter: float
    cost: float
    key: str | None
    submitted_at: float
    ready_at: float
    ended_at: float | None
    attempts: int
    attempts_max: int
    reason: str | None  # why it failed, or is retried
    worker: str | None  # the worker that runs it; shown to operators only
    progress: Progress | None = None

    @property
    def is_ended(self) -> bool:
        """Return whether it is done, failed or cancelled."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True)
class Check:
    """What one check decided."""

    customer: str
    priority: int
    counter: float
    checked_at: float


@dataclass(frozen=True, slots=True)
class Me:
    """Whose key this is, and where that customer stands."""

    role: Literal["customer", "operator"]
    key: str  # the public part of the key
    key_name: str
    key_expires_at: float | None
    customer: str | None  # None: an operator
    standing: Look | None
    kinds: tuple[str, ...]  # what this key may submit


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a document or a customer; `number` is what to resume after."""

    number: int
    event: str  # submitted, started, done, failed, ...
    at: float
    customer: str | None
    document: str | None
    reason: str | None = None


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
    names = getattr(kind, "_fields", None) or [field.name for field in fields(kind)]  # type: ignore[arg-type]
    optional = getattr(kind, "_field_defaults", None)
    if optional is None:
        optional = {field.name for field in fields(kind) if field.default is not MISSING}  # type: ignore[arg-type]
    values = members(value) | nested
    missing = [name for name in names if name not in values and name not in optional]
    if missing:
        raise unexpected_response(f"{missing[0]} is missing")
    return kind(**{name: values[name] for name in names if name in values})


def receipt(value: Any) -> Receipt:
    return parse(Receipt, value)


def batch_receipt(value: Any) -> BatchReceipt:
    return parse(BatchReceipt, value, documents=tuple(map(receipt, member(value, "documents"))))


def batch(value: Any) -> Batch:
    return parse(Batch, value, documents=tuple(member(value, "documents")))


def document(value: Any) -> Document:
    progress = members(value).get("progress")
    return parse(Document, value, progress=None if progress is None else parse(Progress, progress))


def look(value: Any) -> Look:
    return parse(Look, value)


def me(value: Any) -> Me:
    standing = member(value, "standing")
    return parse(Me, value, standing=None if standing is None else look(standing), kinds=tuple(member(value, "kinds")))


def terms(value: Any) -> Terms:
    thresholds = member(value, "thresholds")
    own = {name: member(value, name) for name in ("weight", "cap", "paused", "reset_interval", "reset")}
    return Terms(**own, thresholds=None if thresholds is None else tuple(thresholds))


def rules(value: Any) -> Rules:
    policy = Policy(member(value, "reset_interval"), tuple(member(value, "thresholds")), member(value, "reset"))
    return Rules(policy, member(value, "dispatch"), member(value, "open_turn_every"), member(value, "version"))
