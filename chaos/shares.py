"""Two customers whose documents take 10 ms and a second share four workers: the shares of processing time, by the clock.

Run as `python -m chaos.shares`. Both customers have more waiting at the last priority than can be processed. Real workers run
for a minute; then the feed says for how long each customer's documents were in work, and the workers' logs for how long
their handlers ran. With weights the shares follow them. With `--lagging` the same in a kind that is new beside one that was
served for a while.

As `python -m chaos.shares worker NAME FOLDER URL` it is one of those workers.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click

from fairlane import Queue, Worker
from fairlane.core.document import Submission
from fairlane.worker import Document

from .history import ClientLog, read_log, walk_changes
from .processes import Child
from .runs import Report, run_and_exit
from .stores import STORES, open_store

QUICK, SLOW = "quick", "slow"
SECONDS = {QUICK: 0.01, SLOW: 1.0}  # that one document takes
KIND, OLDER = "extract", "older"
WORKERS = 4
STEPS = 60
LAST = 9  # priority
BATCH = 1000


@dataclass(frozen=True)
class Options:
    """The options of a run."""

    engine: str = "sqlite"
    seconds: float = 60
    weight: int = 1  # of the customer with quick documents; the other has 1
    lagging: bool = False
    open_turn_every: int = 16
    error_max: float = 0.05  # of the ratio of the shares, beside that of the weights


@dataclass
class SharesReport(Report):
    """The report of a run, with the shares."""

    shares: dict[str, float] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Yield the report as lines of text."""
        yield from (f"{name}: {value:,.3f}" for name, value in self.shares.items())
        yield from super().lines()


def work(name: str, folder: Path, url: str) -> None:
    """Run a worker that logs how long its handlers ran."""
    log = ClientLog(folder / f"{name}.log")
    worker = Worker(url, slots=1, name=name)

    async def handle(document: Document) -> None:
        began_at = time.monotonic()
        await asyncio.sleep(document.payload)
        log.write("ran", document.customer, document.kind, time.monotonic() - began_at)

    for kind in (KIND, OLDER):
        worker.handler(kind)(handle)
    worker.on("started", lambda event: log.write("started"))
    worker.run()


def run(options: Options, folder: Path, advance: Callable[[], None] = lambda: None) -> SharesReport:
    """Run once in an empty folder."""
    with open_store(options.engine, folder) as url:
        return _run(url, options, folder, advance)


def _run(url: str, options: Options, folder: Path, advance: Callable[[], None]) -> SharesReport:
    report = SharesReport(options)
    with Queue(url) as queue:
        queue.configure(waiting_max=None, open_turn_every=options.open_turn_every)
        queue.tune(QUICK, weight=options.weight)
        _submit(queue, OLDER if options.lagging else KIND, options.seconds)
        workers = [Child("worker", f"worker-{number}", folder, (), "chaos.shares", url) for number in range(WORKERS)]
        try:
            if options.lagging:
                time.sleep(options.seconds / 4)
                _submit(queue, KIND, options.seconds)
            after = max((change.number for change in walk_changes(queue.engine, 0)), default=0)
            for _ in range(STEPS):
                time.sleep(options.seconds / STEPS)
                advance()
            in_work = _seconds_in_work(queue, after)
            waiting = {look.customer: look.waiting for look in queue.customers()}
        finally:
            for worker in workers:
                worker.kill()
    ran = _seconds_run(folder)
    report.wrong += [f"{customer} has nothing waiting any more: its share was not limited" for customer in SECONDS
                     if not waiting[customer]]  # fmt: skip
    report.shares = {
        **{f"{customer}: seconds in work": in_work[customer] for customer in SECONDS},
        **{f"{customer}: seconds in the handler": ran[customer] for customer in SECONDS},
        "ratio by the clock from claim to end": in_work[QUICK] / in_work[SLOW],
        "ratio in the handlers": ran[QUICK] / ran[SLOW],
        "ratio of the weights": options.weight,
    }
    # turns are paid in whole milliseconds, cut down: with weight w up to (w - 1) / w of one is saved for each document
    error_max = options.error_max + (options.weight - 1) * 0.001 / SECONDS[QUICK]
    error = abs(in_work[QUICK] / in_work[SLOW] / options.weight - 1)
    if error > error_max:
        report.wrong.append(f"the ratio is {error:.1%} off that of the weights, {error_max:.0%} are allowed")
    return report


def _submit(queue: Queue, kind: str, seconds: float) -> None:
    for customer, each in SECONDS.items():
        count = int(seconds * WORKERS / each) + 100
        submissions = [
            Submission(f"{kind}-{customer}-{number}", customer, kind, str(each), no_better_than=LAST) for number in range(count)
        ]
        for first in range(0, count, BATCH):
            queue.engine.submit(submissions[first : first + BATCH])


def _seconds_in_work(queue: Queue, after: int) -> dict[str, float]:
    """Return the seconds for which documents of the kind were claimed, by customer, from after that change up to the last."""
    began = dict[str, tuple[str, int]]()
    seconds = defaultdict[str, float](float)
    now_ms = 0
    for change in walk_changes(queue.engine, after):
        now_ms, document = change.at_ms, change.document or ""
        if change.what == "claimed" and document.startswith(KIND):
            began[document] = change.customer or "", now_ms
        elif document in began:
            customer, began_ms = began.pop(document)
            seconds[customer] += (now_ms - began_ms) / 1000
    for customer, began_ms in began.values():
        seconds[customer] += (now_ms - began_ms) / 1000
    return seconds


def _seconds_run(folder: Path) -> dict[str, float]:
    seconds = defaultdict[str, float](float)
    for path in folder.glob("worker-*.log"):
        for what, *facts in read_log(path):
            if what == "ran" and facts[1] == KIND:
                seconds[facts[0]] += facts[2]
    return seconds


@click.command()
@click.option("--engine", type=click.Choice(STORES), default="sqlite", show_default=True)
@click.option("--seconds", default=Options.seconds, show_default=True)
@click.option("--weight", default=Options.weight, show_default=True, help="Of the customer with quick documents.")
@click.option("--lagging", is_flag=True, help="Measure in a kind that is new beside one that was served for a while.")
@click.option("--open-turn-every", default=Options.open_turn_every, show_default=True, help="0: no open turns.")
@click.option("--json", "is_json", is_flag=True, help="Print the report as JSON.")
def main(is_json: bool, **values: object) -> None:
    """Measure how two customers with documents of 10 ms and a second share the time of four workers."""
    options = Options(**values)  # type: ignore[arg-type]
    run_and_exit("shares", STEPS, lambda folder, advance: run(options, folder, advance), is_json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        work(sys.argv[2], Path(sys.argv[3]), sys.argv[4])
    else:
        main()
