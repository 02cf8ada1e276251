"""A worker in the registry: it is seen from its start to its end, and an operator drains it."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

from fairlane import Queue, Worker
from fairlane.queue import WorkerStatus
from fairlane.queue.workers import WORKERS, decode_record
from fairlane.worker import Document, registration

from .conftest import Bench, until, yield_loop
from .test_worker import Start, began, start, submit  # noqa: F401 - a fixture

QUICK_SECONDS = 0.02


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers look for operators' wishes without a pause."""
    monkeypatch.setattr("fairlane.worker.background.LOOK_SECONDS", QUICK_SECONDS)


def waiting_worker(bench: Bench, gate: threading.Event, **options: Any) -> Worker:
    """A worker whose handler waits for a gate."""
    worker = bench.worker(**options)

    @worker.handler("wait")
    async def wait(document: Document) -> None:
        while not gate.is_set():
            await yield_loop()

    return worker


def the_worker(queue: Queue) -> WorkerStatus:
    (worker,) = queue.workers()
    return worker


def test_a_worker_is_seen_while_it_runs_and_gone_after_a_clean_end(bench: Bench, queue: Queue) -> None:
    gate = threading.Event()
    worker = waiting_worker(bench, gate, name="machine")
    id = queue.submit("ada", 1, kind="wait").id
    stop = bench.start(worker)
    until(lambda: the_worker(queue).documents, "the start of the document")
    seen = the_worker(queue)
    assert (seen.name, seen.state, seen.kinds, seen.slots, seen.pid) == ("machine", "working", ("wait",), 2, os.getpid())
    assert [document.id for document in seen.documents] == [id]
    assert not seen.is_outdated
    gate.set()
    stop()
    assert queue.workers() == []


def test_a_worker_is_registered_before_it_claims(bench: Bench, queue: Queue) -> None:
    known: list[int] = []
    worker = bench.worker()

    @worker.handler("note")
    async def note(document: Document) -> None:
        known.append(len(queue.workers()))

    queue.submit("ada", 1, kind="note")
    bench.run(worker)
    assert known == [1]


def test_a_drained_worker_finishes_what_it_has_claims_no_more_and_goes_on_when_undrained(bench: Bench, queue: Queue) -> None:
    gate = threading.Event()
    stop = bench.start(waiting_worker(bench, gate, name="machine", slots=1))
    first = queue.submit("ada", 1, kind="wait").id
    until(lambda: queue.document(first).state == "running", "the start of the document")
    queue.drain_worker("machine")
    until(lambda: bench.emitted("draining"), "the drain")
    assert the_worker(queue).state == "draining"
    second = queue.submit("ada", 2, kind="wait").id
    gate.set()
    until(lambda: the_worker(queue).state == "drained", "the end of the document")
    assert [queue.document(id).state for id in (first, second)] == ["done", "ready"]
    queue.undrain_worker("machine")
    until(lambda: queue.document(second).state == "done", "the other document")
    until(lambda: the_worker(queue).state == "working", "the report")
    assert bench.emitted("undrained")
    stop()


def test_an_idle_worker_that_is_drained_does_not_take_what_comes(bench: Bench, queue: Queue) -> None:
    gate = threading.Event()
    gate.set()
    stop = bench.start(waiting_worker(bench, gate, name="machine"))
    queue.drain_worker("machine")
    until(lambda: the_worker(queue).state == "drained", "the drain")
    id = queue.submit("ada", 1, kind="wait").id
    assert stop().done == 0
    assert queue.document(id).state == "ready"


def test_a_drained_worker_that_runs_until_the_queue_is_empty_ends(bench: Bench, queue: Queue) -> None:
    worker = waiting_worker(bench, threading.Event(), name="machine", slots=1)
    queue.submit("paused", 1, kind="wait", delay=600)  # so that the queue is not empty
    worker.on("started", lambda _: queue.drain_worker("machine"))
    assert bench.run(worker).done == 0


def test_a_document_that_runs_for_a_while_is_reported_with_its_time(
    bench: Bench, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "LOOK_SECONDS", QUICK_SECONDS)  # and the next beat is ten seconds away
    gate = threading.Event()
    stop = bench.start(waiting_worker(bench, gate))
    queue.submit("ada", 1, kind="wait")
    until(lambda: any(document.running_for is not None for document in the_worker(queue).documents), "the report")
    gate.set()
    stop()


def test_a_worker_keeps_reporting(bench: Bench, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "BEAT_SECONDS", QUICK_SECONDS)
    stop = bench.start(waiting_worker(bench, threading.Event()))

    def seen_ms() -> int:
        (record,) = queue.engine.records(WORKERS, "", 10)
        return decode_record(record.value).seen_ms

    first = seen_ms()
    until(lambda: seen_ms() > first, "another report")
    stop()


def test_a_killed_worker_stays_in_the_registry_and_its_document_is_still_shown(
    start: Start,  # noqa: F811 - the fixture
    queue: Queue,
    tmp_path: Any,
) -> None:
    (id,) = submit(queue, tmp_path, "wait")
    worker = start()
    began(tmp_path, id)
    worker.signal(signal.SIGKILL)
    worker.process.wait()
    seen = the_worker(queue)
    assert [document.id for document in seen.documents] == [id]
    assert seen.pid == worker.pid


def test_a_wish_that_comes_during_a_report_is_not_lost(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = queue.engine
    report = registration.Registration(engine, "machine", {"wait": 2}, 2)
    report.beat("working", {})
    read_clock = engine.now

    def drain_meanwhile() -> int:
        """An operator comes between the worker's read and its write, once."""
        monkeypatch.setattr(engine, "now", read_clock)
        queue.drain_worker("machine")
        return read_clock()

    monkeypatch.setattr(registration, "BEAT_SECONDS", 0)
    monkeypatch.setattr(engine, "now", drain_meanwhile)
    report.beat("working", {})
    assert report.is_drain_wanted
    assert the_worker(queue).state == "draining"
