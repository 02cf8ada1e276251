"""What `fairlane process` shows: a live screen on a terminal, a line per document elsewhere, a table at the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fairlane.blobs.safe_open import display_path
from fairlane.folders.feed_follower import Show
from fairlane.folders.tracker import CustomerSummary, TrackedDocument, Tracker
from fairlane.queue import Look, Queue

from .output import build_table, echo, format_count, live_console, print_table, split_columns, styled

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

COLOURS = ("blue", "cyan", "green", "magenta", "yellow", "red", "bright_blue", "bright_cyan", "bright_green", "bright_magenta")
PRIORITIES = range(1, 10)
CLAIMED_LINES_MIN = 1
LIVE_COLUMNS = ("customer", "counter", "next\npriority", "waiting", "running", "done", "failed", "longest\nwait")
SUMMARY_COLUMNS = ("customer", "documents", "done", "failed", "priorities", "wait p50", "wait p95")
FAILED_SHOWN = 10


@contextmanager
def open_view(tracker: Tracker, queue: Queue) -> Iterator[Show]:
    """Open the live screen on a terminal; elsewhere print a line for each document that ends."""
    console = live_console()
    if console is None:
        yield _print_lines
        return
    from rich.live import Live

    screen = ProcessScreen(tracker, queue.look, console)
    with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as live:
        yield lambda _: live.update(screen.draw(), refresh=True)


@contextmanager
def no_view(_: Queue) -> Iterator[Show]:
    """Show nothing while documents are processed: programs read the summary."""
    yield lambda _: None


class ProcessScreen:
    """The live screen: waiting documents by priority, customers, and the documents that were started last."""

    def __init__(self, tracker: Tracker, look: Callable[[str], Look], console: Console) -> None:
        self._tracker = tracker
        self._look = look
        self._console = console
        customers = sorted(tracker.by_customer, key=lambda customer: (-tracker.by_customer[customer].total(), customer))
        self._colours = {customer: COLOURS[number % len(COLOURS)] for number, customer in enumerate(customers)}

    def draw(self) -> Group:
        """Draw as much as fits: always the priorities, then customers, then the documents started last."""
        from rich import box
        from rich.console import Group
        from rich.panel import Panel

        height = self._console.height - 1
        lanes = Panel(Group(*map(self._lane, PRIORITIES)), title="waiting, by priority", box=box.ROUNDED)
        room = max(1, height - len(PRIORITIES) - 2 - 3 - 2 - CLAIMED_LINES_MIN)  # frame, column heads, both titles
        shown = sorted(self._colours, key=self._busiest_first)[:room] if len(self._colours) > room else list(self._colours)
        claimed = self._last_claimed(max(CLAIMED_LINES_MIN, room - len(shown) + CLAIMED_LINES_MIN))
        return Group(self._title(), lanes, self._customers(shown), *claimed)

    def _title(self) -> Text:
        total = len(self._tracker.documents)
        return styled((f"{total - self._tracker.remaining:,} of {format_count(total)} finished", "bold"))

    def _lane(self, priority: int) -> Text:
        width = self._console.width - 16
        parts = [(f"{priority} ", "")]
        room, waiting = width, self._tracker.lanes[priority]
        for customer in self._colours:
            shown = min(room, waiting[customer])
            parts.append(("■" * shown, self._colours[customer]))
            room -= shown
        more = sum(waiting.values()) - width
        return styled(*parts, (f" +{more:,}" if more > 0 else "", "dim"), overflow="crop")

    def _busiest_first(self, customer: str) -> tuple[int, str]:
        states = self._tracker.by_customer[customer]
        return (-states["waiting"] - states["running"], customer)

    def _customers(self, customers: Sequence[str]) -> Table:
        rows = list(map(self._customer_row, customers))
        fitting = split_columns(LIVE_COLUMNS, rows, self._console.width)[0]
        table = build_table(
            [LIVE_COLUMNS[index] for index in fitting], [[row[i] for i in fitting] for row in rows], one_line=True
        )
        table.show_edge = False
        return table

    def _customer_row(self, customer: str) -> Sequence[object]:
        states, look = self._tracker.by_customer[customer], self._look(customer)
        figures = (look.counter, look.next_priority, states["waiting"], states["running"], states["done"], states["failed"])
        longest = format_wait(self._tracker.longest_ms.get(customer, 0) / 1000)
        return (styled((customer, self._colours[customer])), *figures, longest)

    def _last_claimed(self, room: int) -> list[Text]:
        lines = [styled(("started last", "bold"))]
        for document in list(self._tracker.last_claimed)[-room:]:
            customer = (f"{document.customer} ", self._colours[document.customer])
            lines.append(styled(customer, (describe_start(document), ""), overflow="ellipsis"))
        return lines


def describe_start(document: TrackedDocument) -> str:
    waited = format_wait(None if document.wait_ms is None else document.wait_ms / 1000)
    return f"priority {document.priority}  waited {waited}  {display_path(os.path.basename(document.name))}"


def format_wait(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f} s" if seconds < 100 else f"{seconds:,.0f} s"


def _print_lines(ended: list[TrackedDocument]) -> None:
    for document in ended:
        reason = f": {document.reason}" if document.reason else ""
        echo(f"{document.customer}  {describe_start(document)}  {document.state}{reason}")


def print_summary(tracker: Tracker) -> None:
    """Print the totals of every customer, and the first failures."""
    print_table(SUMMARY_COLUMNS, map(_summary_row, tracker.summaries()))
    for document in tracker.failed[:FAILED_SHOWN]:
        echo(f"failed: {display_path(document.name)}: {document.reason}", err=True)
    more = len(tracker.failed) - FAILED_SHOWN
    if more > 0:
        echo(f"failed: {more:,} more", err=True)


def _summary_row(summary: CustomerSummary) -> Sequence[object]:
    first, last = min(summary.priorities), max(summary.priorities)
    priorities = str(first) if first == last else f"{first} to {last}"
    return (
        summary.customer, summary.documents, summary.done, summary.failed, priorities, format_wait(summary.wait_p50),
        format_wait(summary.wait_p95),
    )  # fmt: skip
