"""A kind with limits under workers that are killed: never more at once, never more a second, and never idle below them.

Run as `python -m chaos.kind_limits --engine postgres`. Eight workers take documents of a kind of which three may run at once
and ten may start a second, and now and then of a kind without limits. One worker after the other is killed
with kill -9 and started again. Then the feed is read: at no moment did more run, or had more started, than the limits
allow, and after a start was allowed again it came soon. What a killed worker held counts as running until its lease is over.

As `python -m chaos.kind_limits worker NAME FOLDER URL` it is one of those workers.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click

from fairlane import Queue, Worker
from fairlane.core.document import ChangeRow, Submission
from fairlane.core.policy import KindLimit
from fairlane.worker import Document

from .history import ClientLog, walk_changes
from .processes import Child
from .runs import Report, choose_seed, kill_and_restart, run_and_exit
from .stores import STORES, open_store

LIMITED, FREE = "scan", "invoice"
RUNNING, RATE, BURST = 3, 10, 1
RUN_SECONDS = (0.1, 0.5)  # of a handler: now the running ones are the limit, now the starts
LEASE_SECONDS = 1.0
FREE_AT_ONCE = 20  # documents of the other kind for each kill: they keep some slots busy, never all
ENDS = ("done", "failed", "continued", "split", "retried", "postponed", "released", "expired", "cancelled")


@dataclass(frozen=True)
class Options:
    """The options of a run."""

    engine: str = "sqlite"
    workers: int = 8
    kills: int = 30
    seconds: float = 60
    idle_max: float = 0.10  # the share of the time in which a start was allowed and did not come
    seed: int = 1


@dataclass
class LimitsReport(Report):
    """The report of a run, with what the feed shows."""

    facts: dict[str, float] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Yield the report as lines of text."""
        yield from (f"{name}: {value:,.3f}" for name, value in self.facts.items())
        yield from super().lines()


def work(name: str, folder: Path, url: str) -> None:
    """Run a worker of both kinds."""
    log = ClientLog(folder / f"{name}.log")
    worker = Worker(url, slots=2, lease=LEASE_SECONDS, name=name)

    async def handle(document: Document) -> None:
        log.write("claimed", [(document.id, document.token)])
        await asyncio.sleep(random.uniform(*RUN_SECONDS))

    for kind in (LIMITED, FREE):
        worker.handler(kind, attempts=1000)(handle)
    worker.run()


def run(options: Options, folder: Path, advance: Callable[[], None] = lambda: None) -> LimitsReport:
    """Run once in an empty folder."""
    with open_store(options.engine, folder) as url:
        return _run(url, options, folder, advance)


def _run(url: str, options: Options, folder: Path, advance: Callable[[], None]) -> LimitsReport:
    report, dice = LimitsReport(options), random.Random(options.seed)
    with Queue(url) as queue:
        queue.engine.limit_kind(LIMITED, KindLimit(running=RUNNING, rate=RATE, burst=BURST), 0)
        _submit(queue, LIMITED, 0, int(options.seconds * RATE) + 50)
        children = [
            Child("worker", f"worker-{number}", folder, (), "chaos.kind_limits", url) for number in range(options.workers)
        ]
        try:
            for number in range(options.kills):
                _submit(queue, FREE, number * FREE_AT_ONCE, FREE_AT_ONCE)
                time.sleep(dice.uniform(0.5, 1.5) * options.seconds / options.kills)
                kill_and_restart(dice.choice(children), report)
                advance()
        finally:
            for child in children:
                child.kill()
        is_left = any(queue.documents(state="ready", kind=LIMITED))
        problems, facts = check(walk_changes(queue.engine))
    report.wrong += problems
    report.facts = facts
    if not is_left:
        report.wrong.append(f"nothing of kind {LIMITED} is left: it was not always held back by its limits")
    if facts["share idle"] > options.idle_max:
        report.wrong.append(f"a start was allowed and did not come for {facts['share idle']:.1%} of the time")
    if not facts["free kind: starts"]:
        report.wrong.append("the kind without limits was not served")
    return report


