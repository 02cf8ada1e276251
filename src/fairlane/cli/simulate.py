"""Commands that replay: what would another policy have done, which would be better, and was every check right?"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairlane.core.errors import BadValue, Mistake

from .common import counted, json_option, open_store, seconds, table, url_option
from .group import EXIT_FOUND, main
from .parameters import THRESHOLDS

if TYPE_CHECKING:
    from fairlane.sim.advise import Advice, Effect
    from fairlane.sim.contenders import Contender
    from fairlane.sim.measures import Answers
    from fairlane.sim.verify import Verdict
    from fairlane.sim.workload import Workload

GENERATOR_NAMES = "flood, metronome, two-whales, newcomers, day"
POLICY_NAMES = "fifo, texts-strict, texts, window, gradual, round-robin, fair-queueing"
DIFFERENCES_SHOWN = 20

workload_argument = click.argument("workload", required=False)
workers_option = click.option(
    "--workers", type=click.IntRange(1, 100_000), default=4, show_default=True, help="Documents served at once."
)
load_option = click.option(
    "--load", type=click.FloatRange(0, 100, min_open=True), metavar="SHARE",
    help="Scale service times to this share of what the workers can do, as in 0.9; long silences of everybody are cut.",
)  # fmt: skip
seed_option = click.option("--seed", type=int, default=1, show_default=True, help="For generators: another seed, another day.")
interval_option = click.option("--reset-interval", type=float, metavar="SECONDS", help="Instead of the policy's own.")
thresholds_option = click.option(
    "--thresholds", type=THRESHOLDS, metavar="LIST", help="Instead of the policy's own table, as in =-2,-4,-6,-8."
)
weights_option = click.option(
    "--weights", multiple=True, metavar="CUSTOMER=WEIGHT", help="A customer's weight; several times, or with commas between."
)
live_option = click.option("--url", metavar="URL", help="Replay the history of this queue instead of a WORKLOAD.")


@main.command()
@workload_argument
@click.option(
    "--policy", "policies", multiple=True, metavar="NAME|FILE", help=f"{POLICY_NAMES}, current (with --url) or a TOML file."
)
@workers_option
@load_option
@seed_option
@interval_option
@thresholds_option
@weights_option
@click.option(
    "--html", "html", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write a report with pictures."
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

    WORKLOAD is a CSV of submitted_at,customer,service_s (plain or gzipped), or a generator: flood, metronome, two-whales,
    newcomers, day. With --url it is the history of that queue. The policy and the dispatch are those of production.

    \b
    Example:
      fairlane simulate flood --policy fifo --policy texts
      fairlane simulate yesterday.csv --policy texts --policy gradual --html report.html
      fairlane simulate --url sqlite:///fairlane.db --policy current --policy mine.toml
    """
    from fairlane.sim.measures import answers
    from fairlane.sim.replay import replay
    from fairlane.sim.report import Story, chosen_customers, page

    if html is not None and not html.parent.is_dir():
        raise BadValue("--html", str(html), "a file in a folder that is there")
    replayed, known = _workload(workload, url, seed, workers, load, policies or ("texts",))
    contenders = [one.changed(reset_interval, thresholds, _weights(weights, replayed)) for one in known]
    for customer in customers:
        _among(replayed, "--customer", customer)
    stories = []
    with _progress("documents", len(replayed) * len(contenders), as_json) as advance:
        for contender in contenders:
            told = replay(replayed, contender, workers, advance)
            stories.append(Story(told, answers(told)))
            if html is None:
                stories[-1] = stories[-1]._replace(replay=stories[0].replay)  # only the report needs the others
    if html is not None:
        html.write_text(page(stories, customers or chosen_customers(replayed)), encoding="utf-8")
    if as_json:
        click.echo(json.dumps([one.answers.as_json() for one in stories]))
        return
    _show_answers(replayed, [one.answers for one in stories])
    if html is not None:
        click.echo(f"The report is in {html}.")


@main.command()
@workload_argument
@click.option("--objective", default="light-p99", show_default=True, metavar="CLASS-FIGURE",
              help="all, light, quiet or heavy; mean, p50, p95, p99 or max.")  # fmt: skip
