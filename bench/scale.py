"""Benchmark of scale on SQLite: the cost of operations with a million waiting documents beside a thousand.

Each size runs in a process of its own (`python -m bench.scale FOLDER DOCUMENTS CUSTOMERS`), so that its memory is its own.
Both are filled first; then they take turns, a round each, so that changes in the machine's speed affect both. A round claims
as many documents as it submits, so the size stays. A process does a round for each line on its standard input and reports in
lines of JSON.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fairlane import Queue
from fairlane.core.document import Done, Submission
from fairlane.engine.sqlite.connection import CACHE_KIBIBYTES
from fairlane.queue import new_ids

from .figures import Figure, Goal

DOCUMENTS_PER_CUSTOMER = 10
FILL_BATCH = 1000
SINGLES = 50
BATCH = 100
CLAIMS = 50
LOOKS = 50
WARM_ROUNDS = 5
GOAL = Goal(1.5, is_least=False)
MEMORY_LIMIT_MIB = 2 * CACHE_KIBIBYTES / 1024  # the engine's page caches: one for writing, one for reading


class FilledQueue:
    """A queue that keeps its size, and a sample of the documents that wait in it."""

    def __init__(self, queue: Queue, documents: int, customers: int, seed: int = 7) -> None:
        self.queue = queue
        self.documents = documents
        self.customers = customers
        self.dice = random.Random(seed)
        self.sample: dict[str, None] = {}

    def customer(self) -> str:
        return f"customer-{self.dice.randrange(self.customers):06d}"

    def fill(self) -> Iterator[int]:
        """Submit all documents in random order of customers, ten of each; yield how many were submitted so far."""
        order = [number % self.customers for number in range(self.documents)]
        self.dice.shuffle(order)
        keep_every = max(1, self.documents // 1000)
        for first in range(0, self.documents, FILL_BATCH):
            batch = [
                Submission(new_ids(1)[0], f"customer-{number:06d}", "extract", '{"path":"inbox/document.pdf"}')
                for number in order[first : first + FILL_BATCH]
            ]
            self.queue.engine.submit(batch)
            sampled = (submission for index, submission in enumerate(batch, first) if index % keep_every == 0)
            self.sample.update((submission.id, None) for submission in sampled)
            yield first + len(batch)

    def submit_singles(self) -> None:
        for _ in range(SINGLES):
            self.sample[self.queue.submit(self.customer(), {"path": "inbox/document.pdf"}).id] = None

    def submit_batch(self) -> None:
        payloads = [{"path": "inbox/document.pdf"}] * BATCH
        self.sample.update((customer.id, None) for customer in self.queue.submit_many(self.customer(), payloads))

    def claim_and_settle(self) -> None:
        for _ in range((SINGLES + BATCH) // CLAIMS):
            claimed = self.queue.engine.claim("bench", CLAIMS, 600_000)
            lost = self.queue.engine.settle([(claim, Done()) for claim in claimed])
            assert len(claimed) == CLAIMS
            assert not lost
            for claim in claimed:
                self.sample.pop(claim.id, None)

    def looks(self) -> None:
        for _ in range(LOOKS):
            self.queue.look(self.customer())

    def explains(self) -> None:
        waiting = list(self.sample)
        for _ in range(LOOKS):
            self.queue.explain(self.dice.choice(waiting))


def _status_mib(name: str) -> float:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise LookupError(name)


def _send(**message: object) -> None:
    print(json.dumps(message), flush=True)


def child(folder: Path, documents: int, customers: int) -> None:
    """Fill a queue, do a round for each line on standard input, and report the time per operation."""
    before_mib = _status_mib("VmRSS")
    with Queue(f"sqlite:///{folder / 'scale.db'}") as queue:
        filled = FilledQueue(queue, documents, customers)
        for count in filled.fill():
            _send(documents=count)
        _send(is_filled=True)
        operations: dict[str, tuple[Callable[[], None], int]] = {
            "submit": (filled.submit_singles, SINGLES),
            f"submit_many of {BATCH}": (filled.submit_batch, BATCH),
            f"claim + settle of {CLAIMS}": (filled.claim_and_settle, SINGLES + BATCH),
            "look": (filled.looks, LOOKS),
            "explain": (filled.explains, LOOKS),
        }
        for _ in sys.stdin:
            microseconds = {}
            for name, (operation, count) in operations.items():
                began = time.process_time()
                operation()
                microseconds[name] = 1e6 * (time.process_time() - began) / count
            _send(microseconds=microseconds, growth_mib=_status_mib("VmHWM") - before_mib)


class SizeProcess:
    """One size in a process of its own."""

    def __init__(self, folder: Path, documents: int) -> None:
        folder.mkdir()
        command = [sys.executable, "-m", "bench.scale", str(folder), str(documents), str(documents // DOCUMENTS_PER_CUSTOMER)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.rounds: list[dict[str, float]] = []
        self.growth_mib = 0.0

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"bench.scale ended with {self._process.wait()}")
        message: dict[str, Any] = json.loads(line)
        return message

    def fill(self, advance: Callable[[int], None]) -> None:
        """Wait until all documents are submitted."""
        while "is_filled" not in (message := self._receive()):
            advance(message["documents"])

    def round(self) -> None:
        """Do one round of every operation."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        message = self._receive()
        self.rounds.append(message["microseconds"])
        self.growth_mib = message["growth_mib"]

    def end(self) -> None:
        """Close its input and wait until it exits."""
        self._process.communicate()

    def median(self, name: str) -> float:
        """Return the median of all rounds but the warm-up."""
        return statistics.median(times[name] for times in self.rounds[WARM_ROUNDS:])


def measure(small: int, large: int, rounds: int, folder: Path, advance: Callable[[int], None]) -> list[Figure]:
    """Measure CPU time per operation with `large` waiting documents beside `small`; ten documents per customer in both."""
    few, many = SizeProcess(folder / "small", small), SizeProcess(folder / "large", large)
    try:
        few.fill(lambda _: None)
        many.fill(advance)
        for _ in range(WARM_ROUNDS + rounds):
            few.round()
            many.round()
    finally:
        few.end()
        many.end()
    sizes = f"{large:,} waiting, limit: {small:,}; "
    figures = [
        Figure(f"scale: {name}", many.median(name), "µs CPU", few.median(name), GOAL, sizes + _spread(few, many, name))
        for name in few.rounds[0]
    ]
    note = f"limit: page caches; {few.growth_mib:.0f} MiB with {small:,}"
    return [*figures, Figure("scale: memory", many.growth_mib, "MiB", MEMORY_LIMIT_MIB, GOAL, note)]


def _spread(few: SizeProcess, many: SizeProcess, name: str) -> str:
    pairs = zip(few.rounds[WARM_ROUNDS:], many.rounds[WARM_ROUNDS:], strict=True)
    low, _, high = statistics.quantiles([two[name] / pair[name] for pair, two in pairs], n=4)
    return f"half of the rounds {low:.2f}-{high:.2f}"


if __name__ == "__main__":
    child(Path(sys.argv[1]), *map(int, sys.argv[2:4]))
