"""The check, the table and the ways to reset: the sentences of the rules, one test each."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby, pairwise

import pytest

from fairlane.core.errors import BadValue
from fairlane.core.policy import (
    COUNTER_FLOOR,
    INTERVAL_MAX_MS,
    STEP,
    Policy,
    Reset,
    Standing,
    correct_counter,
    from_thousandths,
    interval_ms_of,
    operator_reset,
    step_of,
    to_milliseconds,
)

RESETS: tuple[Reset, ...] = ("idle", "window", "gradual")
INTERVAL_MS = 1_500_000
SEEN_MS = 10_000_000
SEEN = Standing(counter=-5 * STEP, updated_ms=SEEN_MS, reset_ms=SEEN_MS, resets=1)


def history(policy: Policy, moments: Iterable[float], step: int = STEP, standing: Standing | None = None) -> list[Standing]:
    """Where one customer stands after each check; moments are seconds."""
    standing = standing or Standing()
    standings = []
    for moment in moments:
        standing = policy.check(standing, to_milliseconds("now", moment, 0, 2**53 - 1), step)
        standings.append(standing)
    return standings


def counters(standings: Iterable[Standing]) -> list[int | float]:
    return [from_thousandths(standing.counter) for standing in standings]


def priorities(policy: Policy, standings: Iterable[Standing]) -> list[int]:
    return [policy.level(standing.counter) for standing in standings]


# -- the check ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reset", RESETS)
def test_a_customer_never_seen_has_counter_0_and_stands_as_after_a_reset(reset: Reset) -> None:
    policy = Policy(reset=reset)
    first = policy.check(Standing(), 7)
    assert first == Standing(counter=0, updated_ms=7, reset_ms=7, resets=1)
    late = policy.check(first, 7 + INTERVAL_MS + 1)
    assert late == Standing(counter=0, updated_ms=7 + INTERVAL_MS + 1, reset_ms=7 + INTERVAL_MS + 1, resets=2)


def test_a_customer_never_seen_shows_counter_0() -> None:
    assert Standing() == Standing(counter=0, updated_ms=None, reset_ms=None, resets=0)
    assert from_thousandths(operator_reset(SEEN).counter) == 0


def test_a_first_check_at_moment_0_has_been_seen() -> None:
    assert counters(history(Policy(), [0, 0, 0])) == [0, -1, -2]


@pytest.mark.parametrize("reset", RESETS)
def test_more_than_the_interval_resets_exactly_the_interval_does_not(reset: Reset) -> None:
    policy = Policy(reset=reset)
    exactly = policy.check(SEEN, SEEN_MS + INTERVAL_MS)
    assert (exactly.resets, exactly.reset_ms) == (SEEN.resets, SEEN.reset_ms)
    assert exactly.counter == (-STEP if reset == "gradual" else SEEN.counter - STEP)
    more = policy.check(SEEN, SEEN_MS + INTERVAL_MS + 1)
    assert more == Standing(counter=0, updated_ms=SEEN_MS + INTERVAL_MS + 1, reset_ms=SEEN_MS + INTERVAL_MS + 1, resets=2)


def test_otherwise_the_counter_goes_down_by_one_and_last_update_is_now() -> None:
    assert Policy().check(SEEN, SEEN_MS + 1) == SEEN._replace(counter=SEEN.counter - STEP, updated_ms=SEEN_MS + 1)


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("back_ms", [1, INTERVAL_MS, INTERVAL_MS + 1, SEEN_MS])
def test_a_clock_that_steps_back_neither_resets_nor_rewinds(reset: Reset, back_ms: int) -> None:
    policy = Policy(reset=reset)
    stepped = policy.check(SEEN, SEEN_MS - back_ms)
    assert stepped == SEEN._replace(counter=SEEN.counter - STEP)
    assert policy.check(stepped, SEEN_MS + INTERVAL_MS).resets == SEEN.resets
    assert policy.check(stepped, SEEN_MS + INTERVAL_MS + 1).resets == SEEN.resets + 1


def test_a_clock_that_steps_back_neither_resets_nor_rewinds_after_a_change_to_window() -> None:
    """The last reset is long ago, as under `idle`; the customer's terms now say `window`, and the clock is behind."""
    steady = Standing(counter=-5 * STEP, updated_ms=5_000_000, reset_ms=0, resets=1)
    stepped = Policy(reset="window").check(steady, 4_000_000)
    assert stepped.updated_ms == 5_000_000
    assert stepped == steady._replace(counter=-6 * STEP)


