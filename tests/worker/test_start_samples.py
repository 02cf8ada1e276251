"""Samples of starts: a worker takes them beside its documents, and a store that fails meanwhile stops nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlane import Queue, StoreBusy
from fairlane.core.document import Totals
from fairlane.engine import Engine
from fairlane.engine.sqlite import SqliteEngine
from fairlane.queue.start_samples import ESTIMATES, LEARNED, NEXT, read_calibration
from fairlane.worker import background

from .conftest import Bench, until


class Busy(SqliteEngine):
    """A real store that is too busy for totals."""

    def totals(self) -> Totals:
        raise StoreBusy("others held the store for too long")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "SAMPLE_SECONDS_MIN", 0.01)


def echo(document: Any) -> Any:
    return document.payload


def test_a_worker_takes_samples_beside_its_documents(bench: Bench, queue: Queue) -> None:
    worker = bench.worker()
    worker.handler("default")(echo)
    stop = bench.start(worker)
    until(lambda: queue.engine.record(ESTIMATES, LEARNED), "the first mark")
    assert len(read_calibration(queue.engine).marks) == 1
    assert queue.engine.record(ESTIMATES, NEXT) is not None
    stop()
    assert not bench.emitted("store_failed")


def test_a_store_that_fails_meanwhile_is_reported_and_stops_nothing(
    bench: Bench, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_busy(url: str, create: bool = True) -> Engine:
        return Busy(tmp_path / "queue.db", create)

    monkeypatch.setattr("fairlane.encryption.engine.open_engine", open_busy)
    worker = bench.worker()
    worker.handler("default")(echo)
    stop = bench.start(worker)
    until(lambda: bench.emitted("store_failed"), "the report")
    id = queue.submit("acme", 1).id
    until(lambda: queue.document(id).state == "done", "the document")
    assert stop().done == 1
