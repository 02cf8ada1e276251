"""Which document is served next: the sentences of the rules, one test each."""

from __future__ import annotations

import pytest

from fairlane.core.dispatch import Lane, Lanes, Turn, is_blocked, is_open_turn, pay_turn, start_tag
from fairlane.core.policy import STEP, step_of


def ready(lanes: Lanes, first: int, customers: str, priority: int = 9, kind: str = "pdf") -> None:
    """One document for each letter, numbered from `first`, ready in that order."""
    for number, customer in enumerate(customers, start=first):
        lanes.add(number, customer, kind, priority, ready_ms=number)


def take(lanes: Lanes, step: int = STEP, kinds: list[str] | None = None) -> Turn:
    turn = lanes.next(kinds)
    assert turn is not None
    lanes.take(turn, step)
    return turn


def numbers(lanes: Lanes, count: int) -> list[int]:
    return [take(lanes).number for _ in range(count)]


def customers(lanes: Lanes, count: int, steps: dict[str, int] | None = None) -> str:
    """Whose documents the next dispatches take."""
    served = ""
    for _ in range(count):
        turn = lanes.next()
        assert turn is not None
        lanes.take(turn, (steps or {}).get(turn.lane.customer, STEP))
        served += turn.lane.customer
    return served


def lane(lanes: Lanes, customer: str, priority: int = 9, kind: str = "pdf") -> Lane:
    return lanes.lanes[customer, kind, priority]


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


@pytest.mark.parametrize(("number", "every", "expected"), [(1, 16, 0), (15, 16, 0), (16, 16, 1), (17, 16, 0), (32, 16, 1)])
def test_number_k_is_an_open_turn_when_k_mod_16_is_0(number: int, every: int, expected: int) -> None:
    assert is_open_turn(number, every) is bool(expected)


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
    assert (lane(lanes, "a").start, lane(lanes, "b").start, lanes.clocks[9]) == (3 * STEP, STEP, 2 * STEP)
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


@pytest.mark.parametrize(
    ("paused", "cap", "running", "expected"),
    [
        (False, None, 10**6, False),
        (True, None, 0, True),
        (True, 5, 0, True),
        (False, 1, 0, False),
        (False, 1, 1, True),
        (False, 3, 2, False),
        (False, 3, 3, True),
        (False, 3, 4, True),
    ],
)
def test_a_customer_is_blocked_by_a_pause_or_at_its_cap(paused: bool, cap: int | None, running: int, expected: bool) -> None:
    assert is_blocked(paused, cap, running) is expected


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
    assert [turn and turn.number for turn in map(lanes.next, ([], ["pdf"], ["zip", "pdf"], ["gif"]))] == [None, 2, 1, None]
    assert (take(lanes, kinds=["pdf"]).number, take(lanes).number) == (2, 1)


def test_lanes_of_different_kinds_share_the_turns_of_their_priority() -> None:
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "aaa", kind="pdf")
    ready(lanes, 4, "bbb", kind="zip")
    assert customers(lanes, 6) == "ababab"


def test_next_takes_nothing() -> None:
    lanes = Lanes(open_turn_every=2)
    ready(lanes, 1, "ab")
    assert lanes.next() == lanes.next()
    assert (lanes.dispatches, numbers(lanes, 2)) == (0, [1, 2])


# -- exactly: tags -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("clock", "finish", "start"), [(0, 0, 0), (5, 3, 5), (3, 5, 5)])
def test_a_start_tag_is_the_higher_of_clock_and_finish(clock: int, finish: int, start: int) -> None:
    assert start_tag("fair", clock, finish) == start
    assert start_tag("strict", clock, finish) == 0


@pytest.mark.parametrize(("clock", "start", "clock_after"), [(0, 0, 0), (2000, 5000, 5000), (5000, 2000, 5000)])
def test_a_claim_moves_the_clock_to_its_start_and_finishes_a_step_later(clock: int, start: int, clock_after: int) -> None:
    assert pay_turn("fair", clock, start, 77, 300) == (clock_after, start + 300, start + 300)
    assert pay_turn("strict", clock, start, 77, 300) == (clock, 77, 0)


