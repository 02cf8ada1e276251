"""Chaos for whole workers: killed with kill -9 or stopped with SIGSTOP at random moments, nothing is lost, doubled or stuck.

Workers with `def` and `async def` handlers share one SQLite file. A supervisor submits documents all along and, again and
again, kills a worker with kill -9, or stops one past its lease with SIGSTOP and lets it go on. Half of the stopped ones
are stopped with all their processes, half alone. At the end every document must have ended once, every settlement must be in
the feed, what a worker had lost must not have ended by it, and no process of a killed worker may be left.

As `python -m chaos.workers worker NAME FOLDER` it is one of those workers.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click

from fairlane import Backoff, Queue, Retry, Worker
from fairlane.engine.protocol import DocumentFilter
from fairlane.engine.walk import walk_documents
from fairlane.procs import reaper
from fairlane.worker import Document, Event

from .checker import check_at_rest, fold_feed
from .history import ClientLog, read_clients, read_log, snapshot
from .processes import Child

LEASE_SECONDS = 1.0
WAIT_SECONDS = 60.0
KINDS = ("child", "loop")
RUN_SECONDS = (0.02, 0.1, 0.5, 1.3)  # of handlers: enough to keep the workers busy, and some longer than a lease
OURS = (
    "done",
    "failed",
    "retried",
    "postponed",
    "released",
)  # how a worker ends a claim; "expired" and "cancelled" are not by it


@dataclass(frozen=True)
class Options:
    """Everything that a run depends on."""

    kills: int = 200
    freezes: int = 100
    documents: int = 2000
    workers: int = 4
    seed: int = 1


@dataclass
class Report:
    """What a run did, and what was wrong."""

    options: Options
    faults: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)


# -- a worker --------------------------------------------------------------------------------------------------------


def work(name: str, folder: Path) -> None:
    """Run a worker that logs its claims and what became of them."""
    log = ClientLog(folder / f"{name}.log")
    worker = Worker(f"sqlite:///{folder / 'queue.db'}", slots=2, lease=LEASE_SECONDS, name=name, backoff=Backoff(0, ceiling=0))

    def result_of(document: Document) -> str:
        """Return a value that is unique for each claim, so that the store shows whose outcome it kept."""
        mark = f"{document.id}/{document.token}"
        if random.random() < 0.05:
            raise Retry(after=0, reason=mark)
        return mark

    @worker.handler("child", attempts=1000)
    def child(document: Document) -> str:
        time.sleep(random.choice(RUN_SECONDS))
        return result_of(document)

    @worker.handler("loop", attempts=1000)
    async def loop(document: Document) -> str:
        await asyncio.sleep(random.choice(RUN_SECONDS))
        return result_of(document)

    def settled(event: Event) -> None:
        mark = f"{event.id}/{event.token}"
        log.write("settling", [(mark, event.id, event.token, event.outcome)])
        log.write("settled", [(mark, True)])

    def lost(event: Event) -> None:
        mark = f"{event.id}/{event.token}"
        log.write("settling", [(mark, event.id, event.token, "lost")])
        log.write("settled", [(mark, False)])

    for event_name, hook in (("finished", settled), ("unfinished", settled), ("lost", lost)):
        worker.on(event_name, hook)
    worker.on("began", lambda event: log.write("claimed", [(event.id, event.token)]))
    worker.on("started", lambda event: log.write("started", os.getpid()))
    worker.run()


# -- the supervisor --------------------------------------------------------------------------------------------------


class Supervisor:
    """Submits, kills, stops, and checks."""

    def __init__(self, options: Options, folder: Path) -> None:
        self.report = Report(options)
        self._dice = random.Random(options.seed)
        self._folder = folder
        self._queue = Queue(f"sqlite:///{folder / 'queue.db'}")
        self._log = ClientLog(folder / "submitter.log")
        self._submitted = 0
        self._workers = [Child("worker", f"worker-{number}", folder, (), "chaos.workers") for number in range(options.workers)]

    def run(self, advance: Callable[[], None]) -> Report:
        """Make all faults in random order, then let the workers finish everything."""
        options = self.report.options
        faults = ["kill"] * options.kills + ["freeze"] * options.freezes
        self._dice.shuffle(faults)
        try:
            for number, fault in enumerate(faults):
                self._submit(options.documents * (number + 5) // (len(faults) + 5))
                worker = self._dice.choice(self._workers)
                worker.wait_for_work()
                self._sleep(0.3)
                if problem := worker.unexpected_exit():
                    self.report.wrong.append(problem)
                self._kill(worker) if fault == "kill" else self._freeze(worker)
                advance()
            self._submit(options.documents)
            self._finish()
        finally:
            for worker in self._workers:
                worker.kill()
        self._check()
        return self.report

    def _sleep(self, seconds_max: float) -> None:
        time.sleep(self._dice.uniform(0, seconds_max))

    def _submit(self, upto: int) -> None:
        """Submit as many documents as belong to the faults so far, of a few customers."""
        while self._submitted < upto:
            customer, kind = f"customer-{self._dice.randrange(8)}", self._dice.choice(KINDS)
            key = f"document-{self._submitted}"
            self._log.write("submitting", [(customer, key)])
            id = self._queue.submit(customer, None, kind=kind, key=key).id
            self._log.write("submitted", [(customer, key, id)])
            self._submitted += 1

    def _describe_claims(self, worker: Child) -> str:
        return "holding documents" if any(
            document.worker == worker.name for document in walk_documents(self._queue.engine, DocumentFilter(state="running"))
        ) else "holding nothing"  # fmt: skip

    def _kill(self, worker: Child) -> None:
        self.report.faults[f"kill -9 of a worker {self._describe_claims(worker)}"] += 1
        tree = process_tree(worker.pid)
        worker.kill()
        if left := _left_of(tree):
            self.report.wrong.append(f"processes {left} of {worker.name} outlived it")
        worker.start()

    def _freeze(self, worker: Child) -> None:
        """Stop a worker past its lease, so that others take over its documents."""
        pids = sorted(process_tree(worker.pid)) if self._dice.random() < 0.5 else [worker.pid]
        extent = "with its helpers" if len(pids) > 1 else "alone"
        self.report.faults[f"SIGSTOP of a worker {extent} {self._describe_claims(worker)}"] += 1
        _signal(pids, signal.SIGSTOP)
        time.sleep(LEASE_SECONDS * self._dice.uniform(1.2, 1.8))
        _signal(pids, signal.SIGCONT)

    def _finish(self) -> None:
        """Wait until every document has ended; then stop the workers."""
        deadline = time.monotonic() + WAIT_SECONDS + self.report.options.documents / 20
        while any(customer.waiting or customer.running for customer in self._queue.customers()):
            if time.monotonic() > deadline:
                self.report.wrong.append("not every document ended in time")
                return
            time.sleep(0.05)
        for worker in self._workers:
            worker.wait_for_work()
            worker.terminate()
        self.report.wrong += [problem for worker in self._workers if (problem := worker.wait_for_exit())]

    def _check(self) -> None:
        self._queue.close()
        report, store = self.report, snapshot(self._folder / "queue.db")
        clients = read_clients([self._folder / "submitter.log", *(worker.log for worker in self._workers)])
        settlements = list(clients.settlements.values())
        report.wrong += check_at_rest(store, clients)
        histories = fold_feed(store)
        for settlement in settlements:
            id, token = settlement.id, settlement.token
            closing = histories[id].closing.get(token) if id in histories else None
            if settlement.outcome == "lost" and closing is not None and closing.what in OURS:
                report.wrong.append(f"{id}, token {token}, was lost by its worker and {closing.what} all the same")
        report.wrong += [f"document {row.number} is {row.state}" for row in store.documents if row.state != "done"]
        required = (
            "kill -9 of a worker holding documents",
            "SIGSTOP of a worker alone",
            "SIGSTOP of a worker with its helpers",
        )
        report.wrong += [f"there was no {fault}" for fault in required if fault not in _without_claims(report.faults)]
        runs = sum(len(facts[0]) for worker in self._workers for what, *facts in read_log(worker.log) if what == "claimed")
        report.figures = {
            "documents": len(store.documents),
            "handlers begun": runs,
            "leases run out": sum(line.what == "expired" for line in store.changes),
            "claims lost and noticed": sum(settlement.outcome == "lost" for settlement in settlements),
            "retried": sum(settlement.outcome == "retried" for settlement in settlements),
            "done": sum(row.state == "done" for row in store.documents),
        }
        if not report.figures["leases run out"] or (report.options.freezes and not report.figures["claims lost and noticed"]):
            report.wrong.append("no lease ran out, or no worker noticed that it had lost one: nothing was proved")


def _without_claims(faults: Counter[str]) -> list[str]:
    """Return the names of faults, those of stopped workers whatever claims they had."""
    return [
        name.removesuffix(" holding nothing").removesuffix(" holding documents") if "STOP" in name else name for name in faults
    ]


def process_tree(pid: int) -> set[int]:
    """Return a process and its descendants."""
    return {pid}.union(*(process_tree(child) for child in reaper.children_of(pid)))


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _left_of(pids: set[int]) -> list[int]:
    """Return the processes that still live after a while."""
    deadline = time.monotonic() + 10
    while left := [pid for pid in pids if _is_alive(pid)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.005)
    return []


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def run(options: Options, folder: Path, advance: Callable[[], None] = lambda: None) -> Report:
    """Make one whole run; the folder must be empty."""
    return Supervisor(options, folder).run(advance)


@click.command()
@click.option("--kills", default=Options.kills, show_default=True)
@click.option("--freezes", default=Options.freezes, show_default=True)
@click.option("--documents", default=Options.documents, show_default=True)
@click.option("--workers", default=Options.workers, show_default=True)
@click.option("--seed", type=int, help="Repeat a run's choices; left out, a new one is drawn and shown.")
def main(seed: int | None, **numbers: int) -> None:
    """kill -9 and SIGSTOP of whole workers at random moments, on one SQLite file."""
    options = Options(seed=random.randrange(10**6) if seed is None else seed, **numbers)
    print(f"workers, seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="fairlane-chaos-") as folder:
        report = run(options, Path(folder))
    outcome = {"options": asdict(options), "faults": dict(report.faults), "figures": report.figures, "wrong": report.wrong}
    print(json.dumps(outcome | {"is_good": not report.wrong}, indent=2))
    sys.exit(1 if report.wrong else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        work(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
