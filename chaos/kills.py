"""Does anything get lost, doubled or stuck when processes are killed with kill -9 at random moments?

Submitters and claimers share one SQLite file. A supervisor kills one of them after the other and starts it again: half of
the time at any moment, half of the time aimed at the middle of a call. The records are checked all along and at rest.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fairlane import Queue
from fairlane.core.document import Done

from .actors import url_in
from .checker import lives_of, wrong_at_rest, wrong_in_store
from .history import Clients, Store, read_clients, snapshot
from .processes import Child

REQUIRED = ("submitting", "claiming", "settling")  # a kill must have hit each of these at least once
AIMS = {"submitter": ("submitting",), "claimer": ("claiming", "settling")}
SHOWN_MAX = 20


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


@dataclass
class Report:
    """What a run did and what it found."""

    options: Options
    kills: Counter[str] = field(default_factory=Counter)  # by what the killed process was doing
    wrong: list[str] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        return not self.wrong

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self) | {"is_good": self.is_good}


def run(options: Options, folder: Path, advance: Callable[[], None] = lambda: None) -> Report:
    """One whole run; the folder must be empty."""
    report = Report(options)
    dice = random.Random(options.seed)
    Queue(f"sqlite:///{folder / 'queue.db'}").close()
    names = [("submitter", place) for place in range(options.submitters)]
    names += [("claimer", place) for place in range(options.claimers)]
    numbers = (options.seed, options.documents // max(1, options.submitters), options.customers)
    children = [Child(role, f"{role}-{place}", folder, numbers) for role, place in names]
    try:
        for place in range(options.kills):
            _kill_one(dice.choice(children), dice, report)
            if (place + 1) % max(1, options.kills // max(1, options.checks)) == 0:
                report.wrong += [f"after {place + 1} kills: {one}" for one in wrong_in_store(snapshot(folder / "queue.db"))]
            advance()
        (folder / "stop").touch()
        report.wrong += [told for child in children if (told := child.end())]
    finally:
        for child in children:
            child.kill()
    drain(url_in(folder))
    clients = read_clients(child.log for child in children)
    store = snapshot(folder / "queue.db")
    report.wrong += wrong_at_rest(store, clients)
    report.wrong += [f"no kill hit a process while {one}" for one in REQUIRED if not report.kills[one]]
    report.figures = _figures(store, clients)
    return report


def _kill_one(child: Child, dice: random.Random, report: Report) -> None:
    """Kill a child at some moment, note what it was doing, start it again."""
    child.await_work()
    time.sleep(dice.uniform(0, 0.08))
    if dice.random() < 0.5:
        child.await_moment(dice.choice(AIMS[child.role]))
        time.sleep(dice.uniform(0, 0.0005))
    if told := child.ended_by_itself():
        report.wrong.append(told)
    child.kill()
    report.kills[child.moment()] += 1
    child.start()


def drain(url: str) -> None:
    """Serve what is left: leases run out, delays pass, everything ends."""
    with Queue(url) as queue:
        while any(one.waiting or one.running for one in queue.customers()):
            reclaimed = queue.engine.reclaim(1000)
            claims = queue.engine.claim("drain", 1000, 60_000)
            queue.engine.settle([(one, Done()) for one in claims])
            if not claims and not reclaimed:
                time.sleep(0.01)


def _figures(store: Store, clients: Clients) -> dict[str, int]:
    settlements = clients.settlements.values()
    claims = sum(life.claims for life in lives_of(store).values())
    return {
        "documents": len(store.documents),
        "acknowledged": len({(customer, key) for customer, key, _ in clients.acknowledged}),
        "submissions unknown, repeated": clients.unknown,
        "claims": claims,
        "leases run out": sum(line.what == "expired" for line in store.changes),
        "settlements accepted": sum(one.is_accepted is True for one in settlements),
        "settlements refused": sum(one.is_accepted is False for one in settlements),
        "settlements unknown": sum(one.is_accepted is None for one in settlements),
        "cancels": len(clients.cancelled),
        **{
            f"ended as {state}": sum(one.state == state for one in store.documents) for state in ("done", "failed", "cancelled")
        },
    }


def _show(report: Report) -> None:
    for name, value in asdict(report.options).items():
        print(f"  {name}: {value}")
    print("Kills, by what the process was doing:")
    for moment, count in report.kills.most_common():
        print(f"  {moment}: {count}")
    print("What the records hold:")
    for name, value in report.figures.items():
        print(f"  {name}: {value:,}")
    for wrong in report.wrong[:SHOWN_MAX]:
        print(f"WRONG: {wrong}")
    left = len(report.wrong) - SHOWN_MAX
    print(
        "Nothing is wrong."
        if report.is_good
        else f"{len(report.wrong)} things are wrong{f', {left} not shown' if left > 0 else ''}."
    )


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
    options = Options(seed=random.randrange(10**6) if seed is None else seed, **given)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="fairlane-chaos-") as folder,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task(f"kills, seed {options.seed}", total=options.kills)
        report = run(options, Path(folder), lambda: progress.advance(task))
    if is_json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        _show(report)
    sys.exit(0 if report.is_good else 1)


if __name__ == "__main__":
    main()
