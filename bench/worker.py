"""Figures of the worker: throughput, time to start, and the cost of a flood to other customers.

The worker runs in a process of its own, as in production, on an SQLite file; this process submits and reads the results.
Handlers return the moment they began, on the clock that both processes share, so a wait ends with the first line of the
handler. It begins with the call of `submit`, or, where that is said, with its return: from then on the document is there.
Values are medians of the rounds, and the notes show the rounds.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fairlane import Queue, Worker
from fairlane.worker import Document

from .figures import Figure, Goal

SLOTS = 4
STEPS = 6  # that a measurement advances by
FLOOD_SECONDS = 0.005  # that a document of the flood takes
LIGHT_CUSTOMERS, LIGHT_EACH, LIGHT_SPAN_SECONDS = 50, 2, 5.0


def nothing(document: Document) -> float:
    return time.time()


async def nothing_async(document: Document) -> float:
    return time.time()


def flood(document: Document) -> list[float]:
    began = time.time()
    time.sleep(FLOOD_SECONDS)
    return [began, time.time()]


async def flood_async(document: Document) -> list[float]:
    began = time.time()
    await asyncio.sleep(FLOOD_SECONDS)
    return [began, time.time()]


HANDLERS: dict[str, Callable[[Document], object]] = {
    "nothing": nothing, "nothing_async": nothing_async, "flood": flood, "flood_async": flood_async,
}  # fmt: skip


def child(url: str, kind: str, is_until_empty: bool) -> None:
    """Run a worker that prints when it has started, and at its end what it cost."""
    worker = Worker(url, slots=SLOTS)
    worker.handler(kind)(HANDLERS[kind])
    worker.on("started", lambda _: print("started", flush=True))
    began = time.perf_counter()
    worker.run(until_empty=is_until_empty)
    elapsed = time.perf_counter() - began
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps({"seconds": elapsed, "cpu": sum(usage.ru_utime + usage.ru_stime for usage in used)}), flush=True)


@contextmanager
def _worker(url: str, kind: str, is_until_empty: bool = False) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "bench.worker", url, kind, str(int(is_until_empty))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate()


def _results(queue: Queue, ids: list[str]) -> list[float]:
    return [queue.result(id) for id in ids]


def _until_done(queue: Queue, customers: int, count: int) -> None:
    while sum(customer.done for customer in queue.customers()) < count:
        time.sleep(0.01)


def drain(kind: str, documents: int, folder: Path) -> tuple[float, float]:
    """Measure documents a second from the first begun to the last settled, and CPU seconds for a thousand."""
    url = f"sqlite:///{folder / 'drain.db'}"
    with Queue(url) as queue:
        batches = [queue.submit_many(f"customer-{n}", [n] * (documents // 20), kind=kind) for n in range(20)]
        with _worker(url, kind, is_until_empty=True) as process:
            assert process.stdout is not None
            usage = json.loads(process.stdout.readline())
        first = min(_results(queue, [receipt.id for batch in batches for receipt in batch]))
        last = max(change.at for change in queue.changes() if change.event == "done").timestamp()
    return documents / (last - first), 1000 * usage["cpu"] / documents


def latency(kind: str, rounds: int, folder: Path) -> tuple[list[float], list[float]]:
    """Measure milliseconds to the handler's first line: from the call of submit, and from its return."""
    url = f"sqlite:///{folder / 'latency.db'}"
    from_call, from_return = [], []
    dice = random.Random(7)
    with Queue(url) as queue, _worker(url, kind):
        for number in range(rounds + 10):
            called = time.time()
            id = queue.submit(f"customer-{number}", None, kind=kind).id
            returned = time.time()
            while queue.document(id).state != "done":
                time.sleep(0.002)
            began = queue.result(id)
            if number >= 10:  # the first ones fork and import
                from_call.append(1000 * (began - called))
                from_return.append(1000 * (began - returned))
            time.sleep(dice.uniform(0.005, 0.03))
    return from_call, from_return


def idle_cpu(seconds: float, folder: Path) -> float:
    """Measure the share of a core that an idle worker takes, in per cent, its helpers included."""
    with _worker(f"sqlite:///{folder / 'idle.db'}", "nothing") as process:
        time.sleep(0.5)
        before = _cpu_of_tree(process.pid)
        time.sleep(seconds)
        return 100 * (_cpu_of_tree(process.pid) - before) / seconds


