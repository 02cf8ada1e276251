"""Commands for customers: pause, resume, tune, reset, forget."""

from __future__ import annotations

from shlex import quote
from typing import Any, get_args

import click

from fairlane.core.policy import Reset
from fairlane.queue import KEEP, Keep, Queue

from .common import (
    blobs_option,
    counted,
    customer_argument,
    json_option,
    open_queue,
    open_store,
    place_options,
    tell,
    url_option,
)
from .group import EXIT_OTHERWISE, main
from .parameters import DURATION, THRESHOLDS, OrNone


@main.command(epilog="Example:  fairlane pause acme")
@customer_argument
@place_options
@json_option
def pause(customer: str, url: str | None, as_json: bool) -> None:
    """Serve nothing of CUSTOMER until it is resumed.

    It may go on submitting, and what runs already goes on. A customer that never sent anything can be paused too.
    """
    with open_queue(url, create=False) as queue:
        queue.pause(customer)
        waiting = queue.look(customer).waiting
    told = {"customer": customer, "paused": True, "waiting": waiting}
    tell(
        as_json,
        told,
        f"{customer} is paused, with {counted(waiting)} waiting; `fairlane resume {quote(customer)}` serves it again.",
    )


@main.command(epilog="Example:  fairlane resume acme")
@customer_argument
@place_options
@json_option
def resume(customer: str, url: str | None, as_json: bool) -> None:
    """Serve a paused CUSTOMER again."""
    with open_queue(url, create=False) as queue:
        before = queue.explain_customer(customer).facts
        queue.resume(customer)
    told = {"customer": customer, "paused": False, "waiting": before["waiting"]}
    again = "is served again" if before["paused"] else "was not paused"
    tell(as_json, told, f"{customer} {again}; {counted(before['waiting'])} waiting.")


@main.command(epilog="Example:  fairlane tune acme --weight 2 --cap 4    (and back: --weight none --cap none)")
@customer_argument
@click.option("--weight", type=OrNone(click.FLOAT), default=KEEP, metavar="NUMBER|none", help="2: twice as much. 0.01 to 100.")
@click.option("--cap", type=OrNone(click.INT), default=KEEP, metavar="NUMBER|none", help="How many may run at once.")
@click.option("--reset", type=OrNone(click.Choice(get_args(Reset))), default=KEEP, help="When its counter goes back to zero.")
@click.option("--reset-interval", type=OrNone(DURATION), default=KEEP, metavar="DURATION|none", help="As in 90s or 25m.")
@click.option("--thresholds", type=OrNone(THRESHOLDS), default=KEEP, metavar="LIST|none", help="As in =-2,-4,-6,-8.")
@place_options
@json_option
def tune(
    customer: str,
    weight: float | Keep | None,
    cap: int | Keep | None,
    reset: Reset | Keep | None,
    reset_interval: float | Keep | None,
    thresholds: tuple[float, ...] | Keep | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Show or change what CUSTOMER has of its own.

    What is not named stays; `none` is as everybody. A change holds from the next check or claim on. A customer may be tuned
    before it sends its first document.
    """
    with open_queue(url, create=False) as queue:
        terms = queue.tune(
            customer,
            weight=1 if weight is None else weight,
            cap=cap,
            reset=reset,
            reset_interval=reset_interval,
            thresholds=thresholds,
        )
    own: dict[str, Any] = {
        "weight": terms.weight, "cap": terms.cap, "paused": terms.paused, "reset": terms.reset,
        "reset_interval": terms.reset_interval, "thresholds": terms.thresholds,
    }  # fmt: skip
    lines = [f"{name.replace('_', ' '):16} {_own(value)}" for name, value in {"customer": customer, **own}.items()]
    tell(as_json, {"customer": customer, **own}, "\n".join(lines))


def _own(value: Any) -> str:
    if value is None:
        return "as everybody"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


@main.command(epilog="Example:  fairlane reset acme")
@customer_argument
@place_options
@json_option
def reset(customer: str, url: str | None, as_json: bool) -> None:
    """Let CUSTOMER stand as never seen.

    Its next document starts at counter 0. Documents that wait already keep their priorities; weight, cap and pause stay.
    """
    with open_queue(url, create=False) as queue:
        before = queue.explain_customer(customer).facts
        queue.reset(customer)
    told = {"customer": customer, "counter_before": before["counter"], "counter": 0}
    tell(as_json, told, f"{customer} stands as never seen; its counter was {before['counter']:,}.")


@main.command(epilog="Example:  fairlane forget acme")
@customer_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@blobs_option
@url_option
@json_option
def forget(customer: str, yes: bool, blobs: str | None, url: str | None, as_json: bool) -> None:
    """Erase everything of CUSTOMER, after asking.

    Its documents in whatever state, with their files, payloads and results, its counter, its terms and its lines of the feed.
    There is no way back.
    """
    with open_store(url, create=False, blobs=blobs) as queue:
        what_goes = _what_goes(queue, customer)
        if not yes and not click.confirm(f"{what_goes}\nErase everything of {customer}?", err=True):
            click.echo("Nothing was erased.", err=True)
            raise click.exceptions.Exit(EXIT_OTHERWISE)
        gone = queue.forget(customer)
    tell(as_json, {"customer": customer, "forgotten": gone}, f"{customer} is forgotten, with {counted(gone)}.")


def _what_goes(queue: Queue, customer: str) -> str:
    facts = queue.explain_customer(customer).facts
    states = ("waiting", "running", "done", "failed", "cancelled")
    held = ", ".join(f"{facts[state]:,} {state}" for state in states if facts[state]) or "none"
    return f"{customer}: documents: {held}; counter {facts['counter']:,}; its terms and its lines of the feed."
