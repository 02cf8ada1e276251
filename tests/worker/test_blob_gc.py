"""The sweep of a worker: in slices, once a day, and not while a backup holds the files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import Queue
from fairlane.queue import new_ids
from fairlane.worker import blob_gc
from fairlane.worker.blob_gc import CHECK_SECONDS, PAUSE_SECONDS, BlobCollector
from tests.queue.conftest import age, stored_documents

ORPHANS = 6


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    """A queue with one document, and old files that no document owns."""
    with Queue(f"sqlite:///{tmp_path}/queue.db", blobs=str(tmp_path / "blobs")) as queue:
        queue.submit("acme", content=b"owned")
        for id in new_ids(ORPHANS):
            queue.files.open().put_input("acme", id, b"orphan")
        age(tmp_path / "blobs")
        yield queue


def test_a_sweep_goes_on_where_its_last_slice_ended(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_gc, "SLICE_SECONDS", 0.0)  # one file a slice
    collector, left = BlobCollector(queue.files), list[int]()
    assert collector.pause_seconds == CHECK_SECONDS
    while not left or collector.pause_seconds == PAUSE_SECONDS:
        assert collector.slice() is None
        left.append(len(stored_documents(queue)))
        assert len(left) < 20
    assert (len(left), left[-1]) == (ORPHANS + 2, 1)  # each file once, and one to see the end
    assert sorted(left, reverse=True) == left


def test_of_all_workers_one_sweeps_once_a_day(queue: Queue) -> None:
    first, second = BlobCollector(queue.files), BlobCollector(queue.files)
    assert (first.slice(), len(stored_documents(queue))) == (None, 1)
    queue.cancel(queue.submit("acme", {"n": 1}).id)
    assert (second.slice(), second.pause_seconds) == (None, CHECK_SECONDS)


def test_nothing_is_swept_while_a_backup_holds_the_files(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = BlobCollector(queue.files)
    queue.files.hold("backup")
    assert collector.slice() is None
    assert len(stored_documents(queue)) == ORPHANS + 1
    queue.files.release("backup")
    monkeypatch.setattr(blob_gc, "SLICE_SECONDS", 0.0)
    assert collector.slice() is None  # it was not missed: the sweep begins now
    queue.files.hold("another")
    while collector.pause_seconds == PAUSE_SECONDS:
        message = collector.slice()
    assert message is not None
    assert "a backup of this queue is under way" in message
    assert len(stored_documents(queue)) >= ORPHANS
