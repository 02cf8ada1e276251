"""What may be configured, what is refused by name and value, and what a customer may have of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from fairlane.core.errors import BadValue
from fairlane.core.policy import (
    Policy,
    Reset,
    Rules,
    Standing,
    Terms,
    interval_ms_of,
    to_milliseconds,
    to_thousandths,
    weight_of,
)

NOT_NUMBERS: list[Any] = [True, "12", None, float("nan"), float("inf"), float("-inf")]


def refused(make: Callable[[], object], name: str, value: object) -> None:
    with pytest.raises(BadValue) as caught:
        make()
    assert caught.value.name == name
    assert repr(caught.value.value) == repr(value)
    assert str(caught.value).startswith(f"{name} is {value!r}; it must be ")


def test_the_defaults_are_those_of_the_texts() -> None:
    assert Policy() == Policy(1500, (-2, -4, -6, -8, -10, -12, -14, -20), "idle")
    assert Rules() == Rules(Policy(), "fair", 16, version=1, turns="time")


# -- the reset interval ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "expected"), [(0.001, 1), (1, 1000), (2.5, 2500), (30 * 86_400, 2_592_000_000)])
def test_the_reset_interval_may_be_1_ms_to_30_days(seconds: float, expected: int) -> None:
    assert interval_ms_of(Policy(reset_interval=seconds)) == expected
    assert interval_ms_of(Terms(reset_interval=seconds).policy(Policy())) == expected


@pytest.mark.parametrize("value", [0, 0.0004, -1, 30 * 86_400 + 0.001, 1e300, *NOT_NUMBERS])
def test_another_reset_interval_is_refused_by_name_and_value(value: Any) -> None:
    refused(lambda: Policy(reset_interval=value), "reset_interval", value)
    if value is not None:  # None: as everybody
        refused(lambda: Terms(reset_interval=value), "reset_interval", value)


@pytest.mark.parametrize("value", [1e306, -1e306, 10**400], ids=["float", "negative", "whole"])
def test_seconds_too_many_to_count_are_refused_by_name(value: Any) -> None:
    with pytest.raises(BadValue) as caught:
        Policy(reset_interval=value)
    assert caught.value.name == "reset_interval"


def test_a_refusal_says_what_is_allowed() -> None:
    with pytest.raises(BadValue, match=r"from 0\.5 to 250$"):
        to_milliseconds("now", 300, 500, 250_000)
    with pytest.raises(BadValue, match=r"from 0\.001 to 10,000 in whole thousandths$"):
        to_thousandths("cost", 0, 0.001, 10_000)


def test_an_interval_of_1_ms_resets_after_2() -> None:
    policy, seen = Policy(reset_interval=0.001), Standing(counter=-5000, updated_ms=7, resets=1)
    assert [policy.check(seen, now_ms).counter for now_ms in (7, 8, 9)] == [-6000, -6000, 0]


@pytest.mark.parametrize("value", [9, 10.5, 100.25])
def test_a_moment_beyond_its_bounds_is_refused_by_name_and_value(value: float) -> None:
    assert to_milliseconds("now", value, 9_000, 100_250) == value * 1000
    refused(lambda: to_milliseconds("now", value, int(value * 1000) + 1, 10**9), "now", value)
    refused(lambda: to_milliseconds("now", value, 0, int(value * 1000) - 1), "now", value)


# -- the table ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", range(1, 10))
def test_a_table_may_have_1_to_9_levels(levels: int) -> None:
    policy = Policy(thresholds=tuple(range(0, -levels + 1, -1)))
    assert [policy.priority(0), policy.priority(-100)] == [1, levels]


def test_a_tenth_level_is_refused() -> None:
    with pytest.raises(BadValue, match="at most 8 numbers") as caught:
        Policy(thresholds=tuple(range(0, -9, -1)))
    assert (caught.value.name, caught.value.value) == ("thresholds", tuple(range(0, -9, -1)))


def test_a_refused_table_is_shown_whole() -> None:
    """Otherwise the wrong threshold might be cut from the message."""
    with pytest.raises(BadValue, match=re.escape("(-2, -4, -6, -8, -10, -12, -14, -13)")):
        Policy(thresholds=(-2, -4, -6, -8, -10, -12, -14, -13))


def test_a_threshold_may_be_0_a_thousandth_or_the_floor() -> None:
    policy = Policy(thresholds=(0, -0.001, -(10**9)))
    assert [policy.level(counter) for counter in (0, -1, -2, -(10**12))] == [1, 2, 3, 3]


@pytest.mark.parametrize("value", [1, 0.001, -(10**9) - 1, -2.0005, *NOT_NUMBERS])
def test_a_threshold_above_0_or_finer_than_thousandths_is_refused_by_name_and_value(value: Any) -> None:
    refused(lambda: Policy(thresholds=(value,)), "thresholds", value)
    refused(lambda: Terms(thresholds=(value,)), "thresholds", value)


@pytest.mark.parametrize("value", [(-2, -2), (-4, -2), (-2, -4, -4), (-2, -6, -4), (0, 0), (-2, -2.0)])
def test_thresholds_that_do_not_strictly_fall_are_refused_by_name_and_value(value: tuple[float, ...]) -> None:
    refused(lambda: Policy(thresholds=value), "thresholds", value)
    refused(lambda: Terms(thresholds=value), "thresholds", value)


def test_a_table_is_kept_as_a_tuple_that_nobody_can_change() -> None:
    table: Any = [-2, -4]
    policy, terms = Policy(thresholds=table), Terms(thresholds=table)
    table.append(-6)
    assert (policy, terms) == (Policy(thresholds=(-2, -4)), Terms(thresholds=(-2, -4)))
    assert type(policy.thresholds) is tuple


# -- reset, dispatch, open turns ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["Idle", "never", "", None])
def test_another_way_to_reset_is_refused_by_name_and_value(value: Any) -> None:
    refused(lambda: Policy(reset=value), "reset", value)
    if value is not None:
        refused(lambda: Terms(reset=value), "reset", value)


@pytest.mark.parametrize("value", ["Fair", "lottery", "", None])
def test_another_dispatch_is_refused_by_name_and_value(value: Any) -> None:
    refused(lambda: Rules(dispatch=value), "dispatch", value)


@pytest.mark.parametrize("value", [0, 1, 16, 1_000_000])
def test_the_open_turn_share_may_be_0_for_never_to_1_000_000(value: int) -> None:
    assert Rules(open_turn_every=value).open_turn_every == value


@pytest.mark.parametrize("value", [-1, 1_000_001, 16.0, True, "16", None])
def test_another_open_turn_share_is_refused_by_name_and_value(value: Any) -> None:
    refused(lambda: Rules(open_turn_every=value), "open_turn_every", value)


# -- weight and cost ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("weight", "expected"), [(1, 1000), (0.01, 10), (100, 100_000), (0.3, 300), (2.007, 2007)])
def test_a_weight_may_be_0_01_to_100_in_whole_thousandths(weight: float, expected: int) -> None:
    assert weight_of(Terms(weight=weight)) == expected


@pytest.mark.parametrize("value", [0, 0.009, 0.0099, 100.001, -1, 1.0005, 0.01001, *NOT_NUMBERS])
def test_another_weight_is_refused_by_name_and_value(value: Any) -> None:
    refused(lambda: Terms(weight=value), "weight", value)


@pytest.mark.parametrize(("cost", "expected"), [(1, 1000), (0.001, 1), (10_000, 10_000_000), (9_999.999, 9_999_999)])
def test_a_cost_may_be_0_001_to_10_000_in_whole_thousandths(cost: float, expected: int) -> None:
    assert to_thousandths("cost", cost, 0.001, 10_000) == expected


@pytest.mark.parametrize("value", [0, 0.0009, 10_000.001, 1.0001, 9_999.9995, *NOT_NUMBERS])
def test_another_cost_is_refused_by_name_and_value(value: Any) -> None:
    refused(lambda: to_thousandths("cost", value, 0.001, 10_000), "cost", value)


# -- a customer's own terms --------------------------------------------------------------------------------------------

EVERYBODY = Policy(reset_interval=60, thresholds=(-1, -3), reset="sliding")


def test_a_customer_without_terms_of_its_own_is_as_everybody() -> None:
    assert Terms().policy(EVERYBODY) is EVERYBODY
    assert (Terms().weight, Terms().cap, Terms().paused) == (1, None, False)


@pytest.mark.parametrize(
    ("terms", "own"),
    [
        (Terms(reset_interval=5), Policy(5, (-1, -3), "sliding")),
        (Terms(thresholds=(-7,)), Policy(60, (-7,), "sliding")),
        (Terms(thresholds=()), Policy(60, (), "sliding")),
        (Terms(reset="idle"), Policy(60, (-1, -3), "idle")),
        (Terms(reset_interval=5, thresholds=(-7,), reset="idle"), Policy(5, (-7,), "idle")),
    ],
)
def test_a_customer_may_have_its_own_interval_table_and_reset(terms: Terms, own: Policy) -> None:
    assert terms.policy(EVERYBODY) == own


@pytest.mark.parametrize("resets", ["idle", "sliding"])
def test_terms_hold_from_the_next_check(resets: Reset) -> None:
    seen = Standing(counter=-5000, updated_ms=0, resets=1)
    own = Terms(reset_interval=5, reset=resets).policy(EVERYBODY)
    assert (EVERYBODY.check(seen, 5001).counter, own.check(seen, 5001).counter) == (-6000, 0)


@pytest.mark.parametrize("cap", [None, 1, 1_000_000])
def test_a_customer_may_have_a_cap(cap: int | None) -> None:
    assert Terms(cap=cap).cap == cap


@pytest.mark.parametrize("value", [0, -1, 1_000_001, 1.0, True, "1"])
def test_another_cap_is_refused_by_name_and_value(value: Any) -> None:
    refused(lambda: Terms(cap=value), "cap", value)


@pytest.mark.parametrize("value", [0, 1, None, "yes"])
def test_a_pause_that_is_neither_true_nor_false_is_refused_by_name_and_value(value: Any) -> None:
    assert (Terms(paused=True).paused, Terms(paused=False).paused) == (True, False)
    refused(lambda: Terms(paused=value), "paused", value)


def test_a_policy_once_made_does_not_change() -> None:
    settled: Any
    for settled, name in ((Policy(), "reset"), (Terms(), "paused"), (Rules(), "dispatch")):
        with pytest.raises(AttributeError):
            setattr(settled, name, "idle")


@pytest.mark.parametrize("wrong", [None, 5, "-2"])
def test_a_table_that_is_no_table_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(BadValue, match="thresholds is"):
        Policy(thresholds=wrong)
