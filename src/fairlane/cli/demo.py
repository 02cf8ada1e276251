"""The command that makes sample documents, or runs a demo service with them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote

import click

from fairlane.core.errors import BadValue, Mistake
from fairlane.demo.make import BIG, make
from fairlane.folders.scan import scan
from fairlane.folders.temporary import temporary_folder
from fairlane.queue import Look

from .group import main
from .options import json_option
from .output import echo, format_count, format_seconds, live_console, print_result
from .watch import watch

LINE_SECONDS = 5.0
COLUMNS = ("customer", "counter", "next\npriority", "waiting", "running", "done", "failed", "oldest\nwait")


@main.command(epilog="Example:  fairlane demo inbox && fairlane process inbox    (or: fairlane demo --serve)")
@click.argument("folder", type=click.Path(), required=False)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed makes the same documents.")
@click.option("--big", type=int, default=150, show_default=True, help="Documents of the big customer.")
@click.option("--small", type=int, default=5, show_default=True, help="Number of small customers, up to 10.")
@click.option("--each", type=int, default=4, show_default=True, help="Documents of each small customer.")
@click.option("--paragraphs", type=int, default=6, show_default=True, help="Paragraphs in each document.")
@click.option("--serve", is_flag=True, help="Run the service with these customers until Ctrl-C.")
@click.option("--port", type=int, help="With --serve: the port to listen on. Default: the first free one from 8000 on.")
@json_option
def demo(
    folder: str | None, seed: int, big: int, small: int, each: int, paragraphs: int, serve: bool, port: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Make sample documents in FOLDER, which must be new or empty.

    There is one big customer and several small ones, each with a sub-folder of its own. Their letters and invoices are in five
    languages, as PDF, DOCX, text, e-mail, HTML, Markdown, CSV and JSON. With --serve, leave FOLDER out: the service runs in a
    temporary folder, the big customer floods it, and the small ones send a document now and then.
    """
    if serve:
        return _serve(folder, (seed, big, small, each, paragraphs), port, as_json)
    if folder is None:
        raise Mistake("FOLDER is missing: use `fairlane demo FOLDER`, or `fairlane demo --serve`, which needs none")
    if port is not None:
        raise Mistake("--port is the port of the service; use it together with --serve")
    counts = make(folder, seed, big, small, each, paragraphs)
    lines = [f"  {customer:12} {count:,}" for customer, count in counts.items()]
    head, hint = f"{format_count(sum(counts.values()))} in {folder}:", f"To process them: fairlane process {quote(folder)}"
    return print_result(as_json, {"folder": folder, "documents": counts}, head, *lines, hint)


def _serve(folder: str | None, sizes: tuple[int, int, int, int, int], port: int | None, as_json: bool) -> None:
    if folder is not None or as_json:
        raise Mistake("--serve works without FOLDER and --json: it runs in a temporary folder, for people to watch")
    if port is not None and not 0 <= port <= 65535:
        raise BadValue("--port", port, "a whole number from 0 to 65535")
    with temporary_folder("fairlane-demo-") as temporary:
        inbox = str(Path(temporary) / "inbox")
        make(inbox, *sizes)
        with suppress(KeyboardInterrupt):
            _run(Path(temporary), scan(inbox).documents, port)
        echo("Stopped; everything was removed.")


def _run(folder: Path, inbox: dict[str, list[str]], port: int | None) -> None:
    """Run the service and its customers, and show them until Ctrl-C."""
    from fairlane.client import Client
    from fairlane.demo.server import create_keys, free_port, run_server, send_documents

    with run_server(folder, free_port() if port is None else port) as server:
        keys = create_keys(folder, list(inbox))
        echo(*_welcome(server.address, server.key, keys))

        def looks() -> list[Look]:
            server.check_running()
            return list(operator.customers())

        with (
            send_documents(server.address, keys, inbox, lambda sentence: echo(sentence, err=True)),
            Client(server.address, server.key) as operator,
        ):
            _show(looks)


def _welcome(address: str, admin_key: str, keys: dict[str, str]) -> Sequence[str]:
    from fairlane.demo.server import INTERVAL_SECONDS

    light = next((customer for customer in keys if customer != BIG), BIG)
    program = sys.argv[0] if os.path.basename(sys.argv[0]) == "fairlane" else "fairlane"
    return (
        f"Fairlane is running. Open {address} in a browser, with one of these keys:",
        f"  {'admin, sees everything':28} {admin_key}",
        f"  {f'{light}, sees only its own':28} {keys[light]}",
        "Try it:",
        f"  curl -H 'Authorization: Bearer {keys[light]}' {address}/v1/me",
        f"  FAIRLANE_KEY={admin_key} {program} status --server {address}",
        f"{BIG} floods the queue; the others send a document now and then, and hardly wait. In this demo counters return "
        f"to 0 within {INTERVAL_SECONDS:g} s, so that there is something to watch; the default is 1500 s.",
        "",
    )


def _show(looks: Callable[[], list[Look]]) -> None:
    if live_console() is not None:
        return watch(looks, _row, COLUMNS)
    while True:
        echo(_summary_line(looks()))
        time.sleep(LINE_SECONDS)


def _row(look: Look) -> Sequence[object]:
    return (look.customer, look.counter, look.next_priority, look.waiting, look.running, look.done, look.failed,
            format_seconds(look.oldest_wait))  # fmt: skip


def _summary_line(looks: Sequence[Look]) -> str:
    parts = []
    for name, is_big in ((BIG, True), ("others", False)):
        group = [look for look in looks if (look.customer == BIG) == is_big]
        waiting, done = sum(look.waiting for look in group), sum(look.done for look in group)
        priority = max((look.next_priority for look in group), default=1)
        parts.append(f"{name}: {waiting:,} waiting, {done:,} done, next priority {priority}")
    return f"{time.strftime('%H:%M:%S')}  {'; '.join(parts)}"
