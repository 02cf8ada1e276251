"""Which document is served next: the sentences of the rules, one test each."""

from __future__ import annotations

import pytest

from fairlane.core.lanes import Lanes
from fairlane.core.policy import STEP, step_of

from .lane_steps import clock, customers, lane, numbers, ready, take

# -- 1 and 2: priority, then turns -------------------------------------------------------------------------------------


def test_the_lowest_priority_number_that_has_a_document_ready_is_served() -> None:
    lanes = Lanes()
    for number, priority in enumerate([9, 4, 1, 4, 2], start=1):
        lanes.add(number, f"c{number}", "pdf", priority, ready_ms=0)
    assert numbers(lanes, 5) == [3, 5, 2, 4, 1]
    assert lanes.next() is None


def test_inside_one_priority_customers_take_turns() -> None:
    lanes = Lanes()
    ready(lanes, 1, "aaabbc")
    assert customers(lanes, 6) == "abcaba"


def test_two_big_senders_at_9_share_whoever_came_first() -> None:
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "a" * 500)
    ready(lanes, 501, "b" * 500)
    assert customers(lanes, 400) == "ab" * 200


def test_a_customer_of_weight_2_gets_two_turns_for_one() -> None:
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "a" * 90 + "b" * 90)
    served = customers(lanes, 90, {"b": step_of(STEP, 2 * STEP)})
    assert (served.count("a"), served.count("b")) == (30, 60)
    assert "aa" not in served
    assert "bbbb" not in served


def test_a_document_of_cost_3_is_three_turns() -> None:
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "aaabbbbbbbbb")
    assert customers(lanes, 12, {"a": step_of(3 * STEP, STEP)}) == "abbbabbbabbb"


# -- 3: open turns -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("every", "open_turns"), [(16, [16, 32, 48]), (5, [5, 10, 15, 20, 25, 30, 35, 40, 45]), (0, [])])
def test_one_dispatch_in_sixteen_is_open_configurable_0_is_never(every: int, open_turns: list[int]) -> None:
    lanes = Lanes(open_turn_every=every)
    ready(lanes, 1, "z" * 9, priority=9)
    ready(lanes, 100, "a" * 60, priority=1)
    turns = [take(lanes) for _ in range(49)]
    assert [turn.dispatch_number for turn in turns] == list(range(1, 50))
    assert [turn.dispatch_number for turn in turns if turn.is_open] == open_turns
    assert [turn.dispatch_number for turn in turns if turn.lane.customer == "z"] == open_turns


def test_with_every_turn_open_documents_go_as_they_became_ready() -> None:
    lanes = Lanes(open_turn_every=1)
    ready(lanes, 1, "zzyzy", priority=9)
    ready(lanes, 6, "abab", priority=1)
    assert numbers(lanes, 9) == list(range(1, 10))


def test_an_open_turn_takes_the_head_ready_first_then_the_lowest_number() -> None:
    lanes = Lanes(open_turn_every=1)
    for number, ready_ms in enumerate([30, 20, 10, 20], start=1):
        lanes.add(number, f"c{number}", "pdf", 5 - number, ready_ms)
    assert numbers(lanes, 4) == [3, 2, 4, 1]


def test_an_open_turn_considers_heads_only() -> None:
    """2 has been ready longest, but 1, which came back later, is the head of its lane."""
    lanes = Lanes(open_turn_every=1)
    lanes.add(2, "a", "pdf", 9, ready_ms=5)
    lanes.add(1, "a", "pdf", 9, ready_ms=100)
    lanes.add(3, "b", "pdf", 9, ready_ms=50)
    assert numbers(lanes, 3) == [3, 1, 2]


def test_an_open_turn_is_paid_for_as_any_claim() -> None:
    lanes = Lanes(open_turn_every=4)
    ready(lanes, 1, "aaaaaabbbbbb")
    assert customers(lanes, 3) == "aba"
    assert take(lanes).is_open
    assert (lane(lanes, "a").start, lane(lanes, "b").start, clock(lanes)) == (3 * STEP, STEP, STEP)  # and moves no clock
    assert customers(lanes, 3) == "bba"


