"""Chaos test of the built-in worker: damaged files lose no document and bring down no worker.

`python -m chaos.documents --count 20000` submits damaged files of the corpus to a queue on SQLite, and runs the built-in worker
until the queue is empty. Errors are: a document that has not ended, or neither done nor failed with a known code; a second
ending; a worker, or a child of a slot, that died; a scratch folder or bytes without a document that are left behind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fairlane import Input, Queue
from fairlane.extract import failure_code
from fairlane.sandbox.scratch import PREFIX

from .files import files

CUSTOMERS = 20
AT_ONCE = 200


class Report(NamedTuple):
    """The outcomes, and the errors."""

    outcomes: Counter[str]
    wrong: list[str]


def run(count: int, seed: int, folder: Path, advance: Callable[[int], None] = lambda _: None) -> Report:
    """Submit all files, process them, and check what is left."""
    url, temporary = f"sqlite:///{folder / 'queue.db'}", folder / "temporary"
    temporary.mkdir()
    with Queue(url) as queue:
        ids = list(_submit(queue, count, seed))
        events = Counter(_events(url, temporary, advance))
        report = Report(Counter(), [])
        _check_documents(queue, ids, report)
        swept = queue.sweep(grace=0)
    if events["child_ended"] or events["lost"] or events["code"]:
        report.wrong.append(f"events of the worker: {dict(events)}")
    if swept.removed:
        report.wrong.append(f"{swept.removed} files of {swept.looked} belonged to no document")
    report.wrong.extend(f"left behind: {path}" for path in temporary.iterdir() if path.name.startswith(PREFIX))
    return report


def _submit(queue: Queue, count: int, seed: int) -> Iterator[str]:
    damaged = files(count, seed)
    number = 0
    while inputs := [Input(content=content, name=name) for name, content in islice(damaged, AT_ONCE)]:
        yield from (receipt.id for receipt in queue.submit_files(f"customer-{number % CUSTOMERS}", inputs))
        number += 1


def _events(url: str, temporary: Path, advance: Callable[[int], None]) -> Iterator[str]:
    """Yield the events of a worker in a process of its own until the queue is empty, and `code` if it failed."""
    command = [sys.executable, "-c", WORKER, url]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            name = json.loads(line)
            advance(name in ("finished", "unfinished"))
            yield name
    if process.returncode:
        yield "code"


WORKER = """
import json, logging, sys
from fairlane.extract import Limits
from fairlane.extract.handler import ExtractOptions, built_in_worker

logging.disable()
worker = built_in_worker(ExtractOptions(sys.argv[1], limits=Limits(ocr_pages_max=0, seconds_max=20)), 2)
worker.on("*", lambda event: print(json.dumps(event.name), flush=True))
worker.run(until_empty=True)
"""


def _check_documents(queue: Queue, ids: list[str], report: Report) -> None:
    ended = ("done", "failed", "cancelled")
    endings = Counter(change.document or "" for change in queue.changes() if change.event in ended)
    documents, sent = {document.id: document for document in queue.documents()}, set(ids)
    report.wrong.extend(f"lost: {id}" for id in sent - documents.keys())
    for id, document in documents.items():
        code = failure_code(document.reason) if document.state == "failed" else None
        outcome = document.state if code is None else code
        report.outcomes["member" if id not in sent and outcome == "done" else outcome] += 1
        if endings[id] != 1:
            report.wrong.append(f"{id} ended {endings[id]} times")
        if document.state != "done" and code is None:
            report.wrong.append(f"{id} ({queue.input(id).name}) is {document.state}: {document.reason}")


@click.command()
@click.option("--count", default=20_000, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(count: int, seed: int) -> None:
    """Process damaged files, and count the outcomes."""
    print(f"{count:,} files, seed {seed}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="fairlane-documents-") as folder,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task("documents and their members", total=count)
        report = run(count, seed, Path(folder), lambda done: progress.update(task, advance=done))
    for outcome, number in report.outcomes.most_common():
        print(f"  {outcome}: {number:,}")
    for error in report.wrong:
        print(f"WRONG: {error}")
    print("Nothing is wrong." if not report.wrong else f"{len(report.wrong)} things are wrong.")
    sys.exit(1 if report.wrong else 0)


if __name__ == "__main__":
    main()
