"""Concurrent claims end as some one-by-one order of them would, and a cap is never exceeded."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from fairlane.core.document import Claim, Done, Outcome, Released, Submission
from fairlane.core.policy import Rules, Terms
from fairlane.engine import Engine, open_engine
from fairlane.engine.memory import MemoryEngine
from fairlane.engine.walk import walk_documents
from tests.servers import postgres

NOW_MS = 1_000_000
CAPS = {"capped-1": 1, "capped-3": 3}
CUSTOMERS = ("ada", "bob", "capped-1", "capped-3", "eve")


class Call(NamedTuple):
    """A claim as a thread made it."""

    worker: str
    limit: int
    kinds: dict[str, int] | None
    claims: list[Claim]


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = open_engine(postgres.empty_queue(postgres.shared()))
    yield engine
    engine.close()


def prepare(engine: Engine) -> None:
    engine.configure(Rules(open_turn_every=5), now_ms=NOW_MS)
    for customer, cap in CAPS.items():
        engine.tune(customer, Terms(cap=cap), 0, now_ms=NOW_MS)


def submission(id: str) -> Submission:
    dice = random.Random(id)
    return Submission(id, dice.choice(CUSTOMERS), dice.choice(("extract", "extract", "scan")), "{}", dice.choice((1000, 2500)))


def take_over(engine: Engine, claim: Claim, dice: random.Random) -> Claim:
    """Let a fifth of the claims change hands."""
    if dice.random() < 0.8:
        return claim
    (taken,) = engine.take_over([(claim.id, claim.token)], "other", 60_000, now_ms=NOW_MS)
    assert taken is not None
    return taken


@pytest.mark.parametrize("seed", range(3))
def test_concurrent_calls_end_as_the_order_of_their_feed_would(engine: Engine, seed: int) -> None:
    prepare(engine)
    calls: list[Call] = []
    outcomes: dict[tuple[str, int], Outcome] = {}

    def produce(thread: int) -> None:
        for n in range(25):
            engine.submit([submission(f"{seed}-{thread}-{n}-{m}") for m in range(1 + n % 4)], now_ms=NOW_MS)

    def work(thread: int) -> None:
        dice = random.Random(f"{seed} {thread}")
        rounds = 0
        while rounds < 30 or any(producer.is_alive() for producer in producers):
            rounds += 1
            limit, kinds = dice.randint(1, 6), dice.choice((None, {"extract": 3}, {"scan": 2, "extract": 3}))
            claims = engine.claim(f"w{thread}", limit, 60_000, kinds, now_ms=NOW_MS)
            calls.append(Call(f"w{thread}", limit, kinds, claims))
            held = [take_over(engine, claim, dice) for claim in claims]
            settled = [(claim, Done() if dice.random() < 0.8 else Released()) for claim in held if dice.random() < 0.9]
            outcomes.update({(claim.id, claim.token): outcome for claim, outcome in settled})
            assert engine.settle(settled, now_ms=NOW_MS) == []

    producers = [threading.Thread(target=produce, args=(n,)) for n in range(2)]
    threads = [*producers, *(threading.Thread(target=work, args=(n,)) for n in range(4))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    replay(engine, calls, outcomes)


def begin_after(engine: MemoryEngine, number: int) -> None:
    """Let the next document get the next number; no verb does that without touching anything else."""
    engine._state.last_number = number


def replay(engine: Engine, calls: list[Call], outcomes: dict[tuple[str, int], Outcome]) -> None:
    """Make the same calls one by one on the memory engine, in the order of the feed: it must return the same documents.
    Numbers are assigned when a customer's row is locked, so those of two concurrent senders may not follow the feed."""
    reference = MemoryEngine()
    numbers = {document.id: document.number for document in walk_documents(engine)}
    prepare(reference)
    call_of = {(claim.id, claim.token): call for call in calls for claim in call.claims}
    replayed_claims: dict[tuple[str, int], Claim] = {}
    running: dict[str, int] = dict.fromkeys(CUSTOMERS, 0)
    replayed = 0
    for line in engine.changes(None, 100_000):
        assert line.document is not None or line.what in ("configured", "tuned")
        name = (line.document or "", line.token or 0)
        if line.what == "submitted":
            begin_after(reference, numbers[name[0]] - 1)
            reference.submit([submission(name[0])], now_ms=NOW_MS)
        elif line.what == "claimed":
            running[line.customer or ""] += 1
            assert running[line.customer or ""] <= CAPS.get(line.customer or "", 10**6)
            call = call_of[name]
            if (call.claims[0].id, call.claims[0].token) == name:
                got = reference.claim(call.worker, call.limit, 60_000, call.kinds, now_ms=NOW_MS)
                assert [claim[:2] + claim[3:6] + claim[10:] for claim in got] == [
                    claim[:2] + claim[3:6] + claim[10:] for claim in call.claims
                ]
                replayed_claims.update({(claim.id, claim.token): claim for claim in got})
                replayed += len(got)
        elif line.what == "taken_over":
            (taken,) = reference.take_over([(name[0], name[1] - 1)], "other", 60_000, now_ms=NOW_MS)
            assert taken is not None
            replayed_claims[name] = taken
        elif line.what in ("done", "released"):
            running[line.customer or ""] -= 1
            assert reference.settle([(replayed_claims[name], outcomes[name])], now_ms=NOW_MS) == []
    assert replayed == sum(len(call.claims) for call in calls) > 50
    ours, theirs = engine.customers("", 99, now_ms=NOW_MS), reference.customers("", 99, now_ms=NOW_MS)
    assert [
        customer._replace(standing=other.standing, next_priority=other.next_priority)
        for customer, other in zip(ours, theirs, strict=True)
    ] == theirs