def test_an_open_turn_among_the_kinds_a_worker_takes() -> None:
    lanes = Lanes(open_turn_every=1)
    ready(lanes, 1, "a", kind="zip")
    ready(lanes, 2, "bc", kind="pdf")
    assert take(lanes, kinds=["pdf"]).number == 2
    assert take(lanes, kinds=["zip", "pdf"]).number == 1


@pytest.mark.parametrize("before", [0, 1, 5])
def test_a_ready_document_is_served_after_at_most_16_times_those_before_it_and_one(before: int) -> None:
    """And no sooner here, for newcomers of priority 1 never end and dispatch 1 comes next."""
    lanes = Lanes()
    ready(lanes, 1, "y" * before + "z", priority=9)
    for dispatch in range(1, 16 * (before + 1) + 1):
        lanes.add(100 + dispatch, f"new {dispatch}", "pdf", 1, ready_ms=100 + dispatch)
        last = take(lanes)
    assert (last.dispatch_number, last.number) == (16 * (before + 1), before + 1)
    assert lane(lanes, "z").head is None


# -- 4: caps and pauses ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [0, 1, 16])
def test_a_blocked_customer_is_passed_over_at_no_cost_to_the_others(every: int) -> None:
    lanes = Lanes(open_turn_every=every)
    ready(lanes, 1, "aaa", priority=1)
    ready(lanes, 4, "bcbc", priority=9)
    lanes.block("a")
    assert numbers(lanes, 4) == [4, 5, 6, 7]
    assert lanes.next() is None
    lanes.unblock("a")
    assert numbers(lanes, 3) == [1, 2, 3]


def test_a_block_holds_for_all_lanes_of_a_customer_and_for_what_it_sends_meanwhile() -> None:
    lanes = Lanes()
    ready(lanes, 1, "a", priority=1, kind="pdf")
    ready(lanes, 2, "a", priority=2, kind="zip")
    lanes.block("a")
    ready(lanes, 3, "a", priority=3)
    lanes.block("a")
    assert lanes.next() is None
    lanes.unblock("a")
    lanes.unblock("a")
    assert numbers(lanes, 3) == [1, 2, 3]


def test_a_customer_can_be_blocked_before_it_ever_sent_anything() -> None:
    lanes = Lanes()
    lanes.block("a")
    ready(lanes, 1, "ab")
    assert numbers(lanes, 1) == [2]
    assert lanes.next() is None


def test_a_capped_customer_takes_its_turns_one_by_one() -> None:
    """Blocked while one runs, unblocked when it ends; the others are not affected."""
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "aaaabbbb")
    served = ""
    for _ in range(4):
        served += take(lanes).lane.customer
        lanes.block("a")
        served += take(lanes).lane.customer
        lanes.unblock("a")
    assert served == "abababab"


# -- exactly: lanes ----------------------------------------------------------------------------------------------------


def test_a_lane_is_one_customers_documents_of_one_priority_and_one_kind() -> None:
    lanes = Lanes()
    for number, key in enumerate([("a", "pdf", 9), ("a", "zip", 9), ("a", "pdf", 8), ("b", "pdf", 9), ("a", "pdf", 9)]):
        lanes.add(number, *key, ready_ms=0)
    assert {key: sorted(lane.ready) for key, lane in lanes.lanes.items()} == {
        ("a", "pdf", 9): [0, 4],
        ("a", "zip", 9): [1],
        ("a", "pdf", 8): [2],
        ("b", "pdf", 9): [3],
    }


def test_a_lane_goes_by_submission_number_whatever_came_first() -> None:
    lanes = Lanes()
    for number in (5, 3, 9, 1):
        lanes.add(number, "a", "pdf", 9, ready_ms=-number)
    assert numbers(lanes, 4) == [1, 3, 5, 9]


