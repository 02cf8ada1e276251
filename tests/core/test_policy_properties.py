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
    correct_counter,
    interval_ms_of,
    step_of,
    to_milliseconds,
    to_thousandths,
)

FEW = settings(max_examples=40, deadline=None)
STEP_MAX = 10**9  # the highest cost at the lowest weight

resets: st.SearchStrategy[Reset] = st.sampled_from(["idle", "window", "gradual"])
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
def test_a_counter_never_rises_except_by_reset_or_recovery(data: st.DataObject, policy: Policy) -> None:
    for before, now_ms, step, after in data.draw(histories(policy)):
        assert COUNTER_FLOOR <= after.counter <= 0
        recovers = policy.reset == "gradual" and before.updated_ms is not None and now_ms > before.updated_ms
        if after.resets > before.resets:
            assert after.counter == -max(0, step - STEP)
        elif recovers:
            assert max(COUNTER_FLOOR, before.counter - step) <= after.counter <= -step
        else:
            assert after.counter == max(COUNTER_FLOOR, before.counter - step)


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
        assert batched == first._replace(counter=max(COUNTER_FLOOR, first.counter - nth * step))


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
@given(st.data(), intervals_ms)
def test_gradual_resets_exactly_when_idle_does_and_is_never_below_it(data: st.DataObject, interval_ms: int) -> None:
    idle, gradual = Policy(interval_ms / 1000), Policy(interval_ms / 1000, reset="gradual")
    plain = Standing()
    for _, now_ms, step, recovering in data.draw(histories(gradual)):
        plain = idle.check(plain, now_ms, step)
        assert recovering[1:] == plain[1:]
        assert recovering.counter >= plain.counter


@FEW
@given(intervals_ms, st.lists(steps, max_size=30))
def test_a_burst_without_gaps_gets_the_same_numbers_from_every_way_to_reset(interval_ms: int, burst: list[int]) -> None:
    standings = [Standing()] * 3
    ways = [Policy(interval_ms / 1000, reset=reset) for reset in ("idle", "window", "gradual")]
    for step in burst:
        standings = [policy.check(standing, 5, step) for policy, standing in zip(ways, standings, strict=True)]
        assert len(set(standings)) == 1


@FEW
@given(st.data(), intervals_ms)
def test_under_window_no_check_is_more_than_the_interval_after_its_reset(data: st.DataObject, interval_ms: int) -> None:
    for before, now_ms, _, after in data.draw(histories(Policy(interval_ms / 1000, reset="window"), back=False)):
        assert after.reset_ms is not None
        assert now_ms - after.reset_ms <= interval_ms
        assert before.reset_ms is None or (now_ms - before.reset_ms > interval_ms) == (after.resets > before.resets)


@FEW
@given(st.data(), policies(), steps, steps)
def test_a_correction_and_its_opposite_never_leave_a_customer_better_off(
    data: st.DataObject, policy: Policy, sent: int, true: int
) -> None:
    standing = data.draw(histories(policy))[-1][-1]
    moved = correct_counter(standing, standing.resets, sent, true)
    assert moved == standing._replace(counter=max(COUNTER_FLOOR, min(0, standing.counter + sent - true)))
    back = correct_counter(moved, moved.resets, true, sent)
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