@click.option("--budget", type=int, default=200, show_default=True, help="How many settings may be tried, a replay each.")
@click.option(
    "--policy", "policy", metavar="NAME|FILE", help="What you have now; default: texts, or the queue's own with --url."
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

    Tries the reset rule, the reset interval, the table and the open-turn share, and says what the best would change and what
    it costs whom. The search sees one half of the trace; the other half decides whether a difference is more than noise.

    \b
    Example:
      fairlane advise yesterday.csv --workers 6
      fairlane advise --url sqlite:///fairlane.db --objective heavy-mean --budget 50
    """
    from fairlane.sim.advise import Objective, advise

    aim = Objective.named(objective)
    replayed, (start,) = _workload(workload, url, seed, workers, load, (policy or ("current" if url else "texts"),))
    with _progress("replays", budget, as_json) as advance:
        advice = advise(replayed, start, workers, aim, budget, seed, advance)
    if as_json:
        click.echo(json.dumps(_advice_json(advice)))
        return
    _show_advice(advice)


@main.command()
@url_option
@json_option
def verify(url: str | None, as_json: bool) -> None:
    """Make every recorded check of a queue again and compare.

    Every counter and priority of the store is compared with what the rules say. Moves nothing; the queue may be in use. Exit
    code 4 if something differs.

    \b
    Example:
      fairlane verify --url sqlite:///fairlane.db
    """
    from fairlane.sim.verify import verify

    with open_store(url, create=False) as queue, _progress("changes", None, as_json) as advance:
        verdict = verify(queue, advance)
    if as_json:
        told = verdict._asdict() | {"differences": [one._asdict() for one in verdict.differences]}
        click.echo(json.dumps(told, default=str))
    else:
        click.echo(f"{counted(verdict.checks, 'check')} made again, {counted(verdict.customers, 'customer')} compared.")
        if verdict.skipped:
            click.echo(f"{verdict.skipped:,} checks skipped: what came before them was purged or erased.")
        for one in verdict.differences[:DIFFERENCES_SHOWN]:
            click.echo(str(one))
        more = len(verdict.differences) - DIFFERENCES_SHOWN
        if more > 0:
            click.echo(f"... and {more:,} more; --json lists all.")
        click.echo(_conclusion(verdict))
    if verdict.differences:
        sys.exit(EXIT_FOUND)


def _conclusion(verdict: Verdict) -> str:
    if verdict.differences:
        return f"{counted(len(verdict.differences), 'difference')}."
    return "Everything is as the rules say." if verdict.checks or verdict.customers else "There was nothing to compare."


def _workload(
    told: str | None, url: str | None, seed: int, workers: int, load: float | None, policies: Sequence[str]
) -> tuple[Workload, list[Contender]]:
    """What is replayed, and under which policies."""
    from fairlane.sim.contenders import contender
    from fairlane.sim.generators import GENERATORS, generated
    from fairlane.sim.history import current, history
    from fairlane.sim.workload import read_csv

    if (told is None) == (url is None):
        raise Mistake(f"give either a WORKLOAD (a CSV file or one of {GENERATOR_NAMES}) or --url for the history of a queue")
    contenders = []
    if url is not None:
        with open_store(url, create=False) as queue:
            contenders = [current(queue) if one == "current" else contender(one) for one in policies]
            workload = history(queue)
    elif told is not None:
        contenders = [contender(one) for one in policies]
        if told in GENERATORS:
            workload = generated(told, seed)
        elif Path(told).is_file():
            workload = read_csv(Path(told))
        else:
            raise BadValue("WORKLOAD", told, f"a CSV file, or one of {GENERATOR_NAMES}")
    return (workload if load is None else workload.at_load(load, workers)), contenders


def _weights(told: Sequence[str], workload: Workload) -> dict[str, float]:
    weights = {}
    for one in (part for listed in told for part in listed.split(",")):
        customer, equals, weight = one.rpartition("=")
        try:
            weights[customer] = float(weight)
        except ValueError:
            equals = ""
        if not equals:
            raise BadValue("--weights", one, "a customer and a weight, as in acme=2")
        _among(workload, "--weights", customer)
    return weights


def _among(workload: Workload, option: str, customer: str) -> None:
    if customer not in workload.customers:
        raise BadValue(option, customer, f"a customer of {workload.name}, as {workload.customers[0]!r} is")


@contextmanager
def _progress(of_what: str, total: int | None, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A bar on the terminal's error stream; nothing in a pipe, or where programs read."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(of_what, total=total)
        yield lambda count: bar.advance(task, count)


def _show_answers(workload: Workload, told: list[Answers]) -> None:
    from fairlane.sim.measures import Spread

    first = told[0]
    span = seconds(workload.at_us[-1] / 1_000_000)
    load = "all at one moment" if first.load is None else f"load {first.load:.2f}"
    came = f"{counted(first.documents, 'document')} of {counted(first.customers, 'customer')} over {span}"
    click.echo(f"{workload.name}: {came}; {counted(first.workers, 'worker')}, {load}")
    for note in workload.notes:
        click.echo(note)
    if first.load is not None and first.load >= 1:
        click.echo("More work comes than the workers can do: whatever the policy, somebody's wait grows.")
    rows: list[tuple[object, ...] | None] = []
    for group in ("light", "quiet", "heavy", "all"):
        for figure in Spread._fields:
            cells = [seconds(getattr(one.waits[group], figure)) for one in told]
            rows.append((f"{group} wait, {figure}", *cells))
        rows += [(f"{group} slowdown, p99", *(_times(one.slowdowns[group].p99) for one in told)), None]
    rows += [
        ("service gap", *(seconds(one.service_gap) for one in told)),
        ("Jain index", *(f"{one.jain:.3f}" for one in told)),
        ("starved", *(f"{one.starved:,}" for one in told)),
        ("overtaken", *(f"{one.overtaken:.1%}" for one in told)),
        ("utilisation", *(f"{one.utilisation:.1%}" for one in told)),
    ]
    table(("", *(one.policy for one in told)), rows)


def _times(slowdown: float | None) -> str:
    return "-" if slowdown is None else f"{slowdown:,.1f} x"


def _show_advice(advice: Advice) -> None:
    if not advice.worth_it:
        why = (
            "nothing better was found" if not advice.changes() else "the best that was found is within the noise between parts"
        )
        click.echo(f"Keep what you have: of {advice.replays:,} settings tried for {advice.objective}, {why}.")
        if advice.changes():
            click.echo("It would change:")
    for name, (before, after) in advice.changes().items():
        click.echo(f"{name.replace('_', ' '):16} {_setting(before)} -> {_setting(after)}")
    if advice.changes():
        table(
            ("", "before", "after", "in a part", "verdict"),
            [(f"{one.objective.group} wait, {one.objective.figure}", seconds(one.before), seconds(one.after), *_verdict(one))
             for one in advice.effects],
        )  # fmt: skip
        parts = advice.effect.parts
        click.echo(
            f"On the {parts} parts of the trace that the search did not see: all of them together before and after, then the "
            "mean change in a part, and in brackets where that lies with 95 % certainty."
        )
    if advice.worth_it:
        click.echo(f"To do it: {_command(advice)}")


def _setting(value: object) -> str:
    listed = value if isinstance(value, tuple) else (value,)
    return ",".join(one if isinstance(one, str) else f"{one:.10g}" for one in listed)


def _verdict(effect: Effect) -> tuple[str, str]:
    if effect.ratio is None:
        return "-", "no such documents"
    change = f"{effect.ratio - 1:+.0%}"
    if effect.low is None or effect.high is None:
        return change, "too few parts to tell"
    word = "within the noise" if not effect.real else "better" if effect.ratio < 1 else "worse"
    return change, f"{word} ({effect.low - 1:+.0%} to {effect.high - 1:+.0%})"


def _command(advice: Advice) -> str:
    options = [f"--{name.replace('_', '-')}={_setting(after)}" for name, (_, after) in advice.changes().items()]
    return " ".join(["fairlane policy", *options])


def _advice_json(advice: Advice) -> dict[str, Any]:
    return {
        "objective": str(advice.objective),
        "replays": advice.replays,
        "worth_it": advice.worth_it,
        "changes": {name: {"before": before, "after": after} for name, (before, after) in advice.changes().items()},
        "effects": [
            {
                "objective": str(one.objective), "before": one.before, "after": one.after, "ratio": one.ratio,
                "low": one.low, "high": one.high, "parts": one.parts, "real": one.real,
            }
            for one in advice.effects
        ],
        "command": _command(advice) if advice.worth_it else None,
    }  # fmt: skip
