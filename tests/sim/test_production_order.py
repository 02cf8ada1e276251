"""The simulator is the production order: the memory engine, driven verb by verb, does the same."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from fairlane import Queue
from fairlane.core.document import Claim, Done, Submission
from fairlane.core.policy import Policy, Rules, Terms
from fairlane.engine import Engine, open_engine
from fairlane.sim.contenders import CONTENDERS, Contender
from fairlane.sim.replay import replay
from fairlane.sim.workload import Workload

from .shared import some_terms, thorough, workloads

rules = st.one_of(
    st.sampled_from([value.rules for value in CONTENDERS.values()]),
    st.builds(
        Rules,
        st.builds(
            Policy,
            st.sampled_from((1, 30, 1500)),
            st.sampled_from((Policy().thresholds, (), (-1,), (0, -0.5, -3))),
            st.sampled_from(("idle", "sliding")),
        ),
        st.sampled_from(("fair", "strict")),
        st.sampled_from((0, 1, 2, 3, 16)),
        turns=st.sampled_from(("time", "documents")),
    ),
)


class Served(NamedTuple):
    """What became of a document in a queue."""

    turn: int
    start_ms: int
    priority: int


class Working:
    """A queue in memory and its workers, moved from one moment to the next."""

    def __init__(self, workload: Workload, contender: Contender, workers: int) -> None:
        self.workload, self.contender, self.workers = workload, contender, workers
        self.engine: Engine = open_engine("memory://")
        self.engine.configure(replace(contender.rules, version=1), now_ms=0)
        for customer, terms in contender.terms.items():
            self.engine.tune(customer, terms, 0, now_ms=0)
        self.running: list[tuple[int, Claim]] = []
        self.served: dict[int, Served] = {}

    def all_of_it(self) -> list[Served]:
        waiting = list(range(len(self.workload)))
        while waiting or self.running:
            moments = [self.workload.checked_ms[one] for one in waiting[:1]] + [end_ms for end_ms, _ in self.running]
            now_ms = min(moments)
            come = [one for one in waiting if self.workload.checked_ms[one] == now_ms]
            waiting = waiting[len(come) :]
            if come:
                self.engine.submit([self.submission(one) for one in come], now_ms=now_ms)
            self.settle(now_ms)
            self.claim(now_ms)
        return [self.served[number] for number in range(len(self.workload))]

    def submission(self, number: int) -> Submission:
        customer = self.workload.customers[self.workload.customer[number]]
        return Submission(f"document-{number}", customer, "extract", "null", self.workload.cost[number])

    def settle(self, now_ms: int) -> None:
        over = [claim for end_ms, claim in self.running if end_ms == now_ms]
        self.running = [one for one in self.running if one[0] != now_ms]
        assert self.engine.settle([(claim, Done()) for claim in over], now_ms=now_ms) == []

    def claim(self, now_ms: int) -> None:
        free = self.workers - len(self.running)
        for claim in self.engine.claim("worker", free, 10**12, now_ms=now_ms) if free else ():
            number = claim.number - 1
            self.served[number] = Served(claim.turn, now_ms, claim.priority)
            self.running.append((now_ms + self.workload.service_us[number] // 1000, claim))


def same_order(workload: Workload, contender: Contender, workers: int) -> None:
    result = replay(workload, contender, workers)
    first_ms = workload.checked_ms[0]
    starts_ms = [first_ms + start // 1000 for start in result.start_us]
    assert Working(workload, contender, workers).all_of_it() == list(map(Served, result.turn, starts_ms, result.priority))


@thorough
@given(workloads(), rules, some_terms, st.sampled_from((1, 1, 2, 3, 7)))
def test_the_order_of_service_is_that_of_the_memory_engine(
    workload: Workload, rules: Rules, terms: dict[str, Terms], workers: int
) -> None:
    same_order(workload, Contender("some", rules, terms), workers)


@thorough
@given(workloads(), st.sampled_from(list(CONTENDERS.values())), st.sampled_from((1, 2, 4)))
def test_every_named_policy_is_one_that_a_queue_can_have(workload: Workload, contender: Contender, workers: int) -> None:
    same_order(workload, contender, workers)


@thorough
@given(workloads(), rules, some_terms)
def test_every_priority_and_counter_is_what_a_queue_gives(workload: Workload, rules: Rules, terms: dict[str, Terms]) -> None:
    result = replay(workload, Contender("some", rules, terms), 2)
    policy = rules.policy
    with Queue("memory://") as queue:
        queue.configure(reset_interval=policy.reset_interval, thresholds=policy.thresholds, reset=policy.reset)
        for customer, own in terms.items():
            queue.tune(
                customer, weight=own.weight, reset_interval=own.reset_interval, thresholds=own.thresholds, reset=own.reset
            )
        for number, sender in enumerate(workload.customer):
            cost, now = workload.cost[number] / 1000, workload.checked_ms[number] / 1000
            receipt = queue.submit(workload.customers[sender], cost=cost, now=now)
            assert (receipt.priority, receipt.counter) == (result.priority[number], result.counter[number] / 1000)
