"""How is it shown what becomes of a folder? A live picture on a terminal, a line a document elsewhere, a table at the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from fairlane.blobs.safe_open import display_path
from fairlane.folders.tracker import Course, Courses, Row
from fairlane.queue import Look

from .common import counted, drawn, parts, table

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

COLOURS = ("blue", "cyan", "green", "magenta", "yellow", "red", "bright_blue", "bright_cyan", "bright_green", "bright_magenta")
PRIORITIES = range(1, 10)
SERVED_LEAST = 1
LIVE_COLUMNS = ("customer", "counter", "next\npriority", "waiting", "running", "done", "failed", "longest\nwait")
LAST_COLUMNS = ("customer", "documents", "done", "failed", "priorities", "wait p50", "wait p95")
FAILED_SHOWN = 10


class Picture:
    """The whole screen: who waits in which priority, where customers stand, who was served last."""

    def __init__(self, courses: Courses, look: Callable[[str], Look], console: Console) -> None:
        self._courses = courses
        self._look = look
        self._console = console
        customers = sorted(courses.by_customer, key=lambda one: (-courses.by_customer[one].total(), one))
        self._colours = {one: COLOURS[number % len(COLOURS)] for number, one in enumerate(customers)}

    def draw(self) -> Group:
        """As much of it as there is room for: the priorities always, then customers, then who was served."""
        from rich import box
        from rich.console import Group
        from rich.panel import Panel

        height = self._console.height - 1
        lanes = Panel(Group(*map(self._lane, PRIORITIES)), title="waiting, by priority", box=box.ROUNDED)
        room = max(1, height - len(PRIORITIES) - 2 - 3 - 2 - SERVED_LEAST)  # frame, heads of columns, both titles
        chosen = sorted(self._colours, key=self._busiest)[:room] if len(self._colours) > room else list(self._colours)
        served = self._served(max(SERVED_LEAST, room - len(chosen) + SERVED_LEAST))
        return Group(self._title(), lanes, self._customers(chosen), *served)

    def _title(self) -> Text:
        from rich.text import Text

        total = len(self._courses.documents)
        return Text(f"{total - self._courses.left:,} of {counted(total)} have ended", "bold")

    def _lane(self, priority: int) -> Text:
        from rich.text import Text

        room = self._console.width - 16
        line = Text(f"{priority} ", no_wrap=True, overflow="crop")
        left, waiting = room, self._courses.lanes[priority]
        for customer in self._colours:
            shown = min(left, waiting[customer])
            line.append("■" * shown, self._colours[customer])
            left -= shown
        more = sum(waiting.values()) - room
        return line.append(f" +{more:,}" if more > 0 else "", "dim")

    def _busiest(self, customer: str) -> tuple[int, str]:
        states = self._courses.by_customer[customer]
        return (-states["waiting"] - states["running"], customer)

    def _customers(self, chosen: Sequence[str]) -> Table:
        rows = list(map(self._customer, chosen))
        fitting = parts(LIVE_COLUMNS, rows, self._console.width)[0]
        made = drawn([LIVE_COLUMNS[at] for at in fitting], [[row[at] for at in fitting] for row in rows], one_line=True)
        made.show_edge = False
        return made

    def _customer(self, customer: str) -> Sequence[object]:
        from rich.text import Text

        states, look = self._courses.by_customer[customer], self._look(customer)
        figures = (look.counter, look.next_priority, states["waiting"], states["running"], states["done"], states["failed"])
        return (Text(customer, self._colours[customer]), *figures, wait(self._courses.longest_ms.get(customer, 0) / 1000))

    def _served(self, room: int) -> list[Text]:
        from rich.text import Text

        lines = [Text("served last", "bold")]
        for course in list(self._courses.served)[-room:]:
            line = Text(no_wrap=True, overflow="ellipsis")
            line.append(f"{course.customer} ", self._colours[course.customer])
            lines.append(line.append(served(course)))
        return lines


def served(course: Course) -> str:
    """When and with which priority a document was taken."""
    waited = wait(None if course.wait_ms is None else course.wait_ms / 1000)
    return f"priority {course.priority}  waited {waited}  {display_path(os.path.basename(course.name))}"


def ended(course: Course) -> str:
    """One document that has ended, on one line."""
    reason = f": {course.reason}" if course.reason else ""
    return f"{course.customer}  {served(course)}  {course.state}{reason}"


def wait(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f} s" if seconds < 100 else f"{seconds:,.0f} s"


def last_table(courses: Courses) -> None:
    """What everybody got in the end, and what failed."""
    table(LAST_COLUMNS, map(_last_row, courses.rows()))
    for course in courses.failed[:FAILED_SHOWN]:
        click.echo(f"failed: {display_path(course.name)}: {course.reason}", err=True)
    more = len(courses.failed) - FAILED_SHOWN
    if more > 0:
        click.echo(f"failed: {more:,} more", err=True)


def _last_row(row: Row) -> Sequence[object]:
    first, last = min(row.priorities), max(row.priorities)
    spread = str(first) if first == last else f"{first} to {last}"
    return (row.customer, row.documents, row.done, row.failed, spread, wait(row.wait_p50), wait(row.wait_p95))


def terminal() -> Console | None:
    """The terminal to draw on; None if nobody watches."""
    from rich.console import Console

    console = Console(file=sys.stdout)
    return console if console.is_terminal and not console.is_dumb_terminal else None
