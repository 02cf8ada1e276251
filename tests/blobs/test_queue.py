"""A queue on either store: a file lives as long as its document."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from fairlane import Input, KeyConflict, Queue
from fairlane.core.document import Done


def stored_documents(queue: Queue) -> set[str]:
    return {file.document for file in queue.files.open().list_files()}


def test_a_file_lives_as_long_as_its_document(where: str, tmp_path: Path) -> None:
    with Queue(f"sqlite:///{tmp_path}/queue.db", blobs=where) as queue:
        content = b"0123456789" * 1_000_000
        first = queue.submit("acme", content=content, key="k")
        assert queue.submit("acme", content=content, key="k") == first._replace(repeated=True)
        with pytest.raises(KeyConflict):
            queue.submit("acme", content=content + b"x", key="k")
        assert stored_documents(queue) == {first.id}
        members = queue.submit_files("other", [Input(content=b"%d" % n) for n in range(20)])
        (claim,) = queue.engine.claim("w", 1, 60_000)
        envelope = queue.put_results(claim.customer, claim.id, claim.token, text="text", thumbnail=b"png")
        queue.put_results(claim.customer, claim.id, claim.token + 1, text="orphan")
        queue.engine.settle([(claim, Done(json.dumps(envelope)))])
        assert (claim.id, queue.sweep(grace=0).removed) == (first.id, 1)
        assert (queue.text(first.id), queue.thumbnail(first.id)) == ("text", b"png")
        with queue.file(first.id) as file:
            assert file.read() == content
        assert queue.forget("acme").documents == 1
        assert stored_documents(queue) == {receipt.id for receipt in members}
    with Queue("memory://", blobs=where) as another:
        another.submit("acme", content=b"mine")
        assert another.sweep(grace=0) == (1, 0, 0, None)  # it sees nothing of the other queue
    with Queue(f"sqlite:///{tmp_path}/queue.db", blobs=where) as again:
        assert stored_documents(again) == {receipt.id for receipt in members}


def test_files_go_with_purged_documents(where: str) -> None:
    with Queue("memory://", blobs=where) as queue:
        receipts = queue.submit_files("acme", [Input(content=b"%d" % n) for n in range(5)])
        (claim,) = queue.engine.claim("w", 1, 60_000)
        envelope = queue.put_results(claim.customer, claim.id, claim.token, text="text", thumbnail=b"png")
        queue.engine.settle([(claim, Done(json.dumps(envelope)))])
        queue.cancel(receipts[1].id)
        assert queue.purge(0) == 2
        assert stored_documents(queue) == {receipt.id for receipt in receipts[2:]}


def test_the_same_key_at_once_leaves_one_file(where: str) -> None:
    with Queue("memory://", blobs=where) as queue:
        ids: set[str] = set()
        threads = [
            threading.Thread(target=lambda: ids.add(queue.submit("acme", content=b"one", key="k").id)) for _ in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(ids) == 1
        assert stored_documents(queue) == ids
