"""The rows that a transaction keeps in hand, and the small looks that writers and readers share."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from fairlane.core.policy import Rules, Standing, Terms
from fairlane.engine.codec import decode_rules, decode_terms

from .queries import Execute, sql

rules_of = lru_cache(maxsize=8)(decode_rules)
_terms_from_json = lru_cache(maxsize=1024)(decode_terms)


class Account:
    """A customer's row: where it stands."""

    __slots__ = ("id", "number", "standing")

    def __init__(self, number: int, id: str, *standing: int) -> None:
        self.number = number
        self.id = id
        self.standing = Standing(*standing)


class Lane:
    """A lane's row: its head and tags, and how many of its documents wait, run and have ended."""

    __slots__ = (
        "cancelled", "customer", "done", "failed", "finish", "head", "head_ready_ms", "kind", "priority", "running", "start",
        "stored_place", "waiting",
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
        self.waiting, self.running, self.done, self.failed, self.cancelled = counts or (0, 0, 0, 0, 0)
        self.stored_place = self.place() if counts else None  # None: the row is not there yet

    def place(self) -> tuple[int | None, ...]:
        """What the indexes of lanes are made of."""
        return self.head, self.head_ready_ms, self.start, self.finish

    def counts(self) -> tuple[int, ...]:
        return self.waiting, self.running, self.done, self.failed, self.cancelled

    def name(self) -> tuple[int, str, int]:
        return self.customer, self.kind, self.priority


class Priority:
    """A priority's row: its clock, and what is ready in how many lanes."""

    __slots__ = ("clock", "lanes", "ready")

    def __init__(self, clock: int, ready: int, lanes: int) -> None:
        self.clock = clock
        self.ready = ready
        self.lanes = lanes


class OwnTerms(NamedTuple):
    """What a customer has of its own; version 0: nothing."""

    version: int
    terms: Terms


NO_TERMS = OwnTerms(0, Terms())


def own_terms(execute: Execute, customer: int) -> OwnTerms:
    """The terms that hold for a customer now."""
    row = execute(sql.read_terms, (customer,)).fetchone()
    return NO_TERMS if row is None else OwnTerms(row[0], _terms_from_json(row[1]))


def current_rules(execute: Execute) -> Rules:
    """The rules that hold now; parsed once a version."""
    version, body = execute(sql.rules_body).fetchone()
    return rules_of(body, version)


def competing_kinds(execute: Execute) -> list[str]:
    """The kinds that have a lane which competes, by hopping through the index."""
    kinds = [""]
    while row := execute(sql.next_kind, (kinds[-1],)).fetchone():
        kinds.append(row[0])
    return kinds[1:]