def test_a_worker_takes_only_its_kinds() -> None:
    lanes = Lanes()
    ready(lanes, 1, "a", priority=1, kind="zip")
    ready(lanes, 2, "b", priority=9, kind="pdf")
    assert [turn and turn.number for turn in map(lanes.next, ((), ("pdf",), ("pdf", "zip"), ("gif",)))] == [None, 2, 1, None]
    assert (take(lanes, kinds=["pdf"]).number, take(lanes).number) == (2, 1)


def test_lanes_of_different_kinds_share_the_turns_of_their_priority() -> None:
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "aaa", kind="pdf")
    ready(lanes, 4, "bbb", kind="zip")
    assert customers(lanes, 6) == "ababab"


def test_a_kind_that_was_served_alone_owes_the_others_nothing_for_it() -> None:
    """A worker for each kind, pdf with few lanes; then a newcomer's zip has its turn as soon as every lane had one."""
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "a" * 900, kind="pdf")
    ready(lanes, 1001, "bcdefgh" * 60, kind="zip")
    for _ in range(800):
        take(lanes, kinds=["pdf"])
    for _ in range(70):
        take(lanes, kinds=["zip"])
    ready(lanes, 5000, "n", kind="zip")
    assert lane(lanes, "n", kind="zip").start == clock(lanes, kind="zip") == 9 * STEP
    assert "n" in [take(lanes, kinds=["zip"]).lane.customer for _ in range(8)]
    ready(lanes, 5001, "m", kind="pdf")
    assert "m" in [take(lanes).lane.customer for _ in range(9)]


def test_of_one_kind_the_start_tag_decides_and_between_kinds_the_cross_tag() -> None:
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "aab", kind="pdf")
    ready(lanes, 4, "cc", kind="zip")
    take(lanes, step=5 * STEP, kinds=["pdf"])  # a
    take(lanes, step=STEP, kinds=["zip"])  # c: its kind has no other lane
    a, b, c = lane(lanes, "a"), lane(lanes, "b"), lane(lanes, "c", kind="zip")
    assert [(each.start, each.cross) for each in (a, b, c)] == [(5000, 5000), (0, 0), (1000, 1000)]
    assert customers(lanes, 3) == "bca"


def test_next_takes_nothing() -> None:
    lanes = Lanes(open_turn_every=2)
    ready(lanes, 1, "ab")
    assert lanes.next() == lanes.next()
    assert not lanes.dispatches
    assert numbers(lanes, 2) == [1, 2]


# -- exactly: tags -----------------------------------------------------------------------------------------------------


def test_clock_and_finish_are_0_at_first_and_a_claim_moves_them() -> None:
    lanes = Lanes()
    ready(lanes, 1, "aab")
    a, b = lane(lanes, "a"), lane(lanes, "b")
    assert (clock(lanes), a.start, a.finish, b.start, b.finish) == (0, 0, 0, 0, 0)
    take(lanes, step=700)
    assert (clock(lanes), a.start, a.finish, b.start, b.finish) == (0, 700, 700, 0, 0)
    take(lanes, step=STEP)
    assert (clock(lanes), a.start, b.start, b.finish) == (0, 700, None, STEP)
    take(lanes, step=50)
    assert (clock(lanes), a.start, a.finish) == (700, None, 750)


def test_each_priority_has_its_own_clock() -> None:
    lanes = Lanes()
    ready(lanes, 1, "aaaa", priority=1)
    customers(lanes, 3)
    ready(lanes, 5, "a", priority=2)
    assert (clock(lanes, 1), clock(lanes, 2), lane(lanes, "a", 2).start) == (2 * STEP, 0, 0)


def test_equal_start_tags_go_by_the_heads_submission_number() -> None:
    lanes = Lanes()
    ready(lanes, 1, "cbacba")
    assert numbers(lanes, 6) == [1, 2, 3, 4, 5, 6]


