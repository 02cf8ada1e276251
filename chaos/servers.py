"""Does anything get lost, doubled or stuck when the server fails under load and workers are killed?

Submitters and claimers use a queue on a server of our own. A supervisor kills one of them after the other and starts it
again, and in between lets the server fail and come back. A call that was under way has an unknown outcome: submissions are
repeated with their key, claims and settlements are left as they are. The records are checked all along, while everybody
stands still, and at rest. `python -m chaos.servers --engine postgres`.
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
from typing import Any, Protocol

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fairlane import Queue
from fairlane.core.document import Done

from .checker import wrong_at_rest, wrong_in_store
from .history import Store, lines, read_clients
from .kills import figures_of
from .processes import Child

SHOWN_MAX = 20


class Server(Protocol):
    """What a run needs of a server."""

    url: str

    def close(self) -> None:
        """The server and its folder go."""

    def fail(self) -> None:
        """It stops as if its machine had lost power, and comes back."""

    def rest(self) -> None:
        """Until no call is under way, the callers standing still."""

    def snapshot(self) -> Store:
        """Everything it recorded, as of one moment."""


def _postgres() -> Server:
    from .postgres import Postgres

    return Postgres()


def _redis(product: str) -> Server:
    from .redis import Redis

    return Redis(product)


SERVERS: dict[str, Callable[[], Server]] = {
    "postgres": _postgres, "redis": lambda: _redis("redis"), "valkey": lambda: _redis("valkey"),
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    """Everything that a run depends on."""

    engine: str = "postgres"
    failures: int = 20
    kills: int = 100
    seed: int = 1
    documents: int = 6_000
    submitters: int = 2
    claimers: int = 4
    customers: int = 8
    checks: int = 4  # of the whole store while everybody stands still


@dataclass
class Report:
    """What a run did and what it found."""

    options: Options
    failures: int = 0
    kills: Counter[str] = field(default_factory=Counter)  # by what the killed process was doing
    unknown: Counter[str] = field(default_factory=Counter)  # by which call got no answer
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
    server = SERVERS[options.engine]()
    try:
        return _run(server, options, folder, advance)
    finally:
        server.close()


def _run(server: Server, options: Options, folder: Path, advance: Callable[[], None]) -> Report:
    report, dice = Report(options), random.Random(options.seed)
    Queue(server.url).close()
    numbers = (options.seed, options.documents // max(1, options.submitters), options.customers)
    roles = ["submitter"] * options.submitters + ["claimer"] * options.claimers
    children = [Child(role, f"{role}-{place}", folder, numbers, url=server.url) for place, role in enumerate(roles)]
    events = ["failure"] * options.failures + ["kill"] * options.kills
    dice.shuffle(events)
    try:
        for place, event in enumerate(events):
            _disturb(event, server, dice.choice(children), dice, report)
            if (place + 1) % max(1, len(events) // max(1, options.checks)) == 0:
                report.wrong += [f"after {place + 1} events: {one}" for one in _checked(server, children)]
            advance()
        (folder / "stop").touch()
        report.wrong += [told for child in children if (told := child.end())]
    finally:
        for child in children:
            child.kill()
    _drain(server)
    store, clients = server.snapshot(), read_clients(child.log for child in children)
    report.wrong += wrong_at_rest(store, clients)
    report.figures = figures_of(store, clients)
    report.unknown = _unknown(children)
    return report


def _disturb(event: str, server: Server, child: Child, dice: random.Random, report: Report) -> None:
    """Let the server fail, or kill a child and start it again."""
    child.await_work()
    time.sleep(dice.uniform(0, 0.15))
    if event == "failure":
        server.fail()
        report.failures += 1
        return
    if told := child.ended_by_itself():
        report.wrong.append(told)
    child.kill()
    report.kills[child.moment()] += 1
    child.start()


def _checked(server: Server, children: list[Child]) -> list[str]:
    """What is wrong in the store, looked at while everybody stands still."""
    for child in children:
        child.freeze()
    try:
        server.rest()
        return wrong_in_store(server.snapshot())
    finally:
        for child in children:
            child.thaw()


def _drain(server: Server) -> None:
    """Serve what is left: leases run out, delays pass, everything ends."""
    with Queue(server.url) as queue:
        while any(one.waiting or one.running for one in queue.customers()):
            reclaimed = queue.engine.reclaim(1000)
            claims = queue.engine.claim("drain", 1000, 60_000)
            queue.engine.settle([(one, Done()) for one in claims])
            if not claims and not reclaimed:
                time.sleep(0.01)


def _unknown(children: list[Child]) -> Counter[str]:
    """Which calls got no answer because the server went away."""
    counted: Counter[str] = Counter()
    for child in children:
        before = ""
        for what, *_ in lines(child.log):
            if what == "unknown":
                counted[before] += 1
            before = what
    return counted


def _show(report: Report) -> None:
    for name, value in asdict(report.options).items():
        print(f"  {name}: {value}")
    print(f"The server failed {report.failures} times. Calls without an answer then:")
    for call, count in report.unknown.most_common():
        print(f"  {call}: {count}")
    print("Kills, by what the process was doing:")
    for moment, count in report.kills.most_common():
        print(f"  {moment}: {count}")
    print("What the records hold:")
    for name, value in report.figures.items():
        print(f"  {name}: {value:,}")
    for wrong in report.wrong[:SHOWN_MAX]:
        print(f"WRONG: {wrong}")
    print("Nothing is wrong." if report.is_good else f"{len(report.wrong)} things are wrong.")


@click.command()
@click.option("--engine", type=click.Choice(list(SERVERS)), default=Options.engine, show_default=True)
@click.option("--failures", default=Options.failures, show_default=True, help="How often the server fails and comes back.")
@click.option("--kills", default=Options.kills, show_default=True)
@click.option("--seed", type=int, help="Repeat a run's choices; left out, a new one is drawn and shown.")
@click.option("--documents", default=Options.documents, show_default=True)
@click.option("--submitters", default=Options.submitters, show_default=True)
@click.option("--claimers", default=Options.claimers, show_default=True)
@click.option("--customers", default=Options.customers, show_default=True)
@click.option("--checks", default=Options.checks, show_default=True, help="Checks of the whole store in between.")
@click.option("--json", "is_json", is_flag=True, help="Print the report as JSON.")
def main(engine: str, seed: int | None, is_json: bool, **given: int) -> None:
    """A server that fails under load, and workers that are killed."""
    options = Options(engine, seed=random.randrange(10**6) if seed is None else seed, **given)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="fairlane-chaos-") as folder,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task(f"{engine}, seed {options.seed}", total=options.failures + options.kills)
        report = run(options, Path(folder), lambda: progress.advance(task))
    if is_json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        _show(report)
    sys.exit(0 if report.is_good else 1)


if __name__ == "__main__":
    main()
