"""What holds for the counter whatever the policy and whatever is sent."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.core.policy import (
    COUNTER_FLOOR,
    INTERVAL_MAX_MS,
    STEP,
    Policy,
    Reset,
    Standing,
    interval_ms_of,
    step_of,
    to_milliseconds,
    to_thousandths,
)

FEW = settings(max_examples=40, deadline=None)
STEP_MAX = 10**9  # the highest cost at the lowest weight

resets: st.SearchStrategy[Reset] = st.sampled_from(["idle", "sliding"])
steps = st.integers(1, 5 * STEP) | st.integers(1, STEP_MAX)
intervals_ms = st.integers(1, 100) | st.integers(1, INTERVAL_MAX_MS)
depths = st.lists(st.integers(0, 30 * STEP) | st.integers(0, 10**12), max_size=8, unique=True).map(sorted)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    table = tuple(-depth / STEP for depth in draw(depths))
    return Policy(draw(intervals_ms) / 1000, table, draw(resets))


@st.composite
def histories(draw: st.DrawFn, policy: Policy, *, back: bool = True) -> list[tuple[Standing, int, int, Standing]]:
    """Checks of one customer: where it stood, the moment, the step, where it stands then."""
    span_ms = interval_ms_of(policy)
    gaps = st.sampled_from([0, 1, span_ms - 1, span_ms, span_ms + 1]) | st.integers(0, 2 * span_ms)
    moves = st.lists(st.tuples(gaps | gaps.map(lambda gap: -gap) if back else gaps, steps), min_size=1, max_size=15)
    standing, now_ms, checks = Standing(), 10**12, []
    for gap_ms, step in draw(moves):
        now_ms += gap_ms
        after = policy.check(standing, now_ms, step)
        checks.append((standing, now_ms, step, after))
        standing = after
    return checks


@FEW
@given(st.data(), policies())
def test_a_counter_never_rises_except_by_a_reset_or_what_slid_out(data: st.DataObject, policy: Policy) -> None:
    for before, _, step, after in data.draw(histories(policy)):
        assert COUNTER_FLOOR <= after.counter <= 0
        if after.resets > before.resets:
            assert after.counter == -max(0, step - STEP)
        elif policy.reset == "idle":
            assert after.counter == max(COUNTER_FLOOR, before.counter - step)
        else:
            sent = sum(sent for _, sent in before.parts)
            assert max(COUNTER_FLOOR, -sent - max(0, step - STEP)) <= after.counter <= -max(0, step - STEP)


@FEW
@given(st.data(), intervals_ms)
def test_under_sliding_the_counter_is_the_sum_of_the_steps_of_the_last_sixteen_parts(
    data: st.DataObject, interval_ms: int
) -> None:
    policy = Policy(interval_ms / 1000, reset="sliding")
    part_ms = max(1, interval_ms // 16)
    sent: list[tuple[int, int]] = []
    for _, _, step, after in data.draw(histories(policy)):
        assert after.updated_ms is not None
        first_ms = (after.updated_ms // part_ms - 15) * part_ms
        lately = sum(step for at_ms, step in sent if at_ms >= first_ms)
        assert after.counter == max(COUNTER_FLOOR, -lately - max(0, step - STEP))
        assert len(after.parts) <= 16
        sent.append((after.updated_ms, step))


@FEW
@given(st.data(), policies())
def test_last_update_never_moves_backwards_and_a_clock_that_steps_back_never_resets(
    data: st.DataObject, policy: Policy
) -> None:
    for before, now_ms, _, after in data.draw(histories(policy)):
        if before.updated_ms is None:
            assert after.updated_ms == now_ms
            continue
        assert after.updated_ms == max(before.updated_ms, now_ms)
        assert now_ms > before.updated_ms or after.resets == before.resets


@FEW
@given(st.data(), policies(), st.integers(1, 40), steps)
def test_a_batch_of_n_documents_is_n_checks_in_order(data: st.DataObject, policy: Policy, n: int, step: int) -> None:
    """All at one moment: the first may reset or recover, every later one takes exactly one step."""
    _, now_ms, _, standing = data.draw(histories(policy, back=False))[-1]
    first = batched = policy.check(standing, now_ms + data.draw(intervals_ms), step)
    assert first.updated_ms is not None
    for nth in range(1, n):
        batched = policy.check(batched, first.updated_ms, step)
        assert batched._replace(parts=()) == first._replace(counter=max(COUNTER_FLOOR, first.counter - nth * step), parts=())


@FEW
@given(depths)
def test_both_sides_of_every_threshold_of_any_table(table: list[int]) -> None:
    policy = Policy(thresholds=tuple(-depth / STEP for depth in table))
    for line, depth in enumerate(table, start=1):
        assert policy.level(-depth) == line
        assert policy.level(-depth - 1) == line + 1
    assert policy.level(-(10**12) - 1) == len(table) + 1


@FEW
@given(policies(), st.lists(st.integers(COUNTER_FLOOR, 0), min_size=2).map(sorted))
def test_a_lower_counter_never_gives_a_better_priority(policy: Policy, counters: list[int]) -> None:
    levels = [policy.level(counter) for counter in counters]
    assert all(lower >= higher for lower, higher in pairwise(levels))
    assert set(levels) <= set(range(1, len(policy.thresholds) + 2))


@FEW
@given(intervals_ms, st.lists(st.integers(STEP, STEP_MAX), max_size=30))
def test_a_burst_without_gaps_gets_the_same_numbers_from_both_ways_to_reset(interval_ms: int, burst: list[int]) -> None:
    """With costs of 1 or more; a first document of less is free under `idle`."""
    idle, sliding = Policy(interval_ms / 1000), Policy(interval_ms / 1000, reset="sliding")
    plain = sliding_standing = Standing()
    for step in burst:
        plain, sliding_standing = idle.check(plain, 5, step), sliding.check(sliding_standing, 5, step)
        assert sliding_standing._replace(parts=()) == plain


@FEW
@given(st.data(), policies(), steps, steps)
def test_a_correction_and_its_opposite_never_leave_a_customer_better_off(
    data: st.DataObject, policy: Policy, sent: int, true: int
) -> None:
    standing = data.draw(histories(policy))[-1][-1]
    checked_ms = standing.updated_ms or 0
    moved = policy.correct(standing, checked_ms, standing.resets, true - sent)
    assert moved.counter == max(COUNTER_FLOOR, min(0, standing.counter + sent - true))
    back = policy.correct(moved, checked_ms, moved.resets, sent - true)
    assert back.counter <= standing.counter or moved.counter == COUNTER_FLOOR


@FEW
@given(st.integers(1, 10**7), st.integers(10, 10**5))
def test_a_step_is_never_more_than_cost_over_weight_nor_a_thousandth_less(cost: int, weight: int) -> None:
    step = step_of(cost, weight)
    assert 1 <= step <= STEP_MAX
    assert step == 1 or step * weight <= cost * STEP < (step + 1) * weight


@FEW
@given(st.integers(0, 2**51), st.integers(-(10**12), 10**12))
def test_whole_milliseconds_and_thousandths_come_back_as_they_were(moment_ms: int, counter: int) -> None:
    assert to_milliseconds("now", moment_ms / 1000, 0, 2**53 - 1) == moment_ms
    assert to_thousandths("counter", counter / STEP, -(10**9), 10**9) == counter
