"""A day with Fairlane, read from top to bottom: what it does for the people who use it.

Times are passed in as seconds since the day began, so the whole day takes a moment.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane import KeyConflict, Queue
from fairlane.core.document import Claim, Done, Failed, Retried

LEASE_MS = 60_000


def serve(queue: Queue, count: int, *, now: float) -> list[Claim]:
    """A worker takes that many documents one by one and finishes each."""
    served = []
    for _ in range(count):
        for claim in queue.engine.claim("worker-1", 1, LEASE_MS, now_ms=int(now * 1000)):
            queue.engine.settle([(claim, Done('{"pages":1}'))], now_ms=int(now * 1000))
            served.append(claim)
    return served


def test_the_first_documents_of_a_customer_are_served_first(tmp_path: Path) -> None:
    # A queue is a file. Nothing else has to be installed or started.
    with Queue(f"sqlite:///{tmp_path}/fairlane.db") as queue:
        receipt = queue.submit("bakery", {"path": "invoice.pdf"}, now=0)
        assert (receipt.priority, receipt.counter) == (1, 0)

        # A worker takes it, works, and hands in what came out.
        (claim,) = serve(queue, 1, now=1)
        assert claim.customer == "bakery"
        assert queue.result(receipt.id) == {"pages": 1}


def test_a_big_sender_sinks_and_the_small_pass() -> None:
    queue = Queue("memory://")

    # One customer drops 1,000 files. The first three have priority 1; from the 22nd on it is 9.
    receipts = queue.submit_many("northwind", range(1000), now=0)
    assert [receipts[n - 1].priority for n in (1, 3, 4, 21, 22, 1000)] == [1, 1, 2, 8, 9, 9]

    # A minute later, with most of them still waiting, a one-page invoice comes in ...
    serve(queue, 100, now=30)
    invoice = queue.submit("bakery", {"path": "invoice.pdf"}, now=60)
    explanation = queue.explain(invoice.id, now=60)
    assert explanation.facts["ahead"] == 0
    assert explanation.sentence.endswith("Nothing is ahead of it; it will probably start in less than a second.")

    # ... and is the very next to be served.
    assert [claim.id for claim in serve(queue, 1, now=60)] == [invoice.id]


def test_two_big_senders_share_whoever_came_first() -> None:
    queue = Queue("memory://")
    queue.submit_many("early", range(500), now=0)
    queue.submit_many("late", range(500), now=60)
    served = [claim.customer for claim in serve(queue, 200, now=61)]
    assert abs(served.count("early") - served.count("late")) <= 22


def test_nobody_waits_for_ever_whatever_the_load() -> None:
    queue = Queue("memory://")
    queue.submit_many("northwind", range(50), now=0)

    # Newcomers never stop coming, each at priority 1. One dispatch in sixteen is an open turn for who waits longest.
    served = []
    for moment in range(50 * 16):
        queue.submit(f"newcomer-{moment}", now=1 + moment)
        served += serve(queue, 1, now=1 + moment)
    assert [claim.customer for claim in served].count("northwind") >= 49


def test_silence_of_more_than_25_minutes_sets_the_counter_back() -> None:
    queue = Queue("memory://")
    queue.submit_many("northwind", range(30), now=0)
    assert queue.look("northwind", now=1500).next_priority == 9
    assert queue.look("northwind", now=1500.001).next_priority == 1
    assert queue.submit("northwind", now=1500.001).priority == 1


def test_a_steady_sender_wants_the_gradual_reset() -> None:
    # One document every 20 minutes is never silent for 25: under the texts' rule it sinks all the same.
    queue = Queue("memory://")
    assert [queue.check("clinic", now=1200 * n).priority for n in range(30)][-1] == 9

    # Under `gradual` the counter recovers in proportion to each gap, and a burst still sinks.
    queue.configure(reset="gradual")
    assert [queue.check("dentist", now=1200 * n).priority for n in range(30)][-1] == 1
    assert [queue.check("northwind", now=0).priority for _ in range(30)][-1] == 9


def test_sending_twice_by_accident_is_harmless() -> None:
    queue = Queue("memory://")
    first = queue.submit("bakery", {"path": "invoice.pdf"}, key="inv-17", now=0)
    again = queue.submit("bakery", {"path": "invoice.pdf"}, key="inv-17", now=5)
    assert (again.id, again.priority, again.repeated) == (first.id, first.priority, True)
    with pytest.raises(KeyConflict, match="choose a new key"):
        queue.submit("bakery", {"path": "another.pdf"}, key="inv-17", now=6)


def test_a_worker_that_dies_or_freezes_loses_its_document_and_can_do_no_harm() -> None:
    queue = Queue("memory://")
    receipt = queue.submit("bakery", now=0)
    (frozen,) = queue.engine.claim("worker-1", 1, LEASE_MS, now_ms=0)

    # The lease runs out; any worker may sweep, and the document goes back to its lane.
    assert queue.engine.reclaim(100, now_ms=LEASE_MS) == 1
    (fresh,) = queue.engine.claim("worker-2", 1, LEASE_MS, now_ms=LEASE_MS)
    assert (fresh.id, fresh.attempts) == (receipt.id, 2)

    # The frozen worker thaws and hands in its work: too late, nothing changes.
    assert queue.engine.settle([(frozen, Done('"late"'))], now_ms=LEASE_MS + 1) == [frozen]
    assert queue.engine.settle([(fresh, Done('"right"'))], now_ms=LEASE_MS + 2) == []
    assert queue.result(receipt.id) == "right"


def test_a_document_that_fails_is_tried_again_and_then_reported() -> None:
    queue = Queue("memory://")
    receipt = queue.submit("bakery", now=0)
    for attempt in range(3):
        (claim,) = queue.engine.claim("worker-1", 1, LEASE_MS, now_ms=attempt * 10_000)
        queue.engine.settle([(claim, Retried(after_ms=5_000, reason="the scanner is busy"))], now_ms=attempt * 10_000)
    assert queue.document(receipt.id).reason == "attempt 3 of 3 failed: the scanner is busy"

    # Somebody mends the scanner and asks for another round. It is not a new document: no check.
    queue.retry(receipt.id)
    assert queue.look("bakery", now=60).counter == 0


def test_an_operator_steps_in() -> None:
    queue = Queue("memory://")
    queue.submit_many("northwind", range(100), now=0)
    queue.submit_many("bakery", range(3), now=1)

    # Nothing of a paused customer is served, and it costs the others nothing.
    queue.pause("northwind")
    assert {claim.customer for claim in serve(queue, 10, now=2)} == {"bakery"}
    queue.resume("northwind")

    # A cap bounds what runs at once.
    queue.tune("northwind", cap=2)
    assert len(queue.engine.claim("worker-1", 10, LEASE_MS, now_ms=3000)) == 2

    # A weight lets a customer send twice as much for the same priority.
    queue.tune("school", weight=2)
    assert [queue.check("school", now=4).counter for _ in range(3)] == [0, -0.5, -1]

    # And when a customer leaves, everything about it goes.
    assert queue.forget("northwind") == 100
    assert [customer.customer for customer in queue.customers()] == ["bakery", "school"]


def test_why_did_it_fail() -> None:
    queue = Queue("memory://")
    receipt = queue.submit("bakery", now=0)
    (claim,) = queue.engine.claim("worker-1", 1, LEASE_MS, now_ms=0)
    queue.engine.settle([(claim, Failed("the file is encrypted"))], now_ms=100)
    assert queue.explain(receipt.id).sentence == (
        "Priority 1, because bakery's counter stood at 0 when it was submitted. It is failed: the file is encrypted."
    )
    assert [change.event for change in queue.changes()] == ["submitted", "claimed", "failed"]
