"""kill -9 of submitting and claiming processes at random moments: nothing may be lost, doubled or stuck.

Submitters and claimers share one SQLite file. One after the other is killed and started again: half of the time at any moment,
half of the time in the middle of a call. The records are checked during the run and at rest.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from fairlane import Queue

from .checker import check_at_rest, check_store
from .history import read_clients, snapshot
from .processes import WAIT_SECONDS, Child
from .runs import Report, choose_seed, drain, figures_of, kill_and_restart, run_and_exit, stop_afterwards

REQUIRED = ("submitting", "claiming", "settling")  # a kill must have hit each of these at least once
AIMS = {"submitter": ("submitting",), "claimer": ("claiming", "settling")}


@dataclass(frozen=True)
class Options:
    """The options of a run."""

    kills: int = 200
    seed: int = 1
    documents: int = 20_000
    submitters: int = 3
    claimers: int = 3
    customers: int = 8
    checks: int = 8  # of the whole store while the processes work


def run(options: Options, folder: Path, advance: Callable[[], None] = lambda: None) -> Report:
    """Run once in an empty folder."""
    report = Report(options)
    dice = random.Random(options.seed)
    url = f"sqlite:///{folder / 'queue.db'}"
    Queue(url).close()
    names = [("submitter", number) for number in range(options.submitters)]
    names += [("claimer", number) for number in range(options.claimers)]
    numbers = (options.seed, options.documents // max(1, options.submitters), options.customers)
    children = [Child(role, f"{role}-{number}", folder, numbers) for role, number in names]
    with stop_afterwards(children, folder, report):
        for kills in range(1, options.kills + 1):
            _kill_at_random(dice.choice(children), dice, report)
            if kills % max(1, options.kills // max(1, options.checks)) == 0:
                problems = check_store(snapshot(folder / "queue.db"))
                report.wrong += [f"after {kills} kills: {problem}" for problem in problems]
            advance()
        _wait_for_refusal(children)
    drain(url)
    clients = read_clients(child.log for child in children)
    store = snapshot(folder / "queue.db")
    report.wrong += check_at_rest(store, clients)
    report.wrong += [f"no kill hit a process while {call}" for call in REQUIRED if not report.kills[call]]
    report.figures = figures_of(store, clients)
    return report


def _kill_at_random(child: Child, dice: random.Random, report: Report) -> None:
    """Kill a child at a random moment, or in the middle of a call."""
    child.wait_for_work()
    time.sleep(dice.uniform(0, 0.08))
    if dice.random() < 0.5:
        child.wait_for_call(dice.choice(AIMS[child.role]))
        time.sleep(dice.uniform(0, 0.0005))
    kill_and_restart(child, report)


def _wait_for_refusal(children: list[Child]) -> None:
    """Wait until a stale claim was settled: on a busy machine all kills may come before a claimer has had one."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        settlements = read_clients(child.log for child in children).settlements.values()
        if any(settlement.is_accepted is False for settlement in settlements):
            return
        time.sleep(0.05)


@click.command()
@click.option("--kills", default=Options.kills, show_default=True)
@click.option("--seed", type=int, help="Repeat the random choices of a run. Default: a new seed, which is shown.")
@click.option(
    "--documents", default=Options.documents, show_default=True, help="At most this many; after that, known keys are repeated."
)
@click.option("--submitters", default=Options.submitters, show_default=True)
@click.option("--claimers", default=Options.claimers, show_default=True)
@click.option("--customers", default=Options.customers, show_default=True)
@click.option("--checks", default=Options.checks, show_default=True, help="Checks of the whole store during the run.")
@click.option("--json", "is_json", is_flag=True, help="Print the report as JSON.")
def main(seed: int | None, is_json: bool, **values: int) -> None:
    """kill -9 of submitting and claiming processes at random moments, on one SQLite file."""
    options = Options(seed=choose_seed(seed), **values)
    run_and_exit(f"kills, seed {options.seed}", options.kills, lambda folder, advance: run(options, folder, advance), is_json)


if __name__ == "__main__":
    main()
