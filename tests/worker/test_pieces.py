"""The small pieces on their own: frames, pace, holdings, reports, the store's failures."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fairlane import FairlaneError, Queue, StoreBusy, Worker
from fairlane.core.document import Claim, Done, Failed, Outcome
from fairlane.engine import Engine, open_engine
from fairlane.engine.sqlite import SqliteEngine
from fairlane.procs.ipc import FRAME_BYTES_MAX, BadFrame, Unframed, framed
from fairlane.worker import Document, Event, Summary, claims
from fairlane.worker.claims import Holdings
from fairlane.worker.prefetch import AHEAD_MAX, AHEAD_SECONDS, Pace
from fairlane.worker.progress import Reports
from fairlane.worker.store import Store

from .conftest import Bench, breath, until

CLAIM = Claim("id", 1, 1, "acme", "extract", 1, "null", 1, 3, 0, 1, False)


# -- frames ----------------------------------------------------------------------------------------------------------


def test_frames_come_out_as_they_went_in_however_they_are_cut() -> None:
    messages: list[list[Any]] = [["a"], ["b", {"x": "ä\ud800"}], ["c", "y" * 70_000]]
    sent = b"".join(map(framed, messages))
    for size in (1, 7, 4096, len(sent)):
        unframed = Unframed()
        heard = [one for at in range(0, len(sent), size) for one in unframed.feed(sent[at : at + size])]
        assert heard == messages


@pytest.mark.parametrize("sent", [b"\xff\xff\xff\xff", b"\0\0\0\2{]", b"\0\0\0\2{}", b"\0\0\0\2[]"])
def test_what_is_no_frame_is_refused(sent: bytes) -> None:
    heard = Unframed().feed(framed(["before"]) + sent)
    assert next(heard) == ["before"]
    with pytest.raises(BadFrame):
        next(heard)


def test_a_message_that_is_too_large_is_refused_by_the_sender() -> None:
    with pytest.raises(BadFrame, match="at most"):
        framed(["x" * FRAME_BYTES_MAX])


# -- pace ------------------------------------------------------------------------------------------------------------


def test_nothing_is_read_ahead_before_a_run_time_is_known() -> None:
    assert Pace(4).room(0) == 4
    assert Pace(4).room(4) == 0


@pytest.mark.parametrize(("seconds", "ahead"), [(0.005, 10), (0.02, 2), (0.05, 1), (0.2, 0), (1e-9, AHEAD_MAX)])
def test_reading_ahead_is_bounded_by_time(seconds: float, ahead: int) -> None:
    pace = Pace(4)
    for _ in range(100):
        pace.ran(seconds)
    assert pace.ahead() == ahead
    assert pace.ahead() * seconds <= AHEAD_SECONDS
    assert pace.room(3) == 1 + pace.ahead()


def test_a_worker_never_holds_more_than_its_slots_of_long_documents(bench: Bench, queue: Queue, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def handler(document: Document) -> None:
        until(gate.exists)

    queue.submit_many("acme", range(20))
    worker = bench.worker(slots=3)
    worker.handler("extract")(handler)
    stop = bench.start(worker)
    until(lambda: queue.look("acme").running == 3)
    seen = {queue.look("acme").running for _ in range(50)}
    gate.touch()
    until(lambda: queue.look("acme").done == 20)
    stop()
    assert seen == {3}


def test_a_document_that_waits_behind_a_long_one_is_given_to_another_child(bench: Bench, queue: Queue, tmp_path: Path) -> None:
    """Read ahead by the mean of short ones, it must not wait for the one long one."""
    gate = tmp_path / "gate"

    def handler(document: Document) -> None:
        if document.payload == "long":
            until(gate.exists)

    payloads: list[str] = ["short"] * 100
    payloads[60] = "long"
    ids = [one.id for one in queue.submit_many("acme", payloads)]
    worker = bench.worker(slots=2)
    worker.handler("extract")(handler)
    stop = bench.start(worker)
    until(lambda: queue.look("acme").done == 99, "all but the long one")
    assert queue.document(ids[60]).state == "running"
    gate.touch()
    until(lambda: queue.look("acme").done == 100)
    stop()


def test_documents_begin_in_the_order_of_their_turns(bench: Bench, queue: Queue) -> None:
    for place in range(40):
        queue.submit(f"customer-{place % 5}", place)
    worker = bench.worker(slots=1)
    worker.handler("extract")(lambda document: None)
    bench.run(worker)
    claimed = [one.document for one in queue.changes() if one.what == "claimed"]
    assert [event.id for event in bench.told("began")] == claimed


@pytest.mark.parametrize("is_async", [False, True])
def test_a_better_priority_passes_what_was_read_ahead(
    bench: Bench, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    gate, begun = tmp_path / "gate", tmp_path / "begun"
    monkeypatch.setattr(claims, "YIELD_SECONDS", 1000.0)

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
                await breath()

    queue.configure(open_turn_every=0)
    queue.submit_many("big", range(100))
    worker = bench.worker(slots=1)
    worker.handler("extract")(async_handler if is_async else handler)

    def open_when_placed(event: Event) -> None:
        if sum(one.number or 0 for one in bench.told("claimed")) == 102:
            asyncio.get_running_loop().call_soon(gate.touch)

    worker.on("claimed", open_when_placed)
    stop = bench.start(worker)
    until(lambda: queue.look("big").running == 70, "the rest was read ahead")
    queue.submit("light", "first")
    queue.submit("light", "second")
    until(lambda: queue.look("big").done == 100)
    stop()
    assert begun.read_text().split() == [*map(str, range(31)), "first", "second", *map(str, range(31, 100))]


def test_what_was_read_ahead_goes_back_at_a_stop(bench: Bench, queue: Queue) -> None:
    queue.submit_many("acme", range(5000))
    worker = bench.worker()
    worker.handler("extract")(lambda document: None)
    stop = bench.start(worker)
    until(lambda: queue.look("acme").done > 300)
    summary = stop()
    look = queue.look("acme")
    assert summary.lost == 0 < summary.released
    assert (look.running, look.done, look.waiting) == (0, summary.done, 5000 - summary.done)
    assert {one.attempts for one in queue.documents(state="ready")} == {0}


# -- holdings --------------------------------------------------------------------------------------------------------


def test_a_claim_counts_as_lost_before_its_lease_ends() -> None:
    holdings = Holdings(6000)
    first, second = holdings.take([CLAIM, CLAIM], asked=100.0)
    assert holdings.overdue(104.9) == []
    assert holdings.overdue(105.1) == [first, second]  # a sixth of the lease is left
    holdings.renewed(103.0, first.serial)
    assert holdings.overdue(105.1) == [second]
    holdings.renewed(101.0, second.serial)  # an answer that was long under way takes nothing away
    assert holdings.overdue(106.5) == [second]
    assert holdings.overdue(108.1) == [first, second]


def test_a_better_priority_passes_neither_its_like_nor_an_open_turn_nor_what_has_waited() -> None:
    def taken(priority: int, asked: float, is_open_turn: bool = False) -> claims.Held:
        return Holdings(6000).take([CLAIM._replace(priority=priority, is_open_turn=is_open_turn)], asked)[0]

    now, ago = 100.0, 100.0 - 2 * claims.YIELD_SECONDS
    cases: list[tuple[list[claims.Held], int]] = [
        ([], 0),
        ([taken(9, now), taken(9, now)], 0),
        ([taken(2, now), taken(9, now)], 1),
        ([taken(9, now), taken(1, now), taken(9, now)], 2),
        ([taken(9, now), taken(9, now, is_open_turn=True), taken(9, now)], 2),
        ([taken(9, ago), taken(9, now)], 1),
    ]
    for waiting, place in cases:
        assert claims.place_among(waiting, taken(2, now)) == place


def test_nothing_is_claimed_before_the_keeper_is_up(
    queue: Queue, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keeper that starts only when a gate opens; a worker whose keeper is a thread does all its work meanwhile."""
    gate, slow = tmp_path / "gate", tmp_path / "slow-python"
    slow.write_text(f'#!/bin/sh\nwhile [ ! -e "{gate}" ]; do sleep 0.01; done\nexec "{sys.executable}" "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    queue.submit("acme", kind="extract")
    bench = Bench(url)
    worker = bench.worker(lease=30)
    worker.handler("extract")(lambda document: None)
    stop = bench.start(worker)
    until(lambda: bench.told("started"))
    with Queue("memory://") as other:
        other.submit("acme", kind="extract")
        quick = Worker(other)
        quick.handler("extract")(lambda document: None)
        assert quick.run(until_empty=True) == Summary(done=1)
    assert bench.told("claimed") == []
    gate.touch()
    until(lambda: bench.told("finished"))
    assert stop() == Summary(done=1)


# -- reports ---------------------------------------------------------------------------------------------------------


def test_a_stale_worker_never_overwrites_a_newer_report(queue: Queue) -> None:
    id = queue.submit("acme").id
    (old,) = queue.engine.claim("old", 1, 1000, now_ms=0)
    queue.engine.reclaim(1, now_ms=2000)
    stale, fresh = Reports(queue.engine), Reports(queue.engine)
    stale.note(old, 0.9, None)
    stale.write(stale.take())
    assert queue.progress(id) is not None  # nobody has it now, and its token is still the newest
    (new,) = queue.engine.claim("new", 1, 1000)
    assert queue.progress(id) is None  # what the old one told is not shown for the new attempt
    fresh.note(new, 0.1, "[1]")
    fresh.write(fresh.take())
    stale.note(old, 1.0, "[2]")
    stale.write(stale.take())
    stale.finished(old, is_done=True)
    stale.write(stale.take())
    assert queue.progress(id) == (2, 0.1, [1])


def test_forgetting_a_customer_forgets_what_was_reported(queue: Queue) -> None:
    queue.submit("acme")
    (claim,) = queue.engine.claim("worker", 1, 1000)
    reports = Reports(queue.engine)
    reports.note(claim, None, json.dumps({"name": "secret"}))
    reports.write(reports.take())
    assert len(queue.engine.records("progress", "", 10)) == 1
    queue.forget("acme")
    assert queue.engine.records("progress", "", 10) == []


# -- a store that fails ----------------------------------------------------------------------------------------------


class Failing(SqliteEngine):
    """A real store that is busy at every other call."""

    calls: ClassVar[Counter[str]] = Counter()

    def _fail(self, verb: str) -> None:
        Failing.calls[verb] += 1
        if Failing.calls[verb] % 2:
            raise StoreBusy("others held the store for too long")

    def claim(self, worker: str, limit: int, lease_ms: int, kinds: Mapping[str, int] | None = None, **now: Any) -> list[Claim]:
        self._fail("claim")
        return super().claim(worker, limit, lease_ms, kinds, **now)

    def settle(self, settlements: Sequence[tuple[Claim, Outcome]], **now: Any) -> list[Claim]:
        self._fail("settle")
        return super().settle(settlements, **now)


def test_a_store_that_is_busy_costs_nothing_but_time(
    bench: Bench, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(url: str, create: bool = True) -> Engine:
        return Failing(tmp_path / "queue.db", create)

    monkeypatch.setattr("fairlane.worker.worker.open_engine", opened)
    queue.submit_many("acme", range(30))
    worker = bench.worker()
    worker.handler("extract")(lambda document: document.payload)
    assert bench.run(worker).done == 30
    assert bench.told("store_failed")
    assert Failing.calls["settle"] > 1
    assert queue.look("acme").done == 30
    assert all(one.attempts == 1 for one in queue.documents())


class Late(SqliteEngine):
    """A real store whose answer to a claim comes after the worker was told to stop."""

    stop: ClassVar[Callable[[], None]]

    def claim(self, worker: str, limit: int, lease_ms: int, kinds: Mapping[str, int] | None = None, **now: Any) -> list[Claim]:
        claims = super().claim(worker, limit, lease_ms, kinds, **now)
        Late.stop()
        return claims


def test_what_is_claimed_while_the_worker_stops_goes_back_unbegun(
    bench: Bench, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.worker.worker.open_engine", lambda url, create=True: Late(tmp_path / "queue.db", create))
    queue.submit_many("acme", range(10))
    worker = bench.worker()
    worker.handler("extract")(lambda document: None)

    def stop() -> None:
        if not bench.told("stopping"):
            worker.stop()
            until(lambda: bench.told("stopping"))

    Late.stop = stop
    assert bench.run(worker, until_empty=False) == Summary(released=2)
    assert bench.told("began") == []
    assert {(one.state, one.attempts) for one in queue.documents()} == {("ready", 0)}


class Odd(SqliteEngine):
    """A real store that fails in a way nobody expects."""

    def wait(self, timeout_seconds: float, kinds: Sequence[str] | None = None) -> bool:
        raise ZeroDivisionError("odd")


def test_a_worker_whose_job_fails_gives_back_what_it_has_and_says_so(
    bench: Bench, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.worker.worker.open_engine", lambda url, create=True: Odd(tmp_path / "queue.db", create))
    id = queue.submit("acme").id
    worker = bench.worker(grace=1000)
    worker.handler("extract")(lambda document: threading.Event().wait())
    with pytest.raises(FairlaneError, match="ZeroDivisionError: odd"):
        bench.run(worker)
    assert (queue.document(id).state, queue.document(id).attempts) == ("ready", 0)


class Picky(SqliteEngine):
    """A real store that cannot keep one particular result."""

    def settle(self, settlements: Sequence[tuple[Claim, Outcome]], **now: Any) -> list[Claim]:
        if any(outcome == Done('"bad"') for _, outcome in settlements):
            raise ValueError("cannot be kept")
        return super().settle(settlements, **now)


def test_an_outcome_that_cannot_be_kept_does_not_hold_up_the_others(tmp_path: Path) -> None:
    with Queue(f"sqlite:///{tmp_path}/queue.db") as queue:
        ids = [queue.submit("acme").id for _ in range(3)]
        engine = Picky(tmp_path / "queue.db")
        store = Store(engine, "worker", 10_000, {"extract": 3})
        claims = store.exchange([], 3).claims
        visit = store.exchange([(one, Done('"bad"' if place == 1 else '"good"')) for place, one in enumerate(claims)], 0)
        assert (visit.settled, visit.lost, visit.failure) == (3, [], None)
        assert [queue.document(id).state for id in ids] == ["done", "failed", "done"]
        assert "could not be kept: ValueError: cannot be kept" in (queue.document(ids[1]).reason or "")
        engine.close()


def test_what_even_a_failure_cannot_tell_is_left_to_its_lease(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/queue.db")

    class Broken(SqliteEngine):
        def settle(self, settlements: Sequence[tuple[Claim, Outcome]], **now: Any) -> list[Claim]:
            raise ValueError("no")

    broken = Broken(tmp_path / "queue.db")
    assert Store(broken, "worker", 10_000, {}).exchange([(CLAIM, Failed("x"))], 0).lost == [CLAIM]
    for one in (engine, broken):
        one.close()


def test_renewals_do_not_look_at_what_was_claimed_after_them() -> None:
    holdings = Holdings(6000)
    taken = holdings.take([CLAIM] * 5, asked=100.0)
    holdings.drop(taken[1])
    holdings.renewed(104.0, taken[2].serial)
    assert [one.until > 105.1 for one in taken if one is not taken[1]] == [True, True, False, False]
    assert all(one.serial < two.serial for one, two in pairwise(taken))
