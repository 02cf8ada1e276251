"""Benchmark of the simulator: CPU time and memory of a replay, and how they grow.

CPU seconds, not seconds: the machine may be shared. Memory is measured by tracemalloc in separate runs, without the arrays of
results, which have an entry for every document.
"""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable
from random import Random

from fairlane.sim.contenders import CONTENDERS
from fairlane.sim.replay import replay
from fairlane.sim.workload import Arrival, Workload

from .figures import Figure, Goal

WORKERS = 8
GOAL_SECONDS = 10.0
RESULT_BYTES = 8 + 8 + 8 + 1  # start, turn, counter, priority


def _workload(documents: int, load: float) -> Workload:
    """Generate few customers, so that their lanes need little memory; the big ones send most documents, in batches."""
    random = Random(documents)
    arrivals: list[Arrival] = []
    at = 0.0
    while len(arrivals) < documents:
        at += random.expovariate(1)
        big = random.random() < 0.1
        customer = f"big-{random.randrange(5)}" if big else f"small-{random.randrange(40)}"
        count = random.randint(50, 120) if big else 1
        arrivals += [Arrival(round(at * 1000), customer, round(random.expovariate(1) * 1_000_000)) for _ in range(count)]
    return Workload.of(f"{documents:,} documents", arrivals[:documents]).at_load(load, WORKERS)


def _seconds(workload: Workload) -> float:
    began = time.process_time()
    replay(workload, CONTENDERS["texts"], WORKERS)
    return time.process_time() - began


def _peak_mib(workload: Workload) -> float:
    """Return the peak memory in MiB, without the results."""
    tracemalloc.start()
    replay(workload, CONTENDERS["texts"], WORKERS)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return (most - RESULT_BYTES * len(workload)) / 2**20


def measure(documents: int, rounds: int, advance: Callable[[], None]) -> list[Figure]:
    """Measure the time for this many documents and an eighth of them, and the memory when few and when all wait."""
    large, small = _workload(documents, 0.9), _workload(documents // 8, 0.9)
    pairs = []
    for _ in range(rounds):
        pairs.append((_seconds(large), _seconds(small)))
        advance()
    seconds, small_seconds = min(large for large, _ in pairs), min(small for _, small in pairs)
    nlogn = 8 * math.log(documents) / math.log(documents // 8)
    flood = Workload.of("flood", [Arrival(0, f"c{number % 1000}", 1_000_000) for number in range(documents // 8)])
    calm, calm_small = _peak_mib(_workload(documents, 0.3)), _peak_mib(_workload(documents // 8, 0.3))
    return [
        Figure(f"replay {documents:,} documents, texts", seconds, "CPU s", GOAL_SECONDS, Goal(1.0, False), "limit is the goal"),
        Figure("replay, growth from an eighth", seconds / small_seconds, "times", nlogn, Goal(1.25, False), "limit is n log n"),
        Figure(
            "replay holds, little waits", calm, "MiB", calm_small, Goal(1.5, False), "limit is with an eighth of the documents"
        ),
        Figure(f"replay holds, {len(flood):,} wait", _peak_mib(flood), "MiB", calm_small, None, "beside little waiting"),
    ]
