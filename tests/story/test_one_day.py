"""A day with Fairlane, read from top to bottom: what it does for the people who use it.

Submissions carry the time as seconds since the day began; workers run until the queue is empty. So the day takes a moment.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlane import Backoff, Fail, KeyConflict, Queue, Retry, Worker
from fairlane.worker import Document

AT_ONCE = Backoff(first=0, ceiling=0)


def work(queue: Queue, handle: Callable[[Document], Any] = lambda document: {"pages": 1}, slots: int = 1) -> list[Document]:
    """Run a worker until the queue is empty; return the documents in the order in which it processed them."""
    worker = Worker(queue, slots=slots, backoff=AT_ONCE)
    processed: list[Document] = []

    @worker.handler("default")
    async def extract(document: Document) -> Any:
        processed.append(document)
        return handle(document)

    worker.run(until_empty=True)
    return processed


def test_a_document_is_submitted_and_processed(tmp_path: Path) -> None:
    # A queue is a file. Nothing else has to be installed or started.
    with Queue(f"sqlite:///{tmp_path}/fairlane.db") as queue:
        receipt = queue.submit("bakery", {"path": "invoice.pdf"}, now=0)
        assert (receipt.priority, receipt.counter) == (1, 0)

        # A worker takes it, works, and returns the result.
        (document,) = work(queue)
        assert document.customer == "bakery"
        assert queue.result(receipt.id) == {"pages": 1}


def test_a_big_sender_sinks_and_the_small_pass() -> None:
    queue = Queue("memory://")

    # One customer drops 1,000 files. The first three have priority 1; from the 22nd on it is 9.
    receipts = queue.submit_many("northwind", range(1000), now=0)
    assert [receipts[n - 1].priority for n in (1, 3, 4, 21, 22, 1000)] == [1, 1, 2, 8, 9, 9]

    # A minute later, with all of them still waiting, a one-page invoice comes in ...
    invoice = queue.submit("bakery", {"path": "invoice.pdf"}, now=60)
    explanation = queue.explain(invoice.id)
    assert explanation.facts["ahead"] == 1
    assert "About 1 document is ahead of it; no worker takes documents of kind 'default'" in explanation.sentence

    # ... and when a worker is started, it is the second to be served.
    assert [document.id for document in work(queue)].index(invoice.id) == 1


def test_two_big_senders_share_whoever_came_first() -> None:
    queue = Queue("memory://")
    queue.submit_many("early", range(200), now=0)
    queue.submit_many("late", range(200), now=60)
    served = [document.customer for document in work(queue)][:200]
    assert abs(served.count("early") - served.count("late")) <= 22


def test_nobody_waits_for_ever_whatever_the_load() -> None:
    queue = Queue("memory://")
    queue.submit_many("northwind", range(50), now=0)
    newcomers = iter(range(50 * 16))

    # Newcomers never stop coming, each at priority 1. One dispatch in sixteen is an open turn for the one that waits longest.
    def submit_another(document: Document) -> None:
        if (n := next(newcomers, None)) is not None:
            queue.submit(f"newcomer-{n}")

    served = [document.customer for document in work(queue, submit_another)]
    assert served[: 50 * 16].count("northwind") >= 49


def test_silence_of_more_than_25_minutes_sets_the_counter_back() -> None:
    queue = Queue("memory://")
    queue.submit_many("northwind", range(30), now=0)
    assert queue.look("northwind", now=1500).next_priority == 9
    assert queue.look("northwind", now=1500.001).next_priority == 1
    assert queue.submit("northwind", now=1500.001).priority == 1


def test_a_steady_sender_wants_the_sliding_reset() -> None:
    # One document every 20 minutes is never silent for 25: under the texts' rule it sinks all the same.
    queue = Queue("memory://")
    assert [queue.check("clinic", now=1200 * n).priority for n in range(30)][-1] == 9

    # Under `sliding` the counter is what was sent in the last 25 minutes: one document, and a burst still sinks.
    queue.configure(reset="sliding")
    assert [queue.check("dentist", now=1200 * n).priority for n in range(30)][-1] == 1
    assert [queue.check("northwind", now=0).priority for _ in range(30)][-1] == 9


def test_sending_twice_by_accident_is_harmless() -> None:
    queue = Queue("memory://")
    first = queue.submit("bakery", {"path": "invoice.pdf"}, key="inv-17", now=0)
    again = queue.submit("bakery", {"path": "invoice.pdf"}, key="inv-17", now=5)
    assert (again.id, again.priority, again.repeated) == (first.id, first.priority, True)
    with pytest.raises(KeyConflict, match="choose a new key"):
        queue.submit("bakery", {"path": "another.pdf"}, key="inv-17", now=6)


def test_a_process_that_dies_loses_nothing_but_an_attempt(tmp_path: Path) -> None:
    with Queue(f"sqlite:///{tmp_path}/fairlane.db") as queue:
        receipt = queue.submit("bakery")
        worker = Worker(queue, backoff=AT_ONCE)

        # A handler that is a plain `def` runs in a process of its own. It may crash: the worker does not.
        @worker.handler("default")
        def extract(document: Document) -> int:
            if document.attempt == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return document.attempt

        worker.run(until_empty=True)
        assert queue.result(receipt.id) == 2


def test_a_document_that_fails_is_tried_again_and_then_reported() -> None:
    queue = Queue("memory://")
    receipt = queue.submit("bakery", now=0)

    def fail(document: Document) -> None:
        raise Retry(after=0, reason="the scanner is busy")

    assert [document.attempt for document in work(queue, fail)] == [1, 2, 3]
    assert queue.document(receipt.id).reason == "attempt 3 of 3 failed: the scanner is busy"

    # Somebody mends the scanner and asks for another round. It is not a new document: no check.
    queue.retry(receipt.id)
    assert queue.look("bakery", now=60).counter == 0
    work(queue)
    assert queue.result(receipt.id) == {"pages": 1}


def test_an_operator_steps_in() -> None:
    queue = Queue("memory://")
    queue.submit_many("northwind", range(100), now=0)
    queue.submit_many("bakery", range(3), now=1)

    # Nothing of a paused customer is served, and it costs the others nothing.
    queue.pause("northwind")
    assert [document.customer for document in work(queue)] == ["bakery"] * 3
    queue.resume("northwind")

    # A cap bounds how many of a customer's documents run at once.
    queue.tune("northwind", cap=2)
    running: list[int] = []
    work(queue, lambda document: running.append(queue.look("northwind").running), slots=4)
    assert (len(running), max(running)) == (100, 2)

    # A weight lets a customer send twice as much for the same priority.
    queue.tune("school", weight=2)
    assert [queue.check("school", now=4).counter for _ in range(3)] == [0, -0.5, -1]

    # And when a customer leaves, everything about it goes.
    assert queue.forget("northwind").documents == 100
    assert [look.customer for look in queue.customers()] == ["bakery", "school"]


def test_why_did_it_fail() -> None:
    queue = Queue("memory://")
    receipt = queue.submit("bakery", now=0)

    def fail(document: Document) -> None:
        raise Fail("the file is encrypted")

    work(queue, fail)
    assert queue.explain(receipt.id).sentence == (
        "Priority 1, because bakery's counter stood at 0 when it was submitted. It is failed: the file is encrypted."
    )
    assert [change.event for change in queue.changes()] == ["submitted", "claimed", "failed"]
