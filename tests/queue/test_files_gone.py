"""Files of documents that are gone: they go with them, and nothing else does."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from fairlane import Input, Queue
from fairlane.core.document import Failed, ReceiptRow
from tests.engine.conftest import ENGINES, url_of
from tests.servers import redis

from .conftest import age, bytes_of, done_with_results, stored_documents


def test_files_go_with_their_purged_documents(queue: Queue, tmp_path: Path) -> None:
    first = queue.submit("acme", content=b"one").id
    (late,) = queue.engine.claim("w", 1, 1, now_ms=1)
    queue.put_results("acme", first, late.token, text="late", thumbnail=b"late")
    queue.engine.reclaim(10, now_ms=10**12)
    done_with_results(queue, text="text", facts={"pages": 1}, thumbnail=b"png")
    failed, waiting = queue.submit("acme", content=b"two").id, queue.submit("acme", content=b"three").id
    (claim,) = queue.engine.claim("w", 1, 60_000)
    queue.put_results("acme", failed, claim.token, text="half")
    queue.engine.settle([(claim, Failed("torn"))])
    queue.cancel(queue.submit("other", {"no": "file"}).id)
    assert queue.purge(1e6) == 0
    assert set(stored_documents(queue)) == {first, failed, waiting}
    assert queue.purge(0) == 3
    assert stored_documents(queue) == [waiting]
    assert bytes_of(queue, waiting) == b"three"
    (namespace,) = (path for path in (tmp_path / "blobs").iterdir() if path.name != "unfinished")
    assert [path.name for path in namespace.glob("*/*")] == [waiting]  # no empty folder is left


def test_a_purge_looks_at_no_file_but_those_of_the_documents_it_purges(queue: Queue, tmp_path: Path) -> None:
    queue.cancel(queue.submit("acme", content=b"old").id)
    orphan = "01234567-0000-7000-8000-000000000000"
    queue.files.open().put_input("acme", orphan, b"orphan")
    age(tmp_path / "blobs")
    assert queue.purge(0) == 1
    assert stored_documents(queue) == [orphan]  # only a sweep walks all files
    assert queue.sweep().removed == 1


def test_a_purge_between_the_bytes_of_a_submission_and_its_document_takes_nothing(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.cancel(queue.submit("acme", content=b"old").id)
    submit = queue.engine.submit

    def purge_then_submit(*args: Any, **kwargs: Any) -> list[ReceiptRow]:
        assert queue.purge(0) == 1
        return submit(*args, **kwargs)

    monkeypatch.setattr(queue.engine, "submit", purge_then_submit)
    id = queue.submit("acme", content=b"new").id
    assert (stored_documents(queue), bytes_of(queue, id)) == ([id], b"new")


def test_a_document_made_from_a_purged_one_keeps_its_bytes(queue: Queue) -> None:
    parent = queue.submit("acme", content=b"PK").id
    member = queue.submit_files("acme", [Input(content=b"member", depth=1, parent=parent)], made_from=parent)[0].id
    queue.cancel(parent)
    assert queue.purge(0) == 1
    assert (stored_documents(queue), bytes_of(queue, member)) == ([member], b"member")


@pytest.mark.parametrize("engine", ENGINES)
def test_two_purges_at_once_leave_no_file(engine: str, tmp_path: Path) -> None:
    url = url_of(engine, tmp_path)
    with Queue(url, blobs=str(tmp_path / "blobs")) as queue:
        receipts = queue.submit_files("acme", [Input(content=b"%d" % n) for n in range(40)])
        queue.engine.cancel([receipt.id for receipt in receipts])
        counts: list[int] = []
        threads = [threading.Thread(target=lambda: counts.append(queue.purge(0))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (sum(counts), stored_documents(queue)) == (40, [])
    redis.drop_url(url)


def test_forget_takes_the_files_along_and_leaves_others_alone(queue: Queue, tmp_path: Path) -> None:
    other = queue.submit("other", content=b"other").id
    for _ in range(3):
        queue.submit("acme", content=b"secret")
    assert done_with_results(queue, text="kept") == other
    done_with_results(queue, text="secret")
    assert queue.forget("acme").documents == 3
    assert set(stored_documents(queue)) == {other}
    assert queue.text(other) == "kept"
    assert not [path for path in (tmp_path / "blobs").rglob("*") if path.is_file() and b"secret" in path.read_bytes()]


def test_a_submission_under_way_survives_a_forget(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.submit("acme", content=b"old")
    submit = queue.engine.submit

    def forget_then_submit(*args: Any, **kwargs: Any) -> list[ReceiptRow]:
        queue.forget("acme")  # the bytes are there, their document is not yet
        return submit(*args, **kwargs)

    monkeypatch.setattr(queue.engine, "submit", forget_then_submit)
    id = queue.submit("acme", content=b"new").id
    assert stored_documents(queue) == [id]
    assert bytes_of(queue, id) == b"new"


def test_forget_and_submit_race_and_no_document_is_without_its_bytes(queue: Queue) -> None:
    is_over = threading.Event()

    def forget() -> None:
        while not is_over.is_set():
            queue.forget("acme")

    forgetter = threading.Thread(target=forget)
    forgetter.start()
    try:
        for n in range(60):
            queue.submit("acme", content=b"%d" % n)
    finally:
        is_over.set()
        forgetter.join()
    queue.submit("acme", content=b"last")
    left = [document.id for document in queue.documents("acme")]
    assert all(bytes_of(queue, id) for id in left)
    queue.sweep(grace=0)
    assert stored_documents(queue) == sorted(left)