# -- the table ---------------------------------------------------------------------------------------------------------

TABLE = [(-2, 1), (-4, 2), (-6, 3), (-8, 4), (-10, 5), (-12, 6), (-14, 7), (-20, 8)]


@pytest.mark.parametrize(("threshold", "priority"), TABLE)
def test_at_a_threshold_the_line_before_holds_and_below_it_the_next(threshold: int, priority: int) -> None:
    policy = Policy()
    assert policy.priority(threshold) == policy.level(threshold * STEP) == priority
    assert policy.level(threshold * STEP + 1) == priority
    assert policy.level(threshold * STEP - 1) == priority + 1
    assert policy.priority(threshold - 0.001) == policy.priority(threshold - 1) == priority + 1


@pytest.mark.parametrize(("counter", "priority"), [(0, 1), (-1, 1), (-15, 8), (-19, 8), (-21, 9), (-1_000, 9), (-(10**9), 9)])
def test_the_last_line_that_holds_decides(counter: int, priority: int) -> None:
    assert Policy().priority(counter) == priority


@pytest.mark.parametrize("counter", [0.001, 1, -(10**9) - 1])
def test_a_counter_that_cannot_be_has_no_priority(counter: float) -> None:
    with pytest.raises(BadValue, match=r"^counter is "):
        Policy().priority(counter)


def test_the_nth_document_of_an_unbroken_run() -> None:
    expected = [1] * 3 + [2] * 2 + [3] * 2 + [4] * 2 + [5] * 2 + [6] * 2 + [7] * 2 + [8] * 6 + [9] * 79
    assert priorities(Policy(), history(Policy(), range(100))) == expected


# -- the worked examples -----------------------------------------------------------------------------------------------


def test_the_worked_example_of_one_customer() -> None:
    standings = history(Policy(), [0, 1, 2, 3, 1503, 3003.001])
    assert counters(standings) == [0, -1, -2, -3, -4, 0]
    assert priorities(Policy(), standings) == [1, 1, 1, 2, 2, 1]


METRONOME = range(0, 86_400, 1200)


def test_one_document_every_1200_s_never_resets_and_reaches_priority_9_at_the_22nd() -> None:
    standings = history(Policy(), METRONOME)
    assert counters(standings) == [-n for n in range(72)]
    assert {standing.resets for standing in standings} == {1}
    assert priorities(Policy(), standings).index(9) == 21
    assert set(priorities(Policy(), standings)[21:]) == {9}


def test_one_document_every_1200_s_starts_afresh_every_interval_under_window() -> None:
    policy = Policy(reset="window")
    standings = history(policy, METRONOME)
    assert counters(standings) == [0, -1] * 36
    assert set(priorities(policy, standings)) == {1}


def test_one_document_every_1200_s_recovers_in_between_under_gradual() -> None:
    policy = Policy(reset="gradual")
    standings = history(policy, METRONOME)
    assert counters(standings) == [0, -1, -1.2, -1.24, -1.248] + [-1.249] * 67
    assert set(priorities(policy, standings)) == {1}


# -- time and thousandths ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, 0), (0.0004, 0), (0.0005, 1), (0.0014, 1), (0.0015, 2), (-0.0005, 0), (-0.0006, -1), (3003.001, 3_003_001)],
)
def test_time_is_whole_milliseconds_by_floor_of_1000_times_plus_a_half(seconds: float, expected: int) -> None:
    assert to_milliseconds("now", seconds, -10, 10**9) == expected


@pytest.mark.parametrize(("counter", "expected"), [(0, 0), (-1000, -1), (-21_000, -21), (-1, -0.001), (-1249, -1.249)])
def test_a_counter_is_shown_as_a_whole_number_when_it_is_one(counter: int, expected: float) -> None:
    assert from_thousandths(counter) == expected
    assert type(from_thousandths(counter)) is (float if counter % STEP else int)


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("above", [0, 1, STEP - 1, STEP])
def test_the_counter_stops_at_minus_a_thousand_million_steps(reset: Reset, above: int) -> None:
    deep = SEEN._replace(counter=COUNTER_FLOOR + above)
    assert COUNTER_FLOOR == -(10**9) * 1000
    assert Policy(reset=reset).check(deep, SEEN_MS).counter == COUNTER_FLOOR
    assert correct_counter(deep, deep.resets, STEP, 2 * STEP).counter == COUNTER_FLOOR
    assert Policy().level(COUNTER_FLOOR) == 9


