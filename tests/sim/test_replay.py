"""The replay: what queueing theory knows must come out, and the laws of any fair server must hold."""

from __future__ import annotations

from heapq import heapreplace
from math import factorial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.errors import Mistake
from fairlane.core.policy import Policy, Rules, Terms
from fairlane.sim.contenders import CONTENDERS, Contender
from fairlane.sim.replay import PROGRESS_EVERY, Replay, replay
from fairlane.sim.workload import Arrival, Workload

from .shared import by_hand, exponential, some_terms, thorough, workloads

FIFO, TEXTS = CONTENDERS["fifo"], CONTENDERS["texts"]
names = st.sampled_from(list(CONTENDERS))


@thorough
@given(workloads())
def test_first_come_first_served_with_one_worker_is_the_lindley_recursion(workload: Workload) -> None:
    waits = [0]
    for number in range(1, len(workload)):
        gap_us = workload.at_us[number] - workload.at_us[number - 1]
        waits.append(max(0, waits[-1] + workload.service_us[number - 1] - gap_us))
    assert list(replay(workload, FIFO, 1).wait_us()) == waits


@thorough
@given(workloads(), st.integers(2, 6))
def test_first_come_first_served_with_several_workers_is_that_of_kiefer_and_wolfowitz(workload: Workload, workers: int) -> None:
    free_us = [0] * workers
    waits = []
    for at_us, service_us in zip(workload.at_us, workload.service_us, strict=True):
        start_us = max(at_us, free_us[0])
        waits.append(start_us - at_us)
        heapreplace(free_us, start_us + service_us)
    assert list(replay(workload, FIFO, workers).wait_us()) == waits


def erlang_c(workers: int, load: float, service: float) -> float:
    """The mean wait of exponential input."""
    offered = workers * load
    last = offered**workers / factorial(workers) / (1 - load)
    waits = last / (sum(offered**busy / factorial(busy) for busy in range(workers)) + last)
    return waits * service / (workers * (1 - load))


@pytest.mark.parametrize(("workers", "load"), [(1, 0.6), (4, 0.7)])
def test_the_mean_wait_of_exponential_input_is_that_of_erlang(workers: int, load: float) -> None:
    random, count, at = Random(7), 100_000, 0.0
    arrivals = []
    gaps, services = exponential(random, count, 10 / workers / load), exponential(random, count, 10)
    for gap, service in zip(gaps, services, strict=True):
        at += gap
        arrivals.append(Arrival(round(at * 1000), "everybody", round(service * 10**6)))
    result = replay(Workload.of("exponential", arrivals), FIFO, workers)
    mean = sum(result.wait_us()) / count / 10**6
    assert mean == pytest.approx(erlang_c(workers, load, 10), rel=0.02)


def idle_beside_ready(result: Replay, capped: set[str]) -> list[int]:
    """The documents that waited at a moment when a worker was free, though nothing held their customer back."""
    workload, found = result.workload, []
    ends = [start + service for start, service in zip(result.start_us, workload.service_us, strict=True)]
    for number, (at_us, start_us) in enumerate(zip(workload.at_us, result.start_us, strict=True)):
        if workload.customers[workload.customer[number]] in capped:
            continue
        for moment in {at_us, *ends} if at_us < start_us else ():
            if at_us <= moment < start_us:
                running = sum(start <= moment < end for start, end in zip(result.start_us, ends, strict=True))
                if running < result.workers:
                    found.append(number)
    return found


@thorough
@given(workloads(most=25), names, some_terms, st.integers(1, 4))
def test_a_worker_never_idles_while_something_is_ready(
    workload: Workload, name: str, terms: dict[str, Terms], workers: int
) -> None:
    result = replay(workload, Contender(name, CONTENDERS[name].rules, terms), workers)
    assert idle_beside_ready(result, {who for who, own in terms.items() if own.cap}) == []


@thorough
@given(workloads(), names, some_terms, st.integers(1, 4))
def test_each_document_is_taken_once_and_not_before_it_came(
    workload: Workload, name: str, terms: dict[str, Terms], workers: int
) -> None:
    result = replay(workload, Contender(name, CONTENDERS[name].rules, terms), workers)
    assert sorted(result.turn) == list(range(1, len(workload) + 1))
    assert min(result.wait_us()) >= 0
    in_turn = sorted(zip(result.turn, result.start_us, strict=True))
    assert [start for _, start in in_turn] == sorted(result.start_us)
    changes = [(start, 1) for start in result.start_us]
    changes += [(start + took, -1) for start, took in zip(result.start_us, workload.service_us, strict=True) if took]
    changes += [(start, -1) for start, took in zip(result.start_us, workload.service_us, strict=True) if not took]
    running = 0
    for _, change in sorted(changes):
        running += change
        assert running <= workers


