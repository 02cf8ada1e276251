"""Chaos for the bridge to Celery: its workers are killed with kill -9, the broker and feeders too, at random moments.

A publisher submits tasks all along. At the end every document must have ended once, none may be missing, each token may have
begun one task at most, and what ended a document must have been begun under its newest token.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from fairlane import Queue
from fairlane.core.document import ENDED
from fairlane.procs import reaper
from tests.contrib.celery.running import KEEPS, Feeder, Project, RabbitMQ, RedisBroker, Worker
from tests.servers import rabbitmq, redis

from .checker import check_at_rest, fold_feed
from .history import Clients, StoreSnapshot, snapshot
from .runs import Report, choose_seed, run_and_exit

CUSTOMERS = 20
MILLISECONDS = (0, 5, 30, 100)  # that tasks take
SECONDS_MAX = 120.0  # without anything that ends
PUBLISH = f"""
import random
number = 0
for line in sys.stdin:
    for _ in range(int(line)):
        customer = f"c{{number % {CUSTOMERS}}}"
        number += 1
        print(json.dumps([customer, spin.delay(customer, random.choice({MILLISECONDS})).id]), flush=True)
    print("null", flush=True)
"""


@dataclass(frozen=True)
class Options:
    """Everything that a run depends on."""

    broker: str = "rabbitmq"
    kills: int = 100
    broker_restarts: int = 10
    feeder_kills: int = 10
    documents: int = 4000
    workers: int = 3
    seed: int = 1


class Supervisor:
    """Publishes, kills, restarts, and checks."""

    def __init__(self, options: Options, folder: Path, stack: ExitStack) -> None:
        self.report = Report(options)
        self._options = options
        self._dice = random.Random(options.seed)
        self._path = folder / "queue.db"
        self._broker = _own_broker(options.broker, stack)
        store = f"sqlite:///{self._path}"
        settings = {"broker_connection_max_retries": None, "worker_prefetch_multiplier": 1}
        self._project = Project(
            folder, self._broker, store, settings=settings, options={"lease": 1.5, "attempts": 100}, is_bridge=True
        )
        self._queue = Queue(store)
        stack.callback(self._queue.close)
        self._publisher = stack.enter_context(self._project.script(PUBLISH))
        stack.callback(self._publisher.kill)
        self._workers: list[Worker] = []
        self._feeders: list[Feeder] = []
        stack.callback(self._kill_all)
        self._workers += [self._new_worker(number) for number in range(options.workers)]
        self._feeders += [Feeder(self._project) for _ in range(2)]
        self._pause = threading.Event()
        self._published: list[tuple[str, str]] = []

    def _kill_all(self) -> None:
        for worker in self._workers:
            worker.kill()
        for feeder in self._feeders:
            feeder.kill()

    def _new_worker(self, number: int) -> Worker:
        return Worker(self._project, 2, "--hostname", f"w{number}@localhost")

    def run(self, advance: Callable[[], None]) -> Report:
        """Make all faults in random order, then let everything end."""
        options = self._options
        faults = ["worker"] * options.kills + ["broker"] * options.broker_restarts + ["feeder"] * options.feeder_kills
        self._dice.shuffle(faults)
        self._publish(options.documents // 10)
        for number, fault in enumerate(faults):
            self._wait_for_tasks(self._dice.randrange(3, 12))
            getattr(self, f"_kill_{fault}")()
            self._publish(options.documents * (number + 1) // len(faults) - len(self._published))
            advance()
        self._finish()
        self._check()
        return self.report

    # -- faults --------------------------------------------------------------------------------------------------------

    def _kill_worker(self) -> None:
        """Kill a whole worker, its main process alone, or one process of its pool."""
        number = self._dice.randrange(len(self._workers))
        worker, what = self._workers[number], self._dice.choice(("whole", "main", "child"))
        children = reaper.children_of(worker.process.pid)
        if what == "child" and children:
            os.kill(self._dice.choice(sorted(children)), signal.SIGKILL)
        else:
            what = "main" if what == "main" else "whole"
            if what == "main":
                worker.process.kill()
            else:
                os.killpg(worker.process.pid, signal.SIGKILL)
            worker.process.wait()
            self._workers[number] = self._new_worker(number)
        self.report.kills[f"a worker, {what}"] += 1

    def _kill_broker(self) -> None:
        self._broker.server.kill()
        self._pause.wait(self._dice.uniform(0, 2))
        self._broker.server.start()
        self.report.kills["the broker"] += 1

    def _kill_feeder(self) -> None:
        number = self._dice.randrange(len(self._feeders))
        self._feeders[number].kill()
        self._feeders[number] = Feeder(self._project)
        self.report.kills["a feeder"] += 1

    # -- publishing, and waiting ---------------------------------------------------------------------------------------

    def _publish(self, count: int) -> None:
        assert self._publisher.stdin is not None
        assert self._publisher.stdout is not None
        if count > 0:
            self._publisher.stdin.write(f"{count}\n")
            self._publisher.stdin.flush()
            while (published := json.loads(self._publisher.stdout.readline())) is not None:
                self._published.append((published[0], published[1]))

    def _wait_for_tasks(self, count: int) -> None:
        """Wait until so many more have begun, or nothing is left that could."""
        begun = len(self._project.records())
        self._wait_until(lambda: len(self._project.records()) >= begun + count or not self._unended())
        self._pause.wait(self._dice.uniform(0, 0.3))

    def _wait_until(self, holds: Callable[[], bool]) -> None:
        silent = 0.0
        before = -1
        while not holds():
            self._pause.wait(0.05)
            self._start_ended_workers()
            now = len(self._project.records())
            silent = 0.0 if now != before else silent + 0.05
            before = now
            if silent > SECONDS_MAX:
                raise RuntimeError(f"nothing has begun for {SECONDS_MAX:g} s, and {self._unended()} documents have not ended")

    def _start_ended_workers(self) -> None:
        """Start again, as a service manager does: a worker of Celery's may end by itself when it loses its Redis."""
        for number, worker in enumerate(self._workers):
            if worker.process.poll() is not None:
                self._workers[number] = self._new_worker(number)
                self.report.kills["a worker, by itself"] += 1

    def _unended(self) -> int:
        return sum(look.waiting + look.running for look in self._queue.customers())

    def _finish(self) -> None:
        self._wait_until(lambda: not self._unended())
        self._publisher.kill()

    # -- checking ------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        store = snapshot(self._path)
        begun = [(line["mark"]["id"], line["mark"]["token"] + 1) for line in self._project.records()]
        known: list[Any] = [(customer, None, id) for customer, id in self._published]
        self.report.wrong += check_at_rest(store, Clients(acknowledged=known, claimed=begun))
        self.report.wrong += _unbegun(store, set(begun))
        histories = fold_feed(store)
        self.report.figures = {
            "documents": len(store.documents),
            "begun": len(begun),
            "begun again": len(begun) - len({id for id, _ in begun}),
            "handed over": sum(history.claims for history in histories.values()),
            **{f"ended as {state}": sum(document.state == state for document in store.documents) for state in ENDED},
        }
        if len(store.documents) != len(self._published):
            self.report.wrong.append(
                f"{len(self._published)} tasks were published, and there are {len(store.documents)} documents"
            )


