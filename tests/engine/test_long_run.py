"""A long run of every verb that moves a lane, beside the memory engine: both claim the same documents, to the last one.

The programs of the agreement test are short. What an engine keeps to find the first lanes quickly must also hold after hundreds
of turns, with clocks that step back, customers that are blocked and freed, and workers that ask for different kinds.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from fairlane.core.document import Claim, Done, Failed, Outcome, Released, Retried, Submission
from fairlane.core.policy import Dispatch, KindLimit, Policy, Rules, Terms, Turns
from fairlane.engine import Engine
from fairlane.engine.memory import MemoryEngine

CUSTOMERS = tuple(f"customer-{number}" for number in range(12))
KINDS = tuple(f"kind-{number}" for number in range(4))
CLAIMED: tuple[tuple[str, ...] | None, ...] = (None, None, KINDS[:1], KINDS[1:2], KINDS[:2], KINDS[1:], ("unknown", KINDS[0]))


class Pair:
    """An engine and the memory engine, driven in lock-step."""

    def __init__(self, engine: Engine, seed: int, kinds: tuple[str, ...] = KINDS) -> None:
        self.engines: tuple[Engine, Engine] = (engine, MemoryEngine())
        self.kinds = kinds
        self.claimed = CLAIMED if kinds is KINDS else (None, None, None, kinds[:1], kinds[3:9])
        self.dice = random.Random(seed)
        self.now_ms = 1_000_000
        self.sent = 0
        self.claims: list[tuple[Claim, Claim]] = []
        self.versions = dict.fromkeys(CUSTOMERS, 0)

    def _both(self, verb: str, *arguments: Any) -> Any:
        ours, theirs = (getattr(engine, verb)(*arguments, now_ms=self.now_ms) for engine in self.engines)
        assert ours == theirs
        return ours

    def submit(self) -> None:
        batch = []
        for _ in range(self.dice.choice((1, 1, 2, 6))):
            self.sent += 1
            kind, delay_ms = self.dice.choice(self.kinds), self.dice.choice((0, 0, 0, 300, 5000))
            customer, cost = self.dice.choice(CUSTOMERS), self.dice.choice((1000, 1000, 7000))
            batch.append(Submission(f"d{self.sent}", customer, kind, "{}", cost, delay_ms=delay_ms))
        self._both("submit", batch)

    def claim(self) -> None:
        chosen = self.dice.choice(self.claimed)
        kinds = None if chosen is None else dict.fromkeys(chosen, 4)
        limit = self.dice.choice((1, 1, 3, 20))
        ours, theirs = (engine.claim("w", limit, 2000, kinds, now_ms=self.now_ms) for engine in self.engines)
        assert ours == theirs
        self.claims += zip(ours, theirs, strict=True)

    def take_over(self) -> None:
        """Mostly a claim that was not taken over yet; the stale ones stay, and are lost when they are settled."""
        for claim, _ in self.claims[-1:]:
            (taken,) = self._both("take_over", [(claim.id, claim.token)], "other", self.dice.choice((100, 2000, 9000)))
            self.claims += [(taken, taken)] if taken else []

    def settle(self) -> None:
        self.dice.shuffle(self.claims)
        count = self.dice.choice((1, 2, 10))
        settled, self.claims = self.claims[:count], self.claims[count:]
        outcomes: list[Outcome] = [
            self.dice.choice((Done(), Done(), Failed("no"), Released(), Retried(0), Retried(800))) for _ in settled
        ]
        lost = [
            [
                claim.id
                for claim in engine.settle(
                    [(pair[nth], outcome) for pair, outcome in zip(settled, outcomes, strict=True)], now_ms=self.now_ms
                )
            ]
            for nth, engine in enumerate(self.engines)
        ]
        assert lost[0] == lost[1]

    def tune(self) -> None:
        customer = self.dice.choice(CUSTOMERS)
        terms = self.dice.choice((Terms(), Terms(), Terms(cap=1), Terms(cap=3), Terms(paused=True), Terms(weight=3)))
        self.versions[customer] = self._both("tune", customer, terms, self.versions[customer])

    def reclaim(self) -> None:
        self._both("reclaim", self.dice.choice((1, 50)))

    def cancel(self) -> None:
        self._both("cancel", [f"d{self.dice.randint(1, self.sent)}"])

    def configure(self) -> None:
        rules = self.engines[1].rules()
        dispatches: tuple[Dispatch, ...] = ("fair", "fair", "fair", "strict")
        turns: tuple[Turns, ...] = ("time", "time", "documents")
        policy = self.dice.choice((rules.policy, Policy(reset="sliding"), Policy(thresholds=(-1, -5))))
        made = Rules(
            policy, self.dice.choice(dispatches), self.dice.choice((0, 2, 16)), rules.version, turns=self.dice.choice(turns)
        )
        assert all(engine.configure(made, now_ms=self.now_ms) for engine in self.engines)

    def limit_kind(self) -> None:
        kind = self.dice.choice(self.kinds)
        limits = (KindLimit(), KindLimit(), KindLimit(running=2), KindLimit(rate=3, burst=2), KindLimit(running=5, rate=0.5))
        self._both("limit_kind", kind, self.dice.choice(limits), self.engines[1].kind(kind).version)

    def prioritize(self) -> None:
        ids = [f"d{self.dice.randint(1, self.sent)}" for _ in range(3)]
        self._both("prioritize", ids, self.dice.choice((1, 5, 9)), "ola")

    def reprioritize(self) -> None:
        customer, recheck = self.dice.choice(CUSTOMERS), self.dice.random() < 0.5
        ours, theirs = (engine.reprioritize(customer, 0, 5, recheck=recheck, now_ms=self.now_ms) for engine in self.engines)
        assert ours == theirs

    def pass_time(self) -> None:
        self.now_ms += self.dice.choice((1, 50, 50, 700, 700, 3000, 15_000, -2500, -14_000))


@pytest.mark.parametrize("kinds", [None, {"extract": 3}, {"extract": 3, "scan": 3}])
def test_a_newcomer_is_next_after_many_turns_of_another(engine: Engine, kinds: dict[str, int] | None) -> None:
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=0), now_ms=0)
    engine.submit([Submission(f"d{number}", "ada", "extract", "{}") for number in range(80)], now_ms=0)
    for _ in range(64):
        assert [claim.customer for claim in engine.claim("w", 1, 1000, kinds, now_ms=1)] == ["ada"]
    engine.submit([Submission("new", "bob", "extract", "{}")], now_ms=1)
    assert [claim.customer for claim in engine.claim("w", 2, 1000, kinds, now_ms=1)] == ["bob", "ada"]


@pytest.mark.parametrize("seed", range(3))
def test_hundreds_of_turns_are_those_of_the_memory_engine(engine: Engine, seed: int) -> None:
    pair = Pair(engine, seed)
    verbs = ["submit"] * 6 + ["claim"] * 8 + ["settle"] * 5 + ["pass_time"] * 4 + ["tune", "reclaim", "cancel"]
    verbs += ["take_over"] * 2
    verbs += ["limit_kind", "prioritize", "reprioritize"]
    pair.submit()
    for step in range(1200):
        getattr(pair, pair.dice.choice(verbs))()
        if step % 200 == 199:
            pair.configure()
    for kind in KINDS:
        pair._both("limit_kind", kind, KindLimit(), pair.engines[1].kind(kind).version)
    pair.now_ms += 10_000
    for customer in CUSTOMERS:
        pair.versions[customer] = pair._both("tune", customer, Terms(), pair.versions[customer])
    pair._both("reclaim", 1000)
    ours, theirs = ([claim.id for claim in engine.claim("w", 10_000, 1000, now_ms=pair.now_ms)] for engine in pair.engines)
    assert ours == theirs
    assert len(ours) > 50


@pytest.mark.parametrize("seed", range(2))
def test_turns_between_many_kinds_are_those_of_the_memory_engine(engine: Engine, seed: int) -> None:
    """With many open turns: a kind whose first lane they take may have a next one that comes before those of other kinds."""
    pair = Pair(engine, seed, tuple(f"kind-{number}" for number in range(15)))
    for each in pair.engines:
        each.configure(Rules(Policy(thresholds=()), open_turn_every=3), now_ms=0)
    verbs = ["submit"] * 6 + ["claim"] * 6 + ["settle"] * 6 + ["pass_time"] * 4
    verbs += ["tune", "reclaim", "cancel", "limit_kind", "reprioritize", "take_over"]
    pair.submit()
    for _ in range(800):
        getattr(pair, pair.dice.choice(verbs))()
