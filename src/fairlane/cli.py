"""The command line: one function a command, no logic. `rich` is loaded only to draw a table."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from . import __version__
from .core.errors import BadValue, FairlaneError, Mistake
from .core.policy import TIME_MAX_MS, milliseconds
from .queue import Queue
from .settings import load_settings

EXIT_ANSWER = 1  # it was done, but the answer could not be written
EXIT_MISTAKE = 2  # what was asked for cannot be: change the call
EXIT_STORE = 3  # the store could not do it: try again, or mend it


class _Commands(click.Group):
    """Turns our errors into one line and an exit code, never a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FairlaneError as error:
            click.echo(f"fairlane: {error}", err=True)
            ctx.exit(EXIT_MISTAKE if isinstance(error, Mistake) else EXIT_STORE)
        except BrokenPipeError:
            raise  # click ends quietly
        except OSError as error:
            click.echo(f"fairlane: the answer cannot be written: {error}", err=True)
            ctx.exit(EXIT_ANSWER)


url_option = click.option(
    "--url", metavar="URL", help="The queue; else FAIRLANE_URL, else url in fairlane.toml, else sqlite:///fairlane.db."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fairlane")
def main() -> None:
    """Fairlane: a fair priority queue for document processing.

    Every document steps its customer's counter down, silence sets it back to zero, and the counter picks the document's
    priority: 1 is served first, 9 last.
    """


@main.command()
@click.argument("customer")
@click.option("--cost", type=float, default=1, show_default=True, help="What the check costs, in documents.")
@click.option(
    "--now",
    "moments",
    type=float,
    multiple=True,
    metavar="SECONDS",
    help="Check at this time instead of now; give it several times for several checks.",
)
@url_option
@json_option
def check(customer: str, cost: float, moments: tuple[float, ...], url: str | None, as_json: bool) -> None:
    """Check CUSTOMER without a document.

    A check moves the counter. To look without moving it, use `fairlane status`. With --json an object a line, a line a check.
    """
    for now in moments:
        milliseconds("--now", now, 0, TIME_MAX_MS)  # all of them before the first check is made
    with _queue(url) as queue:
        checks = [queue.check(customer, cost=cost, now=now) for now in moments or (None,)]
    rows = [
        {"customer": one.customer, "counter": one.counter, "priority": one.priority, "checked_at": one.checked_ms / 1000}
        for one in checks
    ]
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
        return
    for row in rows:
        click.echo(f"{row['customer']}: priority {row['priority']}, counter {row['counter']}")


@main.command()
@click.argument("customer", required=False)
@url_option
@json_option
def status(customer: str | None, url: str | None, as_json: bool) -> None:
    """Show where customers stand; moves nothing.

    Counter, next priority, what waits and runs. With --json an array, an object a customer.
    """
    with _queue(url, create=False) as queue:
        looks = list(queue.customers()) if customer is None else [queue.look(customer)]
    if as_json:
        click.echo(json.dumps([one._asdict() for one in looks]))
        return
    if not looks:
        click.echo("No customer yet: nothing was submitted or checked.")
        return
    columns = ("customer", "counter", "next\npriority", "waiting", "running", "done", "failed", "oldest\nwait", "resets\nin")
    _table(
        columns,
        [
            (one.customer + (" (paused)" if one.paused else ""), one.counter, one.next_priority, one.waiting, one.running,
             one.done, one.failed, _seconds(one.oldest_wait), _seconds(one.resets_in))
            for one in looks
        ],
    )  # fmt: skip


@main.command()
@click.option("--reset", type=click.Choice(["idle", "window", "gradual"]), help="When counters go back to zero.")
@click.option("--reset-interval", type=float, metavar="SECONDS", help="0.001 to 2592000 (30 days).")
@click.option("--thresholds", metavar="LIST", help="Up to 8 falling numbers, as in =-2,-4,-6,-8.")
@click.option("--dispatch", type=click.Choice(["fair", "strict"]), help="Turns inside a priority, or bare priority and number.")
@click.option("--open-turn-every", type=int, metavar="N", help="One dispatch in N goes to whoever waits longest; 0: never.")
@url_option
@json_option
def policy(
    reset: Any,
    reset_interval: float | None,
    thresholds: str | None,
    dispatch: Any,
    open_turn_every: int | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Show or change the rules for everybody.

    A change holds from the next check or claim on, for everybody who uses the queue.
    """
    wanted = (reset, reset_interval, thresholds, dispatch, open_turn_every)
    with _queue(url, create=any(one is not None for one in wanted)) as queue:
        rules = queue.configure(
            reset=reset,
            reset_interval=reset_interval,
            thresholds=_numbers(thresholds),
            dispatch=dispatch,
            open_turn_every=open_turn_every,
        )
    told = {
        "version": rules.version,
        "reset": rules.policy.reset,
        "reset_interval": rules.policy.reset_interval,
        "thresholds": list(rules.policy.thresholds),
        "dispatch": rules.dispatch,
        "open_turn_every": rules.open_turn_every,
    }
    if as_json:
        click.echo(json.dumps(told))
        return
    for name, value in told.items():
        click.echo(f"{name.replace('_', ' '):16} {', '.join(map(str, value)) if isinstance(value, list) else value}")
    click.echo()
    _table(("counter", "priority"), _priority_lines(rules.policy.thresholds))


def _queue(url: str | None, create: bool = True) -> Queue:
    return Queue(load_settings(url, os.environ, Path.cwd()).url, create=create)


def _numbers(told: str | None) -> tuple[float, ...] | None:
    if told is None:
        return None
    try:
        return tuple(float(one) if "." in one else int(one) for one in told.split(","))
    except ValueError:
        raise BadValue("--thresholds", told, "numbers with commas between them, as in --thresholds=-2,-4,-6") from None


def _priority_lines(thresholds: Sequence[float]) -> list[tuple[str, int]]:
    if not thresholds:
        return [("any", 1)]
    return [(f">= {thresholds[0]}", 1), *((f"< {one}", level) for level, one in enumerate(thresholds, start=2))]


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 100:
        return f"{seconds:.1f} s"
    days, rest = divmod(round(seconds), 86400)
    clock = f"{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days} d {clock}" if days else clock


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on the terminal; the first column is text, the others are numbers."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=bool(number), overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    console = Console(file=sys.stdout)
    if not console.is_terminal:
        console.width = 160  # a pipe has no edge to wrap at
    console.print(table)


if __name__ == "__main__":
    main()
