"""A table that stays on the screen and changes; Ctrl-C ends it quietly."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from fairlane.queue import Look

from .common import PIPE_WIDTH, drawn, parts

EVERY_SECONDS = 1.0
AROUND = 7  # lines of the screen that are not customers: the frame, the heads of columns, what is below, the cursor


def watch(looks: Callable[[], list[Look]], show: Callable[[Look], Sequence[object]], columns: Sequence[str]) -> None:
    """Draw the customers again every second; where nobody watches, print the table again."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console.width = PIPE_WIDTH

    def picture() -> Group:
        known = looks()
        room = max(1, console.height - AROUND) if console.is_terminal else len(known)
        chosen = known if len(known) <= room else sorted(known, key=_busiest)[:room]
        rows = [show(look) for look in chosen]
        fitting = parts(columns, rows, console.width)[0]
        table = drawn(
            [columns[at] for at in fitting], [[row[at] for at in fitting] for row in rows], one_line=console.is_terminal
        )
        return Group(table, Text(_below(len(known), len(chosen)), "dim"))

    if console.is_terminal:
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            every_second(lambda: live.update(picture(), refresh=True))
    else:
        every_second(lambda: console.print(picture()))


def every_second(draw: Callable[[], object]) -> None:
    """Draw again and again until Ctrl-C."""
    try:
        while True:
            draw()
            time.sleep(EVERY_SECONDS)
    except KeyboardInterrupt:
        return


def _busiest(look: Look) -> tuple[int, str]:
    return (-look.waiting - look.running, look.customer)


def _below(known: int, shown: int) -> str:
    if known == 0:
        return "No customer yet: nothing was submitted or checked. Ctrl-C ends."
    more = f"The {shown} busiest of {known:,} customers. " if shown < known else ""
    return more + "Ctrl-C ends."
