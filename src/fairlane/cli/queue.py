"""Commands that show a queue's customers and change its rules: check, status, policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from fairlane.core.errors import Unknown
from fairlane.core.policy import TIME_MAX_MS, to_milliseconds
from fairlane.queue import KEEP, Look, Queue
from fairlane.queue.models import to_json

from .backlog import apply_table, backlog_option, reprioritized_sentence
from .group import main
from .options import complete_customer, customer_argument, json_option, limit_options, open_queue, queue_options
from .output import echo, format_bytes, format_seconds, print_json, print_table
from .param_types import DURATION, THRESHOLDS
from .watch import repeat_every_second, watch

if TYPE_CHECKING:
    from .remote import RemoteQueue

KINDS_SHOWN = 5
STATUS_COLUMNS = (
    "customer", "counter", "next\npriority", "waiting", "running", "done", "failed", "oldest\nwait", "resets\nin", "kept",
)  # fmt: skip
OPTIONAL_COLUMNS = ("resets\nin", "kept", "done", "failed")  # of a watched status, where names need their room


@main.command(epilog="Example:  fairlane check acme --json")
@customer_argument
@click.option("--cost", type=float, default=1, show_default=True, help="How many documents the check counts as.")
@click.option(
    "--now",
    "moments",
    type=float,
    multiple=True,
    metavar="SECONDS",
    help="Check at this Unix time instead of now; repeat it for several checks.",
)
@queue_options
@json_option
def check(customer: str, cost: float, moments: tuple[float, ...], url: str | None, as_json: bool) -> None:
    """Charge CUSTOMER for one document without submitting one.

    This moves the customer's counter and prints the priority that a document would have got. To see the counter without moving
    it, use `fairlane status` or `fairlane explain`. With --json, prints an object per line and check.
    """
    for now in moments:
        to_milliseconds("--now", now, 0, TIME_MAX_MS)  # validate all of them before the first check moves the counter
    with open_queue(url) as queue:
        checks = [queue.check(customer, cost=cost, now=now) for now in moments or (None,)]
    rows = [to_json(check) for check in checks]
    if as_json:
        for row in rows:
            print_json(row)
        return
    for row in rows:
        echo(f"{row['customer']}: priority {row['priority']}, counter {row['counter']}")


@main.command(epilog="Example:  fairlane status --watch")
@click.argument("customer", required=False, shell_complete=complete_customer)
@click.option("--watch", "watching", is_flag=True, help="Show it again every second until Ctrl-C.")
@queue_options
@json_option
def status(customer: str | None, watching: bool, url: str | None, as_json: bool) -> None:
    """Show customers with their counters; changes nothing.

    For each customer: its counter, the priority of its next document, how many documents wait, run, are done and failed, and
    what the documents take that are kept.
    Then, kinds of which documents wait although no worker takes them.
    With --json, prints an array with an object per customer; with --watch, an array per line.
    """
    with open_queue(url, create=False) as queue:

        def looks() -> list[Look]:
            return list(queue.customers()) if customer is None else [queue.look(customer)]

        def print_looks() -> None:
            print_json([to_json(look) for look in looks()])

        if as_json:
            return repeat_every_second(print_looks) if watching else print_looks()
        if watching:
            return watch(looks, _status_row, STATUS_COLUMNS, OPTIONAL_COLUMNS, lambda: unserved_sentences(queue))
        rows, sentences = list(map(_status_row, looks())), unserved_sentences(queue)
    if not rows:
        return echo("No customers yet: nothing was submitted or checked.")
    print_table(STATUS_COLUMNS, rows, optional=("kept",))
    for sentence in sentences:
        echo(sentence)
    return None


def unserved_sentences(queue: Queue | RemoteQueue) -> list[str]:
    """Return a sentence for each kind that waits in vain; none with a customer's key, which may not see workers."""
    try:
        kinds = queue.unserved_kinds()
    except Unknown:
        return []
    sentences = []
    for kind in kinds[:KINDS_SHOWN]:
        words = (
            "All workers that take kind {!r} are being drained"
            if kind.is_draining
            else "No worker takes documents of kind {!r}"
        )
        sentences.append(f"{words.format(kind.kind)}: the oldest has waited for {format_seconds(kind.oldest_wait)}.")
    if len(kinds) > KINDS_SHOWN:
        sentences.append(f"{len(kinds) - KINDS_SHOWN:,} other kinds wait without a worker too.")
    return sentences


