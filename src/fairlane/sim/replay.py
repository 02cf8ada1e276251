"""In which order, and when, would these documents have been served? The production policy and lanes in virtual time.

Laws:
- Workers take one document after the other and never put one down. All arrivals and endings of a moment come before a choice.
- A check happens at a document's true time of submission; the lanes are those of the memory engine.
- What is held besides the answers is in proportion to what waits, and to the customers seen.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from fairlane.core.dispatch import Lanes, is_blocked
from fairlane.core.errors import Mistake
from fairlane.core.policy import Policy, Standing, Terms, step_of

from .contenders import Contender
from .workload import Workload

TOLD_EVERY = 2000  # documents between two calls of `progress`


@dataclass(frozen=True, slots=True)
class Replay:
    """What became of every document, by its number."""

    workload: Workload
    contender: Contender
    workers: int
    counter: array[int]  # thousandths
    priority: array[int]
    start_us: array[int]
    turn: array[int]  # the dispatch that took it

    def wait_us(self) -> array[int]:
        """How long each waited."""
        return array("q", (start - at for start, at in zip(self.start_us, self.workload.at_us, strict=True)))


def replay(workload: Workload, contender: Contender, workers: int, progress: Callable[[int], None] = lambda _: None) -> Replay:
    """Serve a workload under a contender's rules; `progress` is told how many documents were served since its last call."""
    for customer in workload.customers:
        if customer in contender.terms and contender.terms[customer].paused:
            raise Mistake(f"{contender.name} pauses {customer!r}, whose documents would never be served; leave the pause out")
    run = _Run(workload, contender, workers)
    told = 0
    while (served := run.step()) is not None:
        if served - told >= TOLD_EVERY:
            progress(served - told)
            told = served
    progress(len(workload) - told)
    return Replay(workload, contender, workers, run.counter, run.priority, run.start_us, run.turn)


class _Run:
    """A replay under way."""

    def __init__(self, workload: Workload, contender: Contender, workers: int) -> None:
        self.workload = workload
        self.lanes = Lanes(contender.rules.dispatch, contender.rules.open_turn_every)
        self.charges_service = contender.charges_service
        self.free = workers
        self.arrived = 0
        self.ends: list[tuple[int, int]] = []  # heap of (end, customer), one for each running document
        own = [contender.terms.get(name, Terms()) for name in workload.customers]
        self.policies: list[Policy] = [terms.policy(contender.rules.policy) for terms in own]
        self.weights = [terms.weight_thousandths for terms in own]
        self.terms = own
        self.standings = [Standing()] * len(own)
        self.running = [0] * len(own)
        self.counter, self.priority = array("q", [0]) * len(workload), array("b", [0]) * len(workload)
        self.start_us, self.turn = array("q", [0]) * len(workload), array("q", [0]) * len(workload)
        for customer in range(len(own)):
            self._gate(customer)

    def step(self) -> int | None:
        """The next moment at which something happens; returns how many were served so far, None when all is over."""
        at_us, arrived, ends = self.workload.at_us, self.arrived, self.ends
        total = len(at_us)
        if arrived < total and (not ends or at_us[arrived] <= ends[0][0]):
            now_us = at_us[arrived]
        elif ends:
            now_us = ends[0][0]
        else:
            return None
        while arrived < total and at_us[arrived] == now_us:
            self._submit(arrived)
            arrived += 1
        self.arrived = arrived
        while ends and ends[0][0] == now_us:
            self._end(heappop(ends)[1])
        while self.free and (number := self._take(now_us)) is not None:
            customer = self.workload.customer[number]
            heappush(ends, (now_us + self.workload.service_us[number], customer))
        return self.lanes.dispatches

    def _submit(self, number: int) -> None:
        workload = self.workload
        customer, now_ms = workload.customer[number], workload.checked_ms[number]
        policy = self.policies[customer]
        standing = policy.check(self.standings[customer], now_ms, self._step(number, customer))
        self.standings[customer] = standing
        priority = policy.level(standing.counter)
        self.counter[number], self.priority[number] = standing.counter, priority
        self.lanes.add(number, workload.customers[customer], "", priority, now_ms)

    def _step(self, number: int, customer: int) -> int:
        cost = self.workload.service_us[number] // 1000 if self.charges_service else self.workload.cost[number]
        return step_of(cost, self.weights[customer])

    def _take(self, now_us: int) -> int | None:
        turn = self.lanes.next()
        if turn is None:
            return None
        number = turn.number
        customer = self.workload.customer[number]
        self.lanes.take(turn, self._step(number, customer))
        self.start_us[number], self.turn[number] = now_us, turn.dispatch_number
        self.free -= 1
        self.running[customer] += 1
        if self.terms[customer].cap is not None:
            self._gate(customer)
        return number

    def _end(self, customer: int) -> None:
        self.free += 1
        self.running[customer] -= 1
        if self.terms[customer].cap is not None:
            self._gate(customer)

    def _gate(self, customer: int) -> None:
        """Block or unblock the customer's lanes as its terms and what runs demand."""
        terms = self.terms[customer]
        if is_blocked(terms.paused, terms.cap, self.running[customer]):
            self.lanes.block(self.workload.customers[customer])
        else:
            self.lanes.unblock(self.workload.customers[customer])
