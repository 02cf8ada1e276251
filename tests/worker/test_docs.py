"""docs/reference.md: its handlers, in threads, in steps and in parts, and the log of a program that runs them."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from fairlane import Queue, Worker
from fairlane.worker import Document
from tests.docs.snippets import snippet
from tests.terminal import bash

from .conftest import until

PROGRAM = """
import logging

from fairlane import Queue, Worker

{logging}
queue, worker = Queue("sqlite:///queue.db"), Worker("sqlite:///queue.db")


def guess(result):
    return "invoice" if "you owe" in result["text"] else "letter"


{steps}
{parts}

@worker.handler("extract")
def extract(document):
    logging.getLogger("tasks").info("reading %s", document.file.name)
    with document.open() as file:
        return {{"text": file.read().decode()}}


@worker.handler("index")
def index(document):
    return document.results["classify"]


@worker.handler("report year")
def report_year(document):
    return {{"total": document.payload["year"] - 2000}}


queue.submit("bolt", kind="report")
worker.run(until_empty=True)
"""


def test_steps_and_parts_of_the_docs_are_worked_and_logged(tmp_path: Path, queue: Queue) -> None:
    (tmp_path / "invoice.pdf").write_text("you owe us 7 euros")
    program = PROGRAM.format(
        logging=snippet("docs/reference.md", 'text = "%(levelname)s'),
        steps=snippet("docs/reference.md", 'queue.submit("acme", path="invoice.pdf", steps='),
        parts=snippet("docs/reference.md", "from fairlane import Split"),
    )
    (tmp_path / "program.py").write_text(program)
    logged = bash("python program.py 2>&1", tmp_path).splitlines()
    (invoice,), (report,) = queue.documents("acme"), queue.documents("bolt", kind="report")
    assert (queue.result(invoice.id), queue.result(report.id)) == ({"class": "invoice"}, {"total": 24 + 25 + 26})
    assert f"INFO tasks acme {invoice.id} reading invoice.pdf" in logged
    assert any(line.startswith("INFO fairlane.worker - - ") for line in logged)  # of the worker itself


def test_handlers_of_the_docs_run_in_threads(url: str, queue: Queue) -> None:
    def make_thumbnail(document: Document) -> dict[str, object]:
        return {"process": os.getpid(), "thread": threading.current_thread().name}

    program = snippet("docs/reference.md", "from concurrent.futures import ThreadPoolExecutor")
    names: dict[str, Any] = {"Worker": Worker, "make_thumbnail": make_thumbnail}
    id = queue.submit("acme", kind="thumbnail").id
    running = threading.Thread(target=exec, args=(program.replace("sqlite:///fairlane.db", url), names))
    running.start()
    try:
        until(lambda: queue.document(id).state == "done")
    finally:
        names["worker"].stop()
        running.join()
    assert (queue.result(id)["process"], "ThreadPoolExecutor" in queue.result(id)["thread"]) == (os.getpid(), True)
