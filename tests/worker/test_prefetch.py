"""Prefetching: how much is claimed ahead, in which order it begins, and that it goes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fairlane import Queue
from fairlane.worker import Document, Event, claims, prefetch
from fairlane.worker.prefetch import AHEAD_MAX, AHEAD_SECONDS, Prefetch

from .conftest import Bench, until, yield_loop


def test_nothing_is_prefetched_before_a_run_time_is_known() -> None:
    assert Prefetch(4).room(0) == 4
    assert Prefetch(4).room(4) == 0


@pytest.mark.parametrize(("seconds", "ahead"), [(0.005, 10), (0.02, 2), (0.05, 1), (0.2, 0), (1e-9, AHEAD_MAX)])
def test_prefetching_is_bounded_by_time(seconds: float, ahead: int) -> None:
    prefetch = Prefetch(4)
    for _ in range(100):
        prefetch.record(seconds)
    assert prefetch.ahead() == ahead
    assert prefetch.ahead() * seconds <= AHEAD_SECONDS
    assert prefetch.room(3) == 1 + prefetch.ahead()


def test_nothing_is_prefetched_behind_the_parts_of_a_document_that_was_split_in_no_time() -> None:
    prefetch = Prefetch(1)
    prefetch.record(0.001)
    assert prefetch.ahead() == 50
    prefetch.expect_parts()
    assert prefetch.ahead() == 0
    for _ in range(20_000):
        prefetch.record(0.01)
    assert prefetch.ahead() == 5


def test_nothing_waits_behind_documents_that_take_long_now_and_then() -> None:
    prefetch = Prefetch(1)
    for number in range(500):
        prefetch.record(1.0 if number % 100 == 50 else 0.01)
        assert number < 50 or prefetch.ahead() == 0
    for _ in range(20_000):
        prefetch.record(0.01)
    assert prefetch.ahead() == 5


def test_a_worker_never_holds_more_than_its_slots_of_long_documents(bench: Bench, queue: Queue, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def handler(document: Document) -> None:
        until(gate.exists)

    queue.submit_many("acme", range(20))
    worker = bench.worker(slots=3)
    worker.handler("default")(handler)
    stop = bench.start(worker)
    until(lambda: queue.look("acme").running == 3)
    seen = {queue.look("acme").running for _ in range(50)}
    gate.touch()
    until(lambda: queue.look("acme").done == 20)
    stop()
    assert seen == {3}


def test_a_document_that_waits_behind_a_long_one_is_given_to_another_child(bench: Bench, queue: Queue, tmp_path: Path) -> None:
    """Prefetched by the mean of short run times, it must not wait for the long one."""
    gate = tmp_path / "gate"

    def handler(document: Document) -> None:
        if document.payload == "long":
            until(gate.exists)

    payloads: list[str] = ["short"] * 100
    payloads[60] = "long"
    ids = [receipt.id for receipt in queue.submit_many("acme", payloads)]
    worker = bench.worker(slots=2)
    worker.handler("default")(handler)
    stop = bench.start(worker)
    until(lambda: queue.look("acme").done == 99, "all but the long one")
    assert queue.document(ids[60]).state == "running"
    gate.touch()
    until(lambda: queue.look("acme").done == 100)
    stop()


def test_documents_begin_in_the_order_of_their_turns(bench: Bench, queue: Queue) -> None:
    for number in range(40):
        queue.submit(f"customer-{number % 5}", number)
    worker = bench.worker(slots=1)
    worker.handler("default")(lambda document: None)
    bench.run(worker)
    claimed = [change.document for change in queue.changes() if change.event == "claimed"]
    assert [event.id for event in bench.emitted("began")] == claimed


@pytest.mark.parametrize("is_async", [False, True])
def test_a_better_priority_overtakes_what_was_prefetched(
    bench: Bench, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    gate, begun = tmp_path / "gate", tmp_path / "begun"
    monkeypatch.setattr(claims, "OVERTAKE_SECONDS_MAX", 1000.0)
    monkeypatch.setattr(prefetch, "AHEAD_SECONDS", 1000.0)  # all that is left, however slow this machine is

    def note(document: Document) -> bool:
        with begun.open("a") as file:
            file.write(f"{document.payload}\n")
        return bool(document.payload == 30)

    def handler(document: Document) -> None:
        if note(document):
            until(gate.exists)

    async def async_handler(document: Document) -> None:
        if note(document):
            while not gate.exists():
                await yield_loop()

    queue.configure(open_turn_every=0)
    queue.submit_many("big", range(100))
    worker = bench.worker(slots=1)
    worker.handler("default")(async_handler if is_async else handler)

    def open_when_placed(event: Event) -> None:
        if sum(claimed.number or 0 for claimed in bench.emitted("claimed")) == 102:
            asyncio.get_running_loop().call_soon(gate.touch)

    worker.on("claimed", open_when_placed)
    stop = bench.start(worker)
    until(lambda: queue.look("big").running == 70, "the prefetch of the rest")
    queue.submit("light", "first")
    queue.submit("light", "second")
    until(lambda: queue.look("big").done == 100)
    stop()
    assert begun.read_text().split() == [*map(str, range(31)), "first", "second", *map(str, range(31, 100))]


def test_what_was_prefetched_goes_back_at_a_stop(bench: Bench, queue: Queue) -> None:
    queue.submit_many("acme", range(5000))
    worker = bench.worker()
    worker.handler("default")(lambda document: None)
    stop = bench.start(worker)
    until(lambda: queue.look("acme").done > 300)
    summary = stop()
    look = queue.look("acme")
    assert summary.lost == 0 < summary.released
    assert (look.running, look.done, look.waiting) == (0, summary.done, 5000 - summary.done)
    assert {document.attempts for document in queue.documents(state="ready")} == {0}
