"""Tracking documents through the change feed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane import Queue
from fairlane.core.document import ChangeRow, Done, Failed, Outcome, Released, Retried
from fairlane.folders.tracker import Tracker, last_change, percentile


def submit(queue: Queue, tracker: Tracker, customer: str, count: int, now: float) -> list[str]:
    names = [f"{customer}-{number}" for number in range(count)]
    receipts = queue.submit_many(customer, names, now=now)
    tracker.add(receipts, names)
    return [receipt.id for receipt in receipts]


def claim_and_settle(queue: Queue, outcome: Outcome, now_ms: int) -> None:
    (claim,) = queue.engine.claim("w", 1, 60_000, now_ms=now_ms)
    queue.engine.settle([(claim, outcome)], now_ms=now_ms + 500)


@pytest.fixture
def queue() -> Queue:
    return Queue("memory://")


def test_documents_wait_run_and_end_as_the_feed_says(queue: Queue) -> None:
    tracker = Tracker()
    submit(queue, tracker, "big", 4, now=100)
    submit(queue, tracker, "small", 1, now=100)
    queue.submit("stranger", now=100)
    assert {priority: dict(lane) for priority, lane in tracker.lanes.items()} == {1: {"big": 3, "small": 1}, 2: {"big": 1}}
    (claim,) = queue.engine.claim("w", 1, 60_000, now_ms=101_000)
    tracker.apply(queue.engine.changes(None, 1000))
    assert tracker.by_customer["big"] == {"waiting": 3, "running": 1}
    assert tracker.lanes[1]["big"] == 2
    (taken,) = queue.engine.take_over([(claim.id, claim.token)], "other", 60_000, now_ms=101_500)
    assert taken is not None
    tracker.apply(queue.engine.changes(7, 1000))
    assert tracker.by_customer["big"] == {"waiting": 3, "running": 1}
    assert [(document.name, document.wait_ms) for document in tracker.last_claimed] == [("big-0", 1000)]
    queue.engine.settle([(taken, Failed("no such page"))], now_ms=102_000)
    (ended,) = tracker.apply(queue.engine.changes(8, 1000))
    assert (ended.name, ended.state, ended.reason) == ("big-0", "failed", "no such page")
    assert tracker.failed == [ended]
    assert tracker.remaining == 4


def test_the_wait_ends_when_a_worker_first_takes_it(queue: Queue) -> None:
    tracker = Tracker()
    submit(queue, tracker, "acme", 1, now=100)
    claim_and_settle(queue, Retried(reason="again"), now_ms=103_000)
    claim_and_settle(queue, Released(), now_ms=110_000)
    tracker.apply(queue.engine.changes(None, 1000))
    assert (tracker.by_customer["acme"]["waiting"], tracker.lanes[1]["acme"], tracker.remaining) == (1, 1, 1)
    claim_and_settle(queue, Done(), now_ms=120_000)
    tracker.apply(queue.engine.changes(5, 1000))
    (summary,) = tracker.summaries()
    assert (summary.documents, summary.done, summary.failed, summary.wait_p50, summary.wait_p95) == (1, 1, 0, 3.0, 3.0)
    assert len(tracker.last_claimed) == 1
    assert tracker.remaining == 0


def test_what_every_customer_got(queue: Queue) -> None:
    tracker = Tracker()
    submit(queue, tracker, "big", 22, now=100)
    (small,) = submit(queue, tracker, "a-small", 1, now=100)
    queue.cancel(small)
    for number in range(22):
        claim_and_settle(queue, Done(), now_ms=100_000 + 1000 * number)
    tracker.apply(queue.engine.changes(None, 1000))
    first, second = tracker.summaries()
    assert (first.customer, first.cancelled, first.wait_p50, first.wait_p95) == ("a-small", 1, None, None)
    assert second.priorities == {1: 3, 2: 2, 3: 2, 4: 2, 5: 2, 6: 2, 7: 2, 8: 6, 9: 1}
    assert (second.documents, second.done) == (22, 22)
    assert (second.wait_p50, second.wait_p95) == (10.0, 20.0)
    assert dict(tracker.longest_ms) == {"big": 21_000}


def test_percentiles_are_waits_that_happened() -> None:
    assert percentile([], 50) is None
    assert percentile([7000], 95) == 7.0
    assert percentile([1000, 2000], 50) == 1.0
    assert percentile(range(1000, 101_000, 1000), 95) == 95.0
    assert percentile(range(1000, 102_000, 1000), 95) == 96.0


@given(numbers=st.sets(st.integers(1, 5000)), dense=st.booleans())
def test_the_newest_change_is_found_however_long_the_feed(numbers: set[int], dense: bool) -> None:
    kept = sorted(range(min(numbers), max(numbers) + 1) if dense and numbers else numbers)
    reads = 0

    def changes(after: int | None, limit: int) -> list[ChangeRow]:
        nonlocal reads
        reads += 1
        return [ChangeRow(number, 0, "done", None, None, None, None) for number in kept if number > (after or 0)][:limit]

    assert last_change(changes) == (kept[-1] if kept else None)
    assert reads <= 40


def test_the_newest_change_of_a_queue(queue: Queue) -> None:
    assert last_change(queue.engine.changes) is None
    queue.submit_many("acme", range(100))
    assert last_change(queue.engine.changes) == 100
    queue.cancel(next(iter(queue.documents())).id)
    assert last_change(queue.engine.changes) == 101
