"""The bounds of the rules, in random worlds: how long a newcomer waits for its turn, and how long anything waits at all.

A world has customers, kinds, priorities, weights, retries, pauses, limits of kinds, and workers that ask for different sets of
kinds; turns are paid in steps or, with `trued`, corrected when an attempt ends. The rule before this one breaks both bounds in
these worlds: the last test shows that they can fail.
"""

from __future__ import annotations

from random import Random

import pytest

from fairlane.core.dispatch import KindSet
from fairlane.core.lanes import Lane, Lanes, Turn

KINDS = ("a", "b", "c")
SETS: tuple[KindSet, ...] = (None, ("a",), ("b",), ("c",), ("a", "b"), ("b", "c"), ("a", "b", "c"))
PRICES = (1000, 1000, 1000, 500, 2000, 10, 7, 333, 100_000)
Key = tuple[str, str, int]


class OneClockLanes(Lanes):
    """The rule before: one clock a priority, moved by open turns too, one tag, and one count of dispatches."""

    def clocks_of(self, lane: Lane) -> tuple[int, int]:
        return self.clocks[lane.priority], self.clocks[lane.priority]

    def next(self, kinds: KindSet = None) -> Turn | None:
        self.dispatches[kinds] = max(self.dispatches.values(), default=0)
        return super().next(kinds)

    def take(self, turn: Turn, price: int) -> bool:
        super().take(turn._replace(is_open=False), price)
        self.dispatches = dict.fromkeys(self.dispatches, turn.dispatch_number)
        return True


class Newcomer:
    """A lane that gained a head and owes nothing: how many turns of its priority it sees before its own."""

    def __init__(self, lane: Lane, others: set[Key]) -> None:
        assert lane.head is not None
        self.number, self.priority, self.kind = lane.head, lane.priority, lane.kind
        self.others = others  # lanes that may have one turn before it
        self.seen = 0


