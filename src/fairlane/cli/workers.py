"""The command that shows the workers of a queue and drains them: workers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from fairlane.core.errors import Mistake
from fairlane.queue import Queue, WorkerStatus
from fairlane.queue.models import to_json

from .group import main
from .options import json_option, open_queue, queue_options
from .output import echo, format_count, format_seconds, print_json, print_result, print_table
from .param_types import DURATION
from .queue import unserved_sentences

if TYPE_CHECKING:
    from .remote import RemoteQueue

COLUMNS = ("worker", "state", "busy", "slots", "last\nreport", "since (UTC)", "version", "kinds", "host")
DOCUMENT_COLUMNS = ("document", "customer", "kind", "running\nfor", "worker")
POLL_SECONDS = 0.5
KINDS_SHOWN = 3


@main.group(invoke_without_command=True, epilog="Example:  fairlane workers drain host-1234 --wait 5m")
@queue_options
@json_option
@click.pass_context
def workers(context: click.Context, url: str | None, as_json: bool) -> None:
    """Show the workers of a queue, and what runs on each.

    A worker that ended without a word, after kill -9 say, is shown as gone; its documents return to the queue when their
    leases have expired. With --json, prints an array with an object per worker.
    """
    if context.invoked_subcommand is not None:
        misplaced = [
            p.opts[0]
            for p in context.command.params
            if context.get_parameter_source(p.name or "") is ParameterSource.COMMANDLINE
        ]
        if misplaced:
            command = f"fairlane workers {context.invoked_subcommand}"
            raise Mistake(f"{misplaced[0]} stands after the command: {command} NAME {misplaced[0]} …")
        return None
    with open_queue(url, create=False) as queue:
        known = queue.workers()
        sentences = [] if as_json else unserved_sentences(queue)
    if as_json:
        return print_json([to_json(worker) for worker in known])
    if known:
        _print_workers(known)
    else:
        echo("No worker is running; `fairlane work` or `fairlane serve` starts one.")
    for sentence in sentences:
        echo(sentence)
    return None


def _print_workers(known: Sequence[WorkerStatus]) -> None:
    print_table(COLUMNS, [_row(worker) for worker in known])
    running = [(document, worker.name) for worker in known for document in worker.documents]
    if running:
        print_table(
            DOCUMENT_COLUMNS,
            [(row.id, row.customer, row.kind, format_seconds(row.running_for), name) for row, name in running],
        )
    for worker in known:
        if worker.is_outdated:
            echo(f"{worker.name} runs Fairlane {worker.version}, which knows an older schema than the store has: upgrade it.")


def _row(worker: WorkerStatus) -> Sequence[object]:
    return (
        worker.name, worker.state, len(worker.documents), worker.slots, format_seconds(worker.silent_for),
        f"{worker.started_at:%Y-%m-%d %H:%M}", worker.version + (" (old)" if worker.is_outdated else ""),
        _format_kinds(worker.kinds), worker.host,
    )  # fmt: skip


def _format_kinds(kinds: Sequence[str] | None) -> str:
    if kinds is None:
        return "many"
    more = f" and {len(kinds) - KINDS_SHOWN} more" if len(kinds) > KINDS_SHOWN else ""
    return ", ".join(kinds[:KINDS_SHOWN]) + more


@workers.command(epilog="Example:  fairlane workers drain host-1234 --wait 5m")
@click.argument("name")
@click.option("--wait", "wait_seconds", type=DURATION, metavar="DURATION", help="Return when it has drained; fail after this.")
@queue_options
@json_option
def drain(name: str, wait_seconds: float | None, url: str | None, as_json: bool) -> None:
    """Let the worker NAME finish what it has and claim no more.

    NAME is a worker's name or its instance id; of several workers with the same name all are drained. It takes effect within a
    few seconds, and lasts until `fairlane workers undrain NAME`, or until the worker ends.
    """
    with open_queue(url, create=False) as queue:
        instances = queue.drain_worker(name)
        if wait_seconds is not None:
            _wait_until_drained(queue, name, set(instances), wait_seconds)
    state = "drained" if wait_seconds is not None else "draining"
    sentence = f"{name} has drained." if wait_seconds is not None else f"{name} finishes what it has and claims no more."
    print_result(as_json, {"worker": name, "state": state, "instances": instances}, sentence)


def _wait_until_drained(queue: Queue | RemoteQueue, name: str, instances: set[str], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while unfinished := [w for w in queue.workers() if w.instance in instances and w.state in ("working", "draining")]:
        if time.monotonic() >= deadline:
            running = format_count(sum(len(worker.documents) for worker in unfinished))
            raise Mistake(f"{name} has not drained within {seconds:g} s: {running} of it still running; it goes on draining")
        time.sleep(POLL_SECONDS)


@workers.command(epilog="Example:  fairlane workers undrain host-1234")
@click.argument("name")
@queue_options
@json_option
def undrain(name: str, url: str | None, as_json: bool) -> None:
    """Let the worker NAME claim documents again."""
    with open_queue(url, create=False) as queue:
        instances = queue.undrain_worker(name)
    print_result(as_json, {"worker": name, "state": "working", "instances": instances}, f"{name} claims documents again.")
