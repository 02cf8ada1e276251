"""Forgetting a customer while others work: a worker that runs its document, one that reports, a reader, an upload."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fairlane import Queue, Worker
from fairlane.api import auth
from fairlane.core.document import Done
from fairlane.core.errors import StoreFrozen
from fairlane.doctor import findings
from fairlane.engine.sqlite import vacuum
from fairlane.engine.sqlite.connection import connect
from fairlane.queue import GRACE_SECONDS
from fairlane.queue.record_groups import FORGETTING
from fairlane.worker import Document
from fairlane.worker.blob_gc import BlobCollector
from fairlane.worker.progress import ProgressStore
from tests.queue.conftest import age, stored_documents
from tests.worker.conftest import Bench, until

from .everything import holding, stored

SECRET = "qzx7731"


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    with Queue(f"sqlite:///{tmp_path}/queue.db") as queue:
        yield queue


def test_a_worker_that_runs_a_document_loses_its_claim_and_leaves_nothing(queue: Queue, tmp_path: Path) -> None:
    bench = Bench(queue.url)
    began, gate = tmp_path / "began", tmp_path / "gate"

    def handle(document: Document) -> dict[str, object]:
        with document.open() as file:
            text = file.read().decode()
        began.touch()
        while not gate.exists():
            threading.Event().wait(0.005)
        kept = document.put_results(text=text, facts={"text": text})  # it does not know yet that its document is gone
        (tmp_path / "wrote").touch()
        return kept

    worker: Worker = bench.worker()
    worker.handler("extract")(handle)
    queue.submit("acme", content=SECRET.encode(), name=SECRET)
    stop = bench.start(worker)
    until(began.exists, "the handler")
    assert queue.forget("acme").documents == 1
    gate.touch()
    until((tmp_path / "wrote").exists, "its results")
    until(lambda: bench.emitted("lost"), "the loss of the claim")
    assert stop().lost == 1
    assert stored_documents(queue) == []
    assert holding({SECRET}, stored(queue, tmp_path)) == []


def test_files_of_a_lost_claim_go_only_if_its_document_is_gone(queue: Queue) -> None:
    kept, gone = queue.submit("bob", content=b"kept").id, queue.submit("acme", content=b"gone").id
    claims = queue.engine.claim("worker", 2, 60_000)
    queue.forget("acme")
    collector = BlobCollector(queue.files)
    for claim in claims:
        results = queue.put_results(claim.customer, claim.id, claim.token, text="text")
        collector.lost(claim)
        queue.engine.settle([(claim, Done(json.dumps(results)))])  # that of bob was settled, though nobody heard of it
    assert collector.remove_lost() is None  # the handlers may still be running
    assert set(stored_documents(queue)) == {kept, gone}
    assert collector.remove_lost(0) is None
    assert set(stored_documents(queue)) == {kept}
    assert queue.text(kept) == "text"


def test_a_report_that_is_written_after_its_document_was_erased_does_not_stay(queue: Queue) -> None:
    queue.submit("acme")
    (claim,) = queue.engine.claim("worker", 1, 60_000)
    progress = ProgressStore(queue.engine)
    progress.record(claim, SECRET, None)
    queue.forget("acme")
    progress.write(progress.take_unwritten())
    assert queue.engine.records("progress", "", 10) == []


def test_bytes_without_a_document_stay_for_a_day_and_are_counted(queue: Queue, tmp_path: Path) -> None:
    queue.submit("acme", content=b"old")
    upload = "01234567-0000-7000-8000-000000000000"  # its document is on the way
    queue.files.open().put_input("acme", upload, b"new")
    assert queue.forget("acme").files_left == 1
    assert stored_documents(queue) == [upload]
    age(tmp_path / "queue.db.blobs", GRACE_SECONDS)
    assert queue.forget("acme").files_left == 0
    assert stored_documents(queue) == []


def test_a_reader_of_an_older_state_keeps_the_log_and_that_is_said(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuum, "LOG_SECONDS", 0.1)
    queue.submit("acme", SECRET)
    reader = connect(tmp_path / "queue.db")
    reader.execute("BEGIN; SELECT count(*) FROM documents").fetchall()
    forgotten = queue.forget("acme")
    assert "queue.db-wal could not be emptied" in str(forgotten.not_rewritten)
    assert holding({SECRET}, stored(queue, tmp_path))
    reader.close()
    assert queue.vacuum()
    assert holding({SECRET}, stored(queue, tmp_path)) == []


def test_without_vacuum_the_file_is_not_rewritten(queue: Queue, tmp_path: Path) -> None:
    queue.submit("acme", SECRET)
    assert queue.forget("acme", vacuum=False) == (1, 0, 0, None)
    assert holding({SECRET}, stored(queue, tmp_path))


def test_nothing_is_touched_in_a_queue_that_is_being_moved(queue: Queue) -> None:
    id = queue.submit("acme", content=b"bytes").id
    auth.create(queue.engine, customer="acme")
    queue.engine.configure(replace(queue.rules(), frozen="is being moved"))
    with pytest.raises(StoreFrozen):
        queue.forget("acme")
    assert (stored_documents(queue), len(list(auth.list_keys(queue.engine)))) == ([id], 1)


def test_customers_whose_names_begin_alike_are_left_alone(queue: Queue) -> None:
    for customer in ("a", "a/b", "a%2Fb", "ab", "A"):
        auth.create(queue.engine, customer=customer)
        queue.submit(customer, content=b"bytes")
    assert queue.forget("a/b")[:2] == (1, 1)
    assert {key.customer for key in auth.list_keys(queue.engine)} == {"a", "a%2Fb", "ab", "A"}
    assert {look.customer for look in queue.customers()} == {"a", "a%2Fb", "ab", "A"}
    assert len(stored_documents(queue)) == 4


def test_doctor_says_that_forgetting_was_interrupted(queue: Queue) -> None:
    def finding() -> str:
        return next((each.message for each in findings(queue) if each.name == "forgetting"), "")

    assert finding() == ""
    queue.submit("acme", content=b"bytes")
    queue.engine.put_record(FORGETTING, "acme/000000000", "[]")
    assert "customer 'acme' is being forgotten, or that was interrupted" in finding()
    queue.forget("acme")
    assert finding() == ""
