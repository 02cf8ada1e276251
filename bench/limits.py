"""Benchmark of customers' limits: submissions and claims with every limit set, beside the same without any, on each engine.

Two queues of one store take turns, a short round each, and the medians are compared: one without limits, one whose customers
have all of them, so far away that nothing is refused. Servers do not sync, so that what a limit costs is not lost in that.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fairlane import Queue
from tests.servers import postgres, redis

from . import durable
from .durable import Scenario
from .figures import Figure, Goal

ENGINES = ("sqlite", "postgres", "redis", "valkey")
GOAL = Goal(1.5, is_least=False)
FAR = 10**12
WARM_ROUNDS = 1


def scenarios(is_quick: bool) -> list[Scenario]:
    """Return scenarios of the SQLite benchmark, in short rounds."""
    if is_quick:
        return [durable.one_caller(20)]
    return [durable.one_caller(200), durable.batches(2000), durable.claims(1000)]


def measure(engine: str, is_quick: bool, folder: Path, advance: Callable[[], None]) -> list[Figure]:
    """Measure one engine."""
    rounds = WARM_ROUNDS + (2 if is_quick else 21)
    figures = []
    with _store(engine, folder) as url_of:
        for number, scenario in enumerate(scenarios(is_quick)):
            with Queue(url_of(f"free_{number}")) as free, Queue(url_of(f"limited_{number}")) as limited:
                free.configure(waiting_max=None, descendants_max=None)
                limited.configure(waiting_max=FAR, descendants_max=FAR, documents_max=FAR, bytes_max=FAR)
                figures.append(_compare(engine, scenario, rounds, free, limited))
            advance()
    return figures


def _compare(engine: str, scenario: Scenario, rounds: int, free: Queue, limited: Queue) -> Figure:
    times: dict[Queue, list[float]] = {free: [], limited: []}
    for queue in times:
        scenario.prepare(queue, rounds)
    for round in range(rounds):
        for queue in times if round % 2 else reversed(times):
            began = time.perf_counter()
            scenario.run(queue, round)
            times[queue].append((time.perf_counter() - began) / scenario.documents)
    own, limit = (1e6 * statistics.median(times[queue][WARM_ROUNDS:]) for queue in (limited, free))
    return Figure(f"limits, {engine}: {scenario.name}", own, "µs/document", limit, GOAL, "beside no limits")


@contextmanager
def _store(engine: str, folder: Path) -> Iterator[Callable[[str], str]]:
    """Start a store; yields what returns the URL of one of its queues."""
    if engine == "sqlite":
        folder.mkdir()
        yield lambda name: f"sqlite:///{folder}/{name}.db"
    elif engine == "postgres":
        with postgres.Server(postgres.find_programs()) as server:
            yield lambda name: f"{server.url}?schema={name}"
    else:
        started = redis.Server(engine, port=redis.free_port())
        try:
            yield started.url
        finally:
            started.remove()
