"""How commands print: one result, numbers and durations, tables that fit the terminal. `rich` is imported only to draw."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPE_WIDTH = 160  # a pipe has no width of its own
FIRST_COLUMN_MIN = 8  # characters of the first column that are shown however narrow the terminal is


def print_result(as_json: bool, data: dict[str, Any], sentence: str) -> None:
    """Print one result: an object for programs, or a sentence for people."""
    click.echo(json.dumps(data) if as_json else sentence)


def format_count(count: int, noun: str = "document") -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def format_seconds(duration: float | timedelta | None) -> str:
    if duration is None:
        return "-"
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if seconds < 100:
        return f"{seconds:.1f} s"
    days, rest = divmod(round(seconds), 86400)
    clock = f"{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days} d {clock}" if days else clock


def live_console() -> Console | None:
    """Return the terminal on standard output; None if it is not a terminal that can be redrawn."""
    from rich.console import Console

    console = Console(file=sys.stdout)
    return console if console.is_terminal and not console.is_dumb_terminal else None


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object] | None]) -> None:
    """Print a table; one that is wider than the terminal is printed in several parts."""
    from rich.console import Console

    console = Console(file=sys.stdout)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    all_rows = list(rows)
    for part in split_columns(columns, all_rows, console.width):
        console.print(build_table([columns[index] for index in part], [row and [row[i] for i in part] for row in all_rows]))


def split_columns(columns: Sequence[str], rows: Sequence[Sequence[object] | None], width: int) -> list[list[int]]:
    """Split columns into parts that fit side by side without cutting a figure; the first column is in every part."""
    from rich.cells import cell_len

    def column_width(index: int) -> int:
        cells = (str(row[index]) for row in rows if row)
        return max(cell_len(line) for cell in (columns[index], *cells) for line in cell.split("\n"))

    first = min(column_width(0), FIRST_COLUMN_MIN) + 2  # with the table's margins
    parts, room = [[0]], width - first
    for index in range(1, len(columns)):
        needed = column_width(index) + 2  # with the gap before it
        if needed > room and len(parts[-1]) > 1:
            parts.append([0])
            room = width - first
        parts[-1].append(index)
        room -= needed
    return parts


def build_table(columns: Sequence[str], rows: Iterable[Sequence[object] | None], one_line: bool = False) -> Table:
    """Build a table; a row that is None draws a line. With `one_line` a long first cell is cut instead of wrapped."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for index, column in enumerate(columns):
        is_first = index == 0  # the only column that shrinks when the terminal is narrow
        table.add_column(column, justify="left" if is_first else "right", no_wrap=not is_first, overflow="fold")
    for row in rows:
        if row is None:
            table.add_section()
            continue
        cells = [cell if isinstance(cell, Text) else Text(str(cell)) for cell in row]
        if one_line:
            cells[0].no_wrap, cells[0].overflow = True, "ellipsis"
        table.add_row(*cells)
    return table
