"""A server that fails under load while processes are killed: nothing may be lost, doubled or stuck.

Run as `python -m chaos.servers --engine postgres`. Submitters and claimers use a queue on a server of its own. One after the
other is killed and started again, and in between the server fails and recovers. A call that was under way has an unknown
outcome: submissions are repeated with their key, claims and settlements are left as they are. The records are checked during
the run, while all processes are frozen, and at rest.
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

from .checker import check_at_rest, check_store
from .history import StoreSnapshot, read_clients, read_log
from .processes import Child
from .runs import Report, choose_seed, drain, figures_of, kill_and_restart, run_and_exit, stop_afterwards


class Server(Protocol):
    """A server that a run can break."""

    url: str
    upstream: Path  # the socket of the server

    def url_through(self, host: str, port: int) -> str:
        """Return the URL of the same queue by way of a proxy."""

    def close(self) -> None:
        """Stop the server and remove its folder."""

    def fail(self) -> None:
        """Stop as after a power failure, and start again."""

    def rest(self) -> None:
        """Wait until no call is under way; the callers are frozen."""

    def snapshot(self) -> StoreSnapshot:
        """Read everything in the store, as of one moment."""


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
    """The options of a run."""

    engine: str = "postgres"
    failures: int = 20
    kills: int = 100
    seed: int = 1
    documents: int = 6_000
    submitters: int = 2
    claimers: int = 4
    customers: int = 8
    checks: int = 4  # of the whole store while all processes are frozen


@dataclass
class ServerReport(Report):
    """The report of a run, with the server's failures."""

    failures: int = 0
    unknown: Counter[str] = field(default_factory=Counter)  # calls without a response, by name

    def lines(self) -> Iterator[str]:
        """Yield the report as lines of text."""
        yield f"The server failed {self.failures} times. Calls without a response:"
        yield from (f"  {call}: {count}" for call, count in self.unknown.most_common())
        yield from super().lines()


def run(options: Options, folder: Path, advance: Callable[[], None] = lambda: None) -> ServerReport:
    """Run once in an empty folder."""
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
    children = [Child(role, f"{role}-{number}", folder, numbers, url=server.url) for number, role in enumerate(roles)]
    events = ["failure"] * options.failures + ["kill"] * options.kills
    dice.shuffle(events)
    with stop_afterwards(children, folder, report):
        for count, event in enumerate(events, start=1):
            _disturb(event, server, dice.choice(children), dice, report)
            if count % max(1, len(events) // max(1, options.checks)) == 0:
                report.wrong += [f"after {count} events: {problem}" for problem in _check_frozen(server, children)]
            advance()
    drain(server.url)
    store, clients = server.snapshot(), read_clients(child.log for child in children)
    report.wrong += check_at_rest(store, clients)
    report.figures = figures_of(store, clients)
    report.unknown = _count_unknown(children)
    return report


def _disturb(event: str, server: Server, child: Child, dice: random.Random, report: ServerReport) -> None:
    """Let the server fail, or kill a child and start it again."""
    child.wait_for_work()
    time.sleep(dice.uniform(0, 0.15))
    if event == "failure":
        server.fail()
        report.failures += 1
        return
    kill_and_restart(child, report)


def _check_frozen(server: Server, children: list[Child]) -> list[str]:
    """Freeze all processes and check the store."""
    for child in children:
        child.freeze()
    try:
        server.rest()
        return check_store(server.snapshot())
    finally:
        for child in children:
            child.thaw()


def _count_unknown(children: list[Child]) -> Counter[str]:
    """Count the calls that got no response because the server failed."""
    counts: Counter[str] = Counter()
    for child in children:
        before = ""
        for what, *_ in read_log(child.log):
            if what == "unknown":
                counts[before] += 1
            before = what
    return counts


@click.command()
@click.option("--engine", type=click.Choice(list(SERVERS)), default=Options.engine, show_default=True)
@click.option("--failures", default=Options.failures, show_default=True, help="How often the server fails and recovers.")
@click.option("--kills", default=Options.kills, show_default=True)
@click.option("--seed", type=int, help="Repeat the random choices of a run. Default: a new seed, which is shown.")
@click.option("--documents", default=Options.documents, show_default=True)
@click.option("--submitters", default=Options.submitters, show_default=True)
@click.option("--claimers", default=Options.claimers, show_default=True)
@click.option("--customers", default=Options.customers, show_default=True)
@click.option("--checks", default=Options.checks, show_default=True, help="Checks of the whole store during the run.")
@click.option("--json", "is_json", is_flag=True, help="Print the report as JSON.")
def main(engine: str, seed: int | None, is_json: bool, **values: int) -> None:
    """A server that fails under load, and workers that are killed."""
    options = Options(engine, seed=choose_seed(seed), **values)
    steps = options.failures + options.kills
    run_and_exit(f"{engine}, seed {options.seed}", steps, lambda folder, advance: run(options, folder, advance), is_json)


if __name__ == "__main__":
    main()
