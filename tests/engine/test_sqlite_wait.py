"""Waiting for work on SQLite: woken by whoever writes, and hardly busy while nobody does."""

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
from fairlane.engine.sqlite.wal_watch import Notice

LONG = 60.0
SUBMIT = "import sys; from fairlane import Queue; Queue(sys.argv[1]).submit('acme')"


@pytest.fixture(params=["noticed", "unnoticed"])
def engine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqliteEngine:
    """With notices of the kernel, and where it gives none."""
    if request.param == "unnoticed":
        monkeypatch.setattr(Notice, "is_given", property(lambda self: False))
    engine = SqliteEngine(tmp_path / "queue.db")
    engine.migrate()
    return engine


def waiting(engine: SqliteEngine, timeout_seconds: float = LONG) -> Callable[[], tuple[bool, float]]:
    """A thread that waits; returns how to hear its answer, and after how long it came."""
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


def test_a_wait_hardly_looks_while_nobody_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = SqliteEngine(tmp_path / "queue.db")
    engine.migrate()
    looks = 0
    read = engine._read

    def counted(look: Any) -> Any:
        nonlocal looks
        looks += 1
        return read(look)

    monkeypatch.setattr(engine, "_read", counted)
    assert not engine.wait(0.6)
    assert looks < 20
    engine.close()


def test_a_commit_that_was_noticed_before_it_could_be_read_is_not_missed(tmp_path: Path) -> None:
    """Submissions one after the other from another thread, each waited for: a missed one would cost a look's interval."""
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