def _cpu_of_tree(pid: int) -> float:
    """Return the CPU seconds of a process and those it forked, so far."""
    total, tree = 0.0, {pid}
    for name in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(name) in tree or int(fields[1]) in tree:
            tree.add(int(name))
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def run_flood(kind: str, documents: int, folder: Path) -> tuple[list[float], float, float]:
    """Measure light customers' waits in milliseconds, and the time of the flood by the ideal and by its own run times."""
    url = f"sqlite:///{folder / 'flood.db'}"
    share = documents / 3000
    dice = random.Random(7)
    moments = sorted(dice.uniform(0, LIGHT_SPAN_SECONDS * share) for _ in range(LIGHT_CUSTOMERS * LIGHT_EACH))
    with Queue(url) as queue, _worker(url, kind):
        heavy = [receipt.id for receipt in queue.submit_many("big", [None] * documents, kind=kind)]
        start = time.time()
        light: dict[str, float] = {}
        for number, moment in enumerate(moments):
            time.sleep(max(0.0, start + moment - time.time()))
            called = time.time()
            light[queue.submit(f"light-{number % LIGHT_CUSTOMERS}", None, kind=kind).id] = called
        _until_done(queue, LIGHT_CUSTOMERS + 1, documents + len(light))
        runs = [queue.result(id) for id in heavy]
        light_runs = {id: queue.result(id) for id in light}
    first, last = min(began for began, _ in runs), max(ended for _, ended in runs)
    during = [run for run in light_runs.values() if run[0] < last]
    ideal = (len(runs) + len(during)) * FLOOD_SECONDS / SLOTS
    own = sum(ended - began for began, ended in (*runs, *during)) / SLOTS
    return [1000 * (light_runs[id][0] - called) for id, called in light.items()], (last - first) / ideal, (last - first) / own


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(is_quick: bool, folder: Path, advance: Callable[[], None]) -> list[Figure]:
    """Measure all figures of the worker."""
    figures: list[Figure] = []
    count = 400 if is_quick else 20_000
    for kind, name, goal in (("nothing_async", "async def", 4000), ("nothing", "def", None)):
        rounds = [drain(kind, count, _make(folder / f"{kind}-{number}")) for number in range(1 if is_quick else 3)]
        advance()
        rates, costs = [rate for rate, _ in rounds], [1000 * cost for _, cost in rounds]
        rate, cost = statistics.median(rates), statistics.median(costs)
        note = f"no-op handlers, {SLOTS} slots; rounds {min(rates):,.0f}-{max(rates):,.0f}"
        least = Goal(1.0) if goal else None
        figures.append(Figure(f"worker: drain, {name}", rate, "documents/s", goal or rate, least, note))
        figures.append(Figure(f"worker: drain, {name}: CPU", cost, "ms/1,000", cost, None, "all its processes"))
    for kind, name in (("nothing", "def"), ("nothing_async", "async def")):
        called, returned = latency(kind, 20 if is_quick else 300, _make(folder / f"latency-{kind}"))
        advance()
        note = f"idle, from submit's return; from its call {statistics.median(called):.2f}"
        p50, p99 = statistics.median(returned), percentile(returned, 0.99)
        figures.append(Figure(f"worker: submit to start, {name}, p50", p50, "ms", 2.0, Goal(1.0, is_least=False), note))
        note = f"from its call {percentile(called, 0.99):.2f}"
        figures.append(Figure(f"worker: submit to start, {name}, p99", p99, "ms", 2.0, None, note))
    figures.append(
        Figure("worker: idle CPU", idle_cpu(1 if is_quick else 5, _make(folder / "idle")), "%", 1.0, Goal(1.0, False))
    )
    advance()
    floods = [run_flood("flood", 150 if is_quick else 3000, _make(folder / f"flood-{n}")) for n in range(1 if is_quick else 3)]
    advance()
    waits = [percentile(light, 0.99) for light, _, _ in floods]
    ratios, own = [ratio for _, ratio, _ in floods], statistics.median(share for _, _, share in floods)
    note = f"rounds {', '.join(f'{wait:.1f}' for wait in waits)}"
    figures.append(Figure("worker: flood, light p99 wait", statistics.median(waits), "ms", 20.0, Goal(1.0, False), note))
    note = f"{own:.3f} of the sum of run times; rounds {', '.join(f'{ratio:.3f}' for ratio in ratios)}"
    figures.append(Figure("worker: flood, time / ideal", statistics.median(ratios), "x", 1.0, Goal(1.05, False), note))
    return figures


def _make(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


if __name__ == "__main__":
    child(sys.argv[1], sys.argv[2], sys.argv[3] == "1")
