"""Benchmark of encryption at rest: the same work on two queues, one with a key and one without.

Rounds of the plain and of the encrypted queue take turns, each on a file of its own; the medians of all rounds but the first
are compared. `limit` is the plain queue's figure of the same run.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

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
        seconds: dict[str, dict[Queue, list[float]]] = {name: {plain: [], encrypted: []} for name in WORK}
        for number in range(rounds):
            for queue in (plain, encrypted) if number % 2 else (encrypted, plain):
                for name, (work, size, _) in WORK.items():
                    seconds[name][queue].append(_rate(work, queue, max(1, size // share)))
            on_round()
    return [_figure(name, seconds[name][encrypted][1:], seconds[name][plain][1:]) for name in WORK]


def _rate(work: Round, queue: Queue, size: int) -> float:
    began = time.perf_counter()
    done = work(queue, size)
    return done / (time.perf_counter() - began)


def _figure(name: str, encrypted: list[float], plain: list[float]) -> Figure:
    ratios = [one / other for one, other in zip(encrypted, plain, strict=True)]
    note = f"rounds {min(ratios):.2f}-{max(ratios):.2f}"
    return Figure(f"encrypted: {name}", statistics.median(encrypted), WORK[name][2], statistics.median(plain), note=note)


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
    "submit 1 kB, one by one": (_submit_one_by_one, 200, "documents/s"),
    "submit 1 kB, 500 at once": (_submit_many, 500, "documents/s"),
    "claim and settle 1 kB, 100 at once": (_claim_and_settle, 500, "documents/s"),
    "store files of 50 kB": (_store_small, 100, "files/s"),
    "store files of 20 MB": (_store_large, 2, "MB/s"),
    "read and check files of 20 MB": (_read_large, 2, "MB/s"),
}
