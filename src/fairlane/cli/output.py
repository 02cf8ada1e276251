"""How commands print: one result, numbers and durations, tables that fit the terminal, progress bars.

Laws:
- Nothing that other people wrote reaches a terminal as it is: commands print with `echo`, `confirm`, `print_table` and
  `styled`, which make text printable. Only `print_json`, which escapes control characters, and `echo_exactly` do not.
- `rich` is imported only to draw.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TextIO

import click

from fairlane.printable import printable

if TYPE_CHECKING:
    from rich.console import Console, OverflowMethod
    from rich.table import Table
    from rich.text import Text

PIPE_WIDTH = 160  # a pipe has no width of its own
NAME_MAX = 24  # characters of a name that are worth more than an optional column
FIRST_COLUMN_MIN = 8  # characters of the first column that are shown however narrow the terminal is


def echo(*lines: str, err: bool = False, nl: bool = True, colour: str | None = None) -> None:
    """Print lines for people, which may quote what others wrote: none of them becomes two. A colour is shown on a terminal."""
    shown = "\n".join(_wrapped(printable(line), sys.stderr if err else sys.stdout) for line in lines)
    click.echo(shown if colour is None else click.style(shown, fg=colour), err=err, nl=nl)


def _wrapped(line: str, stream: TextIO) -> str:
    """Break a line of prose between words where a terminal would break it inside one; indented lines stay as they are."""
    if line.startswith(" ") or not stream.isatty():
        return line
    width = shutil.get_terminal_size().columns
    return textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False) if len(line) > width else line


def echo_exactly(text: str, *, nl: bool = True) -> None:
    """Print text as it is, for programs to read."""
    click.echo(text, nl=nl)


def confirm(*lines: str) -> bool:
    """Ask a question on standard error, which may quote what others wrote."""
    return click.confirm("\n".join(map(printable, lines)), err=True)


def print_json(data: Any, default: Callable[[Any], Any] | None = None) -> None:
    """Print a line of JSON, in ASCII: control characters are escaped."""
    click.echo(json.dumps(data, default=default))


def print_result(as_json: bool, data: Any, *lines: str) -> None:
    """Print one result: an object for programs, or lines for people."""
    if as_json:
        print_json(data)
    else:
        echo(*lines)


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


def format_bytes(size: int) -> str:
    """Format a size with a unit, 3 digits at least: 999 B, 1.23 kB, 45.6 MB."""
    value, units = float(size), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while value >= 999.5 and unit != "TB":
        value, unit = value / 1000, next(units)
    return f"{size:,} B" if unit == "B" else f"{value:,.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f} {unit}"


def live_console() -> Console | None:
    """Return the terminal on standard output; None if it is not a terminal that can be redrawn."""
    from rich.console import Console

    console = Console(file=sys.stdout)
    return console if console.is_terminal and not console.is_dumb_terminal else None


def styled(*parts: tuple[str, str], overflow: OverflowMethod | None = None) -> Text:
    """Make a line of a drawing out of texts with their styles; with `overflow` a line that is too long is cut."""
    from rich.text import Text

    line = Text(no_wrap=overflow is not None, overflow=overflow)
    for text, style in parts:
        line.append(printable(text), style)
    return line


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object] | None], optional: Sequence[str] = ()) -> None:
    """Print a table; one that is wider than the terminal goes without its optional columns, or is printed in several parts."""
    from rich.console import Console

    console = Console(file=sys.stdout)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    all_rows = list(rows)
    if len(split_columns(columns, all_rows, console.width)) > 1:
        fitting = [index for index, column in enumerate(columns) if column not in optional]
        columns = [columns[index] for index in fitting]
        all_rows = [row and [row[index] for index in fitting] for row in all_rows]
    for part in split_columns(columns, all_rows, console.width):
        console.print(build_table([columns[index] for index in part], [row and [row[i] for i in part] for row in all_rows]))


def fit_columns(
    columns: Sequence[str], rows: Sequence[Sequence[object] | None], width: int, optional: Sequence[str]
) -> list[int]:
    """Leave out optional columns, the first of them first, until the names in the first column have the room they need."""
    widths = [_column_width(columns, rows, index) + 2 for index in range(len(columns))]
    widths[0] = min(widths[0], NAME_MAX + 2)
    left_out: set[str] = set()
    for name in optional:
        if sum(width for column, width in zip(columns, widths, strict=True) if column not in left_out) <= width:
            break
        left_out.add(name)
    fitting = [index for index, column in enumerate(columns) if column not in left_out]
    kept = [columns[index] for index in fitting]
    (first, *_) = split_columns(kept, [row and [row[index] for index in fitting] for row in rows], width)
    return [fitting[index] for index in first]


def _column_width(columns: Sequence[str], rows: Sequence[Sequence[object] | None], index: int) -> int:
    from rich.cells import cell_len

    cells = (_cell_text(row[index]) for row in rows if row)
    return max(cell_len(line) for line in (*columns[index].split("\n"), *cells))


def _cell_text(cell: object) -> str:
    return printable(str(cell))


def split_columns(columns: Sequence[str], rows: Sequence[Sequence[object] | None], width: int) -> list[list[int]]:
    """Split columns into parts that fit side by side without cutting a figure; the first column is in every part."""
    first = min(_column_width(columns, rows, 0), FIRST_COLUMN_MIN) + 2  # with the table's margins
    parts, room = [[0]], width - first
    for index in range(1, len(columns)):
        needed = _column_width(columns, rows, index) + 2  # with the gap before it
        if needed > room and len(parts[-1]) > 1:
            parts.append([0])
            room = width - first
        parts[-1].append(index)
        room -= needed
    return parts


def build_table(columns: Sequence[str], rows: Iterable[Sequence[object] | None], one_line: bool = False) -> Table:
    """Build a table; a row that is None draws a line. With `one_line` a long first cell is cut instead of wrapped.

    A cell that has a style comes from `styled`."""
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
        cells = [cell if isinstance(cell, Text) else Text(_cell_text(cell)) for cell in row]
        if one_line:
            cells[0].no_wrap, cells[0].overflow = True, "ellipsis"
        table.add_row(*cells)
    return table


class ProgressBar:
    """A progress bar on standard error, if that is a terminal."""

    def __init__(self, first: str, quiet: bool) -> None:
        self._first = first
        self._quiet = quiet or not sys.stderr.isatty()

    def __enter__(self) -> ProgressBar:
        if not self._quiet:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._progress.add_task(self._first, total=None)
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._quiet:
            self._progress.stop()

    def update(self, what: str, done: int, total: int) -> None:
        """Show what is done, how much of it, and of how much (0: not known)."""
        if not self._quiet:
            self._progress.update(self._task, description=what, completed=done, total=total or None)
