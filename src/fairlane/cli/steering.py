"""Commands that steer a running queue: prioritize documents, and limit kinds."""

from __future__ import annotations

from typing import Any

import click

from fairlane.core.errors import Mistake, WrongState
from fairlane.queue import KEEP, Keep, Kind
from fairlane.queue.models import to_json

from .bulk import dry_run_option, is_bulk, run_bulk, yes_option
from .group import main
from .options import filter_options, json_option, open_queue, queue_options
from .output import echo, print_json, print_result, print_table
from .param_types import OptionalType

KIND_COLUMNS = ("kind", "running", "at\nmost", "starts a\nsecond", "burst", "held by")


@main.command(epilog="Example:  fairlane prioritize --customer acme --kind scan --priority 1")
@click.argument("ids", metavar="[ID...]", nargs=-1)
@click.option("--priority", type=click.IntRange(1, 9), required=True, metavar="N", help="1 is served first, 9 last.")
@filter_options
@yes_option
@dry_run_option
@queue_options
@json_option
def prioritize(
    ids: tuple[str, ...], priority: int, yes: bool, dry_run: bool, url: str | None, as_json: bool, **filter: Any
) -> None:
    """Set the priority of the documents with these IDs, or of all that match.

    Only waiting documents have a priority to set; it stays until it is set again, and the customer's counter does not move. If
    one ID is unknown or does not wait, none is changed. Instead of IDs, options select waiting documents: they are counted, and
    changed after confirmation, in small steps; if that is interrupted, run it again. With --json, prints an object per line and
    document, or one with the numbers.
    """
    with open_queue(url, create=False) as queue:
        if is_bulk(ids, filter, yes, dry_run):
            return run_bulk(queue, "prioritize", filter, yes, dry_run, as_json, priority)
        states = {id: queue.document(id).state for id in ids}
        others = [f"{id} is {state}" for id, state in states.items() if state not in ("ready", "delayed")]
        if others:
            raise WrongState(f"nothing was prioritized: {', '.join(others)}; only a waiting document can get another priority")
        for id in states:
            queue.prioritize(id, priority)
            print_result(as_json, {"id": id, "priority": priority}, f"{id}: priority {priority}")
    return None


@main.command(epilog="Example:  fairlane kinds")
@queue_options
@json_option
def kinds(url: str | None, as_json: bool) -> None:
    """Show kinds of documents with their limits.

    Shown are kinds that have or had a limit, that workers take, or of which documents are ready. `fairlane kind` sets a limit.
    With --json, prints an array with an object per kind.
    """
    with open_queue(url, create=False) as queue:
        rows = list(queue.kinds())
    if as_json:
        return print_json([to_json(kind) for kind in rows])
    if not rows:
        return echo("No kinds yet: nothing waits, no worker is registered, and no limit was set.")
    return print_table(KIND_COLUMNS, [_row(kind) for kind in rows])


def _row(kind: Kind) -> tuple[object, ...]:
    limits = [_format(limit) for limit in (kind.running_max, kind.rate)]
    return kind.kind, kind.running, *limits, "-" if kind.rate is None else _format(kind.burst), kind.held_by or "-"


def _format(limit: float | None) -> str:
    return "-" if limit is None else f"{limit:,g}"


@main.command(epilog="Example:  fairlane kind ocr --running-max 3 --rate 10 --burst 20")
@click.argument("name")
@click.option(
    "--running-max", type=OptionalType(click.INT), default=KEEP, metavar="N|none",
    help="How many documents of the kind may run at once, on all workers together.",
)  # fmt: skip
@click.option(
    "--rate", type=OptionalType(click.FLOAT), default=KEEP, metavar="NUMBER|none",
    help="How many may start in a second, on all workers together; 0.5 is one in two seconds.",
)  # fmt: skip
@click.option("--burst", type=float, metavar="NUMBER", help="How many of these may start at once after a pause; 1 at first.")
@click.option("--no-limit", is_flag=True, help="Remove the limits of the kind.")
@queue_options
@json_option
def kind(
    name: str,
    running_max: int | Keep | None,
    rate: float | Keep | None,
    burst: float | None,
    no_limit: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """Show or change the limits of one kind of documents.

    They hold for all workers together, from the next claim on: for a service with a quota, say, or a licence for three seats.
    Documents of a kind at its limit wait, and workers take others meanwhile. Options that are left out stay as they are; `none`
    is no limit.
    """
    is_change = any(value is not KEEP for value in (running_max, rate)) or burst is not None
    if no_limit and is_change:
        raise Mistake("--no-limit removes all limits of the kind; leave the other options out, or set one of them to none")
    if no_limit:
        running_max = rate = None
    with open_queue(url, create=is_change) as queue:
        limited = queue.limit_kind(
            name, running_max=running_max, rate=rate, burst=1 if no_limit else KEEP if burst is None else burst
        )
    data = to_json(limited)
    lines = [f"{label:16} {_setting(data[member])}" for label, member in _LABELS]
    print_result(as_json, data, *lines)


_LABELS = (
    ("kind", "kind"), ("running", "running"), ("running max", "running_max"), ("rate", "rate"), ("burst", "burst"),
    ("held by", "held_by"), ("version", "version"),
)  # fmt: skip


def _setting(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
