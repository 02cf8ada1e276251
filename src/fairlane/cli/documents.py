"""Commands for documents: submit, explain, cancel, retry, purge, sweep."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from fairlane.blobs.safe_open import display_path
from fairlane.core.errors import Mistake, Unknown, WrongState
from fairlane.folders.scan import check_readable
from fairlane.queue import FILE_KIND, Cost, Input, Queue, Receipt
from fairlane.queue.audit import has_older, purge_audit
from fairlane.queue.audited_queue import audited
from fairlane.queue.explain import Explanation

from .bulk import dry_run_option, is_bulk, run_bulk, yes_option
from .group import main
from .options import (
    blobs_option,
    complete_customer,
    filter_options,
    json_option,
    open_queue,
    open_store,
    queue_options,
    url_option,
)
from .output import echo, format_count, print_result
from .param_types import COST, DURATION, EXPIRY

if TYPE_CHECKING:
    from .remote import RemoteQueue


@main.command(epilog="Example:  fairlane submit --customer acme inbox/*.pdf")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option("--customer", required=True, shell_complete=complete_customer, help="The customer that the documents belong to.")
@click.option("--kind", help=f"The kind of document, which selects the worker's handler.  [default: {FILE_KIND}]")
@click.option("--steps", metavar="KIND,KIND,...", help="The kinds that each document passes through, one after the other.")
@click.option(
    "--slices", type=int, metavar="PAGES", help="Read a long PDF or TIFF in slices of so many pages, several at once."
)
@click.option("--key", help="Idempotency key for one file: submitting it again returns the first receipt.")
@click.option("--cost", type=COST, default="1", show_default=True, help="How many documents each file counts as; or pages.")
@click.option("--delay", type=DURATION, default="0", metavar="DURATION", help="Start them no sooner than in 90s, 2h, ...")
@click.option(
    "--no-better-than", type=click.IntRange(1, 9), metavar="N",
    help="The best priority that they may get: a late one for a bulk import leaves the customer's daily work in front.",
)  # fmt: skip
@blobs_option
@queue_options
@json_option
def submit(
    files: tuple[str, ...],
    customer: str,
    kind: str | None,
    steps: str | None,
    slices: int | None,
    key: str | None,
    cost: Cost,
    delay: float,
    no_better_than: int | None,
    blobs: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Submit each FILE as a document of a customer.

    If one file cannot be read, none is submitted. The bytes are copied beside the queue, or to --blobs; when the command
    returns, the files may be removed. Through a server each file is a request of its own: if one is refused, those before it
    stay submitted. `-` reads file names from standard input, one per line. With --json, prints an object per line and document.
    """
    paths = check_readable(_expand(files))
    if key is not None and len(paths) != 1:
        raise Mistake(f"--key is for one document, not {len(paths):,} files; submit them one by one, or without --key")
    inputs = [Input(path, key=key) for path in paths]
    kinds = None if steps is None else steps.split(",")
    first = kind or (kinds or [FILE_KIND])[0]
    with open_queue(url, blobs=blobs) as queue:
        receipts: Iterable[Receipt] = queue.submit_files(
            customer, inputs, kind=kind, cost=cost, delay=delay, no_better_than=no_better_than, steps=kinds, slices=slices
        )
        for receipt, path in zip(receipts, paths, strict=True):
            data = {
                "id": receipt.id, "customer": customer, "kind": first, "priority": receipt.priority, "counter": receipt.counter,
                "path": os.path.abspath(path),
            }  # fmt: skip
            name = display_path(os.path.basename(path))
            sentence = f"{receipt.id}  priority {receipt.priority}  counter {receipt.counter}  {name}"
            print_result(as_json, data, sentence)


def _expand(files: tuple[str, ...]) -> Iterator[str]:
    """Yield the files, with `-` replaced by the names on standard input."""
    for file in files:
        if file != "-":
            yield file
            continue
        lines = sys.stdin.buffer.read().splitlines()
        names = [os.fsdecode(line) for line in lines if line]
        if not names:
            raise Mistake("standard input has no file names; write one per line, as `find inbox -type f` does")
        yield from names


@main.command(epilog="Example:  fairlane explain acme")
@click.argument("name", shell_complete=complete_customer)
@queue_options
@json_option
def explain(name: str, url: str | None, as_json: bool) -> None:
    """Explain why a document waits, or where a customer stands.

    NAME is the id of a document or of a customer. For a document: why it has its priority, roughly how many are ahead of it,
    and when it will probably start. For a customer: its counter, its next priority, when its counter resets, how many documents
    wait, and its own settings. Changes nothing.
    """
    with open_queue(url, create=False) as queue:
        explanation = _explain(queue, name)
    print_result(as_json, explanation.facts, explanation.sentence)


def _explain(queue: Queue | RemoteQueue, name: str) -> Explanation:
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
            + ("" if isinstance(queue, Queue) else "; a server explains customers only to operators")
        ) from None


