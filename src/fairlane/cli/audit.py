"""The command that shows the audit log: who changed what."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from fairlane.printable import printable
from fairlane.queue import Queue
from fairlane.queue.audit import AuditEntry, AuditFilter, audit_json, walk_audit

from .group import main
from .options import complete_customer, json_option, open_queue, queue_options
from .output import echo, print_result
from .param_types import MOMENT

if TYPE_CHECKING:
    from .remote import RemoteQueue

SHOWN = 50
POLL_SECONDS = 1.0
OPEN_MS = 60_000  # after which an entry is shown although it is not completed
LATE_MS = 300_000  # how much earlier than the newest one an entry may have begun that is yet to be shown


@main.command(epilog="Example:  fairlane audit --customer acme --what customer --since 7d")
@click.option("--who", metavar="NAME", help="Only what this key (its id or name) or user did.")
@click.option("--what", metavar="ACTION", help="Only this action, such as customer.pause, or customer for all of them.")
@click.option("--customer", shell_complete=complete_customer, help="Only what was done to this customer and its documents.")
@click.option("--since", type=MOMENT, metavar="TIME", help="Then or later: 24h (ago), 2026-11-18, 2026-11-18T07:30.")
@click.option("--until", type=MOMENT, metavar="TIME", help="Before then.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help=f"How many at most. Default: {SHOWN}, with --json all.")
@click.option("--follow", "-f", is_flag=True, help="Go on until Ctrl-C with what is done from now on, oldest first.")
@queue_options
@json_option
def audit(
    who: str | None,
    what: str | None,
    customer: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int | None,
    follow: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """Show who changed what, before and after, newest first.

    The changes of operators, admins and the command line are recorded, and sign-ins; through a server it takes an admin's key.
    An entry that says `begun` was not completed: its change may have been made. With --json, prints an object per line.
    """
    filter = AuditFilter(who, what, customer, _milliseconds(since), _milliseconds(until))
    with open_queue(url, create=False) as queue:
        if follow:
            entries = _follow(queue, filter)
        else:
            entries = islice(_entries(queue, filter), limit if limit is not None or as_json else SHOWN)
        shown = 0
        try:
            for shown, entry in enumerate(entries, start=1):  # noqa: B007 it is looked at below
                print_result(as_json, audit_json(entry), _line(entry))
        except KeyboardInterrupt:
            return
    if not shown and not as_json:
        echo("No entry matches.")


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def _entries(queue: Queue | RemoteQueue, filter: AuditFilter) -> Iterator[AuditEntry]:
    if isinstance(queue, Queue):
        return walk_audit(queue.engine, filter)
    who, what, customer, *moments = filter
    since, until = (None if moment is None else moment / 1000 for moment in moments)
    return queue.audit(who=who, what=what, customer=customer, since=since, until=until)


def _follow(queue: Queue | RemoteQueue, filter: AuditFilter) -> Iterator[AuditEntry]:
    """Yield entries as they are completed; one that is open for long as it is, and once more when it is completed."""
    start_ms = _now_ms() - LATE_MS if filter.since_ms is None else filter.since_ms
    shown: dict[str, str] = {}  # outcomes by id
    if filter.since_ms is None:
        shown = {entry.id: entry.outcome for entry in _entries(queue, filter._replace(since_ms=start_ms))}
    while True:
        newest = list(_entries(queue, filter._replace(since_ms=start_ms)))
        for entry in reversed(newest):
            at_ms = round(entry.at.timestamp() * 1000)
            if shown.get(entry.id) != entry.outcome and (entry.outcome != "begun" or at_ms < _now_ms() - OPEN_MS):
                shown[entry.id] = entry.outcome
                yield entry
            start_ms = max(start_ms, at_ms - LATE_MS)
        shown = {entry.id: shown[entry.id] for entry in newest if entry.id in shown}
        time.sleep(POLL_SECONDS)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _line(entry: AuditEntry) -> str:
    who = entry.who
    named = f" {who.name!r}" if who.name and who.kind == "key" else f" on {who.name}" if who.name else ""
    place = f" from {who.address}" if who.address else ""
    actor = f"{who.role or who.kind} {who.id}{named}{place}"
    subject = " ".join(dict.fromkeys(part for part in (entry.customer, entry.target) if part)) or "-"
    outcome = "" if entry.outcome == "done" else f"  {entry.outcome}{f': {entry.error}' if entry.error else ''}"
    before, after = _differences(entry.before, entry.after)
    values = "".join(f"  {name} {_short(value)}" for name, value in (("was", before), ("is", after)) if value)
    return printable(f"{entry.at:%Y-%m-%d %H:%M:%S}Z  {actor}  {entry.action}  {subject}{outcome}{values}")


def _differences(before: Any, after: Any) -> tuple[Any, Any]:
    """Return what changed, where both are settings with the same names."""
    if not (isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys()):
        return before, after
    changed = [name for name in before if before[name] != after[name]]
    return {name: before[name] for name in changed}, {name: after[name] for name in changed}


def _short(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