@thorough
@given(workloads(), some_terms)
def test_a_cap_is_never_exceeded(workload: Workload, terms: dict[str, Terms]) -> None:
    result = replay(workload, Contender("capped", terms=terms), 4)
    for who, own in terms.items():
        if own.cap is None or who not in workload.customers:
            continue
        mine = [
            (start, start + took)
            for start, took, customer in zip(result.start_us, workload.service_us, workload.customer, strict=True)
            if workload.customers[customer] == who
        ]
        for moment, _ in mine:
            assert sum(start <= moment < end for start, end in mine) <= own.cap


def test_all_that_comes_at_one_moment_is_queued_before_a_choice_is_made() -> None:
    rows = [(0.0, "big", 1.0)] * 4 + [(0.0, "small", 1.0)]
    result = replay(by_hand(*rows), CONTENDERS["texts-strict"], 1)
    assert list(result.turn) == [1, 2, 3, 5, 4]
    ends_as_others_come = by_hand((0, "a", 5), (1, "a", 5), (2, "a", 5), (3, "a", 5), (5, "b", 1))
    assert list(replay(ends_as_others_come, CONTENDERS["round-robin"], 1).turn) == [1, 3, 4, 5, 2]


def test_all_that_ends_at_one_moment_makes_room_before_a_choice_is_made() -> None:
    workload = by_hand((0, "b", 10), (0, "a", 10), (1, "a", 1), (2, "b", 1))
    result = replay(workload, Contender("capped", FIFO.rules, {"a": Terms(cap=1)}), 2)
    assert list(result.turn) == [1, 2, 3, 4]


@thorough
@given(workloads(), st.integers(1, 3))
def test_no_ready_document_is_passed_over_longer_than_open_turns_allow(workload: Workload, workers: int) -> None:
    bound_holds(replay(workload, TEXTS, workers))


def bound_holds(result: Replay, every: int = 16) -> int:
    """Returns the most that a document was passed over."""
    worst = 0
    starts = result.start_us
    for number, (at_us, turn) in enumerate(zip(result.workload.at_us, result.turn, strict=True)):
        taken_before = sum(start < at_us for start in starts)
        ready_before = sum(start >= at_us for start in starts[:number])
        assert turn - taken_before <= every * (ready_before + 1)
        worst = max(worst, turn - taken_before)
    return worst


def test_endless_newcomers_do_not_shut_out_a_big_sender() -> None:
    flood = [(0.0, "big", 1.0)] * 30
    newcomers = [(tick / 2, f"new-{tick}", 1.0) for tick in range(800)]
    workload = by_hand(*flood, *newcomers)
    assert bound_holds(replay(workload, TEXTS, 1)) > 16 * 8
    last = replay(workload, CONTENDERS["texts-strict"], 1)
    assert last.turn[29] == len(workload)


def test_a_policy_that_pauses_a_customer_of_the_workload_is_refused() -> None:
    workload = by_hand((0, "acme", 1), (1, "bolt", 1))
    with pytest.raises(Mistake, match="mine pauses 'bolt', whose documents would never be served"):
        replay(workload, Contender("mine", terms={"bolt": Terms(paused=True)}), 1)
    result = replay(workload, Contender("mine", terms={"somebody else": Terms(paused=True)}), 1)
    assert list(result.turn) == [1, 2]


def test_progress_adds_up_to_all_documents() -> None:
    result: list[int] = []
    replay(by_hand(*((tick, "a", 0.5) for tick in range(2 * PROGRESS_EVERY + 7))), FIFO, 1, result.append)
    assert result == [PROGRESS_EVERY, PROGRESS_EVERY, 7]


def test_weights_give_turns_in_proportion() -> None:
    rows = [(0.0, who, 1.0) for who in ("one", "three") for _ in range(400)]
    rules = Rules(Policy(thresholds=()), open_turn_every=0)
    result = replay(by_hand(*rows), Contender("weighted", rules, {"three": Terms(weight=3)}), 1)
    first = [customer for turn, customer in sorted(zip(result.turn, result.workload.customer, strict=True))][:200]
    assert (first.count(0), first.count(1)) == (50, 150)


def test_fair_queueing_gives_the_same_time_to_short_and_long_documents() -> None:
    rows = [(0.0, "short", 0.1)] * 300 + [(0.0, "long", 1.0)] * 100
    order = sorted(
        zip((result := replay(by_hand(*rows), CONTENDERS["fair-queueing"], 1)).turn, result.workload.customer, strict=True)
    )
    first = [customer for _, customer in order][:110]
    assert (first.count(0), first.count(1)) == (100, 10)
    turns = replay(by_hand(*rows), CONTENDERS["round-robin"], 1)
    first = [customer for _, customer in sorted(zip(turns.turn, turns.workload.customer, strict=True))][:110]
    assert (first.count(0), first.count(1)) == (55, 55)
