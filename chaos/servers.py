"""Does anything get lost, doubled or stuck when a server is killed while processes work on it, and they are killed too?

Submitters and claimers share one queue on a server that syncs each write. A supervisor kills the server with kill -9 and
starts it again, and between that kills one process after the other. At rest the records are checked: every acknowledged
document is there and ended exactly once.
"""

from __future__ import annotations

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

from . import history
from .checker import wrong_at_rest
from .history import Store, lines, read_clients
from .kills import AIMS, drain
from .processes import Child

LIMIT = 1_000_000


class Killable(Protocol):
    """A server of a test."""

    def url(self, queue: str | None = None) -> str: ...
    def kill(self) -> None: ...
    def start(self) -> None: ...
    def remove(self) -> None: ...


def _redis(product: str) -> Killable:
    from tests.servers.redis import Server

    return Server(product, "--appendonly", "yes", "--appendfsync", "always")


SERVERS: dict[str, Callable[[], Killable]] = {"redis": lambda: _redis("redis"), "valkey": lambda: _redis("valkey")}


@dataclass(frozen=True)
class Options:
    """Everything that a run depends on."""

    engine: str = "redis"
    restarts: int = 20
    kills: int = 100
    seed: int = 1
    documents: int = 20_000
    submitters: int = 2
    claimers: int = 4
    customers: int = 8


@dataclass
class Report:
    """What a run did and what it found."""

    options: Options
    restarts: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)


def run(options: Options, folder: Path, advance: Callable[[], None] = lambda: None) -> Report:
    """One whole run; the folder must be empty."""
    report, dice = Report(options), random.Random(options.seed)
    server = SERVERS[options.engine]()
    (folder / "url").write_text(server.url("chaos"), encoding="utf-8")
    Queue(server.url("chaos")).close()
    numbers = (options.seed, options.documents // options.submitters, options.customers)
    roles = ["submitter"] * options.submitters + ["claimer"] * options.claimers
    children = [Child(role, f"{role}-{place}", folder, numbers) for place, role in enumerate(roles)]
    faults = ["restart"] * options.restarts + ["kill"] * options.kills
    dice.shuffle(faults)
    try:
        for fault in faults:
            if fault == "restart":
                _restart(server, children, dice, report)
            else:
                _kill_one(dice.choice(children), dice, report)
            advance()
        (folder / "stop").touch()
        report.wrong += [told for child in children if (told := child.end())]
        drain(server.url("chaos"))
        _judge(report, snapshot(server.url("chaos")), children)
    finally:
        for child in children:
            child.kill()
        server.remove()
    return report


def _restart(server: Killable, children: list[Child], dice: random.Random, report: Report) -> None:
    """Kill the server while somebody is in the middle of a call, and start it again."""
    child = dice.choice(children)
    child.await_work()
    child.await_moment(dice.choice(AIMS[child.role]))
    server.kill()
    time.sleep(dice.uniform(0, 0.05))
    server.start()
    report.restarts += 1
    for one in children:  # everybody goes on by itself
        one.await_more()
        if told := one.ended_by_itself():
            report.wrong.append(told)


def _kill_one(child: Child, dice: random.Random, report: Report) -> None:
    child.await_work()
    time.sleep(dice.uniform(0, 0.05))
    if told := child.ended_by_itself():
        report.wrong.append(told)
    child.kill()
    report.kills[child.moment()] += 1
    child.start()


def _judge(report: Report, store: Store, children: list[Child]) -> None:
    clients = read_clients(child.log for child in children)
    refused = sum(what == "refused" for child in children for what, *_ in lines(child.log))
    report.wrong += wrong_at_rest(store, clients)
    if report.restarts != report.options.restarts or report.kills.total() != report.options.kills:
        report.wrong.append("not every fault was provoked")
    report.figures = {
        "documents": len(store.documents),
        "acknowledged": len({(customer, key) for customer, key, _ in clients.acknowledged}),
        "claims": store.dispatches,
        "leases run out": sum(line.what == "expired" for line in store.changes),
        "settlements accepted": sum(one.is_accepted is True for one in clients.settlements.values()),
        "settlements refused": sum(one.is_accepted is False for one in clients.settlements.values()),
        "settlements unknown": sum(one.is_accepted is None for one in clients.settlements.values()),
        "calls that failed because the server was away": refused,
    }


def snapshot(url: str) -> Store:
    """Everything that the verbs of an engine show, at rest; lanes are the engine's own and empty then."""
    with Queue(url) as queue:
        engine = queue.engine
        changes = engine.changes(None, LIMIT)
        documents = [
            history.Document(
                one.number, one.id, one.customer, one.kind, one.state, one.priority, one.check.counter_thousandths,
                one.check.checked_ms, one.key, one.ready_ms, one.attempts, one.attempts_max, one.token,
                _result(engine.body(one.id)),
            )
            for one in reversed(engine.documents(None, None, None, LIMIT))
        ]  # fmt: skip
        customers = [
            history.Customer(
                one.id, one.standing.counter, one.standing.updated_ms, one.waiting, one.running, one.done, one.failed,
                one.cancelled,
            )
            for one in engine.customers("", LIMIT)
        ]  # fmt: skip
    claims = sum(line.what == "claimed" for line in changes)
    return Store(documents, customers, changes=changes, dispatches=claims)


def _result(body: Any) -> str | None:
    return None if body is None else body.result


def _show(report: Report) -> None:
    for name, value in asdict(report.options).items():
        print(f"  {name}: {value}")
    print(f"Restarts of the server: {report.restarts}. Kills, by what the process was doing:")
    for moment, count in report.kills.most_common():
        print(f"  {moment}: {count}")
    for name, value in report.figures.items():
        print(f"  {name}: {value:,}")
    for wrong in report.wrong[:20]:
        print(f"WRONG: {wrong}")
    print("Nothing is wrong." if not report.wrong else f"{len(report.wrong)} things are wrong.")


@click.command()
@click.option("--engine", type=click.Choice(sorted(SERVERS)), default=Options.engine, show_default=True)
@click.option("--restarts", default=Options.restarts, show_default=True)
@click.option("--kills", default=Options.kills, show_default=True)
@click.option("--seed", type=int, help="Repeat a run's choices; left out, a new one is drawn and shown.")
@click.option("--documents", default=Options.documents, show_default=True)
@click.option("--submitters", default=Options.submitters, show_default=True)
@click.option("--claimers", default=Options.claimers, show_default=True)
def main(seed: int | None, **given: Any) -> None:
    """kill -9 of a server and of the processes that work on it."""
    options = Options(seed=random.randrange(10**6) if seed is None else seed, **given)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="fairlane-chaos-") as folder,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task(f"{options.engine}, seed {options.seed}", total=options.restarts + options.kills)
        report = run(options, Path(folder), lambda: progress.advance(task))
    _show(report)
    sys.exit(1 if report.wrong else 0)


if __name__ == "__main__":
    main()
