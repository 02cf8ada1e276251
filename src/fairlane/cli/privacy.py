"""Commands for personal data: export, forget, vacuum, encrypt."""

from __future__ import annotations

import sys
from itertools import islice

import click

from fairlane.core.errors import BadValue, Unknown
from fairlane.queue import Exported, Queue
from fairlane.queue.audit import cli_actor
from fairlane.queue.audited_queue import audited
from fairlane.queue.export import CustomerExport
from fairlane.queue.forget import is_forgotten
from fairlane.queue.record_groups import records_of

from .group import EXIT_FAILURE, EXIT_FINDINGS, main
from .options import (
    blobs_option,
    customer_argument,
    json_option,
    open_queue,
    open_store,
    queue_options,
    store_settings,
    url_option,
)
from .output import ProgressBar, confirm, echo, format_count, print_result

RECORDS_COUNTED_MAX = 1000


@main.command()
@customer_argument
@click.option("--to", "path", required=True, metavar="FILE", help="A new file: NAME.tar or NAME.tar.gz; - is standard output.")
@blobs_option
@queue_options
@json_option
def export(customer: str, path: str, blobs: str | None, url: str | None, as_json: bool) -> None:
    """Export everything that is kept of CUSTOMER as one archive.

    Documents with payloads, results, failed attempts and history, their files, the customer's terms and standing, its keys and
    webhook without secrets, deliveries and batches; index.html for people, manifest.jsonl for programs. It may run while the
    queue is in use. The file has its name only when it is complete. Exits with 4 if files are missing or damaged.

    \b
    Example:
      fairlane export acme --to acme.tar.gz
      fairlane export acme --to - | age -r RECIPIENT > acme.tar.age
    """
    with open_queue(url, create=False, blobs=blobs) as queue, ProgressBar("opening the queue", as_json) as bar:
        if not isinstance(queue, Queue):
            exported = queue.export(customer, _validate_file(path), on_progress=bar.update)
        elif path == "-":
            with audited(queue, "customer.export", target=customer, customer=customer):
                exported = _export_to_stdout(CustomerExport(queue.engine, queue.files, customer, bar.update))
        else:
            exported = queue.export(customer, path, on_progress=bar.update)
    _report_export(customer, path, exported, as_json)


def _validate_file(path: str) -> str:
    if not path.endswith(".tar"):
        raise BadValue("--to", path, "through a server the name of a new file that ends with .tar")
    return path


def _export_to_stdout(export: CustomerExport) -> Exported:
    output = sys.stdout.buffer
    for piece in export:
        output.write(piece)
    output.flush()
    return export.exported


def _report_export(customer: str, path: str, exported: Exported, as_json: bool) -> None:
    if path != "-":  # where the archive itself went
        counts = f"{format_count(exported.documents)} and {format_count(exported.files, 'file')}"
        fields = {"customer": customer, "file": path, **exported._asdict()}
        print_result(as_json, fields, f"{customer} was exported to {path}, with {counts}.")
    if exported.missing:
        names = ", ".join(exported.missing_documents)
        echo(f"fairlane: {format_count(exported.missing, 'file')} missing or damaged, of documents such as {names}", err=True)
        raise click.exceptions.Exit(EXIT_FINDINGS)


@main.command(epilog="Example:  fairlane forget acme")
@customer_argument
@click.option("--yes", is_flag=True, help="Do not ask for confirmation, nor whether the customer is known.")
@click.option(
    "--no-vacuum",
    is_flag=True,
    help="Do not rewrite the file of a queue in a file. What was erased stays in its unused parts until `fairlane vacuum`.",
)
@blobs_option
@url_option
@json_option
def forget(customer: str, yes: bool, no_vacuum: bool, blobs: str | None, url: str | None, as_json: bool) -> None:
    """Erase all data of CUSTOMER, after confirmation.

    Erases its documents in every state with their files, payloads and results, its counter, its settings, its keys with their
    sessions, its webhook with all deliveries, its batches and its entries in the change feed. This cannot be undone. If it is
    interrupted, run it again with --yes. The file of a queue in a file is rewritten in the end: others wait to write
    meanwhile, about 7 s for each GB.
    """
    with open_store(url, create=False, blobs=blobs) as queue:
        if not yes and not confirm(_describe(queue, customer), f"Erase all data of {customer}?"):
            echo("Nothing was erased.", err=True)
            raise click.exceptions.Exit(EXIT_FAILURE)
        with ProgressBar("keys and webhooks", as_json) as bar:
            documents, records, files_left, not_rewritten = queue.forget(customer, vacuum=not no_vacuum, on_progress=bar.update)
    sentence = f"{customer} was erased, with {format_count(documents)} and {format_count(records, 'record')}."
    if files_left:
        sentence += (
            f" {format_count(files_left, 'file')} without a document may belong to an upload under way and stays for a day; "
            "`fairlane sweep --grace 0` removes it now, if nobody uploads."
        )
    data = {
        "customer": customer, "forgotten": documents, "records": records, "files_left": files_left,
        "not_rewritten": not_rewritten,
    }  # fmt: skip
    print_result(as_json, data, sentence)
    if not_rewritten is not None:
        echo(f"fairlane: the queue's file was not rewritten: {not_rewritten}", err=True)
        raise click.exceptions.Exit(EXIT_FINDINGS)


