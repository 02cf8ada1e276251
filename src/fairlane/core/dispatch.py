"""Dispatch order: lanes, tags, open turns, caps and pauses, without a clock or a store.

Laws:
- A lane is one customer's ready documents of one priority and one kind, by submission number.
- Only heads compete, and only those of lanes that are not blocked: a lane competes while it has a start tag.
- The next document is the top of a heap of heads: O(log lanes), whatever the number of waiting documents.
- Every claim is a turn and is paid for; a payment is never refunded.
- Under `strict` every start tag is 0 and no tag moves, so the same order reads "priority, then number".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from .policy import LEVELS_MAX, Dispatch

HeapEntry = tuple[int, int, int]
Heaps = dict[str | None, list[HeapEntry]]  # by kind; None: all kinds


def is_open_turn(dispatch_number: int, open_turn_every: int) -> bool:
    """Return whether this dispatch takes the document that has been ready longest."""
    return open_turn_every > 0 and dispatch_number % open_turn_every == 0


def is_blocked(paused: bool, cap: int | None, running: int) -> bool:
    """Return whether a customer's lanes must not compete now."""
    return paused or (cap is not None and running >= cap)


def start_tag(dispatch: Dispatch, clock: int, finish: int) -> int:
    """Return the start tag of a lane that gains a head or is unblocked."""
    return 0 if dispatch == "strict" else max(clock, finish)


def pay_turn(dispatch: Dispatch, clock: int, start: int, finish: int, step: int) -> tuple[int, int, int]:
    """Charge a lane for its turn; return the priority's clock, the lane's finish tag and the start tag of its next head."""
    if dispatch == "strict":
        return clock, finish, 0
    return max(clock, start), start + step, start + step


class Lane:
    """One customer's ready documents of one priority and kind."""

    __slots__ = ("customer", "finish", "head", "kind", "order", "priority", "ready", "start")

    def __init__(self, customer: str, kind: str, priority: int) -> None:
        self.customer = customer
        self.kind = kind
        self.priority = priority
        self.ready: dict[int, int] = {}  # submission number: ready since, in milliseconds
        self.order: list[int] = []  # a heap of those numbers, and of some that have left
        self.head: int | None = None
        self.start: int | None = None  # None: does not compete
        self.finish = 0

    def find_head(self) -> None:
        """Set the head to the lowest number that is still ready."""
        while self.order and self.order[0] not in self.ready:
            heappop(self.order)
        self.head = self.order[0] if self.order else None


class Turn(NamedTuple):
    """The document that the next dispatch takes."""

    number: int
    lane: Lane
    dispatch_number: int
    is_open: bool


