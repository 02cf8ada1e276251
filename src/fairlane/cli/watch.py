"""A live table of customers, drawn again every second until Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from fairlane.queue import Look

from .output import PIPE_WIDTH, build_table, fit_columns, styled

EVERY_SECONDS = 1.0
OTHER_LINES = 7  # of the screen: the frame, the column heads, the footer, the cursor


def watch(
    looks: Callable[[], list[Look]],
    to_row: Callable[[Look], Sequence[object]],
    columns: Sequence[str],
    optional: Sequence[str] = (),
    warnings: Callable[[], list[str]] = list,
) -> None:
    """Draw the customers and warnings every second; without a terminal, print them every second.

    Columns that are optional are left out where the customers' names need their room."""
    from rich.console import Console, Group
    from rich.live import Live

    console = Console()
    if not console.is_terminal:
        console.width = PIPE_WIDTH

    def frame() -> Group:
        all_looks, sentences = looks(), warnings()
        room = max(1, console.height - OTHER_LINES - len(sentences)) if console.is_terminal else len(all_looks)
        shown = all_looks if len(all_looks) <= room else sorted(all_looks, key=_busiest_first)[:room]
        rows = [to_row(look) for look in shown]
        fitting = fit_columns(columns, rows, console.width, optional)
        table = build_table(
            [columns[index] for index in fitting], [[row[i] for i in fitting] for row in rows], one_line=console.is_terminal
        )
        lines = [styled((sentence, "bold")) for sentence in sentences]
        return Group(table, *lines, styled((_footer(len(all_looks), len(shown)), "dim")))

    if console.is_terminal:
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            repeat_every_second(lambda: live.update(frame(), refresh=True))
    else:
        repeat_every_second(lambda: console.print(frame()))


def repeat_every_second(draw: Callable[[], object]) -> None:
    """Call `draw` every second until Ctrl-C."""
    try:
        while True:
            draw()
            time.sleep(EVERY_SECONDS)
    except KeyboardInterrupt:
        return


def _busiest_first(look: Look) -> tuple[int, str]:
    return (-look.waiting - look.running, look.customer)


def _footer(total: int, shown: int) -> str:
    if total == 0:
        return "No customers yet: nothing was submitted or checked. Press Ctrl-C to stop."
    more = f"The {shown} busiest of {total:,} customers. " if shown < total else ""
    return more + "Press Ctrl-C to stop."