def test_a_lane_that_gains_a_head_is_not_owed_the_turns_it_was_away() -> None:
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "a" * 50)
    assert customers(lanes, 20) == "a" * 20
    ready(lanes, 51, "b" * 9)
    assert lane(lanes, "b").start == clock(lanes) == 19 * STEP
    assert customers(lanes, 8) == "babababa"


def test_a_lane_that_ran_empty_still_owes_its_last_turn() -> None:
    """Its finish tag is above the clock, so it is not forgotten."""
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "a")
    assert customers(lanes, 1, {"a": 3 * STEP}) == "a"
    ready(lanes, 2, "aabbbb")
    assert lane(lanes, "a").start == 3 * STEP
    assert customers(lanes, 6) == "bbbaba"


def test_a_forgotten_customer_whose_finish_tag_is_not_above_the_clock_starts_as_a_new_one() -> None:
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "abbb")
    customers(lanes, 3)
    lanes.block("a")
    lanes.forget("a")
    assert not [key for key in lanes.lanes if key[0] == "a"]
    ready(lanes, 5, "a")
    assert lane(lanes, "a").start == clock(lanes) == STEP
    assert customers(lanes, 2) == "ab"


def test_an_unblocked_lane_starts_at_the_higher_of_clock_and_finish() -> None:
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "a" * 9 + "b" * 9)
    take(lanes, step=5 * STEP)
    lanes.block("a")
    assert lane(lanes, "a").start is None
    customers(lanes, 3)
    lanes.unblock("a")
    assert (clock(lanes), lane(lanes, "a").start) == (2 * STEP, 5 * STEP)
    lanes.block("a")
    customers(lanes, 5)
    lanes.unblock("a")
    assert (clock(lanes), lane(lanes, "a").start) == (7 * STEP, 7 * STEP)


def test_a_head_that_is_replaced_leaves_its_lane_its_start_tag() -> None:
    """Even where the clock and its finish tag are lower."""
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 11, "aaabbb")
    assert customers(lanes, 3, {"b": 7 * STEP}) == "aba"
    b = lane(lanes, "b")
    assert (clock(lanes), b.start) == (STEP, 7 * STEP)
    b.finish = 0
    lanes.discard(15)
    assert (b.head, b.start) == (16, 7 * STEP)
    ready(lanes, 1, "b")
    assert (b.head, b.start) == (1, 7 * STEP)


def test_a_document_that_leaves_from_the_middle_is_never_served() -> None:
    lanes = Lanes()
    ready(lanes, 1, "aaaab")
    lanes.discard(2)
    lanes.discard(3)
    assert numbers(lanes, 3) == [1, 5, 4]
    assert lanes.next() is None


# -- exactly: claims and dispatch numbers ------------------------------------------------------------------------------


def test_the_claim_of_a_retried_document_is_a_turn_too_and_it_rejoins_by_number() -> None:
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "aaabbb")
    served = []
    for _ in range(3):
        turn = take(lanes)
        served.append(turn.number)
        lanes.add(turn.number, turn.lane.customer, "pdf", 9, ready_ms=1000)
    assert (served, lane(lanes, "a").finish, lane(lanes, "b").finish) == ([1, 4, 1], 2 * STEP, STEP)
    assert numbers(lanes, 6) == [4, 1, 5, 2, 6, 3]
    assert lanes.dispatches == {None: 9}


def test_dispatches_are_counted_once_for_each_set_of_kinds() -> None:
    lanes = Lanes(open_turn_every=2)
    ready(lanes, 1, "aaaaaa", kind="pdf", priority=1)
    ready(lanes, 7, "bbbbbb", kind="zip", priority=9)
    sets = [["pdf"], ["zip"], ["pdf", "zip"], ["zip", "pdf", "pdf"], ["pdf"], None]
    turns = [take(lanes, kinds=kinds) for kinds in sets]
    assert [(turn.dispatch_number, turn.is_open) for turn in turns] == [
        (1, False), (1, False), (1, False), (2, True), (2, True), (1, False),
    ]  # fmt: skip
    assert lanes.dispatches == {("pdf",): 2, ("zip",): 1, ("pdf", "zip"): 2, None: 1}


