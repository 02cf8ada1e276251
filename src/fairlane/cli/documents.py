"""Commands for documents: submit, explain, cancel, retry, purge, sweep."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from fairlane.blobs.safe_open import display_path
from fairlane.core.document import ReceiptRow
from fairlane.core.errors import Mistake, Unknown, WrongState
from fairlane.folders.scan import readable
from fairlane.queue import DEFAULT_KIND, Cost, Input, Queue
from fairlane.queue.explain import Explanation

from .common import (
    blobs_option,
    counted,
    json_option,
    open_queue,
    open_store,
    place_options,
    some_customers,
    tell,
    url_option,
)
from .group import main
from .parameters import COST, DURATION

if TYPE_CHECKING:
    from fairlane.client import Receipt as RemoteReceipt

    from .remote import Remote


@main.command(epilog="Example:  fairlane submit --customer acme inbox/*.pdf")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option("--customer", required=True, shell_complete=some_customers, help="Whose documents they are.")
@click.option("--kind", default=DEFAULT_KIND, show_default=True, help="Which handler of a worker takes them.")
@click.option("--key", help="Makes a repeat harmless: the same key and file give the first receipt again. For one file.")
@click.option("--cost", type=COST, default="1", show_default=True, help="What each counts, in documents; or pages: as many.")
@click.option("--delay", type=DURATION, default="0", metavar="DURATION", help="Not before that long, as in 90s or 2h.")
@blobs_option
@place_options
@json_option
def submit(
    files: tuple[str, ...],
    customer: str,
    kind: str,
    key: str | None,
    cost: Cost,
    delay: float,
    blobs: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Submit each FILE as a document of a customer.

    All are submitted, or none if one of them cannot be read. The bytes are copied beside the queue, or to --blobs, before the
    answer comes; the file may go then. A server takes them one by one: what it took before one that it refuses stays. `-`
    reads names of files from standard input, one a line. With --json an object a line, a line a document.
    """
    paths = readable(_listed(files))
    if key is not None and len(paths) != 1:
        raise Mistake(f"--key names one document, and these are {len(paths):,} files; submit them one by one, or without --key")
    inputs = [Input(path, key=key) for path in paths]
    with open_queue(url, blobs=blobs) as queue:
        receipts: Iterable[ReceiptRow | RemoteReceipt] = queue.submit_files(customer, inputs, kind=kind, cost=cost, delay=delay)
        for one, path in zip(receipts, paths, strict=True):
            told = {"id": one.id, "customer": customer, "kind": kind, "priority": one.priority, "counter": one.counter}
            sentence = f"{one.id}  priority {one.priority}  counter {one.counter}  {display_path(os.path.basename(path))}"
            tell(as_json, {**told, "path": os.path.abspath(path)}, sentence)


def _listed(files: tuple[str, ...]) -> Iterator[str]:
    """The files, with `-` replaced by the names on standard input."""
    for file in files:
        if file != "-":
            yield file
            continue
        lines = sys.stdin.buffer.read().splitlines()
        names = [os.fsdecode(line) for line in lines if line]
        if not names:
            raise Mistake("no name of a file came on standard input; write one a line, as `find inbox -type f` does")
        yield from names


@main.command(epilog="Example:  fairlane explain acme")
@click.argument("name", shell_complete=some_customers)
@place_options
@json_option
def explain(name: str, url: str | None, as_json: bool) -> None:
    """Say why a document waits, or where a customer stands.

    NAME is the id of either. Of a document: why it has its priority, about how much is ahead of it, from when to when it will
    probably start. Of a customer: its counter, its next priority, when it starts afresh, what waits, and what it has of its
    own. Moves nothing.
    """
    with open_queue(url, create=False) as queue:
        explanation = _explained(queue, name)
    tell(as_json, explanation.facts, explanation.sentence)


def _explained(queue: Queue | Remote, name: str) -> Explanation:
    try:
        return queue.explain(name)
    except Unknown:
        pass
    try:
        return queue.explain_customer(name)
    except Unknown:
        raise Unknown(
            f"{name!r} is neither a document nor a customer of this queue; `fairlane status` lists the customers, "
            "`fairlane submit` prints the ids of documents"
            + ("" if isinstance(queue, Queue) else "; of customers a server tells only operators")
        ) from None


@main.command(epilog="Example:  fairlane cancel 0199d3c2-5a1e-7c44-9d55-3f0f6f5b2a11")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@place_options
@json_option
def cancel(ids: tuple[str, ...], url: str | None, as_json: bool) -> None:
    """End each document ID that has not ended.

    A worker that runs it loses its claim. One that has already ended stays as it is, and is told. If one ID is unknown,
    nothing is cancelled. With --json an object a line, a line a document.
    """
    with open_queue(url, create=False) as queue:
        for id in ids:
            queue.document(id)  # all of them are known before the first one ends
        for id in ids:
            cancelled = queue.cancel(id)
            state = queue.document(id).state
            sentence = f"{id}: cancelled" if cancelled else f"{id}: was already {state}"
            tell(as_json, {"id": id, "cancelled": cancelled, "state": state}, sentence)


@main.command(epilog="Example:  fairlane retry 0199d3c2-5a1e-7c44-9d55-3f0f6f5b2a11")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@place_options
@json_option
def retry(ids: tuple[str, ...], url: str | None, as_json: bool) -> None:
    """Give each failed document ID another round of attempts.

    It keeps its priority: a retry is not a new document. If one ID is unknown or has not failed, none is retried. With --json
    an object a line, a line a document.
    """
    with open_queue(url, create=False) as queue:
        others = [f"{id} is {state}" for id in ids if (state := queue.document(id).state) != "failed"]
        if others:
            raise WrongState(f"nothing was retried: {', '.join(others)}; only a failed document can be retried")
        for id in dict.fromkeys(ids):
            queue.retry(id)
            tell(as_json, {"id": id, "retried": True}, f"{id}: ready again")


@main.command(epilog="Example:  fairlane purge --older-than 7d")
@click.option("--older-than", type=DURATION, required=True, metavar="DURATION", help="As in 90s, 15m, 24h or 7d; 0 for all.")
@blobs_option
@url_option
@json_option
def purge(older_than: float, blobs: str | None, url: str | None, as_json: bool) -> None:
    """Forget documents that ended longer ago than that.

    With them go their results and the feed of changes up to then, and their files once these are a day old. What has not ended
    stays, however old.
    """
    with open_store(url, create=False, blobs=blobs) as queue:
        gone = queue.purge(older_than)
    told: dict[str, Any] = {"purged": gone, "older_than": older_than}
    tell(as_json, told, f"{counted(gone)} forgotten.")


@main.command(epilog="Example:  fairlane sweep --grace 48h")
@click.option(
    "--grace", type=DURATION, default="24h", show_default=True, metavar="DURATION", help="Leave what is younger alone."
)
@blobs_option
@url_option
@json_option
def sweep(grace: float, blobs: str | None, url: str | None, as_json: bool) -> None:
    """Remove files that no document owns.

    Such files are left by senders and workers that died, and by purged documents. A sender writes its file before its document
    exists: choose a grace that is longer than any submission takes, and 0 only while nobody submits or works.
    """
    with open_store(url, create=False, blobs=blobs) as queue:
        swept = queue.sweep(grace=grace)
    told: dict[str, Any] = {"looked": swept.looked, "removed": swept.removed, "bytes": swept.bytes}
    tell(as_json, told, f"{counted(swept.looked, 'file')} looked at; {swept.removed:,} removed, {swept.bytes:,} bytes.")
