"""Commands that look at documents and at what happens: documents, show, result, events."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from fairlane.core.errors import Mistake, Unknown
from fairlane.printable import printable_lines
from fairlane.queue import Attempt, Change, Document, HistoryEntry, Queue
from fairlane.queue.history import newest

from .group import main
from .options import complete_customer, filter_options, json_option, open_queue, queue_options
from .output import echo, echo_exactly, print_json, print_result

if TYPE_CHECKING:
    from .remote import RemoteQueue

PAYLOAD_SHOWN = 2000  # characters
POLL_SECONDS = 0.5
EVENTS_SHOWN = 20
EVENT_NAMES = {"claimed": "started"}  # people say that; so does a server


@main.command(epilog="Example:  fairlane documents --customer acme --state failed --since 24h")
@filter_options
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="How many at most.")
@queue_options
@json_option
def documents(limit: int, url: str | None, as_json: bool, **filter: Any) -> None:
    """List documents, newest first.

    Times are UTC, unless they say otherwise. With --json, prints an object per line and document.
    """
    with open_queue(url, create=False) as queue:
        page = list(islice(queue.documents(**filter), limit + 1))
    for document in page[:limit]:
        print_result(as_json, _members(document), _document_line(document))
    if not as_json and len(page) > limit:
        echo(f"there are more; --limit {2 * limit} shows twice as many")
    elif not as_json and not page:
        echo("no document matches")


def _document_line(document: Document) -> str:
    attempts = f"attempt {document.attempts} of {document.attempts_max}"
    reason = document.reason or ""
    state = f"{document.state}, {reason}" if reason.startswith(attempts) else f"{document.state}, {attempts}"
    return (
        f"{document.id}  {_time(document.submitted_at)}  priority {document.priority}  {document.customer}  {document.kind}  "
        f"{state}{f': {reason}' if reason and not reason.startswith(attempts) else ''}"
    )


@main.command(epilog="Example:  fairlane show 0199d3c2-5a1e-7c44-9d55-3f0f6f5b2a11")
@click.argument("id")
@queue_options
@json_option
def show(id: str, url: str | None, as_json: bool) -> None:
    """Show one document and its whole life.

    That includes its payload, facts about its file, and the tracebacks of its failed attempts. Through a server, tracebacks are
    shown to operators only, and the payload is not shown.
    """
    with open_queue(url, create=False) as queue:
        document, history = queue.document(id), queue.history(id)
        attempts = _attempts(queue, id)
        body = _body(queue, id)
    if as_json:
        lists = {"history": [_members(entry) for entry in history], "failed_attempts": [_members(a) for a in attempts]}
        return print_json(_members(document) | body | lists)
    echo(*_facts(document, body), "", "History", *map(_history_line, history))
    for attempt in attempts:
        echo("", *_attempt_lines(attempt))
    return None


def _attempts(queue: Queue | RemoteQueue, id: str) -> list[Attempt]:
    """Return the failed attempts; none for a customer, to whom a server does not show them."""
    try:
        return queue.attempts(id)
    except Unknown:
        return []


def _body(queue: Queue | RemoteQueue, id: str) -> dict[str, Any]:
    """Return the steps, and what a server does not show: the payload and facts about the file."""
    steps = [step._asdict() for step in queue.steps(id)]
    if not isinstance(queue, Queue):
        return {"steps": steps}
    try:
        file: dict[str, Any] | None = queue.input(id)._asdict()
    except Unknown:
        file = None
    return {"payload": queue.payload(id), "file": file, "steps": steps}


def _facts(document: Document, body: dict[str, Any]) -> list[str]:
    reason = f": {document.reason}" if document.reason else ""
    facts: dict[str, object] = {
        "document": document.id,
        "customer": document.customer,
        "kind": document.kind,
        "state": f"{document.state}{reason}",
        "priority": f"{document.priority}, {_priority_reason(document)}",
        "attempts": f"{document.attempts} of {document.attempts_max}",
        "worker": document.worker,
        "submitted": _time(document.submitted_at),
        "ready": None if document.parts_done < document.parts else _time(document.ready_at),
        "ended": document.ended_at and _time(document.ended_at),
        "cost": document.cost,
        "key": document.key,
    }
    if document.progress is not None and document.progress.progress is not None:
        facts["progress"] = document.progress.progress
    if document.whole is not None:
        facts["part of"] = document.whole
    if document.parts:
        facts["parts"] = f"{document.parts_done:,} of {document.parts:,} done"
    if len(steps := body.get("steps", ())) > 1:
        facts["steps"] = ", ".join(f"{step['kind']} ({step['state']})" for step in steps)
    file = body.get("file")
    if file is not None:
        facts["file"] = f"{file['name']}, {file['size']:,} bytes, sha256 {file['sha256']}"
    if "payload" in body:
        text = json.dumps(body["payload"], ensure_ascii=False)
        facts["payload"] = text if len(text) <= PAYLOAD_SHOWN else text[: PAYLOAD_SHOWN - 1] + "…  (all of it with --json)"
    return [f"{name:<10} {value}" for name, value in facts.items() if value is not None]


def _priority_reason(document: Document) -> str:
    counter = f"the counter stood at {document.counter:,}"
    if document.set_by_hand:
        return f"set by an operator; {counter}"
    if document.no_better_than is not None:
        return f"as it shall be no better than {document.no_better_than}, and {counter}"
    return f"as {counter}"


def _history_line(entry: HistoryEntry) -> str:
    worker = f"by {entry.worker}" if entry.worker else ""
    claim = f"claim {entry.claim}" if entry.claim else ""
    event = EVENT_NAMES.get(entry.event, entry.event)
    return f"{_time(entry.at)}  {event:<10} {claim:<8} {worker}{entry.reason or _new_priority(entry)}".rstrip()


def _new_priority(value: HistoryEntry | Change) -> str:
    if value.priority is None:
        return ""
    return f"priority {value.priority}" + (f", set by {value.by}" if value.by else "")


def _attempt_lines(attempt: Attempt) -> list[str]:
    head = f"Attempt {attempt.attempt} (claim {attempt.token}) failed on {attempt.worker} after {attempt.seconds:.3f} s"
    lines = [f"{head}: {attempt.reason}"]
    if attempt.traceback:
        lines += _indented(attempt.traceback)
    if attempt.output:
        lines += ["  printed at the end:", *_indented(attempt.output)]
    return lines


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in printable_lines(text).split("\n")]


@main.command(epilog="Example:  fairlane result --text 0199d3c2-5a1e-7c44-9d55-3f0f6f5b2a11")
@click.argument("id")
@click.option("--text", "as_text", is_flag=True, help="The extracted text instead.")
@queue_options
@json_option
def result(id: str, as_text: bool, url: str | None, as_json: bool) -> None:
    """Print the result of a document that is done.

    It is JSON; with --text, the text that was extracted.
    """
    if as_text and as_json:
        raise Mistake("--text prints text and --json JSON; leave one of them out")
    with open_queue(url, create=False) as queue:
        value: Any = queue.text(id) if as_text else queue.result(id)
    if as_text:
        if sys.stdout.isatty():
            echo(*printable_lines(value.removesuffix("\n")).split("\n"))
        else:
            echo_exactly(value, nl=not value.endswith("\n"))
    else:
        print_result(as_json, value, *json.dumps(value, ensure_ascii=False, indent=2).split("\n"))


@main.command(epilog="Example:  fairlane events --follow --customer acme")
@click.option("--follow", "-f", is_flag=True, help="Go on until Ctrl-C, as things happen.")
@click.option("--after", type=click.IntRange(0), metavar="NUMBER", help="Those after this number; 0: all that are kept.")
@click.option("--customer", shell_complete=complete_customer, help="Only those of this customer.")
@click.option("--document", metavar="ID", help="Only those of this document.")
@queue_options
@json_option
def events(follow: bool, after: int | None, customer: str | None, document: str | None, url: str | None, as_json: bool) -> None:
    """Print what happens in the queue.

    Documents are submitted, started, done, failed, retried; customers are tuned. Without --after, begins with the last 20
    events; through a server, which streams and needs --follow, with what happens from now on. With --json, prints an object per
    line and event.
    """
    with open_queue(url, create=False) as queue:
        if not isinstance(queue, Queue) and not follow:
            raise Mistake("a server streams events as they happen; add --follow, and --after 0 for all that are kept")
        changes = _changes(queue, after, follow) if isinstance(queue, Queue) else queue.events(after)
        try:
            for change in changes:
                if customer in (None, change.customer) and document in (None, change.document):
                    print_result(as_json, _members(change), _event_line(change))
        except KeyboardInterrupt:
            return


def _changes(queue: Queue, after: int | None, follow: bool) -> Iterator[Change]:
    """Yield changes from the store, and with `follow` go on for ever."""
    if after is None:
        oldest = next(iter(queue.changes(limit=1)), None)
        after = max(newest(queue.engine) - EVENTS_SHOWN, oldest.number - 1 if oldest else 0)
    while True:
        for change in queue.changes(after):
            after = change.number
            yield change
        if not follow:
            return
        time.sleep(POLL_SECONDS)


def _event_line(change: Change) -> str:
    event = EVENT_NAMES.get(change.event, change.event)
    line = f"{change.number}  {_time(change.at)}  {event:<10} {change.customer or '-'}  {change.document or '-'}"
    return f"{line}  {change.reason or _new_priority(change)}".rstrip()


def _members(value: Document | HistoryEntry | Attempt | Change) -> dict[str, Any]:
    """Return a value as JSON members: moments as seconds since the epoch."""
    members = {name: member.timestamp() if isinstance(member, datetime) else member for name, member in value._asdict().items()}
    if isinstance(value, Document):
        members["progress"] = value.progress and value.progress._asdict()
    return members


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
