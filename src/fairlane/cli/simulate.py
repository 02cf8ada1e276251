"""Commands that replay a workload or a queue's history: simulate, advise, verify."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairlane.core.errors import BadValue, Mistake

from .group import EXIT_FINDINGS, main
from .options import json_option, open_store, url_option
from .output import echo, format_count, format_seconds, print_json, print_table
from .param_types import THRESHOLDS

if TYPE_CHECKING:
    from fairlane.sim.advise import Advice, Effect
    from fairlane.sim.contenders import Contender
    from fairlane.sim.measures import Measures
    from fairlane.sim.past import Past
    from fairlane.sim.verify import Verification
    from fairlane.sim.workload import Workload

GENERATOR_NAMES = "flood, metronome, two-whales, newcomers, day"
POLICY_NAMES = "fifo, texts-strict, texts, texts-documents, sliding, sliding-documents, round-robin, fair-queueing"
DIFFERENCES_SHOWN = 20
INTERVALS_HELD = 0.88  # of the 95 % intervals of advice: the change in the other half of a recorded workload was inside

workload_argument = click.argument("workload", required=False)
workers_option = click.option(
    "--workers", type=click.IntRange(1, 100_000), default=4, show_default=True, help="How many documents are processed at once."
)
load_option = click.option(
    "--load", type=click.FloatRange(0, 100, min_open=True), metavar="SHARE",
    help="Scale the service times to this share of the workers' capacity, such as 0.9; long gaps without documents are cut.",
)  # fmt: skip
seed_option = click.option(
    "--seed", type=int, default=1, show_default=True, help="For generators: another seed makes other documents."
)
interval_option = click.option("--reset-interval", type=float, metavar="SECONDS", help="Replaces that of every policy.")
thresholds_option = click.option(
    "--thresholds", type=THRESHOLDS, metavar="LIST", help="Replaces the table of every policy, such as =-2,-4,-6,-8."
)
weights_option = click.option(
    "--weights", multiple=True, metavar="CUSTOMER=WEIGHT", help="A customer's weight; repeat it, or separate several by commas."
)
live_option = click.option("--url", metavar="URL", help="Replay the history of this queue instead of a WORKLOAD.")


@main.command()
@workload_argument
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME|FILE",
    help=f"{POLICY_NAMES}, current (with --url), or a TOML file. Repeat it to compare several. Default: texts.",
)
@workers_option
@load_option
@seed_option
@interval_option
@thresholds_option
@weights_option
@click.option(
    "--html", "html", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write a report with charts."
)
@click.option("--customer", "customers", multiple=True, metavar="CUSTOMER", help="Draw this customer's counter in the report.")
@live_option
@json_option
def simulate(
    workload: str | None,
    policies: tuple[str, ...],
    workers: int,
    load: float | None,
    seed: int,
    reset_interval: float | None,
    thresholds: tuple[float, ...] | None,
    weights: tuple[str, ...],
    html: Path | None,
    customers: tuple[str, ...],
    url: str | None,
    as_json: bool,
) -> None:
    """Replay WORKLOAD under one or several policies, side by side.

    WORKLOAD is a CSV file with the columns submitted_at,customer,service_s (plain or gzipped), or a generator: flood,
    metronome, two-whales, newcomers, day. With --url, the history of that queue is replayed instead, and the column measured
    shows how long its documents really waited. The replay uses the same policy and dispatch code as a real queue.

    \b
    Example:
      fairlane simulate flood --policy fifo --policy texts
      fairlane simulate yesterday.csv --policy texts --policy sliding --html report.html
      fairlane simulate --url sqlite:///fairlane.db --policy current --policy mine.toml
    """
    from fairlane.sim.measures import measure
    from fairlane.sim.replay import replay
    from fairlane.sim.report import MeasuredReplay, report_page, sample_customers

    if html is not None and not html.parent.is_dir():
        raise BadValue("--html", str(html), "a file in an existing folder")
    replayed, loaded, past = _load(workload, url, seed, workers, load, policies or ("texts",))
    contenders = [contender.with_changes(reset_interval, thresholds, _weights(weights, replayed)) for contender in loaded]
    for customer in customers:
        _check_customer(replayed, "--customer", customer)
    results = []
    with _progress("documents", len(replayed) * len(contenders), as_json) as advance:
        for contender in contenders:
            result = replay(replayed, contender, workers, advance)
            results.append(MeasuredReplay(result, measure(result)))
            if html is None:
                results[-1] = results[-1]._replace(replay=results[0].replay)  # free the memory: only the report needs it
    if html is not None:
        html.write_text(report_page(results, customers or sample_customers(replayed)), encoding="utf-8")
    all_measures = [result.measures for result in results]
    measured = [] if past is None else [past.measure()]
    if as_json:
        print_json([measures.as_json() for measures in (*measured, *all_measures)])
        return
    _print_measures(replayed, [*measured, *all_measures])
    if past is not None:
        _print_doubts(past, measured[0], all_measures)
    if html is not None:
        echo(f"The report is in {html}.")


@main.command()
@workload_argument
@click.option("--objective", default="light-p99", show_default=True, metavar="CLASS-FIGURE",
              help="The wait to shorten: all, light, quiet or heavy; mean, p50, p95, p99 or max.")  # fmt: skip
@click.option("--budget", type=int, default=200, show_default=True, help="How many settings to try; each is a replay.")
@click.option(
    "--policy", "policy", metavar="NAME|FILE", help="The policy to start from. Default: texts; with --url the queue's own."
)
@workers_option
@load_option
@seed_option
@live_option
@json_option
def advise(
    workload: str | None,
    objective: str,
    budget: int,
    policy: str | None,
    workers: int,
    load: float | None,
    seed: int,
    url: str | None,
    as_json: bool,
) -> None:
    """Search for settings that would have served WORKLOAD better.

    Varies the reset rule, the reset interval, the thresholds, what turns are paid with and the share of open turns, and shows
    for the best settings what they would change, and for whom. The search uses one half of the workload; the other half decides
    whether the difference is more than noise.

    \b
    Example:
      fairlane advise yesterday.csv --workers 6
      fairlane advise --url sqlite:///fairlane.db --objective heavy-mean --budget 50
    """
    from fairlane.sim.advise import Objective, advise

    target = Objective.parse(objective)
    replayed, (start,), _ = _load(workload, url, seed, workers, load, (policy or ("current" if url else "texts"),))
    with _progress("replays", budget, as_json) as advance:
        advice = advise(replayed, start, workers, target, budget, seed, advance)
    if as_json:
        print_json(_advice_json(advice))
        return
    _print_advice(advice)


@main.command()
@url_option
@json_option
def verify(url: str | None, as_json: bool) -> None:
    """Recompute every recorded check of a queue and compare.

    Compares every counter and priority in the store with what the rules give. Changes nothing; the queue may be in use. Exits
    with 4 if something differs.

    \b
    Example:
      fairlane verify --url sqlite:///fairlane.db
    """
    from fairlane.sim.verify import verify

    with open_store(url, create=False) as queue, _progress("changes", None, as_json) as advance:
        result = verify(queue, advance)
    if as_json:
        data = result._asdict() | {"differences": [difference._asdict() for difference in result.differences]}
        print_json(data, default=str)
    else:
        echo(f"{format_count(result.checks, 'check')} recomputed, {format_count(result.customers, 'customer')} compared.")
        if result.skipped:
            why = "the changes before were purged or erased, or the reset that held then is gone"
            echo(f"{format_count(result.skipped, 'check')} skipped: {why}.")
        for difference in result.differences[:DIFFERENCES_SHOWN]:
            echo(str(difference))
        more = len(result.differences) - DIFFERENCES_SHOWN
        if more > 0:
            echo(f"... and {more:,} more; --json lists all of them.")
        echo(_conclusion(result))
    if result.differences:
        sys.exit(EXIT_FINDINGS)


def _conclusion(result: Verification) -> str:
    if result.differences:
        return f"{format_count(len(result.differences), 'difference')}."
    return "Everything agrees with the rules." if result.checks or result.customers else "There was nothing to compare."


def _load(
    workload_name: str | None, url: str | None, seed: int, workers: int, load: float | None, policies: Sequence[str]
) -> tuple[Workload, list[Contender], Past | None]:
    """Load the workload, the contenders, and for a queue's history the measured past."""
    from fairlane.sim.contenders import load_contender
    from fairlane.sim.generators import GENERATORS, generate
    from fairlane.sim.history import current_contender, load_history
    from fairlane.sim.workload import read_csv

    if (workload_name is None) == (url is None):
        raise Mistake(f"use either a WORKLOAD (a CSV file or one of {GENERATOR_NAMES}) or --url, for the history of a queue")
    contenders, past = [], None
    if url is not None:
        with open_store(url, create=False) as queue:
            contenders = [current_contender(queue) if name == "current" else load_contender(name) for name in policies]
            workload, past = load_history(queue)
    elif workload_name is not None:
        contenders = [load_contender(name) for name in policies]
        if workload_name in GENERATORS:
            workload = generate(workload_name, seed)
        elif Path(workload_name).is_file():
            workload = read_csv(Path(workload_name))
        else:
            raise BadValue("WORKLOAD", workload_name, f"a CSV file, or one of {GENERATOR_NAMES}")
    if load is not None:
        workload, past = workload.at_load(load, workers), None  # other service times than those that were measured
    return workload, contenders, past


