"""Every figure beside a slow and obvious way to find it."""

from __future__ import annotations

from itertools import combinations
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.policy import Policy, Rules
from fairlane.sim.contenders import CONTENDERS, Contender
from fairlane.sim.measures import GAP_CUSTOMERS_MAX, Spread, measure, nearest_rank, spread
from fairlane.sim.replay import Replay, replay
from fairlane.sim.workload import Workload

from .shared import by_hand, thorough, workloads

named = st.sampled_from(list(CONTENDERS.values()))
numbers = st.lists(st.sampled_from((0.0, 0.5, 1.0, 2.0, 7.0, 100.0)), min_size=1, max_size=250)


@thorough
@given(numbers, st.integers(1, 99))
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(values: list[float], percent: int) -> None:
    enough = [value for value in values if sum(other <= value for other in values) * 100 >= percent * len(values)]
    assert nearest_rank(sorted(values), percent) == min(enough)


@thorough
@given(numbers)
def test_a_spread_is_mean_percentiles_and_maximum(values: list[float]) -> None:
    ordered = sorted(values)
    ranks = [ordered[ceil(len(values) * share / 100) - 1] for share in (50, 95, 99)]
    result = spread(values)
    assert result.mean == pytest.approx(sum(values) / len(values))
    assert list(result[1:]) == [*ranks, max(values)]
    assert spread([]) == Spread(None, None, None, None, None)


def sent_within(workload: Workload, number: int, at_ms: int) -> int:
    """How many documents the customer of a document sent within the 1500 s before a moment, up to that document."""
    return sum(
        workload.customer[other] == workload.customer[number] and at_ms - workload.checked_ms[other] < 1_500_000
        for other in range(number + 1)
    )


def classes(workload: Workload) -> dict[str, list[int]]:
    """The documents of each class."""
    everything = range(len(workload))
    recent = [sent_within(workload, number, workload.checked_ms[number]) for number in everything]
    most = {who: max(recent[one] for one in everything if workload.customer[one] == who) for who in set(workload.customer)}
    return {
        "all": list(everything),
        "light": [one for one in everything if recent[one] <= 3],
        "quiet": [one for one in everything if most[workload.customer[one]] <= 3],
        "heavy": [one for one in everything if most[workload.customer[one]] > 21],
    }


@thorough
@given(workloads(), named, st.integers(1, 3))
def test_waits_are_reported_by_class(workload: Workload, contender: Contender, workers: int) -> None:
    result = replay(workload, contender, workers)
    waits = [(start - at) / 10**6 for start, at in zip(result.start_us, workload.at_us, strict=True)]
    for name, inside in classes(workload).items():
        assert measure(result).waits[name] == spread([waits[one] for one in inside]), name


def alone_us(workload: Workload, workers: int) -> list[int]:
    """From submission to end, each customer with all workers to itself."""
    took = [0] * len(workload)
    for who in set(workload.customer):
        free_us = [0] * workers
        for number in (one for one in range(len(workload)) if workload.customer[one] == who):
            free_us.sort()
            start_us = max(workload.at_us[number], free_us[0])
            free_us[0] = start_us + workload.service_us[number]
            took[number] = free_us[0] - workload.at_us[number]
    return took


@thorough
@given(workloads(), named, st.integers(1, 3))
def test_slowdown_and_jain_index_are_beside_running_alone(workload: Workload, contender: Contender, workers: int) -> None:
    result = replay(workload, contender, workers)
    alone = alone_us(workload, workers)
    ends = [start + took for start, took in zip(result.start_us, workload.service_us, strict=True)]
    took = [end - at for end, at in zip(ends, workload.at_us, strict=True)]
    slow = [max(1.0, one / max(least, 1000)) for one, least in zip(took, alone, strict=True)]
    for name, inside in classes(workload).items():
        assert measure(result).slowdowns[name] == spread([slow[one] for one in inside]), name
    speeds = []
    for who in set(workload.customer):
        own = [one for one in range(len(workload)) if workload.customer[one] == who]
        speeds.append(min(1.0, sum(max(alone[one], 1000) for one in own) / sum(max(took[one], 1000) for one in own)))
    jain = sum(speeds) ** 2 / len(speeds) / sum(speed**2 for speed in speeds)
    assert measure(result).jain == pytest.approx(jain)


@thorough
@given(workloads(), named, st.integers(1, 3), st.sampled_from((1, 5, 1500)))
def test_starved_are_those_that_saw_a_later_one_taken_after_an_interval(
    workload: Workload, contender: Contender, workers: int, interval: float
) -> None:
    result = replay(workload, contender.with_changes(reset_interval=interval), workers)
    starved = 0
    for number, (at_us, turn) in enumerate(zip(workload.at_us, result.turn, strict=True)):
        starved += any(
            result.turn[later] < turn and result.start_us[later] - at_us > interval * 10**6
            for later in range(number + 1, len(workload))
        )
    assert measure(result).starved == starved


@thorough
@given(workloads(), named, st.integers(1, 3), st.sampled_from((1, 5, 1500)))
def test_overtaken_is_the_share_that_was_taken_before_an_earlier_one_of_its_own(
    workload: Workload, contender: Contender, workers: int, interval: float
) -> None:
    result = replay(workload, contender.with_changes(reset_interval=interval), workers)
    overtook = sum(
        any(
            workload.customer[one] == workload.customer[number] and result.turn[one] > result.turn[number]
            for one in range(number)
        )
        for number in range(len(workload))
    )
    assert measure(result).overtaken == overtook / len(workload)


