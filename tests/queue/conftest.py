"""A queue with files, in memory and on disk, and what tests do with its files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlane import Queue
from fairlane.core.document import Done
from tests.engine.conftest import url_of


@pytest.fixture(params=["memory", "sqlite"])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    with Queue(url_of(request.param, tmp_path), blobs=str(tmp_path / "blobs")) as queue:
        yield queue


def bytes_of(queue: Queue, id: str) -> bytes:
    with queue.file(id) as file:
        return file.read()


def stored_documents(queue: Queue) -> list[str]:
    """Return the documents that have files in the blob store."""
    return sorted(file.document for file in queue.files.open().list_files())


def age(folder: Path, seconds: float = 3 * 86400) -> None:
    """Make every stored file look that old."""
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (path.stat().st_mtime - seconds,) * 2)


def done_with_results(queue: Queue, **results: Any) -> str:
    (claim,) = queue.engine.claim("w", 1, 60_000)
    envelope = queue.put_results(claim.customer, claim.id, claim.token, **results)
    assert queue.engine.settle([(claim, Done(json.dumps({**envelope, "pages": 2})))]) == []
    return claim.id
