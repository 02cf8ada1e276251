"""Handlers of users' own: they open the document's file and keep results beside the queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane import Queue, Worker
from fairlane.worker import Document

from .conftest import Bench, yield_loop


@pytest.mark.parametrize("is_async", [False, True])
def test_handlers_of_ones_own_read_the_file_and_keep_results(bench: Bench, queue: Queue, is_async: bool) -> None:
    def handler(document: Document) -> dict[str, object]:
        with document.open() as file:
            content = file.read()
        assert document.file is not None
        kept = document.put_results(text=content.decode().upper(), facts={"name": document.file.name})
        return {"payload": document.payload, **kept}

    async def async_handler(document: Document) -> dict[str, object]:
        await yield_loop()
        return handler(document)

    id = queue.submit("acme", {"mine": 1}, content=b"small", name="a.txt").id
    other = queue.submit("acme", {"no": "file"}, kind="extract").id
    worker: Worker = bench.worker()
    worker.handler("extract")(async_handler if is_async else handler)
    bench.run(worker)
    assert (queue.result(id)["payload"], queue.text(id), queue.facts(id)) == ({"mine": 1}, "SMALL", {"name": "a.txt"})
    assert "was submitted without a file" in str(queue.document(other).reason)


def test_a_queue_in_memory_keeps_files_in_the_configured_folder(tmp_path: Path) -> None:
    with Queue("memory://", blobs=str(tmp_path / "files")) as queue:
        id = queue.submit("acme", content=b"small", name="a.txt").id
        worker = Worker(queue, slots=1)
        worker.handler("extract")(lambda document: document.put_results(text=document.open().read()))
        worker.run(until_empty=True)
        assert queue.text(id) == "small"