def _weights(options: Sequence[str], workload: Workload) -> dict[str, float]:
    weights = {}
    for assignment in (part for option in options for part in option.split(",")):
        customer, equals, weight = assignment.rpartition("=")
        try:
            weights[customer] = float(weight)
        except ValueError:
            equals = ""
        if not equals:
            raise BadValue("--weights", assignment, "a customer and a weight, as in acme=2")
        _check_customer(workload, "--weights", customer)
    return weights


def _check_customer(workload: Workload, option: str, customer: str) -> None:
    if customer not in workload.customers:
        raise BadValue(option, customer, f"a customer of {workload.name}, such as {workload.customers[0]!r}")


@contextmanager
def _progress(description: str, total: int | None, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error, if that is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda count: bar.advance(task, count)


def _print_measures(workload: Workload, all_measures: list[Measures]) -> None:
    from fairlane.sim.measures import Spread

    first = all_measures[-1]
    span = format_seconds(workload.at_us[-1] / 1_000_000)
    load = "all at one moment" if first.load is None else f"load {first.load:.2f}"
    documents = f"{format_count(first.documents)} of {format_count(first.customers, 'customer')} over {span}"
    echo(f"{workload.name}: {documents}; {format_count(first.workers, 'worker')}, {load}")
    for note in workload.notes:
        echo(note)
    if first.load is not None and first.load >= 1:
        echo("More work arrives than the workers can do: under every policy some waits keep growing.")
    rows: list[tuple[object, ...] | None] = []
    for group in ("light", "quiet", "heavy", "all"):
        for figure in Spread._fields:
            cells = [format_seconds(getattr(measures.waits[group], figure)) for measures in all_measures]
            rows.append((f"{group} wait, {figure}", *cells))
        rows += [
            (f"{group} slowdown, p99", *(_format_factor(measures.slowdowns[group].p99) for measures in all_measures)),
            None,
        ]
    rows += [
        ("service gap", *(format_seconds(measures.service_gap) for measures in all_measures)),
        ("Jain index", *(f"{measures.jain:.3f}" for measures in all_measures)),
        ("starved", *(f"{measures.starved:,}" for measures in all_measures)),
        ("overtaken", *(f"{measures.overtaken:.1%}" for measures in all_measures)),
        ("utilisation", *(f"{measures.utilisation:.1%}" for measures in all_measures)),
    ]
    print_table(("", *(measures.policy for measures in all_measures)), rows)


def _print_doubts(past: Past, measured: Measures, simulated: list[Measures]) -> None:
    """Explain why the first policy's replay differs from what was measured, if it does by much."""
    doubts = past.doubts(measured, simulated[0])
    if doubts:
        echo(f"{simulated[0].policy} and what was measured differ by much, so do not rely on the replay:")
        for doubt in doubts:
            echo(f"- {doubt.sentence}")


def _format_factor(slowdown: float | None) -> str:
    return "-" if slowdown is None else f"{slowdown:,.1f} x"


def _print_advice(advice: Advice) -> None:
    if not advice.worth_it:
        why = "none was better" if not advice.changes() else "the best was not better by more than noise"
        if advice.effect.real and advice.changes():
            why = "the best was better in most parts only, and not in all together"
        echo(f"Keep your settings: of {advice.replays:,} tried for {advice.objective}, {why}.")
        if advice.changes():
            echo("It would change:")
    for name, (before, after) in advice.changes().items():
        echo(f"{name.replace('_', ' '):16} {_format_setting(before)} -> {_format_setting(after)}")
    if advice.changes():
        print_table(
            ("", "before", "after", "change", "by part", "verdict"),
            [(f"{effect.objective.group} wait, {effect.objective.figure}", format_seconds(effect.before),
              format_seconds(effect.after), *_describe_effect(effect)) for effect in advice.effects],
        )  # fmt: skip
        parts = advice.effect.parts
        echo(
            f"Measured on the {parts} parts of the workload that the search did not see: before, after and change are of all "
            "parts together; by part is the mean of their changes, with its 95 % confidence interval in brackets. On "
            f"four recorded workloads such intervals held the change in the other half of the workload in {INTERVALS_HELD:.0%}."
        )
    if advice.worth_it:
        echo(f"To change the settings: {_command(advice)}")


def _format_setting(value: object) -> str:
    values = value if isinstance(value, tuple) else (value,)
    return ",".join(item if isinstance(item, str) else f"{item:.10g}" for item in values)


def _describe_effect(effect: Effect) -> tuple[str, str, str]:
    if effect.ratio is None or effect.pooled_ratio is None:
        return "-", "-", "no such documents"
    change, by_part = f"{effect.pooled_ratio - 1:+.0%}", f"{effect.ratio - 1:+.0%}"
    if effect.low is None or effect.high is None:
        return change, by_part, "too few documents to tell"
    interval = f"({effect.low - 1:+.0%} to {effect.high - 1:+.0%})"
    if not effect.real:
        return change, by_part, f"no more than noise {interval}"
    word = "better" if effect.ratio < 1 else "worse"
    is_mixed = (effect.ratio - 1) * (effect.pooled_ratio - 1) < 0
    return change, by_part, f"{word} in most parts only {interval}" if is_mixed else f"{word} {interval}"


def _command(advice: Advice) -> str:
    options = [f"--{name.replace('_', '-')}={_format_setting(after)}" for name, (_, after) in advice.changes().items()]
    return " ".join(["fairlane policy", *options])


def _advice_json(advice: Advice) -> dict[str, Any]:
    return {
        "objective": str(advice.objective),
        "replays": advice.replays,
        "worth_it": advice.worth_it,
        "changes": {name: {"before": before, "after": after} for name, (before, after) in advice.changes().items()},
        "effects": [
            {
                "objective": str(effect.objective), "before": effect.before, "after": effect.after,
                "pooled_ratio": effect.pooled_ratio, "ratio": effect.ratio, "low": effect.low, "high": effect.high,
                "parts": effect.parts, "real": effect.real,
            }
            for effect in advice.effects
        ],
        "interval": {"nominal": 0.95, "held": INTERVALS_HELD},
        "command": _command(advice) if advice.worth_it else None,
    }  # fmt: skip
