"""Does anything get lost, doubled or stuck when the server fails under load and workers are killed?

Submitters and claimers use a queue on a server of our own. A supervisor kills one of them after the other and starts it
again, and in between lets the server fail and come back. A call that was under way has an unknown outcome: submissions are
repeated with their key, claims and settlements are left as they are. The records are checked all along, while everybody
stands still, and at rest. `python -m chaos.servers --engine postgres`.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import click

from fairlane import Queue

from .checker import wrong_at_rest, wrong_in_store
from .history import Store, lines, read_clients
from .processes import Child
from .runs import Report, drain, ended, figures_of, kill, seed_of, tell


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
class ServerReport(Report):
    """What a run did and what it found, the server's failures with it."""

    failures: int = 0
    unknown: Counter[str] = field(default_factory=Counter)  # by which call got no answer

    def told(self) -> Iterator[str]:
        """For people, a line each."""
        yield f"The server failed {self.failures} times. Calls without an answer then:"
        yield from (f"  {call}: {count}" for call, count in self.unknown.most_common())
        yield from super().told()


def run(options: Options, folder: Path, advance: Callable[[], None] = lambda: None) -> ServerReport:
    """One whole run; the folder must be empty."""
    server = SERVERS[options.engine]()
    try:
        return _run(server, options, folder, advance)
    finally:
        server.close()


def _run(server: Server, options: Options, folder: Path, advance: Callable[[], None]) -> ServerReport:
    report, dice = ServerReport(options), random.Random(options.seed)
    Queue(server.url).close()
    numbers = (options.seed, options.documents // max(1, options.submitters), options.customers)
    roles = ["submitter"] * options.submitters + ["claimer"] * options.claimers
    children = [Child(role, f"{role}-{place}", folder, numbers, url=server.url) for place, role in enumerate(roles)]
    events = ["failure"] * options.failures + ["kill"] * options.kills
    dice.shuffle(events)
    with ended(children, folder, report):
        for place, event in enumerate(events):
            _disturb(event, server, dice.choice(children), dice, report)
            if (place + 1) % max(1, len(events) // max(1, options.checks)) == 0:
                report.wrong += [f"after {place + 1} events: {one}" for one in _checked(server, children)]
            advance()
    drain(server.url)
    store, clients = server.snapshot(), read_clients(child.log for child in children)
    report.wrong += wrong_at_rest(store, clients)
    report.figures = figures_of(store, clients)
    report.unknown = _unknown(children)
    return report


def _disturb(event: str, server: Server, child: Child, dice: random.Random, report: ServerReport) -> None:
    """Let the server fail, or kill a child and start it again."""
    child.await_work()
    time.sleep(dice.uniform(0, 0.15))
    if event == "failure":
        server.fail()
        report.failures += 1
        return
    kill(child, report)


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
    options = Options(engine, seed=seed_of(seed), **given)
    steps = options.failures + options.kills
    tell(f"{engine}, seed {options.seed}", steps, lambda folder, advance: run(options, folder, advance), is_json)


if __name__ == "__main__":
    main()
