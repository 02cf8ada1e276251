"""Lanes: which of them compete, and in which order, on heaps.

Laws:
- A lane is one customer's ready documents of one priority and one kind, by submission number.
- Only heads compete, and only those of lanes that are not blocked: a lane competes while it has a start tag.
- Of one kind the lowest (priority, start tag, cross tag, number) is first. Between kinds their first lanes compare by
  (priority, cross tag, number). With one kind both tags are the same.
- The next document is the top of a heap of heads: O(log lanes), whatever the number of waiting documents.
- Under `strict` every tag is 0 and none moves, so the same order reads "priority, then number".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from .dispatch import KindSet, is_open_turn, pay_turn, true_up
from .policy import LEVELS_MAX, Dispatch

HeapEntry = tuple[int, ...]


class Lane:
    """One customer's ready documents of one priority and kind."""

    __slots__ = ("cross", "cross_finish", "customer", "finish", "head", "kind", "order", "priority", "ready", "start")

    def __init__(self, customer: str, kind: str, priority: int) -> None:
        self.customer = customer
        self.kind = kind
        self.priority = priority
        self.ready: dict[int, int] = {}  # submission number: ready since, in milliseconds
        self.order: list[int] = []  # a heap of those numbers, and of some that have left
        self.head: int | None = None
        self.start: int | None = None  # None: does not compete
        self.cross = 0  # between kinds
        self.finish = self.cross_finish = 0

    def find_head(self) -> None:
        """Set the head to the lowest number that is still ready."""
        while self.order and self.order[0] not in self.ready:
            heappop(self.order)
        self.head = self.order[0] if self.order else None

    def entry(self) -> HeapEntry | None:
        """Return its entry among the lanes of its kind; None: it does not compete."""
        if self.start is None or self.head is None:
            return None
        return self.priority, self.start, self.cross, self.head


class Turn(NamedTuple):
    """The document that the next dispatch takes."""

    number: int
    lane: Lane
    kinds: KindSet
    dispatch_number: int  # of this set of kinds
    is_open: bool


