"""Does an operation cost the same with a million waiting documents as with a thousand?

Each size runs in a process of its own (`python -m bench.scale FOLDER DOCUMENTS CUSTOMERS`), so that its memory is its own.
Both are filled first; then they take turns, a round each, so that a machine whose speed changes treats them alike. A round
takes as many documents as it submits, so the size stays. A process does a round for each line it is sent, and tells about
itself in lines of JSON.
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

EACH = 10  # documents a customer
FILL_BATCH = 1000
SINGLES = 50
BATCH = 100
CLAIMS = 50
LOOKS = 50
WARM_ROUNDS = 5
GOAL = Goal(1.5, is_least=False)
MEMORY_LIMIT_MIB = 2 * CACHE_KIBIBYTES / 1024  # the engine's page caches: one for writing, one for looking


class Sized:
    """A queue that holds its size, and a sample of what waits in it."""

    def __init__(self, queue: Queue, documents: int, customers: int, seed: int = 7) -> None:
        self.queue = queue
        self.documents = documents
        self.customers = customers
        self.dice = random.Random(seed)
        self.sample: dict[str, None] = {}

    def customer(self) -> str:
        return f"customer-{self.dice.randrange(self.customers):06d}"

    def fill(self) -> Iterator[int]:
        """Submit all documents in random order of customers, ten of each; tells how many are there."""
        order = [number % self.customers for number in range(self.documents)]
        self.dice.shuffle(order)
        keep_every = max(1, self.documents // 1000)
        for first in range(0, self.documents, FILL_BATCH):
            batch = [
                Submission(new_ids(1)[0], f"customer-{number:06d}", "extract", '{"path":"inbox/document.pdf"}')
                for number in order[first : first + FILL_BATCH]
            ]
            self.queue.engine.submit(batch)
            self.sample.update((one.id, None) for place, one in enumerate(batch) if (first + place) % keep_every == 0)
            yield first + len(batch)

    def submit_singles(self) -> None:
        for _ in range(SINGLES):
            self.sample[self.queue.submit(self.customer(), {"path": "inbox/document.pdf"}).id] = None

    def submit_batch(self) -> None:
        payloads = [{"path": "inbox/document.pdf"}] * BATCH
        self.sample.update((one.id, None) for one in self.queue.submit_many(self.customer(), payloads))

    def claim_and_settle(self) -> None:
        for _ in range((SINGLES + BATCH) // CLAIMS):
            claimed = self.queue.engine.claim("bench", CLAIMS, 600_000)
            lost = self.queue.engine.settle([(one, Done()) for one in claimed])
            assert len(claimed) == CLAIMS
            assert not lost
            for one in claimed:
                self.sample.pop(one.id, None)

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


def _tell(**told: object) -> None:
    print(json.dumps(told), flush=True)


def child(folder: Path, documents: int, customers: int) -> None:
    """Fill a queue, use it a round for each line, and tell what an operation took."""
    before_mib = _status_mib("VmRSS")
    with Queue(f"sqlite:///{folder / 'scale.db'}") as queue:
        sized = Sized(queue, documents, customers)
        for there in sized.fill():
            _tell(documents=there)
        _tell(is_filled=True)
        operations: dict[str, tuple[Callable[[], None], int]] = {
            "submit": (sized.submit_singles, SINGLES),
            f"submit_many of {BATCH}": (sized.submit_batch, BATCH),
            f"claim + settle of {CLAIMS}": (sized.claim_and_settle, SINGLES + BATCH),
            "look": (sized.looks, LOOKS),
            "explain": (sized.explains, LOOKS),
        }
        for _ in sys.stdin:
            microseconds = {}
            for name, (operation, count) in operations.items():
                began = time.process_time()
                operation()
                microseconds[name] = 1e6 * (time.process_time() - began) / count
            _tell(microseconds=microseconds, growth_mib=_status_mib("VmHWM") - before_mib)


class Process:
    """One size in a process of its own."""

    def __init__(self, folder: Path, documents: int) -> None:
        folder.mkdir()
        command = [sys.executable, "-m", "bench.scale", str(folder), str(documents), str(documents // EACH)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.rounds: list[dict[str, float]] = []
        self.growth_mib = 0.0

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"bench.scale ended with {self._process.wait()}")
        told: dict[str, Any] = json.loads(line)
        return told

    def fill(self, advance: Callable[[int], None]) -> None:
        """Until all documents are there."""
        while "is_filled" not in (told := self._hear()):
            advance(told["documents"])

    def round(self) -> None:
        """One round of every operation."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        told = self._hear()
        self.rounds.append(told["microseconds"])
        self.growth_mib = told["growth_mib"]

    def end(self) -> None:
        """Let it finish."""
        self._process.communicate()

    def median(self, name: str) -> float:
        """Of all rounds but those that warm up."""
        return statistics.median(one[name] for one in self.rounds[WARM_ROUNDS:])


def measure(small: int, large: int, rounds: int, folder: Path, advance: Callable[[int], None]) -> list[Figure]:
    """CPU time an operation with `large` waiting documents beside `small`; ten documents a customer in both."""
    few, many = Process(folder / "small", small), Process(folder / "large", large)
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


def _spread(few: Process, many: Process, name: str) -> str:
    pairs = zip(few.rounds[WARM_ROUNDS:], many.rounds[WARM_ROUNDS:], strict=True)
    low, _, high = statistics.quantiles([two[name] / one[name] for one, two in pairs], n=4)
    return f"half of the rounds {low:.2f}-{high:.2f}"


if __name__ == "__main__":
    child(Path(sys.argv[1]), *map(int, sys.argv[2:4]))
