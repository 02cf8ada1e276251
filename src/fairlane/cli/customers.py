"""Commands for customers: pause, resume, tune, reset."""

from __future__ import annotations

from shlex import quote
from typing import Any, get_args

import click

from fairlane.core.policy import Reset
from fairlane.queue import KEEP, Keep

from .backlog import apply_table, backlog_option, reprioritized_sentence
from .group import main
from .options import customer_argument, json_option, limit_options, open_queue, queue_options
from .output import ProgressBar, format_count, print_result
from .param_types import DURATION, THRESHOLDS, OptionalType


@main.command(epilog="Example:  fairlane pause acme")
@customer_argument
@queue_options
@json_option
def pause(customer: str, url: str | None, as_json: bool) -> None:
    """Start none of CUSTOMER's documents until it is resumed.

    The customer may go on submitting, and documents that are running go on. A customer that never submitted anything can be
    paused too.
    """
    with open_queue(url, create=False) as queue:
        queue.pause(customer)
        waiting = queue.look(customer).waiting
    data = {"customer": customer, "paused": True, "waiting": waiting}
    hint = f"`fairlane resume {quote(customer)}` ends the pause"
    print_result(as_json, data, f"{customer} is paused, with {format_count(waiting)} waiting; {hint}.")


@main.command(epilog="Example:  fairlane resume acme")
@customer_argument
@queue_options
@json_option
def resume(customer: str, url: str | None, as_json: bool) -> None:
    """End the pause of CUSTOMER."""
    with open_queue(url, create=False) as queue:
        before = queue.explain_customer(customer).facts
        queue.resume(customer)
    data = {"customer": customer, "paused": False, "waiting": before["waiting"]}
    outcome = "is no longer paused" if before["paused"] else "was not paused"
    print_result(as_json, data, f"{customer} {outcome}; {format_count(before['waiting'])} waiting.")


@main.command(epilog="Example:  fairlane tune acme --weight 2 --cap 4    (and back: --weight none --cap none)")
@customer_argument
@click.option(
    "--weight",
    type=OptionalType(click.FLOAT),
    default=KEEP,
    metavar="NUMBER|none",
    help="Its share: 2 is twice as much. 0.01 to 100.",
)
@click.option(
    "--cap",
    type=OptionalType(click.INT),
    default=KEEP,
    metavar="NUMBER|none",
    help="How many of its documents may run at once.",
)
@click.option(
    "--reset", type=OptionalType(click.Choice(get_args(Reset))), default=KEEP, help="How its counter returns to zero."
)
@click.option(
    "--reset-interval", type=OptionalType(DURATION), default=KEEP, metavar="DURATION|none", help="Such as 90s or 25m."
)
@click.option("--thresholds", type=OptionalType(THRESHOLDS), default=KEEP, metavar="LIST|none", help="Such as =-2,-4,-6,-8.")
@limit_options
@click.option(
    "--cost-min",
    type=OptionalType(click.FLOAT),
    default=KEEP,
    metavar="NUMBER|none",
    help="The least cost that its keys may give a document over the API: 0.001 to 1.",
)
@backlog_option
@queue_options
@json_option
def tune(
    customer: str,
    weight: float | Keep | None,
    cap: int | Keep | None,
    reset: Reset | Keep | None,
    reset_interval: float | Keep | None,
    thresholds: tuple[float, ...] | Keep | None,
    cost_min: float | Keep | None,
    apply_to_backlog: bool,
    url: str | None,
    as_json: bool,
    **limits: Any,
) -> None:
    """Show or change the settings and limits of one CUSTOMER.

    Options that are left out stay as they are; `none` returns to the queue's own rule. A change applies from the next check or
    claim on; with --apply-to-backlog, waiting documents also get the priorities of the new thresholds. A customer can be tuned
    before it submits its first document.
    """
    with open_queue(url, create=False) as queue:
        terms = queue.tune(
            customer,
            weight=1 if weight is None else weight,
            cap=cap,
            reset=reset,
            reset_interval=reset_interval,
            thresholds=thresholds,
            cost_min=1 if cost_min is None else cost_min,
            **limits,
        )
        applied = apply_table(queue, customer, as_json) if apply_to_backlog else None
    settings: dict[str, Any] = {
        "weight": terms.weight, "cap": terms.cap, "paused": terms.paused, "reset": terms.reset,
        "reset_interval": terms.reset_interval, "thresholds": terms.thresholds, **terms.limits._asdict(),
        "cost_min": terms.cost_min,
    }  # fmt: skip
    data = {"customer": customer, **settings}
    lines = [f"{name.replace('_', ' '):16} {_format_setting(value)}" for name, value in data.items()]
    if applied is not None:
        data["reprioritized"] = applied
        lines.append(reprioritized_sentence(applied))
    print_result(as_json, data, *lines)


def _format_setting(value: Any) -> str:
    if value is None:
        return "the queue's own"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


@main.command(epilog="Example:  fairlane reset acme --with-backlog")
@customer_argument
@click.option("--with-backlog", is_flag=True, help="Check its waiting documents again too, as if they came now.")
@queue_options
@json_option
def reset(customer: str, with_backlog: bool, url: str | None, as_json: bool) -> None:
    """Treat CUSTOMER as never seen before.

    Its next document starts at counter 0. Waiting documents keep their priorities, unless --with-backlog is given: then they
    are checked again in the order of submission, in small steps; if that is interrupted, run it again. Weight, cap and pause
    stay.
    """
    with open_queue(url, create=False) as queue, ProgressBar("checking", as_json or not with_backlog) as bar:
        before = queue.explain_customer(customer).facts
        changed = queue.reset(customer, with_backlog=with_backlog, on_progress=bar.update)
        counter = queue.look(customer).counter if with_backlog else 0
    data = {"customer": customer, "counter_before": before["counter"], "counter": counter}
    lines = [f"{customer} counts as never seen; its counter was {before['counter']:,}."]
    if with_backlog:
        data["reprioritized"] = changed
        lines.append(f"{reprioritized_sentence(changed)} Its counter is {counter:,} now.")
    print_result(as_json, data, *lines)
