"""How fast documents came during the last one to two minutes."""

from __future__ import annotations

import pytest

from fairlane.api.pace import PACE_MS, Pace

NOW_MS = 10**12
BEGUN = Pace().advance(NOW_MS, 100)


def test_a_first_claim_sets_both_marks() -> None:
    assert (tuple(Pace()), PACE_MS) == ((0, 0, 0, 0), 60_000)
    assert tuple(BEGUN) == (NOW_MS, 100, NOW_MS, 100)


@pytest.mark.parametrize("age_ms", [0, 1, PACE_MS])
def test_the_marks_stay_for_a_minute(age_ms: int) -> None:
    assert BEGUN.advance(NOW_MS + age_ms, 107) is BEGUN
    assert BEGUN.recent(NOW_MS + age_ms, 107) == (7, max(1, age_ms))


@pytest.mark.parametrize("age_ms", [PACE_MS + 1, 2 * PACE_MS])
def test_after_a_minute_the_marks_move_along(age_ms: int) -> None:
    moved = BEGUN.advance(NOW_MS + age_ms, 107)
    assert moved == Pace(NOW_MS, 100, NOW_MS + age_ms, 107)
    assert moved.recent(NOW_MS + age_ms, 110) == (10, age_ms)


@pytest.mark.parametrize("age_ms", [-1, 2 * PACE_MS + 1])
def test_after_a_long_silence_or_a_clock_that_steps_back_the_marks_start_anew(age_ms: int) -> None:
    assert BEGUN.advance(NOW_MS + age_ms, 107) == Pace(NOW_MS + age_ms, 107, NOW_MS + age_ms, 107)
    assert BEGUN.recent(NOW_MS + age_ms, 107) == (0, 0)


def test_just_before_silence_the_pace_is_still_known() -> None:
    assert BEGUN.recent(NOW_MS + 2 * PACE_MS, 107) == (7, 2 * PACE_MS)


def test_steady_claims_are_measured_over_one_to_two_minutes() -> None:
    pace = BEGUN
    for second in range(1, 600):
        pace = pace.advance(NOW_MS + second * 1000, 100 + second)
        taken, span_ms = pace.recent(NOW_MS + second * 1000, 100 + second)
        assert taken * 1000 == span_ms
        assert second <= 61 or PACE_MS < span_ms <= 2 * PACE_MS + 2000