def _describe(queue: Queue, customer: str) -> str:
    """Say what there is to erase; raise Unknown if there is nothing."""
    records = sum(1 for _ in islice(records_of(queue.engine, customer), RECORDS_COUNTED_MAX))
    if is_forgotten(queue.engine, customer) and not records:
        raise Unknown(
            f"there is no customer {customer!r}; it never sent a document here, or it was forgotten; if that was interrupted, "
            "--yes erases what may be left"
        )
    look = queue.look(customer)
    states = ("waiting", "running", "done", "failed", "cancelled")
    documents = ", ".join(f"{getattr(look, state):,} {state}" for state in states if getattr(look, state)) or "none"
    more = " or more" if records == RECORDS_COUNTED_MAX else ""
    also = f"; {format_count(records, 'record')}{more} (keys, sessions, webhook, deliveries, batches)" if records else ""
    return f"{customer}: documents: {documents}; counter {look.counter:,}; its settings and its entries in the feed{also}."


@main.command(epilog="Example:  fairlane vacuum --url sqlite:////srv/fairlane.db")
@url_option
@json_option
def vacuum(url: str | None, as_json: bool) -> None:
    """Rewrite the file of a queue without what was deleted.

    `forget` does it by itself. After `purge` it also makes the file smaller. Others wait to write meanwhile, about 7 s for each
    GB, and as much free space is needed as the file takes. A server that keeps a queue does this in its own time.
    """
    with open_store(url, create=False) as queue, ProgressBar("rewriting the file", as_json):
        is_rewritten = queue.vacuum()
    sentence = (
        "The file was rewritten." if is_rewritten else "Nothing to do: the server of this queue does that in its own time."
    )
    print_result(as_json, {"rewritten": is_rewritten}, sentence)


@main.command()
@click.option("--new-key", is_flag=True, help="Print a new key, and do nothing else.")
@click.option("--dry-run", is_flag=True, help="Count what is not encrypted with the first key, and change nothing.")
@click.option("--no-vacuum", is_flag=True, help="Do not rewrite the file of a queue in a file; what was replaced stays in it.")
@blobs_option
@url_option
@json_option
def encrypt(new_key: bool, dry_run: bool, no_vacuum: bool, blobs: str | None, url: str | None, as_json: bool) -> None:
    """Encrypt everything in a queue with the first key, while it is in use.

    Keys are in the file that FAIRLANE_ENCRYPTION_KEY_FILE names, one on a line, or in FAIRLANE_ENCRYPTION_KEYS, with commas.
    The first encrypts, all decrypt. To change the key, put a new one first, start every program again, and run this; when it
    says that the old key is not needed any more, remove it. With the word none first, everything becomes plain. If it is
    interrupted, run it again: it goes on. Exits with 4 if something is left.

    \b
    Example:
      fairlane encrypt --new-key > /etc/fairlane/keys
      FAIRLANE_ENCRYPTION_KEY_FILE=/etc/fairlane/keys fairlane encrypt
    """
    from fairlane.encryption.keyring import new_key as make_key
    from fairlane.reencrypt import reencrypt

    if new_key:
        key = make_key()
        print_result(as_json, {"key": key}, key)
        return
    settings = store_settings(url, blobs)
    with ProgressBar("opening the queue", as_json) as bar:
        done = reencrypt(settings.url, settings.blobs, bar.update, dry_run=dry_run, vacuum=not no_vacuum, actor=cli_actor())
    form = "made plain" if done.key is None else f"encrypted with key {done.key}"
    counts = f"{format_count(done.texts, 'text')} and {format_count(done.files, 'file')}"
    struck = "".join(f" Key {key_id} is not needed any more." for key_id in done.struck)
    print_result(as_json, done._asdict(), f"{counts} {'would be' if dry_run else 'were'} {form}.{struck}")
    if done.left:
        echo(f"fairlane: {done.left:,} texts or files could not be: {done.reason}", err=True)
    if done.not_rewritten is not None:
        echo(f"fairlane: the queue's file was not rewritten: {done.not_rewritten}", err=True)
    if done.left or done.not_rewritten is not None:
        raise click.exceptions.Exit(EXIT_FINDINGS)
