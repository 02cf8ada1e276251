"""The command that processes a whole folder."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shlex import quote

import click

from fairlane.core.document import BATCH_MAX
from fairlane.core.errors import BadValue
from fairlane.folders.feed_follower import FeedFollower
from fairlane.folders.outputs import Outputs
from fairlane.folders.scan import FOLDER_KIND, payload_of, scan
from fairlane.folders.temporary import temporary_folder
from fairlane.folders.tracker import Tracker, last_change
from fairlane.masking import mask_url
from fairlane.queue import Queue
from fairlane.settings import load_settings
from fairlane.worker import Worker

from .group import EXIT_FAILURE, main
from .options import blobs_option, json_option, ocr_option, unsafe_option
from .output import echo, format_count, print_json
from .param_types import DURATION
from .process_view import no_view, open_view, print_summary
from .work import silence_log

PACE_SECONDS_MAX = 604_680  # a handler may run for a week, of which reading the file needs two minutes


@main.command(epilog="Example:  fairlane demo inbox && fairlane process inbox")
@click.argument("folder", type=click.Path())
@click.option("--out", type=click.Path(), metavar="FOLDER", help="Write the text, facts and a picture of each document here.")
@click.option("--slots", type=int, default=4, show_default=True, help="How many documents to process at once.")
@click.option("--pace", type=DURATION, default="0", metavar="DURATION", help="Spend at least this long on each, to watch it.")
@click.option("--url", metavar="URL", help="Use this queue. Default: a new one that is removed at the end.")
@ocr_option
@unsafe_option
@blobs_option
@json_option
def process(
    folder: str,
    out: str | None,
    slots: int,
    pace: float,
    url: str | None,
    ocr_languages: str | None,
    is_unsafe: bool,
    blobs: str | None,
    as_json: bool,
) -> None:
    """Process every file in FOLDER; each sub-folder is a customer.

    Submits all files, those of the customer with the most documents first, and reads each in a sandbox. Files inside archives
    and e-mails become documents too. With --out, the results are written as name.md, name.json and name.png in the same
    sub-folders. The summary shows for each customer its documents, their priorities, and the wait that half (p50) and that
    95 % (p95) of them did not exceed. Exits with 1 if a document failed or was not processed.
    """
    from fairlane import sandbox
    from fairlane.extract.handler import ExtractOptions, built_in_worker, limits_with

    if pace > PACE_SECONDS_MAX:
        raise BadValue("--pace", pace, f"at most {PACE_SECONDS_MAX:,} seconds")
    found = scan(folder)
    for sentence in found.skipped:
        echo(f"skipped: {sentence}", err=True)
    outputs = None if out is None else Outputs(out)
    if outputs is not None:
        outputs.prepare()
    with _queue_url(url) as queue_url:
        settings = load_settings(queue_url, os.environ, Path.cwd(), blobs, is_unsafe=is_unsafe, ocr_languages=ocr_languages)
        may_read_everything = settings.unsafe_files_may_read_everything
        limits = limits_with(settings.ocr_languages)
        options = ExtractOptions(
            queue_url, settings.blobs, limits, pace=pace, outputs=outputs, keep_results=url is not None,
            may_read_everything=may_read_everything,
        )  # fmt: skip
        silence_log()
        worker = built_in_worker(options, slots, (FOLDER_KIND,))  # before the submissions: it raises if a value is wrong
        if (reason := sandbox.unsafe_reason(may_read_everything)) is not None:
            echo(f"UNSAFE: {reason}", err=True)
        began, tracker = time.monotonic(), Tracker()
        last_before = _submit(queue_url, url is None, folder, found.documents, tracker)
        view = no_view if as_json else partial(open_view, tracker)
        _run(worker, FeedFollower(queue_url, tracker, last_before, view))
        _print_end(tracker, time.monotonic() - began, as_json)
    if tracker.remaining and url is not None:
        echo(f"`fairlane work --url {quote(mask_url(url))}` processes the rest.", err=True)
    if tracker.remaining or tracker.failed:
        raise click.exceptions.Exit(EXIT_FAILURE)


@contextmanager
def _queue_url(url: str | None) -> Iterator[str]:
    """Yield the URL that was given, or one in a temporary folder."""
    if url is not None:
        yield url
        return
    with temporary_folder("fairlane-") as folder:
        yield f"sqlite:///{folder}/queue.db"


def _submit(url: str, is_own: bool, folder: str, documents: dict[str, list[str]], tracker: Tracker) -> int | None:
    """Submit every document; return the number of the last change before them."""
    with Queue(url) as queue:
        if is_own:
            queue.configure(waiting_max=None, descendants_max=None)  # nobody else submits to it
        last_before = last_change(queue.engine.changes)
        for customer, paths in sorted(documents.items(), key=lambda item: -len(item[1])):
            for start in range(0, len(paths), BATCH_MAX):
                batch = paths[start : start + BATCH_MAX]
                receipts = queue.submit_many(customer, [payload_of(path, folder) for path in batch], kind=FOLDER_KIND)
                tracker.add(receipts, [os.path.relpath(path, folder) for path in batch])
    return last_before


def _run(worker: Worker, follower: FeedFollower) -> None:
    """Run the worker until the queue is empty, with the follower beside it."""
    follower.on_error = worker.stop
    worker.on("started", lambda _: follower.start())  # not earlier: the worker forks, and threads do not survive that
    before = signal.getsignal(signal.SIGHUP)
    if before != signal.SIG_IGN:  # nohup ignores it
        signal.signal(signal.SIGHUP, lambda *_: worker.stop())  # the terminal was closed: stop and clean up
    try:
        worker.run(until_empty=True)
    finally:
        signal.signal(signal.SIGHUP, before)
        follower.finish()


def _print_end(tracker: Tracker, seconds: float, as_json: bool) -> None:
    total, customer_count = len(tracker.documents), len(tracker.by_customer)
    if as_json:
        failed = [{"customer": failure.customer, "name": failure.name, "reason": failure.reason} for failure in tracker.failed]
        customers = [summary._asdict() for summary in tracker.summaries()]
        totals = {"documents": total, "seconds": round(seconds, 3), "left": tracker.remaining}
        return print_json({**totals, "customers": customers, "failed": failed})
    print_summary(tracker)
    remaining = f"; {format_count(tracker.remaining)} not processed" if tracker.remaining else ""
    return echo(f"{format_count(total)} of {format_count(customer_count, 'customer')} in {seconds:.1f} s{remaining}")
