"""The arithmetic of turns: prices, tags, open turns and blocks."""

from __future__ import annotations

import pytest

from fairlane.core.dispatch import (
    USUAL_FIRST,
    USUAL_SHARE,
    Payment,
    is_blocked,
    is_open_turn,
    kind_set,
    next_usual,
    pay_turn,
    true_up,
    turn_price,
)


@pytest.mark.parametrize(("number", "every", "expected"), [(1, 16, 0), (15, 16, 0), (16, 16, 1), (17, 16, 0), (32, 16, 1)])
def test_number_k_is_an_open_turn_when_k_mod_16_is_0(number: int, every: int, expected: int) -> None:
    assert is_open_turn(number, every) is bool(expected)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [(None, None), ([], ()), (["b", "a"], ("a", "b")), ({"b": 3, "a": 1}, ("a", "b")), ("aab", ("a", "b"))],
)
def test_a_set_of_kinds_is_the_same_in_any_order(kinds: list[str] | None, expected: tuple[str, ...] | None) -> None:
    assert kind_set(kinds) == expected


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


@pytest.mark.parametrize(
    ("kind_clock", "clock", "start", "cross", "is_open", "expected"),
    [
        (0, 0, 0, 0, False, Payment(0, 0, 300, 300, True)),
        (2000, 1000, 5000, 4000, False, Payment(5000, 4000, 5300, 4300, True)),
        (2000, 9000, 5000, 4000, False, Payment(5000, 9000, 5300, 9300, True)),  # behind other kinds: that is not owed
        (2000, 1000, 2300, 4000, True, Payment(2000, 1000, 2600, 4300, True)),  # an open turn moves no clock
        (2000, 1000, 2301, 4000, True, Payment(2000, 1000, 2301, 4000, False)),  # and is free for a lane in debt
        (2000, 9000, 2301, 4000, True, Payment(2000, 9000, 2301, 9000, False)),
    ],
)
def test_a_turn_moves_the_clocks_and_is_paid_for(
    kind_clock: int, clock: int, start: int, cross: int, is_open: bool, expected: Payment
) -> None:
    assert pay_turn(kind_clock, clock, start, cross, 300, is_open) == expected


@pytest.mark.parametrize(
    ("turns", "usual", "weight", "expected"),
    [("documents", 7, 1000, 55), ("time", USUAL_FIRST, 1000, 1000), ("time", 2_500_000, 2000, 1250), ("time", 3, 100_000, 1)],
)
def test_a_turn_costs_the_documents_step_or_the_time_its_customer_usually_takes(
    turns: str, usual: int, weight: int, expected: int
) -> None:
    assert turn_price(turns, 55, usual, weight) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tag", "clock", "delta", "expected"),
    [
        (500, 100, 30, 530),
        (500, 100, -30, 470),
        (500, 100, -400, 101),
        (500, 100, -999, 101),
        (100, 100, -5, 100),
        (90, 100, -5, 90),
    ],
)
def test_a_tag_is_trued_up_and_never_falls_to_the_clock(tag: int, clock: int, delta: int, expected: int) -> None:
    assert true_up(tag, clock, delta) == expected


@pytest.mark.parametrize(
    ("usual", "taken", "expected"), [(None, 7, 7), (800, 1600, 900), (800, 0, 700), (800, 799, 799), (0, 7, 0)]
)
def test_what_attempts_usually_take_follows_them_by_an_eighth_cut_down(usual: int | None, taken: int, expected: int) -> None:
    assert next_usual(usual, taken, USUAL_SHARE) == expected