def test_gradual_is_exact_at_the_bounds() -> None:
    policy = Policy(reset_interval=30 * 24 * 3600, reset="gradual")
    assert interval_ms_of(policy) == INTERVAL_MAX_MS
    recovered = COUNTER_FLOOR + 10**12 // INTERVAL_MAX_MS + 1  # one millisecond's share, cut towards zero
    assert policy.check(SEEN._replace(counter=COUNTER_FLOOR), SEEN_MS + 1, 1).counter == recovered - 1


# -- window and gradual ------------------------------------------------------------------------------------------------


def test_a_window_counts_from_the_check_that_last_reset_and_the_first_one_ever_counts() -> None:
    standings = history(Policy(reset="window"), [0, 1000, 1500, 1500.001, 3000, 3000.001, 3000.002])
    assert counters(standings) == [0, -1, -2, 0, -1, -2, 0]
    assert [standing.reset_ms for standing in standings] == [0, 0, 0, 1_500_001, 1_500_001, 1_500_001, 3_000_002]


@pytest.mark.parametrize(
    ("counter", "gap_ms", "recovered"),
    [
        (-10_000, 0, -10_000),
        (-10_000, 300_000, -8_000),
        (-10_000, 750_000, -5_000),
        (-10_000, INTERVAL_MS - 1, 0),
        (-10_000, INTERVAL_MS, 0),
        (-10_000, -750_000, -10_000),
        (-1, 1, 0),
        (-1_249, 1_200_000, -249),
        (0, 750_000, 0),
    ],
)
def test_gradual_recovers_in_proportion_to_the_gap_cut_towards_zero(counter: int, gap_ms: int, recovered: int) -> None:
    after = Policy(reset="gradual").check(SEEN._replace(counter=counter), SEEN_MS + gap_ms)
    assert after == SEEN._replace(counter=recovered - STEP, updated_ms=max(SEEN_MS, SEEN_MS + gap_ms))


def test_gradual_has_no_cliff() -> None:
    """One millisecond more never moves the counter by more than a step, the reset included."""
    policy = Policy(reset_interval=0.05, reset="gradual")
    after = [policy.check(SEEN._replace(counter=-40_000), SEEN_MS + gap_ms).counter for gap_ms in range(55)]
    assert all(0 <= later - sooner <= STEP for sooner, later in pairwise(after))
    assert (after[0], after[50], after[51]) == (-41_000, -1_000, 0)


# -- weight and cost ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cost", "weight", "step"),
    [
        (1_000, 1_000, 1_000),
        (1_000, 2_000, 500),
        (1_000, 3_000, 333),
        (2_000, 3_000, 666),
        (1_000, 10, 100_000),
        (3_000, 1_000, 3_000),
        (2_999, 1_500, 1_999),
        (1, 1_000, 1),
        (1, 1_001, 1),
        (1, 100_000, 1),
        (10_000_000, 10, 1_000_000_000),
    ],
)
def test_one_step_is_the_cost_divided_by_the_weight_at_least_one_thousandth(cost: int, weight: int, step: int) -> None:
    assert step_of(cost, weight) == step


def test_a_customer_of_weight_2_may_send_twice_as_much_for_the_same_priority() -> None:
    def documents_at(weight: int) -> dict[int, int]:
        received = priorities(Policy(), history(Policy(), range(60), step_of(STEP, weight)))
        return {priority: len(list(documents)) for priority, documents in groupby(received)}

    once, twice = documents_at(1_000), documents_at(2_000)
    assert all(twice[priority] == 2 * once[priority] for priority in range(2, 9))
    assert (once[1], twice[1]) == (3, 5)  # the first document of all is free


def test_with_a_weight_the_counter_is_kept_in_thousandths() -> None:
    assert counters(history(Policy(), range(4), step_of(STEP, 3_000))) == [0, -0.333, -0.666, -0.999]


@pytest.mark.parametrize(("step", "counter"), [(1, 0), (999, 0), (1_000, 0), (1_001, -1), (5_000, -4_000)])
def test_at_a_reset_the_counter_is_0_less_what_the_cost_is_above_1(step: int, counter: int) -> None:
    for reset in RESETS:
        assert Policy(reset=reset).check(Standing(), 0, step).counter == counter
        assert Policy(reset=reset).check(SEEN, SEEN_MS + INTERVAL_MS + 1, step).counter == counter