def _unbegun(store: StoreSnapshot, begun: set[tuple[str, int]]) -> list[str]:
    """Return the documents that are done although no task has begun under the token that ended them."""
    return [
        f"document {document.number} is done by token {document.token}, under which nothing has begun"
        for document in store.documents
        if document.state == "done" and (document.id, document.token) not in begun
    ]


def _own_broker(name: str, stack: ExitStack) -> RabbitMQ | RedisBroker:
    """Start a broker that nobody else uses."""
    if name == "rabbitmq":
        rabbit = rabbitmq.Server()
        stack.callback(rabbit.remove)
        return RabbitMQ(rabbit)
    server = redis.Server("redis", *KEEPS, port=redis.free_port())
    stack.callback(server.remove)
    return RedisBroker(server)


def run(options: Options, folder: Path, advance: Callable[[], None] = lambda: None) -> Report:
    """Make one whole run; the folder must be empty."""
    with ExitStack() as stack:
        return Supervisor(options, folder, stack).run(advance)


@click.command()
@click.option("--broker", type=click.Choice(["rabbitmq", "redis"]), default=Options.broker, show_default=True)
@click.option("--kills", default=Options.kills, show_default=True)
@click.option("--broker-restarts", default=Options.broker_restarts, show_default=True)
@click.option("--feeder-kills", default=Options.feeder_kills, show_default=True)
@click.option("--documents", default=Options.documents, show_default=True)
@click.option("--workers", default=Options.workers, show_default=True)
@click.option("--seed", type=int, help="Repeat a run's choices; left out, a new one is drawn and shown.")
@click.option("--json", "is_json", is_flag=True, help="Print the report as JSON.")
def main(seed: int | None, is_json: bool, **values: Any) -> None:
    """kill -9 of Celery's workers, of the broker and of feeders, at random moments, under the bridge."""
    options = Options(seed=choose_seed(seed), **values)
    steps = options.kills + options.broker_restarts + options.feeder_kills
    run_and_exit("The bridge to Celery", steps, lambda folder, advance: run(options, folder, advance), is_json)


if __name__ == "__main__":
    main()
