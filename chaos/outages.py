"""A drill: the store of a running service is away for a while, again and again; nothing is lost, and all are back at once.

Run as `python -m chaos.outages --engine postgres --fault refuse`. `fairlane serve`, two workers and two followers of the events
use a store over a link that fails for 10, 20, 60, 75 and 150 seconds while senders go on. Then the link fails once more, and
the service and a worker get SIGTERM while it is away. The report says for each outage how long it took until requests got a
503, from when on each one came quickly, and how soon everybody was at work again; and for each process which share of
the time with a link it lost in gaps. At the end every document must have ended once, as the store and the logs show.

As `python -m chaos.outages worker NAME FOLDER URL` it is one of those workers.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import click

from fairlane import Backoff, Queue, Worker
from fairlane.api import auth
from fairlane.worker import Document, Event

from .checker import check_at_rest, fold_feed
from .history import ClientLog, read_clients, read_log
from .links import LINKS, Link
from .outage_actors import Follower, Senders, Service
from .processes import Child
from .runs import Report, choose_seed, run_and_exit
from .servers import SERVERS

KIND = "drill"
WORKERS, FOLLOWERS, SENDERS = 2, 2, 4
CUSTOMERS = ("ada", "bob", "eve")
LEASE_SECONDS = 5.0
RUN_SECONDS = 0.15  # of a handler
QUICK_SECONDS = 2.0  # of a response, once the store is known to be away
KNOWN_SECONDS_MAX = 32.0  # until it is known: a call takes 30 s at most
BACK_SECONDS_MAX = 5.0
SERVE_STOP_SECONDS_MAX = 20.0
WORKER_STOP_SECONDS_MAX = 62.0  # grace, one call, and a little
GAPS_MAX = 0.10  # of the time with a link
END_SECONDS = 180.0


@dataclass(frozen=True)
class Options:
    """Everything that a run depends on."""

    engine: str = "postgres"
    fault: str = "refuse"
    seconds: tuple[float, ...] = (10, 20, 60, 75, 150)
    between_seconds: float = 20.0
    rate: float = 20.0  # submissions a second
    stop_seconds: float = 5.0  # SIGTERM comes so long after the link failed for the last time; 0: no SIGTERM
    seed: int = 1


class Outage(NamedTuple):
    """When a link was away, on the monotonic clock."""

    began_at: float
    ended_at: float


@dataclass
class OutageReport(Report):
    """The report of a drill."""

    outages: list[dict[str, float | None]] = field(default_factory=list)
    gaps: dict[str, float] = field(default_factory=dict)  # the share of the time with a link that a process lost
    stops: dict[str, float] = field(default_factory=dict)  # seconds from SIGTERM to the end

    def lines(self) -> Iterator[str]:
        """Yield the report as lines of text."""
        for outage in self.outages:
            yield "  ".join(f"{name} {'-' if value is None else f'{value:.2f}'}" for name, value in outage.items())
        yield "Lost in gaps: " + ", ".join(f"{name} {share:.1%}" for name, share in self.gaps.items())
        yield "From SIGTERM to the end: " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.stops.items())
        yield from super().lines()


# -- a worker --------------------------------------------------------------------------------------------------------


def work(name: str, folder: Path, url: str) -> None:
    """Run a worker that logs its claims, what became of them, and when."""
    log = ClientLog(folder / f"{name}.log")
    worker = Worker(url, slots=2, lease=LEASE_SECONDS, name=name, backoff=Backoff(0, ceiling=0))

    @worker.handler(KIND, attempts=1000)
    async def handle(document: Document) -> str:
        await asyncio.sleep(random.uniform(0, 2 * RUN_SECONDS))
        return f"{document.id}/{document.token}"

    def finished(event: Event) -> None:
        mark = f"{event.id}/{event.token}"
        log.write("settling", [(mark, event.id, event.token, event.outcome)])
        log.write("settled", [(mark, True)])
        log.write("worked", time.monotonic())

    worker.on("finished", finished)
    worker.on("unfinished", finished)
    worker.on("lost", lambda event: log.write("lost", event.id, event.token))
    worker.on("began", lambda event: log.write("claimed", [(event.id, event.token)]))
    worker.on("started", lambda event: log.write("started", time.monotonic()))
    worker.run()


# -- the drill -------------------------------------------------------------------------------------------------------


class Drill:
    """Runs the processes, lets the link fail, and checks."""

    def __init__(self, options: Options, folder: Path, stack: ExitStack) -> None:
        self.report = OutageReport(options)
        self._options = options
        self._store = SERVERS[options.engine]()
        stack.callback(self._store.close)
        self._link: Link = LINKS[options.fault](self._store.upstream)
        stack.callback(self._link.close)
        url = self._store.url_through(self._link.host, self._link.port)
        with Queue(self._store.url) as queue:
            keys = {customer: auth.create(queue.engine, customer=customer)[0] for customer in CUSTOMERS}
        self._service = Service(folder, url, KIND)
        stack.callback(self._service.kill)
        self._workers = [Child("worker", f"worker-{number}", folder, (), "chaos.outages", url) for number in range(WORKERS)]
        for worker in self._workers:
            stack.callback(worker.kill)
        self._senders = Senders(self._service.address, keys, KIND, folder, options.rate, SENDERS)
        stack.callback(self._senders.stop)
        self._followers = [Follower(self._service.address, self._service.key) for _ in range(FOLLOWERS)]
        for follower in self._followers:
            stack.callback(follower.stop)
        self._outages: list[Outage] = []
        self._began_at = 0.0

    def run(self, advance: Callable[[], None]) -> OutageReport:
        """Let the link fail for each of the times, then once more with SIGTERM, and check at rest."""
        options = self._options
        self._wait_until_busy()
        time.sleep(options.between_seconds)
        for seconds in options.seconds:
            self._fail(lambda seconds=seconds: time.sleep(seconds))  # type: ignore[misc]
            time.sleep(options.between_seconds)
            self.report.wrong += [problem for worker in self._workers if (problem := worker.unexpected_exit())]
            advance()
        self._measure(time.monotonic())
        if options.stop_seconds:
            self._fail(self._stop_while_away)
            advance()
        self._finish()
        self._check()
        return self.report

    def _wait_until_busy(self) -> None:
        deadline = time.monotonic() + END_SECONDS
        while not (self._senders.successes() and all(map(worked, self._workers)) and all(f.times for f in self._followers)):
            if time.monotonic() > deadline:
                raise TimeoutError("the service, the workers or the followers did not begin")
            time.sleep(0.05)
        self._began_at = time.monotonic()

    def _fail(self, wait: Callable[[], None]) -> None:
        began_at = time.monotonic()
        self._link.fail()
        wait()
        self._link.restore()
        self._outages.append(Outage(began_at, time.monotonic()))

    def _stop_while_away(self) -> None:
        """Send SIGTERM to the service and a worker, and start them again when the link is back."""
        time.sleep(self._options.stop_seconds)
        limits = {"serve": SERVE_STOP_SECONDS_MAX, "worker": WORKER_STOP_SECONDS_MAX}
        with ThreadPoolExecutor(2) as threads:
            stops = {"serve": threads.submit(self._service.stop), "worker": threads.submit(self._workers[0].stop)}
        self.report.stops = {name: stop.result() for name, stop in stops.items()}
        for name, seconds in self.report.stops.items():
            if seconds > limits[name]:
                self.report.wrong.append(f"{name} took {seconds:.1f} s to end while the store was away")

    def _measure(self, ended_at: float) -> None:
        """Measure every outage so far, and the gaps of every process."""
        progress = {"serve": self._senders.successes(), **{worker.name: worked(worker) for worker in self._workers}}
        progress |= {f"follower-{number}": list(each.times) for number, each in enumerate(self._followers)}
        for outage in self._outages:
            self.report.outages.append(self._figures(outage, progress))
        ups = list(zip([self._began_at, *(outage.ended_at for outage in self._outages)],
                       [*(outage.began_at for outage in self._outages), ended_at], strict=True))  # fmt: skip
        for name in ("serve", *(worker.name for worker in self._workers)):
            self.report.gaps[name] = lost_share(ups, progress[name])
            if self.report.gaps[name] > GAPS_MAX:
                self.report.wrong.append(f"{name} lost {self.report.gaps[name]:.0%} of the time with a link in gaps")

    def _figures(self, outage: Outage, progress: dict[str, list[float]]) -> dict[str, float | None]:
        during = [
            request
            for request in self._senders.requests
            if outage.began_at < request.ended_at and request.began_at < outage.ended_at
        ]
        refused = [request.ended_at for request in during if request.status == 503 and request.ended_at < outage.ended_at]
        slow = [request.began_at for request in during if request.ended_at - request.began_at > QUICK_SECONDS]
        slowest = max((request.ended_at - request.began_at for request in during), default=0.0)
        figures: dict[str, float | None] = {
            "away": outage.ended_at - outage.began_at,
            "first 503": min(refused) - outage.began_at if refused else None,
            "quick from": max(0.0, max(slow, default=0.0) - outage.began_at),  # every request from then on had a quick response
            "slowest": slowest,
        }
        for name, times in progress.items():
            back = min((at for at in times if at > outage.ended_at), default=None)
            figures[name] = None if back is None else back - outage.ended_at
            if back is None or back - outage.ended_at > BACK_SECONDS_MAX:
                self.report.wrong.append(f"{name} was not back within {BACK_SECONDS_MAX:g} s of an outage: {figures}")
        if max(slow, default=0.0) > outage.began_at + KNOWN_SECONDS_MAX:
            self.report.wrong.append(f"requests hung although the store was known to be away: {figures}")
        return figures

    def _finish(self) -> None:
        """Start again what was stopped, and wait until every document has ended."""
        if self._options.stop_seconds:
            self._service.start()
            self._workers[0].start()
        self._senders.finish(END_SECONDS)
        deadline = time.monotonic() + END_SECONDS
        with Queue(self._store.url) as queue:
            while any(customer.waiting or customer.running for customer in queue.customers()):
                if time.monotonic() > deadline:
                    self.report.wrong.append("not every document ended in time")
                    break
                time.sleep(0.1)
        for worker in self._workers:
            worker.wait_for_work()  # it has begun to listen to signals
            worker.terminate()
        self.report.wrong += [problem for worker in self._workers if (problem := worker.wait_for_exit())]
        self._service.stop()

    def _check(self) -> None:
        logs = [self._senders.log, *(worker.log for worker in self._workers)]
        store, clients = self._store.snapshot(), read_clients(logs)
        report, histories = self.report, fold_feed(store)
        report.wrong += check_at_rest(store, clients)
        report.wrong += [f"document {row.number} is {row.state}" for row in store.documents if row.state != "done"]
        for worker in self._workers:
            report.wrong += told_again(worker)
        for number, follower in enumerate(self._followers):
            report.wrong += [f"follower-{number}: {problem}" for problem in follower.problems()]
        statuses = [request.status for request in self._senders.requests]
        report.figures = {
            "documents": len(store.documents),
            "acknowledged": len({(customer, key) for customer, key, _ in clients.acknowledged}),
            "requests": len(statuses),
            "503": statuses.count(503),
            "without a response": statuses.count(0),
            "claims": sum(history.claims for history in histories.values()),
            "leases run out": sum(line.what == "expired" for line in store.changes),
            "events followed": sum(len(follower.numbers) for follower in self._followers),
        }


def worked(worker: Child) -> list[float]:
    """Return when a worker ended documents."""
    return [facts[0] for what, *facts in read_log(worker.log) if what == "worked"]


def told_again(worker: Child) -> Iterator[str]:
    """Find claims that were lost, and ended later all the same."""
    lost: set[str] = set()
    for what, *facts in read_log(worker.log):
        if what == "lost":
            lost.add(f"{facts[0]}/{facts[1]}")
        elif what == "settling":
            yield from (f"{worker.name} lost {mark}, and then ended it" for mark, *_ in facts[0] if mark in lost)


def lost_share(ups: list[tuple[float, float]], times: list[float]) -> float:
    """Return which share of the seconds with a link passed without any progress."""
    seconds = lost = 0
    for began_at, ended_at in ups:
        whole = int(ended_at - began_at)
        alive = {int(at - began_at) for at in times if began_at <= at < began_at + whole}
        seconds, lost = seconds + whole, lost + whole - len(alive)
    return lost / max(1, seconds)


def run(options: Options, folder: Path, advance: Callable[[], None] = lambda: None) -> OutageReport:
    """Make one drill in an empty folder."""
    with ExitStack() as stack:
        return Drill(options, folder, stack).run(advance)


@click.command()
@click.option("--engine", type=click.Choice(list(SERVERS)), default=Options.engine, show_default=True)
@click.option("--fault", type=click.Choice(list(LINKS)), default=Options.fault, show_default=True)
@click.option("--seconds", default=",".join(map(str, Options.seconds)), show_default=True, help="How long each outage lasts.")
@click.option("--between", "between_seconds", default=Options.between_seconds, show_default=True)
@click.option("--rate", default=Options.rate, show_default=True, help="Submissions a second.")
@click.option("--stop-after", "stop_seconds", default=Options.stop_seconds, show_default=True, help="0: no SIGTERM.")
@click.option("--seed", type=int, help="Repeat the random choices of a run. Default: a new seed, which is shown.")
@click.option("--json", "is_json", is_flag=True, help="Print the report as JSON.")
def main(engine: str, fault: str, seconds: str, seed: int | None, is_json: bool, **values: float) -> None:
    """A store that is away for a while, under a service with workers and followers."""
    times = tuple(float(each) for each in seconds.split(","))
    options = Options(engine, fault, times, seed=choose_seed(seed), **values)
    title = f"{engine}, {fault}, seed {options.seed}"
    run_and_exit(title, len(times) + bool(options.stop_seconds), lambda folder, advance: run(options, folder, advance), is_json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        work(sys.argv[2], Path(sys.argv[3]), sys.argv[4])
    else:
        main()
