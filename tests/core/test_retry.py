"""When a failed attempt is tried again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.core.errors import BadValue
from fairlane.core.retry import DELAY_MAX_MS, Backoff

FEW = settings(max_examples=40, deadline=None)
EVEN = Backoff(first=2, factor=2, ceiling=600, jitter=0)


def test_each_attempt_waits_twice_as_long_up_to_the_ceiling() -> None:
    delays = [EVEN.delay_ms(attempts, 0) for attempts in range(1, 13)]
    assert delays == [2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 512_000, 600_000, 600_000, 600_000]


@pytest.mark.parametrize(
    ("factor", "delays"), [(1, [3000] * 4), (3, [3000, 9000, 20_000, 20_000]), (1.5, [3000, 4500, 6750, 10_125])]
)
def test_each_attempt_waits_factor_times_longer(factor: float, delays: list[int]) -> None:
    backoff = Backoff(first=3, factor=factor, ceiling=20, jitter=0)
    assert [backoff.delay_ms(attempts, 0) for attempts in range(1, 5)] == delays


@pytest.mark.parametrize(("jitter", "dice", "delay_ms"), [(0, 0.9, 8000), (0.5, 0, 8000), (0.5, 0.5, 6000), (1, 0.75, 2000)])
def test_jitter_takes_away_up_to_that_share(jitter: float, dice: float, delay_ms: int) -> None:
    assert Backoff(jitter=jitter).delay_ms(3, dice) == delay_ms


def test_the_defaults_double_from_2_s_to_10_minutes_less_up_to_a_half() -> None:
    assert Backoff() == Backoff(first=2, factor=2, ceiling=600, jitter=0.5)


def test_no_first_wait_is_no_wait_ever() -> None:
    assert [Backoff(first=0).delay_ms(attempts, 0.3) for attempts in (1, 2, 10**12)] == [0, 0, 0]


@pytest.mark.parametrize("factor", [1, 2, 100])
def test_however_many_attempts_there_were_the_answer_comes(factor: float) -> None:
    backoff = Backoff(first=1, factor=factor, ceiling=DELAY_MAX_MS / 1000, jitter=0)
    assert backoff.delay_ms(10**12, 0) == (1000 if factor == 1 else DELAY_MAX_MS)


@FEW
@given(
    st.integers(0, 10_000),
    st.floats(1, 100),
    st.integers(10_000, DELAY_MAX_MS),
    st.floats(0, 1),
    st.integers(1, 50),
    st.floats(0, 1, exclude_max=True),
)
def test_a_delay_is_between_its_full_length_and_that_less_the_jitter(
    first_ms: int, factor: float, ceiling_ms: int, jitter: float, attempts: int, dice: float
) -> None:
    backoff = Backoff(first_ms / 1000, factor, ceiling_ms / 1000, jitter)
    longest = backoff.delay_ms(attempts, 0)
    assert abs(longest - min(first_ms * factor ** (attempts - 1), ceiling_ms)) <= 1 + longest / 10**9
    assert longest * (1 - jitter) - 1 <= backoff.delay_ms(attempts, dice) <= longest
    assert backoff.delay_ms(attempts + 1, dice) >= backoff.delay_ms(attempts, dice)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("first", -1),
        ("first", 600.001),
        ("first", float("nan")),
        ("ceiling", -1),
        ("ceiling", 365 * 86_400 + 1),
        ("factor", 0.99),
        ("factor", 100.1),
        ("factor", float("nan")),
        ("jitter", -0.1),
        ("jitter", 1.1),
        ("jitter", float("nan")),
    ],
)
def test_a_bad_value_is_refused_by_name_and_value(name: str, value: float) -> None:
    made: dict[str, Any] = {name: value}
    with pytest.raises(BadValue, match=f"^{name} is ") as caught:
        Backoff(**made)
    assert caught.value.name == name
    assert repr(caught.value.value) == repr(value)


def test_the_bounds_themselves_are_allowed() -> None:
    assert Backoff(first=600, factor=100, ceiling=600, jitter=1).delay_ms(1, 0) == 600_000
    assert Backoff(first=0, factor=1, ceiling=0, jitter=0).delay_ms(1, 0) == 0


@pytest.mark.parametrize(
    ("attempts", "dice", "name"), [(0, 0.5, "attempts"), (-1, 0.5, "attempts"), (1, 1, "dice"), (1, -0.1, "dice")]
)
def test_attempts_below_1_and_dice_beyond_their_range_are_refused(attempts: int, dice: float, name: str) -> None:
    with pytest.raises(BadValue, match=f"^{name} is "):
        Backoff().delay_ms(attempts, dice)


@pytest.mark.parametrize("name", ["factor", "jitter", "first", "ceiling"])
def test_what_is_no_number_is_refused_by_name(name: str) -> None:
    with pytest.raises(BadValue, match=f"{name} is 'x'"):
        Backoff(**{name: "x"})  # type: ignore[arg-type]
