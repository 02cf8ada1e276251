"""The measured past stands beside the replay, and where they differ by much the reason is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlane import Queue
from fairlane.core.document import Done, Released, Retried
from fairlane.sim.history import current_contender, load_history
from fairlane.sim.measures import measure
from fairlane.sim.past import differs
from fairlane.sim.replay import replay

from .test_history import START, Hands, hands, queue

__all__ = ["hands", "queue"]


def doubts(queue: Queue, workers: int | None = None) -> dict[str, dict[str, float]]:
    """The reasons against a replay with as many workers as there were."""
    workload, past = load_history(queue)
    simulated = measure(replay(workload, current_contender(queue), workers or past.observation.running_max))
    return {doubt.reason: doubt.values for doubt in past.doubts(past.measure(), simulated) if doubt.sentence}


def run_all(hands: Hands, count: int, at: float, seconds: float = 1) -> float:
    """Process documents one after the other."""
    for _ in range(count):
        hands.settle(hands.take(at), at + seconds, Done())
        at += seconds
    return at


def test_true_waits_are_measured(queue: Queue, hands: Hands) -> None:
    for at in range(3):
        hands.submit("acme", at)
    run_all(hands, 3, at=13, seconds=2)
    measured = load_history(queue).past.measure()
    assert (measured.policy, measured.workers, measured.documents) == ("measured", 1, 3)
    assert (measured.waits["all"].p50, measured.waits["all"].max) == (14, 15)


def test_the_delay_of_a_document_is_not_a_wait(queue: Queue) -> None:
    queue.submit("acme", delay=100, now=START)
    (claim,) = queue.engine.claim("worker", 1, 1000, now_ms=(START + 103) * 1000)
    queue.engine.settle([(claim, Done())], now_ms=(START + 104) * 1000)
    assert load_history(queue).past.measure().waits["all"].max == 3


def test_the_delay_of_a_document_whose_claim_was_taken_over_is_not_a_wait(queue: Queue) -> None:
    engine = queue.engine
    for _ in range(2):
        queue.submit("acme", delay=100, now=START)
    taken, released = engine.claim("bridge", 2, 1000, now_ms=(START + 103) * 1000)
    (held,) = engine.take_over([(taken.id, taken.token)], "worker", 1000, now_ms=(START + 104) * 1000)
    assert held is not None
    engine.settle([(held, Done()), (released, Released())], now_ms=(START + 105) * 1000)
    (again,) = engine.claim("worker", 1, 1000, now_ms=(START + 106) * 1000)
    engine.settle([(again, Done())], now_ms=(START + 107) * 1000)
    waits = load_history(queue).past.measure().waits["all"]
    assert (waits.p50, waits.max) == (3, 103)  # of the one that came back nobody knows when its delay was over


def test_a_replay_like_the_past_raises_no_doubt(queue: Queue, hands: Hands) -> None:
    for _ in range(20):
        hands.submit("acme", 0)
    run_all(hands, 20, at=0)
    assert doubts(queue) == {}


def test_workers_that_were_away(queue: Queue, hands: Hands) -> None:
    for _ in range(10):
        hands.submit("acme", 0)
    run_all(hands, 10, at=60)
    assert doubts(queue)["downtime"] == {"seconds": 60}


def test_fewer_workers_than_the_replay_has(queue: Queue, hands: Hands) -> None:
    for _ in range(40):
        hands.submit("acme", 0)
    first = [hands.take(0) for _ in range(8)]  # eight at once, for a moment
    for claim in first:
        hands.settle(claim, 1, Done())
    run_all(hands, 32, at=1, seconds=5)
    reason = doubts(queue)["workers"]
    assert reason["assumed"] == 8
    assert reason["usual"] < 2


def test_more_workers_than_the_replay_has(queue: Queue, hands: Hands) -> None:
    for _ in range(8):
        hands.submit("acme", 0)
    for claim in [hands.take(0) for _ in range(8)]:
        hands.settle(claim, 10, Done())
    assert doubts(queue) == {}
    assert doubts(queue, workers=1) == {"more_workers": {"assumed": 1, "most": 8}}


@pytest.mark.parametrize(
    ("change", "reason", "count"),
    [
        (lambda queue: (queue.tune("acme", paused=True), queue.tune("acme", paused=False)), "pauses", 1),
        (lambda queue: queue.tune("acme", weight=2), "rules", 1),
        (lambda queue: queue.configure(dispatch="strict"), "rules", 1),
    ],
)
def test_pauses_and_other_rules(queue: Queue, hands: Hands, change: Callable[[Queue], object], reason: str, count: int) -> None:
    for _ in range(10):
        hands.submit("acme", 0)
    change(queue)
    run_all(hands, 10, at=60)
    assert doubts(queue)[reason] == {"count": count}


def test_retries_and_documents_that_have_not_ended(queue: Queue, hands: Hands) -> None:
    for _ in range(10):
        hands.submit("acme", 0)
    at = 0.0
    for _ in range(5):
        hands.settle(hands.take(at), at + 1, Retried(30_000, "later"))
        at = run_all(hands, 1, at=at + 32)
    found = doubts(queue)
    assert found["unfinished"]["count"] >= 1
    assert found["retries"]["count"] >= 1


def test_a_difference_below_a_second_is_none(queue: Queue, hands: Hands) -> None:
    hands.submit("acme", 0)
    run_all(hands, 1, at=0.9)
    workload, past = load_history(queue)
    assert not differs(past.measure(), measure(replay(workload, current_contender(queue), 1)))