def test_two_workers_that_alternate_share_the_open_turns() -> None:
    """One count for both would make every sixteenth dispatch one of the same worker's."""
    lanes = Lanes()
    for number in range(1, 200):
        lanes.add(number, f"c{number}", ("pdf", "zip")[number % 2], 1, ready_ms=number)
    turns = [take(lanes, kinds=[("pdf", "zip")[k % 2]]) for k in range(160)]
    assert [sum(turn.is_open for turn in turns if turn.lane.kind == kind) for kind in ("pdf", "zip")] == [5, 5]


# -- strict ------------------------------------------------------------------------------------------------------------


def test_strict_is_priority_number_then_submission_number() -> None:
    lanes = Lanes("strict")
    ready(lanes, 1, "bbb", priority=9)
    ready(lanes, 4, "aacaab", priority=2)
    assert numbers(lanes, 9) == [4, 5, 6, 7, 8, 9, 1, 2, 3]


def test_strict_has_no_open_turns() -> None:
    lanes = Lanes("strict", open_turn_every=2)
    ready(lanes, 1, "z", priority=9)
    ready(lanes, 2, "a" * 40, priority=1)
    turns = [take(lanes) for _ in range(40)]
    assert [turn.number for turn in turns] == list(range(2, 42))
    assert not any(turn.is_open for turn in turns)


def test_under_strict_caps_and_pauses_hold() -> None:
    lanes = Lanes("strict")
    ready(lanes, 1, "aab")
    lanes.block("a")
    assert numbers(lanes, 1) == [3]
    assert lanes.next() is None
    lanes.unblock("a")
    assert numbers(lanes, 2) == [1, 2]


def test_another_dispatch_holds_from_the_next_claim() -> None:
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "aaaaaa")
    ready(lanes, 7, "bbbbbb")
    assert numbers(lanes, 2) == [1, 7]
    lanes.level("strict")
    assert numbers(lanes, 3) == [2, 3, 4]
    lanes.level("fair")
    assert numbers(lanes, 3) == [5, 8, 6]


def test_another_open_turn_share_alone_moves_no_tag() -> None:
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "aaabbb")
    take(lanes)
    lanes.open_turn_every = 3
    assert (lane(lanes, "a").start, lane(lanes, "b").start) == (STEP, 0)
    assert [take(lanes).is_open for _ in range(2)] == [False, True]


# -- blocked kinds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [0, 1, 16])
def test_a_kind_at_its_limit_is_passed_over_at_no_cost_to_the_others(every: int) -> None:
    lanes = Lanes(open_turn_every=every)
    ready(lanes, 1, "aab", priority=1, kind="zip")
    ready(lanes, 4, "aca", priority=9, kind="pdf")
    lanes.block_kind("zip")
    ready(lanes, 7, "d", priority=1, kind="zip")
    assert lanes.next(("zip",)) is None
    assert numbers(lanes, 3) == [4, 5, 6]
    assert lanes.next() is None
    lanes.unblock_kind("zip")
    assert sorted(numbers(lanes, 4)) == [1, 2, 3, 7]


def test_a_lane_competes_only_if_neither_its_customer_nor_its_kind_is_blocked() -> None:
    lanes = Lanes()
    ready(lanes, 1, "a", kind="zip")
    lanes.block("a")
    lanes.block_kind("zip")
    lanes.unblock("a")
    assert lanes.next() is None
    lanes.block("a")
    lanes.unblock_kind("zip")
    assert lanes.next() is None
    lanes.unblock("a")
    assert numbers(lanes, 1) == [1]


def test_a_kind_that_was_blocked_is_not_owed_the_turns_it_missed() -> None:
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "a" * 30, kind="pdf")
    ready(lanes, 31, "b" * 30, kind="zip")
    lanes.block_kind("zip")
    assert customers(lanes, 20) == "a" * 20
    lanes.unblock_kind("zip")
    assert customers(lanes, 6) in ("ababab", "bababa")
