"""Commands that look at a queue and change its rules."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from fairlane.core.policy import TIME_MAX_MS, to_milliseconds
from fairlane.queue import Look

from .common import customer_argument, json_option, open_queue, place_options, seconds, some_customers, table
from .group import main
from .parameters import DURATION, THRESHOLDS
from .watch import every_second, watch

STATUS_COLUMNS = ("customer", "counter", "next\npriority", "waiting", "running", "done", "failed", "oldest\nwait", "resets\nin")


@main.command(epilog="Example:  fairlane check acme --json")
@customer_argument
@click.option("--cost", type=float, default=1, show_default=True, help="What the check costs, in documents.")
@click.option(
    "--now",
    "moments",
    type=float,
    multiple=True,
    metavar="SECONDS",
    help="Check at this time instead of now; give it several times for several checks.",
)
@place_options
@json_option
def check(customer: str, cost: float, moments: tuple[float, ...], url: str | None, as_json: bool) -> None:
    """Check CUSTOMER without a document.

    A check moves the counter. To look without moving it, use `fairlane status`. With --json an object a line, a line a check.
    """
    for now in moments:
        to_milliseconds("--now", now, 0, TIME_MAX_MS)  # all of them before the first check is made
    with open_queue(url) as queue:
        checks = [queue.check(customer, cost=cost, now=now) for now in moments or (None,)]
    rows = [
        {"customer": one.customer, "counter": one.counter, "priority": one.priority, "checked_at": one.checked_at}
        for one in checks
    ]
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
        return
    for row in rows:
        click.echo(f"{row['customer']}: priority {row['priority']}, counter {row['counter']}")


@main.command(epilog="Example:  fairlane status --watch")
@click.argument("customer", required=False, shell_complete=some_customers)
@click.option("--watch", "watching", is_flag=True, help="Stay, and show it again every second; Ctrl-C ends.")
@place_options
@json_option
def status(customer: str | None, watching: bool, url: str | None, as_json: bool) -> None:
    """Show where customers stand; moves nothing.

    Counter, next priority, what waits and runs. With --json an array, an object a customer; with --watch an array a line.
    """
    with open_queue(url, create=False) as queue:

        def looks() -> list[Look]:
            return list(queue.customers()) if customer is None else [queue.look(customer)]

        def tell_json() -> None:
            click.echo(json.dumps([one._asdict() for one in looks()]))

        if as_json:
            return every_second(tell_json) if watching else tell_json()
        if watching:
            return watch(looks, _status_row, STATUS_COLUMNS)
        known = looks()
    if not known:
        return click.echo("No customer yet: nothing was submitted or checked.")
    return table(STATUS_COLUMNS, map(_status_row, known))


def _status_row(one: Look) -> Sequence[object]:
    return (
        one.customer + (" (paused)" if one.paused else ""), one.counter, one.next_priority, one.waiting, one.running,
        one.done, one.failed, seconds(one.oldest_wait), seconds(one.resets_in),
    )  # fmt: skip


@main.command(epilog="Example:  fairlane policy --reset gradual --reset-interval 25m")
@click.option("--reset", type=click.Choice(["idle", "window", "gradual"]), help="When counters go back to zero.")
@click.option("--reset-interval", type=DURATION, metavar="DURATION", help="As in 90s or 25m; up to 30d.")
@click.option("--thresholds", type=THRESHOLDS, metavar="LIST", help="Up to 8 falling numbers, as in =-2,-4,-6,-8.")
@click.option("--dispatch", type=click.Choice(["fair", "strict"]), help="Turns inside a priority, or bare priority and number.")
@click.option("--open-turn-every", type=int, metavar="N", help="One dispatch in N goes to whoever waits longest; 0: never.")
@place_options
@json_option
def policy(
    reset: Any,
    reset_interval: float | None,
    thresholds: tuple[float, ...] | None,
    dispatch: Any,
    open_turn_every: int | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Show or change the rules for everybody.

    A change holds from the next check or claim on, for everybody who uses the queue.
    """
    wanted = (reset, reset_interval, thresholds, dispatch, open_turn_every)
    with open_queue(url, create=any(one is not None for one in wanted)) as queue:
        rules = queue.configure(
            reset=reset,
            reset_interval=reset_interval,
            thresholds=thresholds,
            dispatch=dispatch,
            open_turn_every=open_turn_every,
        )
    told: dict[str, object] = {
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
    told["reset_interval"] = f"{rules.policy.reset_interval:.3f}".rstrip("0").rstrip(".") + " s"
    for name, value in told.items():
        click.echo(f"{name.replace('_', ' '):16} {', '.join(map(str, value)) if isinstance(value, list) else value}")
    click.echo()
    table(("counter", "priority"), _priority_lines(rules.policy.thresholds))


def _priority_lines(thresholds: Sequence[float]) -> list[tuple[str, int]]:
    if not thresholds:
        return [("any", 1)]
    return [(f">= {thresholds[0]}", 1), *((f"< {one}", level) for level, one in enumerate(thresholds, start=2))]
