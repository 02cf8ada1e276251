"""The kinds of a queue in a file: their clocks, their limits, and which of their lanes is first.

A claim for all kinds reads the index of kinds, not all their lanes. Each row has the kind's first lane in the order of turns
and its head that was ready first; they follow the lanes as these are written.

A kind at its limit is blocked as a whole: its lanes stay in their index, and nothing is written for each of them. Its own
clock stands still meanwhile, so start tags stay as they are; cross tags count as no less than the floor, which is the clock
of the priority at the moment when the kind was unblocked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any

from fairlane.core.dispatch import Bucket, is_kind_blocked
from fairlane.core.policy import LEVELS_MAX, KindLimit
from fairlane.engine.protocol import KindRow

from .queries import Execute, sql

TurnEntry = tuple[int, int, int, int]  # priority, start tag, cross tag, head
AgeEntry = tuple[int, int]  # ready since, head
NO_FIRST, NO_OLDEST = (None,) * 4, (None,) * 2
NEW_KIND = (json.dumps([0] * LEVELS_MAX), None, 0, 0, None, 0, 0, None, *NO_FIRST, *NO_OLDEST)


def decode_limit(text: str | None) -> KindLimit:
    """Return the limit of a kind from its JSON; None stands for no limit."""
    return KindLimit() if text is None else KindLimit(**json.loads(text))


def encode_limit(limit: KindLimit) -> str:
    return json.dumps({"running": limit.running, "rate": limit.rate, "burst": limit.burst})


class StoredKind:
    """A kind's row."""

    __slots__ = (
        "blocked", "bucket", "clocks", "first", "floors", "kind", "limit", "limits", "oldest", "running", "stored", "version",
    )  # fmt: skip

    def __init__(self, kind: str, row: tuple[Any, ...] | None) -> None:
        self.kind = kind
        self.stored = row
        clocks, limits, version, running, tokens, tokens_ms, blocked, floors, *firsts = row or NEW_KIND
        self.clocks: list[int] = json.loads(clocks)
        self.limits: str | None = limits
        self.limit = decode_limit(limits)
        self.version: int = version
        self.running: int = running
        self.bucket = Bucket(tokens, tokens_ms)
        self.blocked = bool(blocked)
        self.floors: list[int] | None = json.loads(floors) if floors else None
        self.first: TurnEntry | None = None if firsts[3] is None else tuple(firsts[:4])
        self.oldest: AgeEntry | None = None if firsts[5] is None else tuple(firsts[4:])

    def row(self) -> tuple[object, ...]:
        """Return the columns after its name."""
        floors = None if self.floors is None else json.dumps(self.floors)
        return (
            json.dumps(self.clocks), self.limits, self.version, self.running, *self.bucket, int(self.blocked), floors,
            *(self.first or NO_FIRST), *(self.oldest or NO_OLDEST),
        )  # fmt: skip

    @property
    def is_limited(self) -> bool:
        """Whether it has, or had, a limit."""
        return self.limits is not None

    def cross(self, priority: int, cross: int) -> int:
        """Return a cross tag as it counts."""
        return cross if self.floors is None else max(cross, self.floors[priority - 1])

    def public(self) -> KindRow:
        return KindRow(self.kind, self.limit, self.version, self.running, self.bucket.next_start_ms(self.limit))


def read_kind(execute: Execute, kind: str) -> StoredKind:
    """Return a kind; one that is not stored is returned as such."""
    return StoredKind(kind, execute(sql.read_kind, (kind,)).fetchone())


def heads_in_turn(execute: Execute, kind: StoredKind) -> Iterator[tuple[int, int, int, int, int]]:
    """Iterate over the heads of a kind in the order of ordinary turns: priority, start tag, cross tag, number, customer."""
    if kind.floors is None:
        yield from execute(sql.heads_by_turn, (kind.kind,))
        return
    group = (0, -1)
    while row := execute(sql.next_start, (kind.kind, *group)).fetchone():
        group = row
        floor = kind.floors[group[0] - 1]
        lifted = execute(sql.heads_below_floor, (floor, kind.kind, *group, floor))
        yield from chain(lifted, execute(sql.heads_above_floor, (kind.kind, *group, floor)))


class Kinds:
    """The kinds that a transaction has read, written back by `write`."""

    def __init__(self, execute: Execute) -> None:
        self._execute = execute
        self._read: dict[str, StoredKind] = {}
        self._stale: set[str] = set()  # kinds whose first lane or oldest head must be read again

    def get(self, kind: str) -> StoredKind:
        """Return a kind, to be changed: it is written by `write`."""
        row = self._read.get(kind)
        if row is None:
            row = self._read[kind] = read_kind(self._execute, kind)
        return row

    def limited(self) -> list[StoredKind]:
        """Return the kinds that have, or had, a limit."""
        return [self.get(kind) for (kind,) in self._execute(sql.read_limited_kinds).fetchall()]

    def lane_moved(
        self, kind: str, before: tuple[TurnEntry | None, AgeEntry | None], after: tuple[TurnEntry | None, AgeEntry | None]
    ) -> None:
        """Follow a lane that is written in another position."""
        row = self.get(kind)
        if (row.first is not None and before[0] == row.first) or (row.oldest is not None and before[1] == row.oldest):
            self._stale.add(kind)
        if row.floors is not None:
            self._stale.add(kind)
        if after[0] is not None and (row.first is None or after[0] < row.first):
            row.first = after[0]
        if after[1] is not None and (row.oldest is None or after[1] < row.oldest):
            row.oldest = after[1]

    def refresh(self) -> None:
        """Read the first lane and the oldest head of kinds again where they may have gone; lanes must be written."""
        for kind in self._stale:
            row = self._read[kind]
            first = next(heads_in_turn(self._execute, row), None)
            row.first = None if first is None else first[:4]
            row.oldest = self._execute(sql.first_by_age, (kind,)).fetchone()
        self._stale.clear()

    def reread(self, kind: str) -> None:
        """Have the first lane of a kind read again, as its floors have changed."""
        self._stale.add(kind)

    def write(self) -> None:
        """Write the kinds that have changed."""
        self.refresh()
        for row in self._read.values():
            columns = row.row()
            if columns != row.stored:
                self._execute(sql.write_kind, (row.kind, *columns))
                row.stored = columns


def is_blocked_now(kind: StoredKind, now_ms: int) -> bool:
    """Return whether a kind is at its limit."""
    return is_kind_blocked(kind.limit, kind.running, kind.bucket, now_ms)
