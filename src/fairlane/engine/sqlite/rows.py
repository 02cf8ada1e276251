"""Rows of the tables, and the reads of rules and terms that writers and readers share."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from fairlane.core.document import State
from fairlane.core.policy import Rules, Standing, Terms
from fairlane.engine.codec import decode_rules, decode_terms

from .queries import Execute, sql

decode_rules_cached = lru_cache(maxsize=8)(decode_rules)
_decode_terms_cached = lru_cache(maxsize=1024)(decode_terms)

LaneKey = tuple[int, str, int]  # customer number, kind, priority


class StoredCustomer:
    """A customer's counter, and how many of its documents wait or run at most; None: to be counted."""

    __slots__ = ("busy_most", "id", "number", "standing")

    def __init__(
        self,
        number: int,
        id: str,
        counter: int = 0,
        updated_ms: int | None = None,
        reset_ms: int | None = None,
        resets: int = 0,
        busy_most: int | None = 0,
    ) -> None:
        self.number = number
        self.id = id
        self.standing = Standing(counter, updated_ms, reset_ms, resets)
        self.busy_most = busy_most


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

    @property
    def lane_key(self) -> LaneKey:
        return self.customer, self.kind, self.priority


class LaneRow:
    """A lane's head and tags, how many of its documents wait, run and have ended, and what is kept of them."""

    __slots__ = (
        "bytes", "cancelled", "customer", "documents", "done", "failed", "finish", "head", "head_ready_ms", "kind", "priority",
        "running", "start", "stored_position", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        customer: int,
        kind: str,
        priority: int,
        head: int | None = None,
        head_ready_ms: int | None = None,
        start: int | None = None,
        finish: int = 0,
        *counts: int,
    ) -> None:
        self.customer = customer
        self.kind = kind
        self.priority = priority
        self.head = head
        self.head_ready_ms = head_ready_ms
        self.start = start
        self.finish = finish
        self.waiting, self.running, self.done, self.failed, self.cancelled, self.documents, self.bytes = counts or (0,) * 7
        self.stored_position = self.position() if counts else None  # None: the row is not stored yet

    def key(self) -> LaneKey:
        return self.customer, self.kind, self.priority

    def position(self) -> tuple[int | None, ...]:
        """Return the columns that the indexes of lanes are made of."""
        return self.head, self.head_ready_ms, self.start, self.finish

    def counts(self) -> tuple[int, ...]:
        return self.waiting, self.running, self.done, self.failed, self.cancelled, self.documents, self.bytes


class PriorityRow:
    """A priority's clock, and how many documents are ready in how many lanes."""

    __slots__ = ("clock", "lanes", "ready")

    def __init__(self, clock: int, ready: int, lanes: int) -> None:
        self.clock = clock
        self.ready = ready
        self.lanes = lanes


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
