"""What the commands have in common: options, opening the queue, and how numbers are shown. `rich` is loaded only to draw."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from fairlane.core.errors import BadValue
from fairlane.queue import Queue
from fairlane.settings import load_settings

url_option = click.option(
    "--url", metavar="URL", help="The queue; else FAIRLANE_URL, else url in fairlane.toml, else sqlite:///fairlane.db."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def open_queue(url: str | None, create: bool = True) -> Queue:
    return Queue(load_settings(url, os.environ, Path.cwd()).url, create=create)


def numbers(told: str | None) -> tuple[float, ...] | None:
    if told is None:
        return None
    try:
        return tuple(float(one) if "." in one else int(one) for one in told.split(","))
    except ValueError:
        raise BadValue("--thresholds", told, "numbers with commas between them, as in --thresholds=-2,-4,-6") from None


def seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 100:
        return f"{seconds:.1f} s"
    days, rest = divmod(round(seconds), 86400)
    clock = f"{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days} d {clock}" if days else clock


def counted(number: int, what: str) -> str:
    """A number of things, as in 1 document, 2,000 documents."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def table(columns: Sequence[str], rows: Iterable[Sequence[object] | None]) -> None:
    """A table on the terminal; the first column is text, the others are numbers; None draws a line."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=bool(number), overflow="fold")
    for row in rows:
        if row is None:
            table.add_section()
        else:
            table.add_row(*(Text(str(cell)) for cell in row))
    console = Console(file=sys.stdout)
    if not console.is_terminal:
        console.width = 160  # a pipe has no edge to wrap at
    console.print(table)