class World:
    """One random world, and by how much its bounds were exceeded at worst."""

    def __init__(self, dice: Random, make: type[Lanes], *, trued: bool = False, plain: bool = False) -> None:
        self.dice, self.plain = dice, plain
        self.every = dice.choice((4, 16, 16))
        self.lanes = make("fair", self.every)
        self.kinds = KINDS[: dice.randint(1, 3)]
        possible = [kinds for kinds in SETS if kinds is None or set(kinds) <= set(self.kinds)]
        self.sets = dice.sample(possible, dice.randint(1, len(possible)))
        self.priorities, self.customers = dice.randint(1, 2), dice.randint(2, 14)
        self.prices = {f"c{number}": dice.choice(PRICES) for number in range(self.customers)}
        self.trued = trued
        self.running: list[tuple[Lane, int]] = []
        self.last_number = 0
        self.kind_of: dict[int, str] = {}  # by number
        self.taken: list[tuple[int, Lane]] = []
        self.blocked: set[str] = set()
        self.newcomers: dict[Key, Newcomer] = {}
        self.waiting: dict[
            int, list[int]
        ] = {}  # number: how many were ready before it, dispatches to workers of its kind since
        self.worst_newcomer = self.worst_wait = -(10**9)
        self.newcomers_seen = 0

    def run(self, steps: int) -> World:
        for _ in range(steps):
            competing = {key for key, lane in self.lanes.lanes.items() if lane.start is not None}
            while self.running and self.dice.random() < 0.7:
                self._true_up(*self.running.pop(self.dice.randrange(len(self.running))))
            act = self.dice.random()
            if act < 0.45:
                self._submit()
            elif act < 0.9 or self.plain:
                self._claim()
            elif act < 0.95 and self.taken:
                number, lane = self.taken.pop(self.dice.randrange(len(self.taken)))
                self.lanes.add(number, lane.customer, lane.kind, lane.priority, self.last_number + 1)
            else:
                self._block()
            self._drop_newcomers()
            self._note_newcomers(competing)
        return self

    def _submit(self) -> None:
        for _ in range(self.dice.choice((1, 1, 2, 12))):
            self.last_number += 1
            customer = f"c{self.dice.randrange(self.customers)}"
            kind, priority = self.dice.choice(self.kinds), self.dice.randint(1, self.priorities)
            self.waiting[self.last_number], self.kind_of[self.last_number] = [len(self.waiting), 0], kind
            self.lanes.add(self.last_number, customer, kind, priority, self.last_number)

    def _claim(self) -> None:
        kinds = self.dice.choice(self.sets)
        for _ in range(self.dice.choice((1, 1, 1, 5, 40))):
            turn = self.lanes.next(kinds)
            if turn is None:
                return
            self._measure(turn)
            price = self.prices[turn.lane.customer]
            if self.lanes.take(turn, price) and self.trued:
                self.running.append((turn.lane, price))
            self.taken.append((turn.number, turn.lane))
            self._drop_newcomers()

    def _measure(self, turn: Turn) -> None:
        lane, kinds = turn.lane, turn.kinds
        for number, wait in self.waiting.items():
            if kinds is None or self.kind_of[number] in kinds:
                wait[1] += 1
        if self.plain:
            before, dispatches = self.waiting.pop(turn.number)
            sets = sum(1 for each in self.sets if each is None or lane.kind in each)
            bound = self.every * (before + 1) + (self.every - 1) * (sets - 1)
            self.worst_wait = max(self.worst_wait, dispatches - bound)
        else:
            self.waiting.pop(turn.number, None)
        newcomer = self.newcomers.pop((lane.customer, lane.kind, lane.priority), None)
        if newcomer is not None and newcomer.number == turn.number:
            self.worst_newcomer = max(self.worst_newcomer, newcomer.seen - len(newcomer.others))
        for other in self.newcomers.values():
            if not turn.is_open and other.priority == lane.priority and (kinds is None or other.kind in kinds):
                other.seen += 1

    def _true_up(self, lane: Lane, paid: int) -> None:
        self.lanes.true_up(
            lane.customer, lane.kind, lane.priority, self.dice.choice((1 - paid, 1 - paid // 2, 0, paid, 9 * paid))
        )
        self.newcomers.pop((lane.customer, lane.kind, lane.priority), None)  # it owed something after all

    def _block(self) -> None:
        name = self.dice.choice([*self.prices, *self.kinds])
        verb = "unblock" if name in self.blocked else "block"
        getattr(self.lanes, f"{verb}_kind" if name in self.kinds else verb)(name)
        self.blocked ^= {name}

    def _drop_newcomers(self) -> None:
        for key, newcomer in list(self.newcomers.items()):
            lane = self.lanes.lanes[key]
            if lane.start is None or lane.head != newcomer.number:
                del self.newcomers[key]

    def _note_newcomers(self, competing_before: set[Key]) -> None:
        competing = {key: lane for key, lane in self.lanes.lanes.items() if lane.start is not None}
        for key, lane in competing.items():
            kind_clock, clock = self.lanes.clocks_of(lane)
            if key not in competing_before and lane.finish <= kind_clock and lane.cross_finish <= clock:
                others = {other for other in competing if other[2] == lane.priority and other != key}
                self.newcomers[key] = Newcomer(lane, others)
                self.newcomers_seen += 1
        for newcomer in self.newcomers.values():  # a lane that comes back later with a lower number may go first
            newcomer.others |= {
                key for key, lane in competing.items() if key[2] == newcomer.priority and (lane.head or 0) < newcomer.number
            }


@pytest.mark.parametrize("trued", [False, True], ids=["steps", "time"])
@pytest.mark.parametrize("seed", range(4))
def test_a_lane_that_owes_nothing_has_its_turn_after_at_most_one_of_each_lane_there(seed: int, trued: bool) -> None:
    dice = Random(seed)
    worlds = [World(dice, Lanes, trued=trued).run(dice.randint(50, 300)) for _ in range(20)]
    assert max(world.worst_newcomer for world in worlds) <= 0
    assert sum(world.newcomers_seen for world in worlds) > 500


@pytest.mark.parametrize("trued", [False, True], ids=["steps", "time"])
@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_load_a_ready_document_is_served_after_sixteen_times_those_before_it(seed: int, trued: bool) -> None:
    dice = Random(seed)
    worlds = [World(dice, Lanes, trued=trued, plain=True).run(dice.randint(50, 300)) for _ in range(10)]
    assert -(10**9) < max(world.worst_wait for world in worlds) <= 0


def dispatches_until_served(make: type[Lanes]) -> int:
    """Two workers of one kind each take turns; light customers never end: dispatches to the first until an old document."""
    lanes = make("fair", 16)
    lanes.add(0, "old", "a", 9, 0)
    for dispatch in range(1, 1000):
        lanes.add(2 * dispatch, f"a{dispatch}", "a", 1, dispatch)
        lanes.add(2 * dispatch + 1, f"b{dispatch}", "b", 1, dispatch)
        for kind in ("a", "b"):
            turn = lanes.next((kind,))
            assert turn is not None
            lanes.take(turn, 1000)
            if turn.number == 0:
                return dispatch
    return 1000


def test_workers_of_other_kinds_take_away_no_open_turns() -> None:
    assert dispatches_until_served(Lanes) == 16


def test_the_rule_before_this_one_breaks_both_bounds() -> None:
    dice = Random(1)
    assert max(World(dice, OneClockLanes).run(300).worst_newcomer for _ in range(40)) > 0
    assert dispatches_until_served(OneClockLanes) == 1000
