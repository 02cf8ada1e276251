"""A service that runs for long keeps its size: memory, handles, processes, stored files and the store stay level.

`python -m chaos.soak` runs `fairlane serve` with a short retention for an hour. Customers upload small files, some of which
cannot be read, at a steady rate, while one viewer follows the events. The process tree and the folder are measured all along;
at the end the last quarter of the measurements may not lie above the second quarter by more than a margin.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import click

from fairlane import Client, Queue
from fairlane.api import auth
from fairlane.core.errors import FairlaneError

from .processes import ROOT
from .runs import Report, run_and_exit

SAMPLE_SECONDS = 1.0
SAMPLES_MIN = 4  # a quarter has one at least
SENDERS = 4
GROWTH_MAX = 1.10  # of the median of the last quarter, beside that of the second
SLACK = {"memory_mib": 16.0, "handles": 8.0, "threads": 4.0, "processes": 2.0, "files": 60.0, "store_mib": 4.0}
BROKEN = b"%PDF-1.7\nthis is not a PDF any more"


@dataclass(frozen=True)
class Options:
    """Everything that a run depends on."""

    minutes: float = 60.0
    rate: float = 20.0  # uploads a second
    retention_seconds: int = 120
    customers: int = 40
    slots: int = 4
    seed: int = 1


class Sample(NamedTuple):
    """One measurement of the service."""

    memory_mib: float  # of all its processes; what several share is counted once
    handles: float
    threads: float
    processes: float
    files: float  # stored, with folders
    store_mib: float


def find_growth(samples: list[Sample]) -> list[str]:
    """Return what grew from the second quarter of the samples to the last by more than the margin."""
    quarter = len(samples) // 4
    grown = []
    for name in Sample._fields:
        values = [getattr(sample, name) for sample in samples]
        before, after = statistics.median(values[quarter : 2 * quarter]), statistics.median(values[-quarter:])
        if after > max(before * GROWTH_MAX, before + SLACK[name]):
            grown.append(f"{name} grew from {before:,.1f} to {after:,.1f}")
    return grown


def measure(pid: int, folder: Path) -> Sample:
    """Measure a service: its whole process tree, and the folder of its queue."""
    pids = list(_tree(pid))
    memory = sum(map(_proportional_kib, pids))
    return Sample(
        memory / 1024,
        sum(_count(Path(f"/proc/{number}/fd")) for number in pids),
        sum(_count(Path(f"/proc/{number}/task")) for number in pids),
        len(pids),
        sum(len(names) + len(folders) for _, folders, names in os.walk(folder)),  # goes on where a folder has just vanished
        sum(path.stat().st_size for path in folder.glob("queue.db*")) / 2**20,
    )


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = Path(f"/proc/{pid}/task").glob("*/children")
        for child in itertools.chain.from_iterable(path.read_text().split() for path in children):
            yield from _tree(int(child))
    except OSError:  # it has just ended
        return


def _proportional_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def _count(folder: Path) -> int:
    try:
        return sum(1 for _ in folder.iterdir())
    except OSError:
        return 0


@contextmanager
def _serving(options: Options, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [
        sys.executable, "-m", "fairlane.cli", "serve", "--port", "0", "--json", "--url", f"sqlite:///{folder}/queue.db",
        "--retention", f"{options.retention_seconds}s", "--slots", str(options.slots),
        "--limit", "requests_a_second=100000", "--limit", "requests_burst=100000",
    ]  # fmt: skip
    with (
        (folder.parent / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT) as process,
    ):
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())["address"]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


class _Senders:
    """Threads that upload at a steady rate until they are stopped."""

    def __init__(self, options: Options, address: str, keys: list[str]) -> None:
        self._options = options
        self._address = address
        self._keys = keys
        self._stop = threading.Event()
        self.sent = 0
        self.problems: list[str] = []
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(SENDERS)]

    def __enter__(self) -> _Senders:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _send(self, number: int) -> None:
        dice = random.Random(f"{self._options.seed} {number}")
        clients = [Client(self._address, key) for key in self._keys]
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due += SENDERS / self._options.rate
            text = f"Letter {dice.random()}\n" * dice.randint(1, 200)
            content, name = (BROKEN, "broken.pdf") if dice.random() < 0.1 else (text.encode(), "letter.txt")
            try:
                dice.choice(clients).submit(content=content, name=name)
                with self._lock:
                    self.sent += 1
            except FairlaneError as error:
                self.problems.append(str(error))
        for client in clients:
            client.close()


def _keys(options: Options, folder: Path) -> tuple[str, list[str]]:
    with Queue(f"sqlite:///{folder}/queue.db") as queue:
        operator, _ = auth.create(queue.engine, customer=None)
        return operator, [auth.create(queue.engine, customer=f"customer-{n}")[0] for n in range(options.customers)]


def run(options: Options, folder: Path, advance: Callable[[], None] = lambda: None) -> Report:
    """Run the service under a steady load and report what grew."""
    report = Report(options)
    home = folder / "home"  # the log stays outside: it grows by its nature
    home.mkdir()
    operator, keys = _keys(options, home)
    samples: list[Sample] = []
    with (
        _serving(options, home) as (process, address),
        Client(address, operator) as viewer,
        _Senders(options, address, keys) as senders,
        viewer.events() as events,
    ):
        threading.Thread(target=lambda: [None for _ in events], daemon=True).start()
        until = time.monotonic() + options.minutes * 60
        while (time.monotonic() < until or len(samples) < SAMPLES_MIN) and process.poll() is None:
            samples.append(measure(process.pid, home))
            advance()
            time.sleep(SAMPLE_SECONDS)
        if process.poll() is not None:
            report.wrong.append(f"the service ended with {process.returncode}")
    report.wrong += senders.problems + find_growth(samples)
    report.figures = {"uploads": senders.sent, "samples": len(samples)}
    for name in Sample._fields:
        values = [getattr(sample, name) for sample in samples]
        quarter = max(1, len(values) // 4)
        report.figures |= {
            f"{name}, second quarter": round(statistics.median(values[quarter : 2 * quarter])),
            f"{name}, last quarter": round(statistics.median(values[-quarter:])),
            f"{name}, most": round(max(values)),
        }
    return report


@click.command()
@click.option("--minutes", default=Options.minutes, show_default=True)
@click.option("--rate", default=Options.rate, show_default=True, help="Uploads a second.")
@click.option("--seed", default=Options.seed, show_default=True)
@click.option("--json", "is_json", is_flag=True, help="Print the report as JSON.")
def main(minutes: float, rate: float, seed: int, is_json: bool) -> None:
    """Run the service for long and see that it keeps its size."""
    options = Options(minutes=minutes, rate=rate, seed=seed)
    steps = int(minutes * 60 / SAMPLE_SECONDS)
    run_and_exit(f"soak, {minutes:g} minutes", steps, lambda folder, advance: run(options, folder, advance), is_json)


if __name__ == "__main__":
    main()
