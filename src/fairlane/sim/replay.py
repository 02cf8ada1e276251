"""Replay of a workload in virtual time, with the policy and the lanes of production.

Laws:
- Workers process one document after the other to its end. At each moment, all arrivals and endings come before a dispatch.
- A check happens at a document's true time of submission; the lanes are those of the memory engine.
- Memory besides the results grows with the number of waiting documents and of customers only.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from fairlane.core.dispatch import (
    USUAL_FIRST,
    USUAL_SHARE,
    USUAL_SHARE_OF_ALL,
    is_blocked,
    next_usual,
    turn_price,
)
from fairlane.core.errors import Mistake
from fairlane.core.lanes import Lanes
from fairlane.core.policy import Policy, Standing, Terms, step_of, weight_of

from .contenders import Contender
from .workload import Workload

PROGRESS_EVERY = 2000  # documents between two calls of `progress`


@dataclass(frozen=True, slots=True)
class Replay:
    """The counter, priority and start of every document, by its number."""

    workload: Workload
    contender: Contender
    workers: int
    counter: array[int]  # to_thousandths
    priority: array[int]
    start_us: array[int]
    turn: array[int]  # the dispatch that took it

    def wait_us(self) -> array[int]:
        """Return how long each document waited."""
        return array("q", (start - at for start, at in zip(self.start_us, self.workload.at_us, strict=True)))


def replay(workload: Workload, contender: Contender, workers: int, progress: Callable[[int], None] = lambda _: None) -> Replay:
    """Replay a workload under a contender's rules; call `progress` with the number of documents served since its last call."""
    for customer in workload.customers:
        if customer in contender.terms and contender.terms[customer].paused:
            raise Mistake(f"{contender.name} pauses {customer!r}, whose documents would never be served; leave the pause out")
    state = _ReplayState(workload, contender, workers)
    reported = 0
    while (served := state.step()) is not None:
        if served - reported >= PROGRESS_EVERY:
            progress(served - reported)
            reported = served
    progress(len(workload) - reported)
    return Replay(workload, contender, workers, state.counter, state.priority, state.start_us, state.turn)


class _ReplayState:
    """A replay in progress."""

    def __init__(self, workload: Workload, contender: Contender, workers: int) -> None:
        self.workload = workload
        self.lanes = Lanes(contender.rules.dispatch, contender.rules.open_turn_every)
        self.turns = contender.rules.turns
        self.free = workers
        self.arrived = 0
        self.served = 0
        self.ends: list[tuple[int, int]] = []  # heap of (end, number), one for each running document
        self.paid: dict[int, int] = {}  # by number: what a running document paid for its turn, in milliseconds
        self.usual_of_all: int | None = None
        self.terms = [contender.terms.get(name, Terms()) for name in workload.customers]
        self.policies: list[Policy] = [terms.policy(contender.rules.policy) for terms in self.terms]
        self.weights = [weight_of(terms) for terms in self.terms]
        self.standings = [Standing()] * len(self.terms)
        self.running = [0] * len(self.terms)
        self.usual: list[int | None] = [None] * len(self.terms)
        self.counter, self.priority = array("q", [0]) * len(workload), array("b", [0]) * len(workload)
        self.start_us, self.turn = array("q", [0]) * len(workload), array("q", [0]) * len(workload)
        for customer in range(len(self.terms)):
            self._update_block(customer)

    def step(self) -> int | None:
        """Go to the next moment at which something happens; return how many were served so far, or None at the end."""
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
            heappush(ends, (now_us + self.workload.service_us[number], number))
        return self.served

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
        return step_of(self.workload.cost[number], self.weights[customer])

    def _take(self, now_us: int) -> int | None:
        turn = self.lanes.next()
        if turn is None:
            return None
        number = turn.number
        customer = self.workload.customer[number]
        usual = next((each for each in (self.usual[customer], self.usual_of_all) if each is not None), USUAL_FIRST)
        price = turn_price(self.turns, self._step(number, customer), usual, self.weights[customer])
        if self.lanes.take(turn, price) and self.turns == "time":
            self.paid[number] = price
        self.start_us[number], self.turn[number] = now_us, turn.dispatch_number
        self.served += 1
        self.free -= 1
        self.running[customer] += 1
        if self.terms[customer].cap is not None:
            self._update_block(customer)
        return number

    def _end(self, number: int) -> None:
        customer = self.workload.customer[number]
        self.free += 1
        self.running[customer] -= 1
        taken = self.workload.service_us[number]
        if (paid := self.paid.pop(number, None)) is not None:
            delta = max(1, taken // self.weights[customer]) - paid
            self.lanes.true_up(self.workload.customers[customer], "", self.priority[number], delta)
        self.usual[customer] = next_usual(self.usual[customer], taken, USUAL_SHARE)
        self.usual_of_all = next_usual(self.usual_of_all, taken, USUAL_SHARE_OF_ALL)
        if self.terms[customer].cap is not None:
            self._update_block(customer)

    def _update_block(self, customer: int) -> None:
        """Block or unblock the customer's lanes by its pause, its cap and its running documents."""
        terms = self.terms[customer]
        if is_blocked(terms.paused, terms.cap, self.running[customer]):
            self.lanes.block(self.workload.customers[customer])
        else:
            self.lanes.unblock(self.workload.customers[customer])
