"""The check, the table and the ways to reset: the sentences of the rules, one test each."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import pytest

from fairlane.core.errors import BadValue
from fairlane.core.policy import (
    COUNTER_FLOOR,
    STEP,
    Policy,
    Reset,
    Standing,
    from_thousandths,
    operator_reset,
    step_of,
    to_milliseconds,
)

RESETS: tuple[Reset, ...] = ("idle", "sliding")
INTERVAL_MS = 1_500_000
PART_MS = INTERVAL_MS // 16
SEEN_MS = 10_000_000
SEEN = Standing(counter=-5 * STEP, updated_ms=SEEN_MS, resets=1)


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
    assert first._replace(parts=()) == Standing(counter=0, updated_ms=7, resets=1)
    late = policy.check(first, 7 + INTERVAL_MS + 1)
    assert (late.counter, late.updated_ms) == (0, 7 + INTERVAL_MS + 1)


def test_a_customer_never_seen_shows_counter_0() -> None:
    assert Standing() == Standing(counter=0, updated_ms=None, resets=0, parts=())
    assert from_thousandths(operator_reset(SEEN).counter) == 0


def test_a_first_check_at_moment_0_has_been_seen() -> None:
    assert counters(history(Policy(), [0, 0, 0])) == [0, -1, -2]


def test_more_than_the_interval_resets_exactly_the_interval_does_not() -> None:
    exactly = Policy().check(SEEN, SEEN_MS + INTERVAL_MS)
    assert exactly == Standing(counter=SEEN.counter - STEP, updated_ms=SEEN_MS + INTERVAL_MS, resets=1)
    more = Policy().check(SEEN, SEEN_MS + INTERVAL_MS + 1)
    assert more == Standing(counter=0, updated_ms=SEEN_MS + INTERVAL_MS + 1, resets=2)


def test_otherwise_the_counter_goes_down_by_one_and_last_update_is_now() -> None:
    assert Policy().check(SEEN, SEEN_MS + 1) == SEEN._replace(counter=SEEN.counter - STEP, updated_ms=SEEN_MS + 1)


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("back_ms", [1, INTERVAL_MS, INTERVAL_MS + 1, SEEN_MS])
def test_a_clock_that_steps_back_neither_resets_nor_rewinds(reset: Reset, back_ms: int) -> None:
    policy = Policy(reset=reset)
    stepped = policy.check(SEEN, SEEN_MS - back_ms)
    assert stepped._replace(parts=()) == SEEN._replace(counter=SEEN.counter - STEP)
    assert policy.check(stepped, SEEN_MS).counter == SEEN.counter - 2 * STEP


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


def test_one_document_every_1200_s_stays_at_priority_1_under_sliding() -> None:
    policy = Policy(reset="sliding")
    standings = history(policy, METRONOME)
    assert set(counters(standings)) == {0, -1}
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
    floored = Policy(reset=reset).check(deep, SEEN_MS)
    assert floored.counter == COUNTER_FLOOR
    assert all(sent <= -COUNTER_FLOOR for _, sent in Policy(reset=reset).check(floored, SEEN_MS, 10**9).parts)
    assert Policy(reset=reset).correct(deep, SEEN_MS, deep.resets, STEP).counter == COUNTER_FLOOR
    assert Policy().level(COUNTER_FLOOR) == 9


# -- sliding -----------------------------------------------------------------------------------------------------------


def test_under_sliding_the_counter_is_what_was_sent_within_the_last_interval() -> None:
    """The interval has 16 parts; a part is forgotten as a whole, once it began 16 parts before the present one."""
    policy = Policy(reset_interval=16, reset="sliding")
    standings = history(policy, [0, 0.5, 1, 15.9, 16, 16.9, 17, 32, 33])
    assert counters(standings) == [0, -1, -2, -3, -2, -3, -3, -1, -1]
    assert standings[4].parts == ((1000, 1000), (15_000, 1000), (16_000, 1000))
    assert standings[-1].parts == ((32_000, 1000), (33_000, 1000))


def test_under_sliding_a_burst_gets_the_numbers_of_the_texts() -> None:
    assert counters(history(Policy(reset="sliding"), [5] * 30)) == [-n for n in range(30)]
    assert priorities(Policy(), history(Policy(reset="sliding"), [5] * 30)) == priorities(Policy(), history(Policy(), [5] * 30))


def test_under_sliding_nothing_falls_off_a_cliff() -> None:
    """A sender of one document a part: the counter settles, and recovers part by part when it stops."""
    policy = Policy(reset_interval=16, reset="sliding")
    standing = history(policy, range(100))[-1]
    assert from_thousandths(standing.counter) == -15
    after = [from_thousandths(policy.check(standing, (99 + gap) * 1000).counter) for gap in range(18)]
    assert after == [-16, *range(-15, 1), 0]


@pytest.mark.parametrize(("interval", "moments"), [(0.001, [0, 0.001, 0.016, 0.017]), (0.016, [0, 0.015, 0.016]), (0.031, [0])])
def test_a_part_is_a_sixteenth_of_the_interval_cut_down_and_at_least_a_millisecond(
    interval: float, moments: list[float]
) -> None:
    policy = Policy(reset_interval=interval, reset="sliding")
    standings = history(policy, moments)
    starts = [start for start, _ in standings[-1].parts]
    assert starts == [moment * 1000 for moment in moments if moments[-1] - moment < 0.016]


def test_a_customer_that_comes_from_idle_begins_with_one_step_more_than_its_counter_in_the_part_of_its_last_update() -> None:
    policy = Policy(reset="sliding")
    part = SEEN_MS - SEEN_MS % PART_MS
    assert policy.check(SEEN, SEEN_MS) == Standing(-6 * STEP, SEEN_MS, 1, ((part, 7 * STEP),))
    later_ms = part + 15 * PART_MS
    assert policy.check(SEEN, later_ms) == Standing(-6 * STEP, later_ms, 1, ((part, 6 * STEP), (later_ms, STEP)))
    assert policy.check(SEEN, part + 16 * PART_MS).counter == 0


def test_a_customer_that_comes_from_sliding_keeps_its_counter_and_forgets_the_parts() -> None:
    sliding = history(Policy(reset="sliding"), [0, 1, 2])[-1]
    assert Policy().check(sliding, 2_000) == Standing(-3 * STEP, 2_000, 1, ())
    back = Policy(reset="sliding").check(Policy().check(sliding, 2_000), 2_000)
    assert (back.counter, sum(sent for _, sent in back.parts)) == (-4 * STEP, 5 * STEP)


def test_under_another_interval_the_parts_that_were_kept_still_count() -> None:
    standing = history(Policy(reset_interval=16, reset="sliding"), [0, 5, 9])[-1]
    assert Policy(reset_interval=160, reset="sliding").check(standing, 9_000).counter == -3 * STEP
    assert Policy(reset_interval=1.6, reset="sliding").check(standing, 9_000).counter == -STEP


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


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize(
    ("more", "counter"), [(3_000, -8_000), (-3_000, -2_000), (-6_000, 0), (-5_001, 0), (-4_999, -1), (0, -5_000)]
)
def test_a_correction_moves_the_counter_by_the_difference_never_above_0(reset: Reset, more: int, counter: int) -> None:
    assert Policy(reset=reset).correct(SEEN, SEEN_MS, SEEN.resets, more) == SEEN._replace(counter=counter)


def test_a_correction_is_dropped_if_a_reset_came_between() -> None:
    sent = Policy().check(Standing(), 0, 9 * STEP)
    later = Policy().check(sent, INTERVAL_MS + 1, 9 * STEP)
    assert later.counter == -8 * STEP
    assert Policy().correct(later, 0, sent.resets, -8 * STEP) == later
    assert Policy().correct(later, INTERVAL_MS + 1, later.resets, -8 * STEP).counter == 0


def test_under_sliding_a_correction_goes_to_the_part_of_the_check_if_that_is_still_kept() -> None:
    policy = Policy(reset_interval=16, reset="sliding")
    sent = history(policy, [0, 0, 5])[-1]
    more = policy.correct(sent, 0, sent.resets, 4 * STEP)
    assert more == Standing(-6 * STEP, 5000, 1, ((0, 6 * STEP), (5000, STEP)))
    assert policy.check(more, 6000).counter == -7 * STEP
    assert policy.correct(sent, 0, sent.resets, -9 * STEP) == Standing(0, 5000, 1, ((0, 0), (5000, STEP)))
    later = policy.check(sent, 16_000)
    assert policy.correct(later, 0, later.resets, 4 * STEP) == later


@pytest.mark.parametrize("reset", RESETS)
def test_a_correction_is_dropped_after_an_operators_reset_whatever_was_checked_since(reset: Reset) -> None:
    policy = Policy(reset=reset)
    sent = policy.check(Standing(), 0, 9 * STEP)
    cleared = operator_reset(sent)
    assert policy.correct(cleared, 0, sent.resets, 11 * STEP) == cleared
    again = policy.check(cleared, 1, 9 * STEP)
    assert policy.correct(again, 0, sent.resets, 11 * STEP) == again


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


@pytest.mark.parametrize("now_ms", [0, SEEN_MS, SEEN_MS + 1, SEEN_MS + 2 * INTERVAL_MS])
def test_a_look_shows_how_long_until_a_check_would_reset(now_ms: int) -> None:
    policy = Policy()
    left_ms = policy.resets_in_ms(SEEN, now_ms)
    assert left_ms == max(0, SEEN_MS + INTERVAL_MS - now_ms)
    assert policy.check(SEEN, now_ms + left_ms + 1).resets == SEEN.resets + 1
    assert left_ms == 0 or policy.check(SEEN, now_ms + left_ms).resets == SEEN.resets
    assert policy.resets_in_ms(Standing(), now_ms) == 0


@pytest.mark.parametrize("now", [0, 5, 15.999, 20.999, 21, 99])
def test_under_sliding_a_look_shows_how_long_until_nothing_counts_any_more(now: float) -> None:
    policy = Policy(reset_interval=16, reset="sliding")
    standing = history(policy, [0, 5.3])[-1]
    now_ms = round(now * 1000)
    left_ms = policy.resets_in_ms(standing, now_ms)
    assert left_ms == max(0, 21_000 - now_ms)
    assert policy.check(standing, now_ms + left_ms).counter == 0
    assert left_ms == 0 or policy.check(standing, now_ms + left_ms - 1).counter < 0
