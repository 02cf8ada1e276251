"""Rows of the tables, and the reads of rules and terms that writers and readers share."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import NamedTuple

from fairlane.core.document import State
from fairlane.core.policy import Rules, Standing, Terms
from fairlane.engine.codec import decode_rules, decode_terms

from .kinds import AgeEntry, TurnEntry
from .queries import Execute, sql

decode_rules_cached = lru_cache(maxsize=8)(decode_rules)
_decode_terms_cached = lru_cache(maxsize=1024)(decode_terms)

LaneKey = tuple[int, str, int]  # customer number, kind, priority
Entries = tuple[TurnEntry | None, AgeEntry | None]


class StoredCustomer:
    """A customer's counter, and how many of its documents wait or run at most; None: to be counted."""

    __slots__ = ("busy_most", "id", "number", "standing")

    def __init__(
        self,
        number: int,
        id: str,
        counter: int = 0,
        updated_ms: int | None = None,
        resets: int = 0,
        busy_most: int | None = 0,
        parts: str | None = None,
    ) -> None:
        self.number = number
        self.id = id
        kept = tuple((start, sent) for start, sent in json.loads(parts)) if parts else ()
        self.standing = Standing(counter, updated_ms, resets, kept)
        self.busy_most = busy_most

    def columns(self) -> tuple[object, ...]:
        """Return the columns that a check changes."""
        counter, updated_ms, resets, parts = self.standing
        return counter, updated_ms, resets, json.dumps(parts) if parts else None, self.busy_most


class TransitionRow(NamedTuple):
    """The columns of a document that a change of its state needs (the view `moving`)."""

    number: int
    id: str
    customer: int
    kind: str
    state: State
    priority: int
    token: int
    attempts: int
    attempts_max: int
    cost: int
    weight: int
    resets: int
    key: str | None
    lease_ms: int | None
    bytes: int | None  # None: not counted yet
    root: int | None
    customer_id: str
    checked_ms: int
    claimed_ms: int | None
    paid: int | None
    whole: str | None
    parts_left: int

    @property
    def lane_key(self) -> LaneKey:
        return self.customer, self.kind, self.priority


class EndedRelative(NamedTuple):
    """A part or a whole that ended, in its new state."""

    number: int
    id: str
    state: State
    whole: str | None
    parts_left: int
    reason: str | None


class LaneRow:
    """A lane's head and tags, how many of its documents wait, run and have ended, and what is kept of them."""

    __slots__ = (
        "bytes", "cancelled", "cross", "cross_finish", "customer", "documents", "done", "failed", "finish", "head",
        "head_ready_ms", "kind", "priority", "running", "start", "stored_head", "stored_tags", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        customer: int,
        kind: str,
        priority: int,
        head: int | None = None,
        head_ready_ms: int | None = None,
        start: int | None = None,
        cross: int | None = 0,
        finish: int = 0,
        cross_finish: int | None = 0,
        *counts: int,
    ) -> None:
        self.customer = customer
        self.kind = kind
        self.priority = priority
        self.head = head
        self.head_ready_ms = head_ready_ms
        self.start = start
        self.cross = cross or 0
        self.finish = finish
        self.cross_finish = cross_finish or 0
        self.waiting, self.running, self.done, self.failed, self.cancelled, self.documents, self.bytes = counts or (0,) * 7
        self.stored_head = self.head_position() if counts else None  # None: the row is not stored yet
        self.stored_tags = self.tags()

    def key(self) -> LaneKey:
        return self.customer, self.kind, self.priority

    def head_position(self) -> tuple[int | None, ...]:
        """Return what the index by age is made of: whether it competes, and its head."""
        return (None if self.start is None else 1), self.head, self.head_ready_ms

    def tags(self) -> tuple[int | None, ...]:
        return self.start, self.cross, self.finish, self.cross_finish

    def entries(self, head_position: tuple[int | None, ...] | None, tags: tuple[int | None, ...]) -> Entries:
        """Return its entries among the lanes of its kind, in the order of turns and by age, at that position."""
        if head_position is None or head_position[0] is None:
            return None, None
        _, head, ready_ms = head_position
        return (self.priority, tags[0], tags[1], head), (ready_ms, head)  # type: ignore[return-value]

    def counts(self) -> tuple[int, ...]:
        return self.waiting, self.running, self.done, self.failed, self.cancelled, self.documents, self.bytes


class PriorityRow:
    """A priority's clock, how many documents are ready in how many lanes, and how many were taken after they had waited."""

    __slots__ = ("clock", "lanes", "ready", "taken")

    def __init__(self, clock: int, ready: int, lanes: int, taken: int) -> None:
        self.clock = clock
        self.ready = ready
        self.lanes = lanes
        self.taken = taken


class TermsRow(NamedTuple):
    """A customer's terms; version 0: it has none of its own."""

    version: int
    terms: Terms


NO_TERMS = TermsRow(0, Terms())


def read_terms(execute: Execute, customer: int) -> TermsRow:
    """Return the terms that hold for a customer now."""
    row = execute(sql.read_terms, (customer,)).fetchone()
    return NO_TERMS if row is None else TermsRow(row[0], _decode_terms_cached(row[1]))


def read_rules(execute: Execute) -> Rules:
    """Return the rules that hold now; each version is parsed once."""
    version, body = execute(sql.read_rules).fetchone()
    return decode_rules_cached(body, version)
