"""Benchmark of encryption at rest: the same work on two queues, one with a key and one without.

Rounds of the plain and of the encrypted queue take turns, each on a file of its own; the medians of all rounds but the first
are compared. `limit` is the plain queue's figure of the same run. CPU time is shown beside the speed: it says the same on a
machine that others use too.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from fairlane import Queue
from fairlane.core.document import Done
from fairlane.encryption.keyring import FILE_VARIABLE, KEYS_VARIABLE, new_key
from fairlane.queue import DEFAULT_KIND

from .figures import Figure

ROUNDS, ROUNDS_QUICK = 15, 2
PAYLOAD = {"text": "x" * 1000}
RESULT = json.dumps({"text": "y" * 1000})
LEASE_MS = 600_000
SMALL_BYTES, LARGE_BYTES = 50_000, 20_000_000


class Timing(NamedTuple):
    """The time of one round, for each document, file or megabyte."""

    elapsed_seconds: float
    cpu_seconds: float


Round = Callable[[Queue, int], float]  # does one round of a size; returns what was done, in the unit of its figure


def measure(is_quick: bool, folder: Path, on_round: Callable[[], None]) -> list[Figure]:
    """Measure every kind of work with and without a key."""
    folder.mkdir()
    key_file = folder / "keys"
    key_file.write_text(new_key())
    key_file.chmod(0o600)
    for name in (KEYS_VARIABLE, FILE_VARIABLE):
        os.environ.pop(name, None)  # else the plain queue would not be
    rounds, share = (ROUNDS_QUICK, 20) if is_quick else (ROUNDS, 1)
    with ExitStack() as stack:
        plain = stack.enter_context(Queue(f"sqlite:///{folder}/plain.db"))
        encrypted = stack.enter_context(Queue(f"sqlite:///{folder}/encrypted.db", encryption_key_file=str(key_file)))
        timings: dict[str, dict[Queue, list[Timing]]] = {name: {plain: [], encrypted: []} for name in WORK}
        for number in range(rounds):
            for queue in (plain, encrypted) if number % 2 else (encrypted, plain):
                for name, (work, size, _) in WORK.items():
                    timings[name][queue].append(_time(work, queue, max(1, size // share)))
            on_round()
    return [figure for name in WORK for figure in _figures(name, timings[name][encrypted][1:], timings[name][plain][1:])]


def _time(work: Round, queue: Queue, size: int) -> Timing:
    began, cpu_began = time.perf_counter(), time.process_time()
    done = work(queue, size)
    cpu, elapsed = time.process_time() - cpu_began, time.perf_counter() - began
    return Timing(elapsed / done, cpu / done)


def _figures(name: str, encrypted: list[Timing], plain: list[Timing]) -> list[Figure]:
    unit = WORK[name][2]

    def median(timings: list[Timing], is_cpu: bool) -> float:
        return statistics.median(timing.cpu_seconds if is_cpu else timing.elapsed_seconds for timing in timings)

    return [
        Figure(f"encrypted: {name}", 1 / median(encrypted, False), f"{unit}/s", 1 / median(plain, False)),
        Figure(f"encrypted: {name}: CPU", 1e6 * median(encrypted, True), f"µs/{unit}", 1e6 * median(plain, True)),
    ]


def _submit_one_by_one(queue: Queue, count: int) -> float:
    for _ in range(count):
        queue.submit("acme", PAYLOAD)
    return count


def _submit_many(queue: Queue, count: int) -> float:
    queue.submit_many("acme", [PAYLOAD] * count)
    return count


def _claim_and_settle(queue: Queue, count: int) -> float:
    """Work off what was submitted just before, a hundred at once."""
    done = 0
    while done < count and (claims := queue.engine.claim("bench", 100, LEASE_MS, {DEFAULT_KIND: 1})):
        queue.engine.settle([(claim, Done(RESULT)) for claim in claims])
        done += len(claims)
    return done


def _store_small(queue: Queue, count: int) -> float:
    content = os.urandom(SMALL_BYTES)
    for _ in range(count):
        queue.submit("acme", content=content, kind="small")
    return count


def _store_large(queue: Queue, count: int) -> float:
    content = os.urandom(LARGE_BYTES)
    for _ in range(count):
        queue.submit("acme", content=content, kind="large")
    return count * LARGE_BYTES / 1e6


def _read_large(queue: Queue, count: int) -> float:
    (document, *_) = queue.documents(kind="large")
    for _ in range(count):
        with queue.file(document.id) as file:
            while file.read(1 << 20):
                pass
    return count * LARGE_BYTES / 1e6


WORK: dict[str, tuple[Round, int, str]] = {
    "submit 1 kB, one by one": (_submit_one_by_one, 200, "document"),
    "submit 1 kB, 500 at once": (_submit_many, 500, "document"),
    "claim and settle 1 kB, 100 at once": (_claim_and_settle, 500, "document"),
    "store files of 50 kB": (_store_small, 100, "file"),
    "store files of 20 MB": (_store_large, 2, "MB"),
    "read and check files of 20 MB": (_read_large, 2, "MB"),
}