def test_clock_and_finish_are_0_at_first_and_a_claim_moves_them() -> None:
    lanes = Lanes()
    ready(lanes, 1, "aab")
    a, b = lane(lanes, "a"), lane(lanes, "b")
    assert (lanes.clocks[9], a.start, a.finish, b.start, b.finish) == (0, 0, 0, 0, 0)
    take(lanes, step=700)
    assert (lanes.clocks[9], a.start, a.finish, b.start, b.finish) == (0, 700, 700, 0, 0)
    take(lanes, step=STEP)
    assert (lanes.clocks[9], a.start, b.start, b.finish) == (0, 700, None, STEP)
    take(lanes, step=50)
    assert (lanes.clocks[9], a.start, a.finish) == (700, None, 750)


def test_each_priority_has_its_own_clock() -> None:
    lanes = Lanes()
    ready(lanes, 1, "aaaa", priority=1)
    customers(lanes, 3)
    ready(lanes, 5, "a", priority=2)
    assert (lanes.clocks[1], lanes.clocks[2], lane(lanes, "a", 2).start) == (2 * STEP, 0, 0)


def test_equal_start_tags_go_by_the_heads_submission_number() -> None:
    lanes = Lanes()
    ready(lanes, 1, "cbacba")
    assert numbers(lanes, 6) == [1, 2, 3, 4, 5, 6]


def test_a_lane_that_gains_a_head_is_not_owed_the_turns_it_was_away() -> None:
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "a" * 50)
    assert customers(lanes, 20) == "a" * 20
    ready(lanes, 51, "b" * 9)
    assert lane(lanes, "b").start == lanes.clocks[9] == 19 * STEP
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
    assert lane(lanes, "a").start == lanes.clocks[9] == STEP
    assert customers(lanes, 2) == "ab"


def test_an_unblocked_lane_starts_at_the_higher_of_clock_and_finish() -> None:
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "a" * 9 + "b" * 9)
    take(lanes, step=5 * STEP)
    lanes.block("a")
    assert lane(lanes, "a").start is None
    customers(lanes, 3)
    lanes.unblock("a")
    assert (lanes.clocks[9], lane(lanes, "a").start) == (2 * STEP, 5 * STEP)
    lanes.block("a")
    customers(lanes, 5)
    lanes.unblock("a")
    assert (lanes.clocks[9], lane(lanes, "a").start) == (7 * STEP, 7 * STEP)


def test_a_head_that_is_replaced_leaves_its_lane_its_start_tag() -> None:
    """Even where an open turn has moved the clock beyond it."""
    lanes = Lanes(open_turn_every=4)
    ready(lanes, 11, "aaaaaabbbbbb")
    assert customers(lanes, 4) == "abaa"
    assert (lanes.clocks[9], lane(lanes, "b").start) == (2 * STEP, STEP)
    lanes.discard(18)
    assert (lane(lanes, "b").head, lane(lanes, "b").start) == (19, STEP)
    ready(lanes, 1, "b")
    assert (lane(lanes, "b").head, lane(lanes, "b").start) == (1, STEP)
    assert numbers(lanes, 2) == [1, 19]


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
    assert lanes.dispatches == 9


def test_dispatches_are_counted_once_a_queue_whatever_the_kind_priority_or_dispatch() -> None:
    lanes = Lanes(open_turn_every=4)
    ready(lanes, 1, "aaa", kind="pdf", priority=1)
    ready(lanes, 4, "bbb", kind="zip", priority=9)
    seen = [take(lanes, kinds=[kind]).dispatch_number for kind in ("pdf", "zip", "pdf")]
    lanes.configure("strict", 4)
    seen.append(take(lanes).dispatch_number)
    lanes.configure("fair", 5)
    last = take(lanes)
    assert ([*seen, last.dispatch_number], last.is_open, lanes.dispatches) == ([1, 2, 3, 4, 5], True, 5)


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
    lanes.configure("strict", 0)
    assert numbers(lanes, 3) == [2, 3, 4]
    lanes.configure("fair", 0)
    assert numbers(lanes, 3) == [5, 8, 6]


def test_another_open_turn_share_alone_moves_no_tag() -> None:
    lanes = Lanes(open_turn_every=0)
    ready(lanes, 1, "aaabbb")
    take(lanes)
    lanes.configure("fair", 3)
    assert (lane(lanes, "a").start, lane(lanes, "b").start) == (STEP, 0)
    assert [take(lanes).is_open for _ in range(2)] == [False, True]
