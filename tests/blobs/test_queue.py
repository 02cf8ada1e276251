"""A queue on either store: a file lives as long as its document."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from fairlane import Input, KeyConflict, Queue
from fairlane.core.document import Done


def held(queue: Queue) -> set[str]:
    return {one.document for one in queue.filing.files().listed()}


def test_a_file_lives_as_long_as_its_document(where: str, tmp_path: Path) -> None:
    with Queue(f"sqlite:///{tmp_path}/queue.db", blobs=where) as queue:
        content = b"0123456789" * 1_000_000
        first = queue.submit("acme", content=content, key="k")
        assert queue.submit("acme", content=content, key="k") == first
        with pytest.raises(KeyConflict):
            queue.submit("acme", content=content + b"x", key="k")
        assert held(queue) == {first.id}
        members = queue.submit_files("other", [Input(content=b"%d" % n) for n in range(20)])
        (claim,) = queue.engine.claim("w", 1, 60_000)
        told = queue.put_results(claim.customer, claim.id, claim.token, text="text", thumbnail=b"png")
        queue.put_results(claim.customer, claim.id, claim.token + 1, text="of nobody")
        queue.engine.settle([(claim, Done(json.dumps(told)))])
        assert (claim.id, queue.sweep(grace=0).removed) == (first.id, 1)
        assert (queue.text(first.id), queue.thumbnail(first.id)) == ("text", b"png")
        with queue.file(first.id) as file:
            assert file.read() == content
        assert queue.forget("acme") == 1
        assert held(queue) == {one.id for one in members}
    with Queue("memory://", blobs=where) as another:
        another.submit("acme", content=b"mine")
        assert another.sweep(grace=0) == (1, 0, 0, None)  # it sees nothing of the other queue
    with Queue(f"sqlite:///{tmp_path}/queue.db", blobs=where) as again:
        assert held(again) == {one.id for one in members}


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
        assert held(queue) == ids
