"""The command that works off a whole folder."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

import click

from fairlane.core.document import BATCH_MAX
from fairlane.folders.outputs import Outputs
from fairlane.folders.scan import FOLDER_KIND, Folder, payload_of, scan
from fairlane.folders.tracker import Courses, last_change
from fairlane.queue import Queue
from fairlane.settings import load_settings
from fairlane.worker import Worker

from .common import blobs_option, counted, json_option, temporary_folder
from .display import last_table
from .feed_follower import Follower
from .group import EXIT_OTHERWISE, main
from .parameters import DURATION
from .work import quiet_log


@main.command(epilog="Example:  fairlane demo inbox && fairlane process inbox")
@click.argument("folder", type=click.Path())
@click.option("--out", type=click.Path(), metavar="FOLDER", help="Write text, facts and a picture of each document there.")
@click.option("--slots", type=int, default=4, show_default=True, help="How many documents at once.")
@click.option("--pace", type=DURATION, default="0", metavar="DURATION", help="At least so long for each, to watch it.")
@click.option("--url", metavar="URL", help="Use this queue; else a fresh one that is removed in the end.")
@blobs_option
@json_option
def process(folder: str, out: str | None, slots: int, pace: float, url: str | None, blobs: str | None, as_json: bool) -> None:
    """Work off every file in FOLDER; each sub-folder is a customer.

    Submits all of them, the customer with most documents first, and reads each in a sandbox. With --out there are name.md,
    name.json and name.png for each file, in the same sub-folders. Files in archives and e-mails become documents too. Shows
    who waits and who is served, and ends with a table: documents, priorities used, and the wait that half and that 95 % of
    them did not exceed. Exit code 1 if a document failed or was not worked off.
    """
    from fairlane.extract.handler import ExtractOptions, built_in_worker

    found = scan(folder)
    for sentence in found.passed_over:
        click.echo(f"passed over: {sentence}", err=True)
    outputs = None if out is None else Outputs(out)
    if outputs is not None:
        outputs.prepare()
    with _queue(url) as at:
        where = load_settings(at, os.environ, Path.cwd(), blobs).blobs
        options = ExtractOptions(at, where, pace=pace, outputs=outputs, keep_results=url is not None)
        worker = built_in_worker(options, slots, (FOLDER_KIND,))  # what is wrong is told before anything is submitted
        began, courses = time.monotonic(), Courses()
        after = _submit(at, folder, found, courses)
        _work_off(worker, Follower(at, courses, after, is_shown=not as_json))
        _tell(courses, time.monotonic() - began, as_json)
    if courses.left and url is not None:
        click.echo(f"`fairlane work --url {quote(url)}` works off the rest.", err=True)
    if courses.left or courses.failed:
        raise click.exceptions.Exit(EXIT_OTHERWISE)


@contextmanager
def _queue(url: str | None) -> Iterator[str]:
    """The queue that was named, or one that is gone afterwards."""
    if url is not None:
        yield url
        return
    with temporary_folder("fairlane-") as folder:
        yield f"sqlite:///{folder}/queue.db"


def _submit(url: str, folder: str, found: Folder, courses: Courses) -> int | None:
    """Submit every document; returns the number of the last change before."""
    with Queue(url) as queue:
        after = last_change(queue.changes)
        for customer, paths in sorted(found.documents.items(), key=lambda one: -len(one[1])):
            for at in range(0, len(paths), BATCH_MAX):
                some = paths[at : at + BATCH_MAX]
                receipts = queue.submit_many(customer, [payload_of(path, folder) for path in some], kind=FOLDER_KIND)
                courses.add(receipts, [os.path.relpath(path, folder) for path in some])
    return after


def _work_off(worker: Worker, follower: Follower) -> None:
    """Run the worker until all are worked off; the feed is followed meanwhile."""
    quiet_log()
    follower.on_error = worker.stop
    worker.on("started", lambda _: follower.start())  # not before: a worker forks, and threads do not survive that
    before = signal.getsignal(signal.SIGHUP)
    if before != signal.SIG_IGN:  # as under nohup
        signal.signal(signal.SIGHUP, lambda *_: worker.stop())  # the terminal is closed: end, and leave nothing behind
    try:
        worker.run(until_empty=True)
    finally:
        signal.signal(signal.SIGHUP, before)
        follower.finish()


def _tell(courses: Courses, seconds: float, as_json: bool) -> None:
    if as_json:
        failed = [{"customer": one.customer, "name": one.name, "reason": one.reason} for one in courses.failed]
        customers = [row._asdict() for row in courses.rows()]
        told = {"documents": len(courses.documents), "seconds": round(seconds, 3), "left": courses.left}
        return click.echo(json.dumps({**told, "customers": customers, "failed": failed}))
    last_table(courses)
    left = f"; {counted(courses.left)} not worked off" if courses.left else ""
    customers_count = counted(len(courses.by_customer), "customer")
    return click.echo(f"{counted(len(courses.documents))} of {customers_count} in {seconds:.1f} s{left}")
