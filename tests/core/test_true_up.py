"""Turns are paid with time: what an attempt took more or less than was paid is charged to its lane, or returned."""

from __future__ import annotations

from fairlane.core.lanes import Lanes
from fairlane.core.policy import STEP

from .lane_steps import clock, customers, lane, numbers, ready


def test_a_turn_that_cost_more_than_was_paid_is_charged_to_its_lane() -> None:
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "a" * 9 + "b" * 9)
    assert customers(lanes, 2) == "ab"
    lanes.true_up("a", "pdf", 9, 3 * STEP)
    assert [(each.start, each.finish, each.cross) for each in (lane(lanes, "a"), lane(lanes, "b"))] == [
        (4000, 4000, 4000), (1000, 1000, 1000),
    ]  # fmt: skip
    assert customers(lanes, 6) == "bbbaba"


def test_a_turn_that_cost_less_is_returned_but_never_below_the_clock() -> None:
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "a" * 9 + "b" * 9)
    assert customers(lanes, 4, {"a": 10 * STEP}) == "abbb"
    lanes.true_up("a", "pdf", 9, -4 * STEP)
    assert lane(lanes, "a").start == 6 * STEP
    lanes.true_up("a", "pdf", 9, -50 * STEP)
    assert (clock(lanes), lane(lanes, "a").start) == (2 * STEP, 2 * STEP + 1)


def test_a_lane_without_a_head_is_trued_up_too() -> None:
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "abbb")
    assert customers(lanes, 2) == "ab"
    lanes.true_up("a", "pdf", 9, 2 * STEP)
    ready(lanes, 10, "a")
    assert lane(lanes, "a").start == 3 * STEP
    lanes.block("a")
    lanes.true_up("a", "pdf", 9, STEP)
    lanes.unblock("a")
    assert lane(lanes, "a").start == 4 * STEP


def test_a_lane_that_is_gone_and_any_lane_under_strict_are_not_trued_up() -> None:
    lanes = Lanes("strict")
    lanes.true_up("a", "pdf", 9, STEP)
    ready(lanes, 1, "ab")
    lanes.true_up("a", "pdf", 9, STEP)
    assert numbers(lanes, 2) == [1, 2]


def test_an_open_turn_of_a_lane_in_debt_is_free() -> None:
    lanes = Lanes(open_turn_every=2)
    ready(lanes, 1, "aaaa" + "b" * 9)
    turns = []
    for price in (5 * STEP, STEP, STEP, STEP, STEP):
        turn = lanes.next()
        assert turn is not None
        turns.append((turn.lane.customer, turn.is_open, lanes.take(turn, price)))
    assert turns == [("a", False, True), ("a", True, False), ("b", False, True), ("a", True, False), ("b", False, True)]
    assert (lane(lanes, "a").start, clock(lanes)) == (5 * STEP, STEP)
