"""What does a server answer? Its documents, receipts and looks, as values that nobody can change.

Laws:
- Times are seconds since the epoch, durations are seconds.
- Answers may grow: what is not known here is passed over. What is missing is told as an odd answer, never guessed.
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
    """A document that was taken."""

    id: str
    customer: str
    priority: int
    counter: float
    ahead: int  # about how many documents go first
    repeated: bool  # it was taken before, with the same key


@dataclass(frozen=True, slots=True)
class BatchReceipt:
    """A batch that was taken; `documents` in the order they were handed in."""

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
    missing: int  # not there any more: purged
    progress: float  # the share that has ended
    is_ended: bool
    expected_in: float | None  # seconds until the last of it is about to begin; None: cannot be said


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
    reason: str | None  # why it failed, or is tried again
    worker: str | None  # who works on it; only operators are told
    progress: Progress | None = None

    @property
    def is_ended(self) -> bool:
        """Whether it is done, failed or cancelled."""
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


def odd(what: str) -> StoreError:
    """An answer that is not one of Fairlane's."""
    return StoreError(f"the server answered otherwise than Fairlane does: {what}; is it a Fairlane server of this version?")


def members(told: Any) -> dict[str, Any]:
    """An object."""
    if not isinstance(told, dict):
        raise odd("an object was expected")
    return told


def member(told: Any, name: str) -> Any:
    """One member of an object."""
    found = members(told)
    if name not in found:
        raise odd(f"{name} is missing")
    return found[name]


def read(kind: type[T], told: Any, **nested: Any) -> T:
    """A value of this kind from the members of an object; `nested` are those that were read already."""
    wanted = getattr(kind, "_fields", None) or [one.name for one in fields(kind)]  # type: ignore[arg-type]
    optional = getattr(kind, "_field_defaults", None)
    if optional is None:
        optional = {one.name for one in fields(kind) if one.default is not MISSING}  # type: ignore[arg-type]
    given = members(told) | nested
    missing = [name for name in wanted if name not in given and name not in optional]
    if missing:
        raise odd(f"{missing[0]} is missing")
    return kind(**{name: given[name] for name in wanted if name in given})


def receipt(told: Any) -> Receipt:
    return read(Receipt, told)


def batch_receipt(told: Any) -> BatchReceipt:
    return read(BatchReceipt, told, documents=tuple(map(receipt, member(told, "documents"))))


def batch(told: Any) -> Batch:
    return read(Batch, told, documents=tuple(member(told, "documents")))


def document(told: Any) -> Document:
    progress = members(told).get("progress")
    return read(Document, told, progress=None if progress is None else read(Progress, progress))


def look(told: Any) -> Look:
    return read(Look, told)


def me(told: Any) -> Me:
    standing = member(told, "standing")
    return read(Me, told, standing=None if standing is None else look(standing), kinds=tuple(member(told, "kinds")))


def terms(told: Any) -> Terms:
    thresholds = member(told, "thresholds")
    own = {name: member(told, name) for name in ("weight", "cap", "paused", "reset_interval", "reset")}
    return Terms(**own, thresholds=None if thresholds is None else tuple(thresholds))


def rules(told: Any) -> Rules:
    policy = Policy(member(told, "reset_interval"), tuple(member(told, "thresholds")), member(told, "reset"))
    return Rules(policy, member(told, "dispatch"), member(told, "open_turn_every"), member(told, "version"))