@main.command(epilog="Example:  fairlane cancel --customer acme --kind scan --state ready")
@click.argument("ids", metavar="[ID...]", nargs=-1)
@filter_options
@yes_option
@dry_run_option
@queue_options
@json_option
def cancel(ids: tuple[str, ...], yes: bool, dry_run: bool, url: str | None, as_json: bool, **filter: Any) -> None:
    """Cancel the documents with these IDs, or all that match.

    A worker that runs one loses its claim. A document that has already ended stays as it is; its state is printed. If one ID is
    unknown, nothing is cancelled. Instead of IDs, options select documents that have not ended: they are counted, and cancelled
    after confirmation, in small steps; if that is interrupted, run it again. With --json, prints an object per line and
    document, or one with the numbers.
    """
    with open_queue(url, create=False) as queue:
        if is_bulk(ids, filter, yes, dry_run):
            return run_bulk(queue, "cancel", filter, yes, dry_run, as_json)
        for id in ids:
            queue.document(id)  # raise for an unknown id before anything is cancelled
        for id in ids:
            cancelled = queue.cancel(id)
            state = queue.document(id).state
            sentence = f"{id}: cancelled" if cancelled else f"{id}: was already {state}"
            print_result(as_json, {"id": id, "cancelled": cancelled, "state": state}, sentence)
    return None


@main.command(epilog="Example:  fairlane retry --kind scan --reason timed_out --since 24h")
@click.argument("ids", metavar="[ID...]", nargs=-1)
@filter_options
@yes_option
@dry_run_option
@queue_options
@json_option
def retry(ids: tuple[str, ...], yes: bool, dry_run: bool, url: str | None, as_json: bool, **filter: Any) -> None:
    """Retry the failed documents with these IDs, or all that match.

    Each gets another round of attempts and keeps its priority: a retry is not a new document. If one ID is unknown or has not
    failed, none is retried. Instead of IDs, options select failed documents: they are counted, and retried after confirmation,
    in small steps; if that is interrupted, run it again. With --json, prints an object per line and document, or one with the
    numbers.
    """
    with open_queue(url, create=False) as queue:
        if is_bulk(ids, filter, yes, dry_run):
            return run_bulk(queue, "retry", filter, yes, dry_run, as_json)
        others = [f"{id} is {state}" for id in ids if (state := queue.document(id).state) != "failed"]
        if others:
            raise WrongState(f"nothing was retried: {', '.join(others)}; only a failed document can be retried")
        for id in dict.fromkeys(ids):
            queue.retry(id)
            print_result(as_json, {"id": id, "retried": True}, f"{id}: ready again")
    return None


@main.command(epilog="Example:  fairlane purge --older-than 7d")
@click.option("--older-than", type=DURATION, required=True, metavar="DURATION", help="Such as 90s, 15m, 24h or 7d; 0: all.")
@click.option(
    "--audit-older-than", type=EXPIRY, default="365d", show_default=True, metavar="DURATION|never",
    help="Delete entries of the audit log that are older than this.",
)  # fmt: skip
@blobs_option
@url_option
@json_option
def purge(older_than: float, audit_older_than: float | None, blobs: str | None, url: str | None, as_json: bool) -> None:
    """Delete documents that ended longer ago than --older-than.

    Their results and files go with them, and the change feed up to then. Documents that have not ended stay, however old they
    are. Give the --blobs that the queue is used with: in another place no files are found, and they are left to the sweep.
    """
    with open_store(url, create=False, blobs=blobs) as queue:
        purged = queue.purge(older_than)
        entries = 0
        if audit_older_than is not None and has_older(queue.engine, audit_older_than):
            with audited(queue, "audit.purge", before={"older_than": audit_older_than}) as change:
                entries = purge_audit(queue.engine, audit_older_than)
                change.after = {"entries": entries}
        is_without_files = purged > 0 and queue.files.has_any() and not queue.files.is_there()
    if is_without_files:
        echo("fairlane: the files of this queue are somewhere else, so theirs are left to the sweep; give --blobs", err=True)
    data: dict[str, Any] = {"purged": purged, "older_than": older_than, "audit_entries": entries}
    also = f" {entries:,} of the audit log's entries deleted." if entries else ""
    print_result(as_json, data, f"{format_count(purged)} deleted.{also}")


@main.command(epilog="Example:  fairlane sweep --grace 48h")
@click.option(
    "--grace", type=DURATION, default="24h", show_default=True, metavar="DURATION", help="Keep files that are younger."
)
@blobs_option
@url_option
@json_option
def sweep(grace: float, blobs: str | None, url: str | None, as_json: bool) -> None:
    """Delete files that belong to no document.

    Such files are left by senders, workers and purges that were killed. A running worker does this once a day. A sender writes
    its file before its document exists: choose a grace period longer than any submission takes, and 0 only while nothing is
    submitted or running.
    """
    with open_store(url, create=False, blobs=blobs) as queue:
        swept = queue.sweep(grace=grace)
    data: dict[str, Any] = {"looked": swept.looked, "removed": swept.removed, "bytes": swept.bytes}
    sentence = f"{format_count(swept.looked, 'file')} checked; {swept.removed:,} deleted, {swept.bytes:,} bytes."
    print_result(as_json, data, sentence)
