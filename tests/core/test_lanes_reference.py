"""The index of heads against a naive model of the rules, which reads every lane every time and has no heaps."""

from __future__ import annotations

import pickle
from collections import Counter
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.core.dispatch import KindSet, kind_set
from fairlane.core.lanes import Lanes
from fairlane.core.policy import STEP, Dispatch, step_of

FEW = settings(max_examples=30, deadline=None)
KINDS = ("pdf", "zip", "gif")
WEIGHTS = (STEP, 2 * STEP, 500, 10)


class Key(NamedTuple):
    customer: str
    kind: str
    priority: int


class Naive:
    """The rules after the word "Exactly", without any index."""

    def __init__(self, every: int = 16) -> None:
        self.dispatch: Dispatch = "fair"
        self.every = every
        self.dispatches: Counter[KindSet] = Counter()
        self.waiting: dict[int, tuple[Key, int]] = {}  # number: lane, ready at
        self.blocked: set[str] = set()  # customers and kinds
        self.clock: Counter[int] = Counter()
        self.kind_clock: Counter[tuple[int, str]] = Counter()
        self.finish: Counter[Key] = Counter()
        self.cross_finish: Counter[Key] = Counter()
        self.tags: dict[Key, tuple[int, int]] = {}  # start and cross tag of the lanes that compete

    def heads(self) -> dict[Key, int]:
        """The lowest number of every lane that is not blocked."""
        heads: dict[Key, int] = {}
        for number, (key, _) in self.waiting.items():
            if not self.blocked & {key.customer, key.kind}:
                heads[key] = min(number, heads.get(key, number))
        return heads

    def update_tags(self) -> None:
        """Give start tags to every lane that gained a head or was unblocked; take them from those without a head."""
        self.tags = {key: self.tags.get(key) or self.level(key) for key in self.heads()}

    def level(self, key: Key) -> tuple[int, int]:
        if self.dispatch == "strict":
            return 0, 0
        kind_clock, clock = self.kind_clock[key.priority, key.kind], self.clock[key.priority]
        return max(kind_clock, self.finish[key]), max(clock, self.cross_finish[key])

    def next(self, kinds: KindSet) -> tuple[int, int, bool] | None:
        """Number, dispatch number, whether it is an open turn."""
        heads = {key: number for key, number in self.heads().items() if kinds is None or key.kind in kinds}
        dispatch_number = self.dispatches[kinds] + 1
        is_open = self.dispatch == "fair" and self.every > 0 and dispatch_number % self.every == 0
        if not heads:
            return None
        if is_open:
            number = min((self.waiting[number][1], number) for number in heads.values())[-1]
        elif self.dispatch == "strict":
            number = min((key.priority, number) for key, number in heads.items())[-1]
        else:
            firsts: dict[str, tuple[int, ...]] = {}
            for key, number in heads.items():
                place = (key.priority, *self.tags[key], number)
                firsts[key.kind] = min(place, firsts.get(key.kind, place))
            number = min((priority, cross, number) for priority, _, cross, number in firsts.values())[-1]
        return number, dispatch_number, is_open

    def take(self, number: int, kinds: KindSet, price: int) -> bool:
        _, _, is_open = self.next(kinds) or (0, 0, False)
        key, _ = self.waiting.pop(number)
        self.dispatches[kinds] += 1
        if self.dispatch == "strict":
            return False
        (start, cross), kind = self.tags[key], (key.priority, key.kind)
        if not is_open:
            self.kind_clock[kind] = start
            self.clock[key.priority] = max(self.clock[key.priority], cross)
        charge = 0 if is_open and start > self.kind_clock[kind] + price else price
        self.finish[key] = start + charge
        self.cross_finish[key] = max(cross, self.clock[key.priority]) + charge
        self.tags[key] = self.finish[key], self.cross_finish[key]
        return charge > 0

    def true_up(self, key: Key, delta: int) -> None:
        if self.dispatch == "strict":
            return
        if key in self.tags:
            self.finish[key], self.cross_finish[key] = self.tags[key]
        kind_clock, clock = self.kind_clock[key.priority, key.kind], self.clock[key.priority]
        self.finish[key] = max(min(self.finish[key], kind_clock + 1), self.finish[key] + delta)
        self.cross_finish[key] = max(min(self.cross_finish[key], clock + 1), self.cross_finish[key] + delta)
        if key in self.tags:
            self.tags[key] = self.finish[key], self.cross_finish[key]

    def start_level(self, dispatch: Dispatch) -> None:
        self.dispatch = dispatch
        for key in {*self.tags, *self.finish}:
            self.finish[key], self.cross_finish[key] = self.kind_clock[key.priority, key.kind], self.clock[key.priority]
        self.tags.clear()