class Lanes:
    """The index of lane heads: which lanes compete, and in which order."""

    def __init__(self, dispatch: Dispatch = "fair", open_turn_every: int = 16) -> None:
        self.dispatch: Dispatch = dispatch
        self.open_turn_every = open_turn_every
        self.dispatches = 0
        self.clocks = [0] * (LEVELS_MAX + 1)
        self.lanes: dict[tuple[str, str, int], Lane] = {}
        self._lane_of: dict[int, Lane] = {}
        self._lanes_of: dict[str, list[Lane]] = {}
        self._blocked: set[str] = set()
        self._competing: dict[str | None, int] = {None: 0}  # kind: how many lanes
        self._turns: Heaps = {None: []}  # of (priority, start, number)
        self._open_turns: Heaps = {None: []}  # of (0, ready since, number)

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

    def next(self, kinds: Iterable[str] | None = None) -> Turn | None:
        """Return what the next dispatch would take, without taking it."""
        number = self.dispatches + 1
        is_open = self.dispatch == "fair" and is_open_turn(number, self.open_turn_every)
        heaps, is_current = (self._open_turns, self._is_current_open) if is_open else (self._turns, self._is_current)
        tops: list[HeapEntry] = []
        for heap in (heaps.get(kind, []) for kind in ((None,) if kinds is None else kinds)):
            while heap and not is_current(heap[0]):
                heappop(heap)
            tops += heap[:1]
        best = min(tops)[-1] if tops else None
        return None if best is None else Turn(best, self._lane_of[best], number, is_open)

    def take(self, turn: Turn, step: int) -> None:
        """Take a turn that `next` returned, and charge its lane."""
        self.dispatches = turn.dispatch_number
        lane = self._remove(turn.number)
        assert lane.start is not None
        clock, lane.finish, start = pay_turn(self.dispatch, self.clocks[lane.priority], lane.start, lane.finish, step)
        self.clocks[lane.priority] = clock
        lane.find_head()
        self._set_start(lane, None if lane.head is None else start)

    def block(self, customer: str) -> None:
        """Take the customer's lanes out of the competition."""
        if customer in self._blocked:
            return
        self._blocked.add(customer)
        for lane in self.of_customer(customer):
            self._set_start(lane, None)

    def unblock(self, customer: str) -> None:
        """Let the customer's lanes compete again, owed nothing and owing no more than their last turn."""
        if customer not in self._blocked:
            return
        self._blocked.remove(customer)
        for lane in self.of_customer(customer):
            if lane.start is None:
                self._update_head(lane)

    def configure(self, dispatch: Dispatch, open_turn_every: int) -> None:
        """Change the dispatch from the next claim on; all lanes start level."""
        self.open_turn_every = open_turn_every
        if dispatch == self.dispatch:
            return
        self.dispatch = dispatch
        for lane in self.lanes.values():
            if lane.start is not None:
                self._set_start(lane, start_tag(dispatch, self.clocks[lane.priority], lane.finish))

    def forget(self, customer: str) -> None:
        """Delete the customer's lanes, which must be empty, and their tags."""
        for lane in self._lanes_of.pop(customer, ()):
            del self.lanes[lane.customer, lane.kind, lane.priority]
        self._blocked.discard(customer)

    def set_tags(self, customer: str, kind: str, priority: int, start: int | None, finish: int) -> None:
        """Restore the tags of a lane that was moved from another store; it competes if it did there."""
        lane = self.lanes.get((customer, kind, priority)) or self._new_lane(customer, kind, priority)
        lane.finish = finish
        self._set_start(lane, None if lane.head is None else start)

    def _new_lane(self, customer: str, kind: str, priority: int) -> Lane:
        lane = self.lanes[customer, kind, priority] = Lane(customer, kind, priority)
        self._lanes_of.setdefault(customer, []).append(lane)
        if kind and kind not in self._turns:
            self._turns[kind], self._open_turns[kind], self._competing[kind] = [], [], 0
        return lane

    def _remove(self, number: int) -> Lane:
        lane = self._lane_of.pop(number)
        del lane.ready[number]
        return lane

    def _update_head(self, lane: Lane) -> None:
        """Give a lane that gains a head a start tag; a lane whose head was replaced keeps its own."""
        if lane.head is None or lane.customer in self._blocked:
            self._set_start(lane, None)
        elif lane.start is None:
            self._set_start(lane, start_tag(self.dispatch, self.clocks[lane.priority], lane.finish))
        else:
            self._set_start(lane, lane.start)

    def _set_start(self, lane: Lane, start: int | None) -> None:
        """Set the start tag and push the head onto the heaps; entries that became stale are skipped when they surface."""
        change, lane.start = (start is not None) - (lane.start is not None), start
        for kind in (lane.kind, None) if lane.kind else (None,):
            self._competing[kind] += change
            if start is not None and lane.head is not None:
                self._push(self._turns, kind, (lane.priority, start, lane.head), self._is_current)
                self._push(self._open_turns, kind, (0, lane.ready[lane.head], lane.head), self._is_current_open)

    def _push(self, heaps: Heaps, kind: str | None, entry: HeapEntry, is_current: Callable[[HeapEntry], bool]) -> None:
        heap = heaps[kind]
        if len(heap) > 64 + 4 * self._competing[kind]:  # mostly stale: rebuild, or the heap grows with every block and unblock
            heap[:] = set(filter(is_current, heap))
            heapify(heap)
        heappush(heap, entry)

    def _is_current(self, entry: HeapEntry) -> bool:
        priority, start, number = entry
        lane = self._lane_of.get(number)
        return lane is not None and lane.head == number and lane.start == start and lane.priority == priority

    def _is_current_open(self, entry: HeapEntry) -> bool:
        _, ready_ms, number = entry
        lane = self._lane_of.get(number)
        return lane is not None and lane.head == number and lane.start is not None and lane.ready[number] == ready_ms
