"""What the commands have in common: options, opening the queue, and how answers are shown. `rich` is loaded only to draw."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairlane.core.errors import FairlaneError
from fairlane.queue import Queue
from fairlane.settings import load_settings

if TYPE_CHECKING:
    from rich.table import Table

OFFERED_MAX = 50  # customers that a shell lists
PIPE_WIDTH = 160  # a pipe has no edge to wrap at

url_option = click.option(
    "--url", metavar="URL", help="The queue; else FAIRLANE_URL, else url in fairlane.toml, else sqlite:///fairlane.db."
)
blobs_option = click.option(
    "--blobs",
    metavar="FOLDER|URL",
    help="Where files are, as s3://bucket/prefix; else FAIRLANE_BLOBS, else blobs in fairlane.toml, else beside the queue.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def open_queue(url: str | None, create: bool = True, blobs: str | None = None) -> Queue:
    settings = load_settings(url, os.environ, Path.cwd(), blobs)
    return Queue(settings.url, create=create, blobs=settings.blobs)


def some_customers(context: click.Context, _: click.Parameter, beginning: str) -> list[str]:
    """Customers that begin like this; none if there is no queue to ask."""
    try:
        with open_queue(context.params.get("url"), create=False) as queue:
            page = queue.engine.customers(beginning, OFFERED_MAX)  # those after it, so not the one that is exactly this
            whole = [queue.engine.customer(beginning)] if beginning else []
    except FairlaneError:
        return []
    known = [one for one in whole if one.standing.resets or one.terms_version]
    return [one.id for one in (*known, *page) if one.id.startswith(beginning)]


customer_argument = click.argument("customer", shell_complete=some_customers)


def tell(as_json: bool, told: dict[str, Any], sentence: str) -> None:
    """One answer: an object for programs, a sentence for people."""
    click.echo(json.dumps(told) if as_json else sentence)


def counted(count: int, one: str = "document") -> str:
    return f"{count:,} {one}" + ("" if count == 1 else "s")


def seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 100:
        return f"{seconds:.1f} s"
    days, rest = divmod(round(seconds), 86400)
    clock = f"{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days} d {clock}" if days else clock


def table(columns: Sequence[str], rows: Iterable[Sequence[object] | None]) -> None:
    """Print a table on the terminal."""
    from rich.console import Console

    console = Console(file=sys.stdout)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    console.print(drawn(columns, rows))


def drawn(columns: Sequence[str], rows: Iterable[Sequence[object] | None], one_line: bool = False) -> Table:
    """A table: text, then numbers; a row that is None draws a line. With `one_line` a long text is cut instead of wrapped."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for number, column in enumerate(columns):
        first = number == 0  # only this one gives way when there is little room
        table.add_column(column, justify="left" if first else "right", no_wrap=not first, overflow="fold")
    for row in rows:
        if row is None:
            table.add_section()
            continue
        cells = [cell if isinstance(cell, Text) else Text(str(cell)) for cell in row]
        if one_line:
            cells[0].no_wrap, cells[0].overflow = True, "ellipsis"
        table.add_row(*cells)
    return table