def _status_row(look: Look) -> Sequence[object]:
    return (
        look.customer + (" (paused)" if look.paused else ""), look.counter, look.next_priority, look.waiting, look.running,
        look.done, look.failed, format_seconds(look.oldest_wait), format_seconds(look.resets_in), format_bytes(look.bytes),
    )  # fmt: skip


@main.command(epilog="Example:  fairlane policy --reset sliding --reset-interval 25m")
@click.option(
    "--reset",
    type=click.Choice(["idle", "sliding"]),
    help="idle: counters start afresh after a pause. sliding: a counter is what was sent within the last interval.",
)
@click.option("--reset-interval", type=DURATION, metavar="DURATION", help="Such as 90s or 25m; up to 30d.")
@click.option("--thresholds", type=THRESHOLDS, metavar="LIST", help="Up to 8 falling numbers, such as =-2,-4,-6,-8.")
@click.option(
    "--dispatch",
    type=click.Choice(["fair", "strict"]),
    help="fair: customers take turns within a priority. strict: first come, first served within a priority.",
)
@click.option(
    "--turns",
    type=click.Choice(["time", "documents"]),
    help="time: turns are paid with the time that documents take. documents: every document pays the same.",
)
@click.option(
    "--open-turn-every", type=int, metavar="N", help="Every Nth dispatch takes the longest waiting document; 0: never."
)
@limit_options
@backlog_option
@queue_options
@json_option
def policy(
    reset: Any,
    reset_interval: float | None,
    thresholds: tuple[float, ...] | None,
    dispatch: Any,
    turns: Any,
    open_turn_every: int | None,
    apply_to_backlog: bool,
    url: str | None,
    as_json: bool,
    **limits: Any,
) -> None:
    """Show or change the queue's rules, and the limits of its customers.

    A change applies to all customers, from the next check or claim on; with --apply-to-backlog, waiting documents also get the
    priorities that the thresholds of now give, except those that an operator set. A limit of `none` is no limit; `fairlane
    tune` gives one customer limits of its own.
    """
    options = (reset, reset_interval, thresholds, dispatch, turns, open_turn_every)
    is_change = any(option is not None for option in options) or any(most is not KEEP for most in limits.values())
    with open_queue(url, create=is_change) as queue:
        rules = queue.configure(
            reset=reset,
            reset_interval=reset_interval,
            thresholds=thresholds,
            dispatch=dispatch,
            turns=turns,
            open_turn_every=open_turn_every,
            **limits,
        )
        applied = apply_table(queue, None, as_json) if apply_to_backlog else None
    data: dict[str, object] = {
        "version": rules.version,
        "reset": rules.policy.reset,
        "reset_interval": rules.policy.reset_interval,
        "thresholds": list(rules.policy.thresholds),
        "dispatch": rules.dispatch,
        "turns": rules.turns,
        "open_turn_every": rules.open_turn_every,
        **rules.limits._asdict(),
        **({} if rules.frozen is None else {"frozen": f"this queue {rules.frozen}"}),
    }
    if as_json:
        print_json(data if applied is None else {**data, "reprioritized": applied})
        return
    data["reset_interval"] = f"{rules.policy.reset_interval:.3f}".rstrip("0").rstrip(".") + " s"
    data |= {name: "none" if most is None else f"{most:,}" for name, most in rules.limits._asdict().items()}
    for name, value in data.items():
        echo(f"{name.replace('_', ' '):16} {', '.join(map(str, value)) if isinstance(value, list) else value}")
    echo("")
    print_table(("counter", "priority"), _priority_rows(rules.policy.thresholds))
    if applied is not None:
        echo(reprioritized_sentence(applied))


def _priority_rows(thresholds: Sequence[float]) -> list[tuple[str, int]]:
    if not thresholds:
        return [("any", 1)]
    return [(f">= {thresholds[0]}", 1), *((f"< {threshold}", level) for level, threshold in enumerate(thresholds, start=2))]