class Both:
    """Does everything to the index and to the naive model, and compares what comes next."""

    def __init__(self) -> None:
        self.lanes = Lanes()
        self.naive = Naive()
        self.sent = 0
        self.taken: dict[int, Key] = {}

    def do(self, what: str, customer: int, pick: int) -> None:
        getattr(self, what)(f"c{customer}", pick)
        self.naive.update_tags()
        for kinds in (None, (KINDS[pick % 3],), kind_set(KINDS[:2])):
            turn = self.lanes.next(kinds)
            assert (turn and (turn.number, turn.dispatch_number, turn.is_open)) == self.naive.next(kinds)

    def send(self, customer: str, pick: int) -> None:
        self.sent += 1
        self.join(self.sent * 7 % 1000 * 1000 + self.sent, Key(customer, KINDS[pick % 3], 1 + pick // 3 % 3 * 4), pick)

    def come_back(self, customer: str, pick: int) -> None:
        if self.taken:
            number = sorted(self.taken)[pick % len(self.taken)]
            self.join(number, self.taken.pop(number), self.sent + pick)

    def join(self, number: int, key: Key, ready_ms: int) -> None:
        self.lanes.add(number, *key, ready_ms)
        self.naive.waiting[number] = key, ready_ms

    def take(self, customer: str, pick: int) -> None:
        kinds = None if pick % 2 else kind_set(KINDS[: 1 + pick % 3])
        turn = self.lanes.next(kinds)
        if turn is None:
            return
        self.taken[turn.number] = key = self.naive.waiting[turn.number][0]
        step = step_of((1 + pick % 5) * STEP, WEIGHTS[int(key.customer[1:])])
        is_paid = self.naive.take(turn.number, kinds, step)
        assert self.lanes.take(turn, step) is is_paid

    def true_up(self, customer: str, pick: int) -> None:
        if self.taken:
            key = self.taken[sorted(self.taken)[pick % len(self.taken)]]
            self.lanes.true_up(*key, (pick - 30) * 97)
            self.naive.true_up(key, (pick - 30) * 97)

    def cancel(self, customer: str, pick: int) -> None:
        if self.naive.waiting:
            number = sorted(self.naive.waiting)[pick % len(self.naive.waiting)]
            self.lanes.discard(number)
            del self.naive.waiting[number]

    def block(self, customer: str, pick: int) -> None:
        self.lanes.block(customer)
        self.naive.blocked.add(customer)

    def unblock(self, customer: str, pick: int) -> None:
        self.lanes.unblock(customer)
        self.naive.blocked.discard(customer)

    def block_kind(self, customer: str, pick: int) -> None:
        self.lanes.block_kind(KINDS[pick % 3])
        self.naive.blocked.add(KINDS[pick % 3])

    def unblock_kind(self, customer: str, pick: int) -> None:
        self.lanes.unblock_kind(KINDS[pick % 3])
        self.naive.blocked.discard(KINDS[pick % 3])

    def configure(self, customer: str, pick: int) -> None:
        dispatch: Dispatch = "strict" if pick % 4 == 0 else "fair"
        self.lanes.open_turn_every = self.naive.every = (0, 1, 3, 16)[pick % 16 // 4]
        if dispatch != self.lanes.dispatch or pick > 40:
            self.lanes.level(dispatch)
            self.naive.start_level(dispatch)


SELDOM = ("true_up", "true_up", "come_back", "cancel", "block", "unblock", "unblock", "block_kind", "configure")
OFTEN = (*("send", "take") * 8, *("unblock_kind",) * 4, *SELDOM)


@FEW
@given(st.lists(st.tuples(st.sampled_from(OFTEN), st.integers(0, 3), st.integers(0, 47)), min_size=15, max_size=60))
def test_the_index_agrees_with_the_naive_model(events: list[tuple[str, int, int]]) -> None:
    both = Both()
    for event in events:
        both.do(*event)


@pytest.mark.parametrize("seed", range(3))
def test_the_index_agrees_with_the_naive_model_in_a_long_run(seed: int) -> None:
    dice, both = Random(seed), Both()
    for _ in range(1500):
        both.do(dice.choice(OFTEN), dice.randrange(4), dice.randrange(48))
    assert sum(both.lanes.dispatches.values()) > 200


@pytest.mark.parametrize("seed", range(3))
def test_the_index_agrees_with_the_naive_model_after_many_changes_without_a_claim(seed: int) -> None:
    """Stale entries are not skipped then but pile up, so that the heaps are rebuilt from what still holds."""
    dice, both = Random(seed), Both()
    for _ in range(20):
        for _ in range(100):
            what = dice.choice(("send", "send", "cancel", "block", "unblock", "unblock"))
            getattr(both, what)(f"c{dice.randrange(4)}", dice.randrange(48))
            both.naive.update_tags()
        for _ in range(10):
            both.do("take", 0, dice.randrange(48))
    assert sum(both.lanes.dispatches.values()) > 100


@FEW
@given(st.lists(st.tuples(st.sampled_from(OFTEN), st.integers(0, 3), st.integers(0, 47)), min_size=10, max_size=40))
def test_a_worker_never_idles_while_an_unblocked_document_of_its_kinds_is_ready(
    events: list[tuple[str, int, int]],
) -> None:
    both = Both()
    for event in events:
        both.do(*event)
        unblocked = {key.kind for key in both.naive.heads()}
        for kind in KINDS:
            assert (both.lanes.next((kind,)) is not None) == (kind in unblocked)
        assert (both.lanes.next() is not None) == bool(unblocked)


# -- memory follows the lanes ------------------------------------------------------------------------------------------


def size(lanes: Lanes) -> int:
    """Return how much the index holds, in bytes of its pickle."""
    return len(pickle.dumps(lanes))


def size_max(lanes: Lanes) -> int:
    """Return how much it may hold: in proportion to lanes and waiting documents, and a constant for stale entries."""
    waiting = sum(len(lane.ready) for lane in lanes.lanes.values())
    return 5_000 + 250 * len(lanes.lanes) + 50 * waiting


def test_stale_entries_stay_bounded_by_the_lanes_in_a_long_run() -> None:
    dice, both = Random(7), Both()
    for _ in range(1500):
        getattr(both, dice.choice(OFTEN))(f"c{dice.randrange(4)}", dice.randrange(48))
        both.naive.update_tags()
    assert size(both.lanes) <= size_max(both.lanes)


@pytest.mark.parametrize("customers", [1, 40])
def test_stale_entries_stay_bounded_when_customers_are_blocked_and_unblocked_without_a_claim(customers: int) -> None:
    lanes = Lanes()
    for number in range(customers):
        lanes.add(number, f"c{number}", "pdf", 9, number)
    for again in range(10_000):
        lanes.block(f"c{again % customers}")
        lanes.unblock(f"c{again % customers}")
    assert size(lanes) <= size_max(lanes)
    for number in range(customers):
        turn = lanes.next()
        assert turn is not None
        assert turn.number == number
        lanes.take(turn, STEP)


def test_when_everything_is_served_nothing_is_kept_but_tags() -> None:
    lanes = Lanes()
    for number in range(5000):
        lanes.add(number, f"c{number % 20}", KINDS[number % 3], 1 + number % 9, number)
    while (turn := lanes.next()) is not None:
        lanes.take(turn, STEP)
    assert lanes.dispatches == {None: 5000}
    assert not any(lane.ready or lane.order or lane.head is not None for lane in lanes.lanes.values())
    assert size(lanes) <= size_max(lanes)


def test_numbers_of_cancelled_documents_do_not_pile_up_behind_a_head_that_waits() -> None:
    lanes = Lanes()
    lanes.add(0, "a", "pdf", 9, 0)
    lanes.block("a")
    for number in range(1, 5001):
        lanes.add(number, "a", "pdf", 9, number)
        lanes.discard(number)
    assert list(lanes.lanes["a", "pdf", 9].ready) == [0]
    assert len(lanes.lanes["a", "pdf", 9].order) <= 100
