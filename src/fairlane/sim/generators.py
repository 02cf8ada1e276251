"""Generated workloads, each with one typical problem of queues; the same seed gives the same workload.

They are sized for four workers, which are busy about nine tenths of the time without `--load`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random

from fairlane.core.errors import BadValue

from .workload import Arrival, Workload

HOUR = 3600.0
SEED_MAX = 2**53 - 1


def _document(random: Random, at: float, customer: str, mean: float) -> Arrival:
    """Make one document; most take less than the mean, a few take much more."""
    service = random.lognormvariate(math.log(mean) - 0.32, 0.8)
    return Arrival(round(at * 1000), customer, round(service * 1_000_000))


def _visitors(random: Random, name: str, customers: int, visits: float, hours: float, mean: float) -> Iterator[Arrival]:
    """Make light customers that now and then send one to three documents."""
    for number in range(customers):
        at = random.expovariate(visits / HOUR)
        while at < hours * HOUR:
            for _ in range(random.choice((1, 1, 1, 2, 3))):
                yield _document(random, at, f"{name}-{number:03}", mean)
                at += random.uniform(1, 30)
            at += random.expovariate(visits / HOUR)


def _batch(random: Random, customer: str, at: float, count: int, mean: float) -> Iterator[Arrival]:
    """Make a customer that sends everything at once, ten documents a second."""
    for number in range(count):
        yield _document(random, at + number / 10, customer, mean)


def _flood(random: Random) -> Iterator[Arrival]:
    """One customer sends 3,000 documents beside forty light ones."""
    yield from _visitors(random, "light", 40, 1.5, 4, mean=12)
    yield from _batch(random, "whale", 0.5 * HOUR, 3000, mean=14)


def _metronome(random: Random) -> Iterator[Arrival]:
    """Sixty customers send a document every 20 minutes all day and so never reset; three others send 1,500 at once."""
    for number in range(60):
        phase = random.uniform(0, 1200)
        for tick in range(72):
            yield _document(random, phase + 1200 * tick, f"steady-{number:02}", mean=15)
    yield from _visitors(random, "light", 30, 0.5, 24, mean=15)
    for number, hour in enumerate((2, 7, 13)):
        yield from _batch(random, f"batch-{number}", hour * HOUR, 1500, mean=50)


def _two_whales(random: Random) -> Iterator[Arrival]:
    """Two big senders, the second half an hour after the first; forty light ones besides."""
    yield from _visitors(random, "light", 40, 1.5, 8, mean=12)
    yield from _batch(random, "whale-a", 0.5 * HOUR, 4000, mean=11)
    yield from _batch(random, "whale-b", HOUR, 4000, mean=11)


def _newcomers(random: Random) -> Iterator[Arrival]:
    """A new customer every half minute sends one to five documents and never returns; three others send all the time."""
    at = 0.0
    for number in range(900):
        at += random.expovariate(1 / 32)
        for index in range(random.randint(1, 5)):
            yield _document(random, at + 2 * index, f"new-{number:04}", mean=14)
    for number in range(3):
        at = 0.0
        while at < 8 * HOUR:
            yield _document(random, at, f"old-{number}", mean=14)
            at += random.expovariate(1 / 20)


def _day(random: Random) -> Iterator[Arrival]:
    """Two hundred customers, a few big and many small, over a day with a busy morning and afternoon."""
    for number in range(200):
        batches = random.randint(1, 4) if number else 6
        size = max(1.0, 400 / (number + 1) ** 0.8)
        for _ in range(batches):
            hour = random.choice((random.gauss(9.5, 1.2), random.gauss(14.5, 1.5), random.uniform(0, 24)))
            at = min(max(hour, 0.0), 24.0) * HOUR
            for _ in range(max(1, round(random.expovariate(1 / size)))):
                yield _document(random, at, f"customer-{number:03}", mean=21)
                at += random.expovariate(1 / 3)


GENERATORS: dict[str, Callable[[Random], Iterator[Arrival]]] = {
    "flood": _flood,
    "metronome": _metronome,
    "two-whales": _two_whales,
    "newcomers": _newcomers,
    "day": _day,
}


def generate(name: str, seed: int) -> Workload:
    """Generate the workload with this name."""
    if name not in GENERATORS:
        raise BadValue("generator", name, "one of " + ", ".join(GENERATORS))
    if not 0 <= seed <= SEED_MAX:
        raise BadValue("--seed", seed, f"a whole number from 0 to {SEED_MAX:,}")
    return Workload.of(name, GENERATORS[name](Random(f"{name} {seed}")))