@thorough
@given(workloads(), named, st.integers(1, 3))
def test_utilisation_is_work_beside_what_the_workers_could_do(workload: Workload, contender: Contender, workers: int) -> None:
    result = replay(workload, contender, workers)
    end_us = max(start + took for start, took in zip(result.start_us, workload.service_us, strict=True))
    assert measure(result).utilisation == pytest.approx(sum(workload.service_us) / workers / end_us if end_us else 0)
    assert measure(result).utilisation <= 1


def widest_gap_us(result: Replay) -> int:
    """For every two customers and every stretch of turns during which both have something waiting: the most that one got
    more than the other."""
    workload = result.workload
    order = sorted(range(len(workload)), key=lambda number: result.turn[number])
    widest = 0
    for pair in combinations(sorted(set(workload.customer)), 2):
        together: list[int] = []  # what one got more than the other, turn by turn, since both wait
        for place, taken in enumerate(order):
            if not all(waiting(result, who, order[place:], result.start_us[taken]) for who in pair):
                together = []
            elif workload.customer[taken] in pair:
                together.append(workload.service_us[taken] * (1 if workload.customer[taken] == pair[0] else -1))
                widest = max(widest, *(abs(sum(together[begin:])) for begin in range(len(together))))
            if not all(waiting(result, who, order[place + 1 :], result.start_us[taken]) for who in pair):
                together = []
    return widest


def waiting(result: Replay, who: int, left: list[int], now_us: int) -> bool:
    return any(result.workload.customer[one] == who and result.workload.at_us[one] <= now_us for one in left)


@thorough
@given(workloads(most=20), named, st.integers(1, 3))
def test_the_service_gap_is_the_widest_while_both_had_documents_waiting(
    workload: Workload, contender: Contender, workers: int
) -> None:
    result = replay(workload, contender, workers)
    assert measure(result).service_gap * 10**6 == pytest.approx(widest_gap_us(result))


def test_the_service_gap_is_looked_for_between_the_busiest() -> None:
    many = [(0.0, f"busy-{number:02}", 1.0) for number in range(GAP_CUSTOMERS_MAX) for _ in range(3)]
    slow = [(0.0, f"rare-{number}", 1000.0) for number in range(2) for _ in range(2)]
    assert measure(replay(by_hand(*slow, *many), CONTENDERS["fifo"], 1)).service_gap == 3
    assert measure(replay(by_hand(*slow, *many[3:]), CONTENDERS["fifo"], 1)).service_gap == 2000


def test_exactly_one_interval_is_not_yet_starved() -> None:
    workload = by_hand((0, "a", 10), (0, "a", 1), (5, "b", 1))
    for interval, starved in ((10, 0), (9.999, 1)):
        rules = Rules(Policy(interval, (0,)), "strict")
        assert measure(replay(workload, Contender("mine", rules), 1)).starved == starved


def test_all_that_overtake_after_a_reset_are_counted() -> None:
    rows = [(0.0, "a", 100.0)] * 25 + [(1800.0, "a", 1.0)] * 2
    assert measure(replay(by_hand(*rows), CONTENDERS["texts-strict"], 1)).overtaken == 2 / 27


def test_a_customer_served_sooner_than_alone_is_not_faster_than_full_speed() -> None:
    long_then_short = [(0.0, "a", 1000.0)] * 5 + [(2000.0, "a", 1.0)] * 2
    result = measure(replay(by_hand(*long_then_short, (4500.0, "b", 1000.0)), CONTENDERS["texts-strict"].with_changes(1000), 1))
    assert result.waits["all"].max == 4002
    slowed = 1000 / 1502  # b waits for 502 s; a, whose short ones go first, is not slowed at all
    assert result.jain == pytest.approx((1 + slowed) ** 2 / 2 / (1 + slowed**2))


def test_figures_of_one_document() -> None:
    result = measure(replay(by_hand((5, "acme", 2)), CONTENDERS["texts"], 2))
    assert (result.documents, result.customers, result.load, result.jain, result.utilisation) == (1, 1, None, 1, 0.5)
    assert result.waits["all"] == result.waits["quiet"] == Spread(0, 0, 0, 0, 0)
    assert result.waits["heavy"] == Spread(None, None, None, None, None)


def test_the_ends_of_the_classes() -> None:
    heavy = by_hand(*[(0, "big", 1.0)] * 22, *((1, "middle", 1.0) for _ in range(21)), (2, "small", 1.0))
    result: dict[str, Any] = measure(replay(heavy, CONTENDERS["fifo"], 1)).waits
    assert result["heavy"].max == 21
    assert result["quiet"] == Spread(41, 41, 41, 41, 41)
    steady = by_hand(*((500.0 * tick, "steady", 1.0) for tick in range(9)))
    assert measure(replay(steady, CONTENDERS["fifo"], 1)).waits["quiet"].max == 0
    close = by_hand(*((499.9 * tick, "close", 1.0) for tick in range(9)))
    assert measure(replay(close, CONTENDERS["fifo"], 1)).waits["quiet"].max is None


def test_an_interval_of_the_policy_moves_starved_but_not_the_classes() -> None:
    rows = [(0.0, "big", 60.0)] * 30 + [(float(tick), "small", 60.0) for tick in range(3)]
    short, usual = (
        measure(replay(by_hand(*rows), Contender("mine", Rules(Policy(interval), "strict")), 1)) for interval in (100, 1500)
    )
    assert short.starved > usual.starved
    assert short.waits.keys() == usual.waits.keys()
    assert short.waits["light"] == usual.waits["light"]