def test_a_document_of_cost_5_takes_as_many_steps_as_five_of_cost_1() -> None:
    five = history(Policy(), range(5), standing=SEEN._replace(updated_ms=0))[-1]
    assert Policy().check(SEEN, SEEN_MS, 5 * STEP).counter == five.counter == -10 * STEP
    assert Policy().check(Standing(), 0, 5 * STEP).counter == history(Policy(), range(5))[-1].counter == -4 * STEP


# -- corrections, the operator's reset, looking ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "counter"),
    [(1_000, 4_000, -8_000), (4_000, 1_000, -2_000), (7_000, 1_000, 0), (6_001, 1_000, 0), (5_999, 1_000, -1), (1, 1, -5_000)],
)
def test_a_correction_moves_the_counter_by_the_difference_never_above_0(before: int, after: int, counter: int) -> None:
    assert correct_counter(SEEN, SEEN.resets, before, after) == SEEN._replace(counter=counter)


def test_a_correction_leaves_last_update_and_last_reset_alone() -> None:
    moved = correct_counter(SEEN, SEEN.resets, STEP, 3 * STEP)
    assert (moved.updated_ms, moved.reset_ms, moved.resets) == (SEEN.updated_ms, SEEN.reset_ms, SEEN.resets)


def test_a_correction_is_dropped_if_a_reset_came_between() -> None:
    sent = Policy().check(Standing(), 0, 9 * STEP)
    later = Policy().check(sent, INTERVAL_MS + 1, 9 * STEP)
    assert later.counter == -8 * STEP
    assert correct_counter(later, sent.resets, 9 * STEP, STEP) == later
    assert correct_counter(later, later.resets, 9 * STEP, STEP).counter == 0


def test_a_correction_is_dropped_after_an_operators_reset_whatever_was_checked_since() -> None:
    sent = Policy().check(Standing(), 0, 9 * STEP)
    cleared = operator_reset(sent)
    assert correct_counter(cleared, sent.resets, 9 * STEP, 20 * STEP) == cleared
    again = Policy().check(cleared, 1, 9 * STEP)
    assert correct_counter(again, sent.resets, 9 * STEP, 20 * STEP) == again


@pytest.mark.parametrize("reset", RESETS)
def test_an_operators_reset_makes_the_customer_as_never_seen(reset: Reset) -> None:
    policy, cleared = Policy(reset=reset), operator_reset(SEEN)
    assert cleared._replace(resets=0) == Standing()
    for now_ms in (0, SEEN_MS + 1):  # even a clock that is behind the last update of before
        assert policy.check(cleared, now_ms)._replace(resets=1) == policy.check(Standing(), now_ms)


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("gap_ms", [-1, 0, 750_000, INTERVAL_MS, INTERVAL_MS + 1])
def test_a_look_shows_the_priority_a_check_at_this_moment_would_give(reset: Reset, gap_ms: int) -> None:
    policy = Policy(reset=reset, thresholds=(-2, -3.9, -5.5))
    for standing in (SEEN, SEEN._replace(counter=-3_400), Standing()):
        checked = policy.check(standing, SEEN_MS + gap_ms)
        assert policy.next_priority(standing, SEEN_MS + gap_ms) == policy.level(checked.counter)


def test_a_look_counts_with_the_weight_of_the_customer() -> None:
    standing = SEEN._replace(counter=-2_000 + 500)
    assert (Policy().next_priority(standing, SEEN_MS, 1_000), Policy().next_priority(standing, SEEN_MS, 2_000)) == (2, 1)


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("now_ms", [0, SEEN_MS, SEEN_MS + 1, SEEN_MS + 2 * INTERVAL_MS])
def test_a_look_shows_how_long_until_a_check_would_reset(reset: Reset, now_ms: int) -> None:
    policy, standing = Policy(reset=reset), SEEN._replace(updated_ms=SEEN_MS + 400)
    left_ms = policy.resets_in_ms(standing, now_ms)
    since_ms = SEEN_MS if reset == "window" else SEEN_MS + 400
    assert left_ms == max(0, since_ms + INTERVAL_MS - now_ms)
    assert policy.check(standing, now_ms + left_ms + 1).resets == SEEN.resets + 1
    assert left_ms == 0 or policy.check(standing, now_ms + left_ms).resets == SEEN.resets
    assert policy.resets_in_ms(Standing(), now_ms) == 0