def _submit(queue: Queue, kind: str, first: int, count: int) -> None:
    numbers = range(first, first + count)
    queue.engine.submit([Submission(f"{kind}-{number}", f"customer-{number % 5}", kind, "null") for number in numbers])


class LimitCheck:
    """Follows the feed: what of the kind runs, which starts its bucket has, and since when another start is allowed."""

    def __init__(self) -> None:
        self.problems = list[str]()
        self._running = set[str]()
        self._tokens, self._tokens_ms = BURST * 1000.0, 0
        self._starts_ms = list[int]()
        self._allowed_ms: float | None = None
        self._idle_ms = list[float]()
        self._most = 0

    def apply(self, change: ChangeRow) -> None:
        """Follow a line about a document of the kind."""
        if change.what == "claimed":
            self._start(change)
        elif change.what in ENDS:
            self._running.discard(change.document or "")
        else:
            return
        if len(self._running) >= RUNNING or not self._starts_ms:
            self._allowed_ms = None
        elif self._allowed_ms is None or change.what == "claimed":
            self._allowed_ms = max(change.at_ms, self._tokens_ms + max(0.0, 1000 - self._tokens) / RATE)

    def _start(self, change: ChangeRow) -> None:
        if self._starts_ms:
            self._tokens = min(BURST * 1000.0, self._tokens + (change.at_ms - self._tokens_ms) * RATE)
        if self._tokens < 1000:
            self.problems.append(f"change {change.number}: a start although {self._tokens:.0f} thousandths of one were left")
        if self._allowed_ms is not None:
            self._idle_ms.append(max(0.0, change.at_ms - self._allowed_ms))
        self._tokens, self._tokens_ms = self._tokens - 1000, change.at_ms
        self._starts_ms.append(change.at_ms)
        self._running.add(change.document or "")
        self._most = max(self._most, len(self._running))
        if len(self._running) > RUNNING:
            self.problems.append(f"change {change.number}: {len(self._running)} run at once")

    def facts(self) -> dict[str, float]:
        """Return the figures of the whole feed."""
        span_ms = max(1, self._starts_ms[-1] - self._starts_ms[0]) if self._starts_ms else 1
        return {
            "most at once": self._most,
            "starts": len(self._starts_ms),
            "starts a second": len(self._starts_ms) / span_ms * 1000,
            "share idle": sum(self._idle_ms) / span_ms,
            "longest time idle, s": max(self._idle_ms, default=0.0) / 1000,
        }


def check(changes: Iterable[ChangeRow]) -> tuple[list[str], dict[str, float]]:
    """Return where the feed breaks the limits of the kind, and how much of the time a start was allowed and did not come."""
    limited, free_starts = LimitCheck(), 0
    for change in changes:
        if change.document is not None and change.document.startswith(LIMITED):
            limited.apply(change)
        else:
            free_starts += change.what == "claimed"
    return limited.problems, {**limited.facts(), "free kind: starts": free_starts}


@click.command()
@click.option("--engine", type=click.Choice(STORES), default="sqlite", show_default=True)
@click.option("--kills", default=Options.kills, show_default=True)
@click.option("--seconds", default=Options.seconds, show_default=True)
@click.option("--seed", type=int, help="Repeat a run's choices; left out, a new one is drawn and shown.")
@click.option("--json", "is_json", is_flag=True, help="Print the report as JSON.")
def main(engine: str, kills: int, seconds: float, seed: int | None, is_json: bool) -> None:
    """Kill workers of a kind with limits, and check that the limits held and were used."""
    options = Options(engine, kills=kills, seconds=seconds, seed=choose_seed(seed))
    run_and_exit(f"limits of a kind, {engine}", kills, lambda folder, advance: run(options, folder, advance), is_json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        work(sys.argv[2], Path(sys.argv[3]), sys.argv[4])
    else:
        main()
