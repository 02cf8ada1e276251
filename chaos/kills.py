"""Does anything get lost, doubled or stuck when processes are killed with kill -9 at random moments?

Submitters and claimers share one SQLite file. A supervisor kills one of them after the other and starts it again: half of
the time at any moment, half of the time aimed at the middle of a call. The records are checked all along and at rest.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from fairlane import Queue

from .checker import wrong_at_rest, wrong_in_store
from .history import read_clients, snapshot
from .processes import Child
from .runs import Report, drain, ended, figures_of, kill, seed_of, tell

REQUIRED = ("submitting", "claiming", "settling")  # a kill must have hit each of these at least once
AIMS = {"submitter": ("submitting",), "claimer": ("claiming", "settling")}


@dataclass(frozen=True)
class Options:
    """Everything that a run depends on."""

    kills: int = 200
    seed: int = 1
    documents: int = 20_000
    submitters: int = 3
    claimers: int = 3
    customers: int = 8
    checks: int = 8  # of the whole store while everybody works


def run(options: Options, folder: Path, advance: Callable[[], None] = lambda: None) -> Report:
    """One whole run; the folder must be empty."""
    report = Report(options)
    dice = random.Random(options.seed)
    url = f"sqlite:///{folder / 'queue.db'}"
    Queue(url).close()
    names = [("submitter", place) for place in range(options.submitters)]
    names += [("claimer", place) for place in range(options.claimers)]
    numbers = (options.seed, options.documents // max(1, options.submitters), options.customers)
    children = [Child(role, f"{role}-{place}", folder, numbers) for role, place in names]
    with ended(children, folder, report):
        for place in range(options.kills):
            _kill_one(dice.choice(children), dice, report)
            if (place + 1) % max(1, options.kills // max(1, options.checks)) == 0:
                report.wrong += [f"after {place + 1} kills: {one}" for one in wrong_in_store(snapshot(folder / "queue.db"))]
            advance()
    drain(url)
    clients = read_clients(child.log for child in children)
    store = snapshot(folder / "queue.db")
    report.wrong += wrong_at_rest(store, clients)
    report.wrong += [f"no kill hit a process while {one}" for one in REQUIRED if not report.kills[one]]
    report.figures = figures_of(store, clients)
    return report


def _kill_one(child: Child, dice: random.Random, report: Report) -> None:
    """Kill a child at some moment, note what it was doing, start it again."""
    child.await_work()
    time.sleep(dice.uniform(0, 0.08))
    if dice.random() < 0.5:
        child.await_moment(dice.choice(AIMS[child.role]))
        time.sleep(dice.uniform(0, 0.0005))
    kill(child, report)


@click.command()
@click.option("--kills", default=Options.kills, show_default=True)
@click.option("--seed", type=int, help="Repeat a run's choices; left out, a new one is drawn and shown.")
@click.option(
    "--documents", default=Options.documents, show_default=True, help="At most so many; then known keys are repeated."
)
@click.option("--submitters", default=Options.submitters, show_default=True)
@click.option("--claimers", default=Options.claimers, show_default=True)
@click.option("--customers", default=Options.customers, show_default=True)
@click.option("--checks", default=Options.checks, show_default=True, help="Checks of the whole store while everybody works.")
@click.option("--json", "is_json", is_flag=True, help="Print the report as JSON.")
def main(seed: int | None, is_json: bool, **given: int) -> None:
    """kill -9 of submitting and claiming processes at random moments, on one SQLite file."""
    options = Options(seed=seed_of(seed), **given)
    tell(f"kills, seed {options.seed}", options.kills, lambda folder, advance: run(options, folder, advance), is_json)


if __name__ == "__main__":
    main()
