"""Waiting for work on SQLite: woken by every commit, and nearly idle while there is none."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlane import Queue
from fairlane.core.document import Done, Submission
from fairlane.engine.sqlite import SqliteEngine
from fairlane.engine.sqlite import wait as wait_module
from fairlane.engine.sqlite.pool import SqlitePool
from fairlane.engine.sqlite.wait import WorkWaiter
from fairlane.engine.sqlite.wal_watch import WalWatch

LONG = 60.0
SUBMIT = "import sys; from fairlane import Queue; Queue(sys.argv[1]).submit('acme')"


@pytest.fixture(params=["notified", "polling"])
def engine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqliteEngine:
    """With the kernel's notifications, and where there are none."""
    if request.param == "polling":
        monkeypatch.setattr(WalWatch, "is_active", property(lambda self: False))
    return SqliteEngine(tmp_path / "queue.db")


def waiting(engine: SqliteEngine, timeout_seconds: float = LONG) -> Callable[[], tuple[bool, float]]:
    """Start a thread that waits; return a function that joins it and returns its answer, and how long it took."""
    answers: list[tuple[bool, float]] = []

    def wait() -> None:
        began = time.monotonic()
        answers.append((engine.wait(timeout_seconds), time.monotonic() - began))

    thread = threading.Thread(target=wait)
    thread.start()

    def answer() -> tuple[bool, float]:
        thread.join()
        return answers[0]

    return answer


def test_a_write_of_another_process_ends_the_wait(engine: SqliteEngine) -> None:
    answers = [waiting(engine) for _ in range(3)]
    subprocess.run([sys.executable, "-c", SUBMIT, f"sqlite:///{engine.path}"], check=True)
    for is_ready, seconds in [answer() for answer in answers]:
        assert is_ready
        assert seconds < LONG / 2
    engine.close()


def test_a_write_of_this_process_ends_the_wait(engine: SqliteEngine) -> None:
    answer = waiting(engine)
    engine.submit([Submission("id", "acme", "extract", "null")])
    is_ready, seconds = answer()
    assert is_ready
    assert seconds < LONG / 2
    engine.close()


def test_a_delayed_document_ends_the_wait_when_it_is_due(engine: SqliteEngine) -> None:
    engine.submit([Submission("id", "acme", "extract", "null", delay_ms=300)])
    began = time.monotonic()
    assert engine.wait(LONG)
    assert time.monotonic() - began < LONG / 2
    assert len(engine.claim("w", 1, 1000)) == 1
    engine.close()


class CountingPool(SqlitePool):
    """Counts reads."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.reads = threading.Semaphore(0)

    def read(self, operation: Callable[[Any], Any]) -> Any:
        self.reads.release()
        return super().read(operation)


def test_a_wait_hardly_reads_while_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_module, "IDLE_POLL_SECONDS", 0.05)
    engine = SqliteEngine(tmp_path / "queue.db")
    pool = CountingPool(engine.path)
    began = time.monotonic()
    waiter = threading.Thread(target=WorkWaiter(pool).wait, args=(LONG, None))
    waiter.start()
    for _ in range(3 + 5):  # three reads at the beginning, then one for each idle poll
        pool.reads.acquire()
    assert time.monotonic() - began >= 4 * 0.05
    engine.submit([Submission("id", "acme", "extract", "null")])
    waiter.join()
    engine.close()


def test_a_commit_that_was_notified_before_it_could_be_read_is_not_missed(tmp_path: Path) -> None:
    """Submissions one after the other from another thread, each waited for: a missed one would cost an idle poll."""
    engine = SqliteEngine(tmp_path / "queue.db")
    with Queue(f"sqlite:///{tmp_path}/queue.db") as queue:
        began = time.monotonic()
        for _ in range(100):
            sender = threading.Thread(target=queue.submit, args=("acme",))
            sender.start()
            assert engine.wait(LONG)
            sender.join()
            (claim,) = engine.claim("worker", 1, 60_000)
            engine.settle([(claim, Done())])
        assert time.monotonic() - began < 20  # on a very busy disk; a quarter of a second for each would be 25
    engine.close()
