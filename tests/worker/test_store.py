"""A store that is busy, late, odd, or cannot take an outcome."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fairlane import FairlaneError, Queue, StoreBusy
from fairlane.core.document import Claim, Done, Failed, Outcome
from fairlane.engine import Engine, open_engine
from fairlane.engine.sqlite import SqliteEngine
from fairlane.worker import Document, Summary
from fairlane.worker.resources import ClaimRequest
from fairlane.worker.store import WorkerStore

from .conftest import CLAIM, SECONDS_MAX, Bench, until


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
    def open_failing(url: str, create: bool = True) -> Engine:
        return Failing(tmp_path / "queue.db", create)

    monkeypatch.setattr("fairlane.encryption.engine.open_engine", open_failing)
    queue.submit_many("acme", range(30))
    worker = bench.worker()
    worker.handler("default")(lambda document: document.payload)
    assert bench.run(worker).done == 30
    assert bench.emitted("store_failed")
    assert Failing.calls["settle"] > 1
    assert queue.look("acme").done == 30
    assert all(document.attempts == 1 for document in queue.documents())


class Late(SqliteEngine):
    """A real store whose answer to a claim comes after the worker has begun to stop."""

    stop: ClassVar[Callable[[], None]]

    def claim(self, worker: str, limit: int, lease_ms: int, kinds: Mapping[str, int] | None = None, **now: Any) -> list[Claim]:
        claims = super().claim(worker, limit, lease_ms, kinds, **now)
        Late.stop()
        return claims


def test_what_is_claimed_while_the_worker_stops_goes_back_unbegun(
    bench: Bench, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.encryption.engine.open_engine", lambda url, create=True: Late(tmp_path / "queue.db", create))
    queue.submit_many("acme", range(10))
    worker = bench.worker()
    worker.handler("default")(lambda document: None)

    def stop() -> None:
        if not bench.emitted("stopping"):
            worker.stop()
            until(lambda: bench.emitted("stopping"))

    Late.stop = stop
    assert bench.run(worker, until_empty=False) == Summary(released=2)
    assert bench.emitted("began") == []
    assert {(document.state, document.attempts) for document in queue.documents()} == {("ready", 0)}


class Slow(SqliteEngine):
    """A real store that settles only when the test allows it."""

    is_settling: ClassVar[threading.Event] = threading.Event()
    may_settle: ClassVar[threading.Event] = threading.Event()

    def settle(self, settlements: Sequence[tuple[Claim, Outcome]], **now: Any) -> list[Claim]:
        Slow.is_settling.set()
        assert Slow.may_settle.wait(SECONDS_MAX)
        return super().settle(settlements, **now)


def test_what_is_on_its_way_to_the_store_when_the_worker_gives_up_is_not_lost(
    bench: Bench, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.encryption.engine.open_engine", lambda url, create=True: Slow(tmp_path / "queue.db", create))
    monkeypatch.setattr("fairlane.worker.run_loop.LAST_TRIES_SECONDS", 0.0)

    async def handler(document: Document) -> None:
        if document.payload == "endless":
            await asyncio.Event().wait()

    settled, lost = (queue.submit("acme", payload).id for payload in ("short", "endless"))
    worker = bench.worker()
    worker.handler("default")(handler)
    stop = bench.start(worker)
    until(lambda: Slow.is_settling.is_set() and len(bench.emitted("began")) == 2)
    for _ in range(2):  # the second time gives everything back at once
        worker.stop()
    until(lambda: bench.emitted("lost"))
    Slow.may_settle.set()
    assert stop() == Summary(done=1, lost=1)
    assert [event.id for event in bench.emitted("lost")] == [lost]
    assert [queue.document(id).state for id in (settled, lost)] == ["done", "running"]


class Odd(SqliteEngine):
    """A real store that fails in an unexpected way."""

    def wait(self, timeout_seconds: float, kinds: Sequence[str] | None = None) -> bool:
        raise ZeroDivisionError("odd")


def test_a_worker_whose_job_fails_gives_back_what_it_has_and_says_so(
    bench: Bench, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.encryption.engine.open_engine", lambda url, create=True: Odd(tmp_path / "queue.db", create))
    id = queue.submit("acme").id
    worker = bench.worker(grace=1000)
    worker.handler("default")(lambda document: threading.Event().wait())
    with pytest.raises(FairlaneError, match="ZeroDivisionError: odd"):
        bench.run(worker)
    assert (queue.document(id).state, queue.document(id).attempts) == ("ready", 0)


KINDS = {"default": 3}


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
        store = WorkerStore(engine, "worker", 10_000, KINDS)
        claims = store.exchange([], ClaimRequest(3, KINDS)).claims
        settlements = [(claim, Done('"bad"' if number == 1 else '"good"')) for number, claim in enumerate(claims)]
        exchange = store.exchange(settlements, ClaimRequest(0, KINDS))
        assert (exchange.settled, exchange.lost, exchange.failure) == (3, [], None)
        assert [queue.document(id).state for id in ids] == ["done", "failed", "done"]
        assert "could not be kept: ValueError: cannot be kept" in (queue.document(ids[1]).reason or "")
        engine.close()


def test_an_outcome_that_cannot_even_fail_is_left_to_its_lease(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/queue.db")

    class Broken(SqliteEngine):
        def settle(self, settlements: Sequence[tuple[Claim, Outcome]], **now: Any) -> list[Claim]:
            raise ValueError("no")

    broken = Broken(tmp_path / "queue.db")
    assert WorkerStore(broken, "worker", 10_000, {}).exchange([(CLAIM, Failed("x"))], ClaimRequest(0, {})).lost == [CLAIM]
    for opened in (engine, broken):
        opened.close()