class Lanes:
    """The index of lane heads: which lanes compete, and in which order."""

    def __init__(self, dispatch: Dispatch = "fair", open_turn_every: int = 16) -> None:
        self.dispatch: Dispatch = dispatch
        self.open_turn_every = open_turn_every
        self.dispatches: dict[KindSet, int] = {}
        self.clocks = [0] * (LEVELS_MAX + 1)
        self.kind_clocks: dict[tuple[int, str], int] = {}
        self.lanes: dict[tuple[str, str, int], Lane] = {}
        self._lane_of: dict[int, Lane] = {}
        self._lanes_of: dict[str, list[Lane]] = {}
        self._lanes_of_kind: dict[str, dict[Lane, None]] = {}
        self._blocked: set[str] = set()
        self._blocked_kinds: set[str] = set()
        self._heads: dict[str, _Heap] = {}  # by kind: entries of lanes
        self._ages: dict[str | None, _Heap] = {None: _Heap(self._is_oldest)}  # by kind, None: all; (ready since, number)
        self._firsts = _Heap(self._is_first)  # (priority, cross tag, number) of each kind's first lane
        self._first: dict[str, HeapEntry | None] = {}

    def add(self, number: int, customer: str, kind: str, priority: int, ready_ms: int) -> None:
        """Add a ready document to its lane, ordered by submission number."""
        lane = self.lanes.get((customer, kind, priority)) or self._new_lane(customer, kind, priority)
        lane.ready[number] = ready_ms
        heappush(lane.order, number)
        self._lane_of[number] = lane
        head_before = lane.head
        lane.find_head()
        if lane.head != head_before:
            self._update_head(lane)

    def discard(self, number: int) -> None:
        """Remove a waiting document without serving it."""
        lane = self._remove(number)
        if lane.head == number:
            lane.find_head()
            self._update_head(lane)
        elif len(lane.order) > 64 + 2 * len(lane.ready):  # mostly stale: rebuild, or cancelled documents pile up in memory
            lane.order = sorted(lane.ready)

    def of_customer(self, customer: str) -> Sequence[Lane]:
        """Return the lanes that a customer ever had a document in."""
        return self._lanes_of.get(customer, ())

    def next(self, kinds: KindSet = None) -> Turn | None:
        """Return what the next dispatch of this set of kinds would take, without taking it."""
        number = self.dispatches.get(kinds, 0) + 1
        is_open = self.dispatch == "fair" and is_open_turn(number, self.open_turn_every)
        if is_open:
            ages = (self._ages[kind] for kind in ((None,) if kinds is None else kinds) if kind in self._ages)
            best = min(filter(None, (age.top() for age in ages)), default=None)
        elif kinds is None:
            best = self._firsts.top()
        else:
            best = min(filter(None, (self._first.get(kind) for kind in kinds)), default=None)
        return None if best is None else Turn(best[-1], self._lane_of[best[-1]], kinds, number, is_open)

    def oldest_ready_ms(self) -> int | None:
        """Return since when the head that has been ready longest is ready; None: no head competes."""
        oldest = self._ages[None].top()
        return None if oldest is None else oldest[0]

    def take(self, turn: Turn, price: int) -> bool:
        """Take a turn that `next` returned, and charge its lane; return whether it paid."""
        self.dispatches[turn.kinds] = turn.dispatch_number
        lane = self._remove(turn.number)
        lane.find_head()
        if self.dispatch == "strict":
            self._set_tags(lane, None if lane.head is None else 0, 0)
            return False
        assert lane.start is not None
        kind_clock, clock = self.clocks_of(lane)
        paid = pay_turn(kind_clock, clock, lane.start, lane.cross, price, turn.is_open)
        self.kind_clocks[lane.priority, lane.kind], self.clocks[lane.priority] = paid.kind_clock, paid.clock
        lane.finish, lane.cross_finish = paid.finish, paid.cross_finish
        self._set_tags(lane, None if lane.head is None else lane.finish, lane.cross_finish)
        return paid.is_paid

    def true_up(self, customer: str, kind: str, priority: int, delta: int) -> None:
        """Charge a lane what one of its turns cost more than it paid, or return what it cost less."""
        lane = self.lanes.get((customer, kind, priority))
        if lane is None or self.dispatch == "strict":
            return
        kind_clock, clock = self.clocks_of(lane)
        if lane.start is not None:
            lane.finish, lane.cross_finish = lane.start, lane.cross
        lane.finish, lane.cross_finish = true_up(lane.finish, kind_clock, delta), true_up(lane.cross_finish, clock, delta)
        if lane.start is not None:
            self._set_tags(lane, lane.finish, lane.cross_finish)

    def clocks_of(self, lane: Lane) -> tuple[int, int]:
        """Return the clock of a lane's priority and kind, and that of its priority."""
        return self.kind_clocks.get((lane.priority, lane.kind), 0), self.clocks[lane.priority]

    def block(self, customer: str) -> None:
        """Take the customer's lanes out of the competition."""
        if customer not in self._blocked:
            self._blocked.add(customer)
            for lane in self.of_customer(customer):
                self._update_head(lane)

    def unblock(self, customer: str) -> None:
        """Let the customer's lanes compete again, owed nothing and owing no more than before."""
        if customer in self._blocked:
            self._blocked.remove(customer)
            for lane in self.of_customer(customer):
                self._update_head(lane)

    def block_kind(self, kind: str) -> None:
        """Take the lanes of a kind out of the competition."""
        if kind not in self._blocked_kinds:
            self._blocked_kinds.add(kind)
            for lane in self._lanes_of_kind.get(kind, ()):
                self._update_head(lane)

    def unblock_kind(self, kind: str) -> None:
        """Let the lanes of a kind compete again."""
        if kind in self._blocked_kinds:
            self._blocked_kinds.remove(kind)
            for lane in self._lanes_of_kind.get(kind, ()):
                self._update_head(lane)

    def level(self, dispatch: Dispatch) -> None:
        """Change the dispatch from the next claim on; all lanes start level."""
        self.dispatch = dispatch
        for lane in self.lanes.values():
            lane.finish, lane.cross_finish = self.clocks_of(lane)
            if lane.start is not None:
                self._set_tags(lane, *self._start_tags(lane))

    def forget(self, customer: str) -> None:
        """Delete the customer's lanes, which must be empty, and their tags."""
        for lane in self._lanes_of.pop(customer, ()):
            del self.lanes[lane.customer, lane.kind, lane.priority], self._lanes_of_kind[lane.kind][lane]
        self._blocked.discard(customer)

    def tags(self, lane: Lane) -> tuple[int | None, int, int, int]:
        """Return the tags of a lane for another store, where its kind is at no limit until the next claim; finish tags that
        are not above their clocks are forgotten."""
        start, cross = lane.start, lane.cross
        if start is None and lane.head is not None and lane.customer not in self._blocked:
            start, cross = self._start_tags(lane)
        kind_clock, clock = self.clocks_of(lane)
        is_level = lane.finish <= kind_clock and lane.cross_finish <= clock
        finishes = (0, 0) if is_level else (lane.finish, lane.cross_finish)
        return start, 0 if start is None else cross, *finishes

    def restore(self, customer: str, kind: str, priority: int, tags: tuple[int | None, int, int, int]) -> None:
        """Restore the tags of a lane that was moved from another store; it competes if it did there."""
        lane = self.lanes.get((customer, kind, priority)) or self._new_lane(customer, kind, priority)
        start, cross, lane.finish, lane.cross_finish = tags
        self._set_tags(lane, None if lane.head is None else start, cross)

    def _new_lane(self, customer: str, kind: str, priority: int) -> Lane:
        lane = self.lanes[customer, kind, priority] = Lane(customer, kind, priority)
        self._lanes_of.setdefault(customer, []).append(lane)
        self._lanes_of_kind.setdefault(kind, {})[lane] = None
        if kind not in self._heads:
            self._heads[kind], self._ages[kind] = _Heap(self._is_head), _Heap(self._is_oldest)
            self._first[kind] = None
        return lane

    def _remove(self, number: int) -> Lane:
        lane = self._lane_of.pop(number)
        del lane.ready[number]
        return lane

    def _start_tags(self, lane: Lane) -> tuple[int, int]:
        """Return the start tags of a lane that gains a head or is unblocked."""
        if self.dispatch == "strict":
            return 0, 0
        kind_clock, clock = self.clocks_of(lane)
        return max(kind_clock, lane.finish), max(clock, lane.cross_finish)

    def _update_head(self, lane: Lane) -> None:
        """Give a lane that gains a head or is unblocked its start tags; a lane whose head was replaced keeps its own."""
        if lane.head is None or lane.customer in self._blocked or lane.kind in self._blocked_kinds:
            self._set_tags(lane, None, lane.cross)
        elif lane.start is None:
            self._set_tags(lane, *self._start_tags(lane))
        else:
            self._set_tags(lane, lane.start, lane.cross)

    def _set_tags(self, lane: Lane, start: int | None, cross: int) -> None:
        """Set the tags and push the head onto the heaps; entries that became stale are skipped when they surface."""
        lane.start, lane.cross = start, cross
        heads = self._heads[lane.kind]
        if (entry := lane.entry()) is not None:
            heads.push(entry)
            for kind in (lane.kind, None):
                self._ages[kind].push((lane.ready[entry[-1]], entry[-1]))
        first = heads.top()
        if first is not None:
            first = (first[0], *first[2:])
        if first != self._first[lane.kind]:
            self._first[lane.kind] = first
            if first is not None:
                self._firsts.push(first)

    def _is_head(self, entry: HeapEntry) -> bool:
        lane = self._lane_of.get(entry[-1])
        return lane is not None and lane.entry() == entry

    def _is_oldest(self, entry: HeapEntry) -> bool:
        lane = self._lane_of.get(entry[-1])
        if lane is None or lane.start is None or lane.head != entry[-1]:
            return False
        return lane.ready[entry[-1]] == entry[0]

    def _is_first(self, entry: HeapEntry) -> bool:
        lane = self._lane_of.get(entry[-1])
        return lane is not None and self._first[lane.kind] == entry


class _Heap:
    """A heap whose entries may become stale: those are skipped when they surface, and dropped when they are most of it."""

    def __init__(self, is_current: Callable[[HeapEntry], bool]) -> None:
        self._is_current = is_current
        self._entries: list[HeapEntry] = []
        self._rebuild_at = 64

    def push(self, entry: HeapEntry) -> None:
        if len(self._entries) >= self._rebuild_at:
            self._entries = list(set(filter(self._is_current, self._entries)))
            heapify(self._entries)
            self._rebuild_at = 64 + 4 * len(self._entries)
        heappush(self._entries, entry)

    def top(self) -> HeapEntry | None:
        """Return the lowest current entry, without taking it."""
        while self._entries and not self._is_current(self._entries[0]):
            heappop(self._entries)
        return self._entries[0] if self._entries else None
