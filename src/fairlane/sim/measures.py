"""Measures of one replay: waits, slowdowns and fairness.

| word | meaning |
|---|---|
| light | documents whose customer sent at most 3 within the last 1500 s, this one included |
| quiet | documents of customers that never sent more than 3 within 1500 s |
| heavy | documents of customers that at some time sent more than 21 within 1500 s |
| slowdown | time from submission to end, divided by the time it would take if the customer had all workers to itself |
| Jain index | of the customers' speeds (1 / slowdown): 1 if all are slowed alike, 1 / customers if one gets everything |
| service gap | the most that one customer was served more than another while both had documents waiting all along |
| starved | documents that had been ready for longer than one reset interval when a later one was taken |
| overtaken | the share of documents that were taken before an earlier one of their own customer |

Percentiles are by nearest rank, so each is a value that occurred.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from heapq import heappop, heappush
from itertools import combinations
from typing import Any, NamedTuple

from fairlane.core.policy import interval_ms_of

from .replay import Replay
from .workload import HEAVY_MIN, LIGHT_MAX, Workload

CLASSES = ("all", "light", "quiet", "heavy")
GAP_CUSTOMERS_MAX = 16  # the service gap is measured between the busiest customers only
SECOND_US = 1_000_000
ALONE_US_MIN = 1000  # shorter times alone would make any wait look slow


class Spread(NamedTuple):
    """Statistics of a figure over documents; None if there are no documents."""

    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    max: float | None


@dataclass(frozen=True, slots=True)
class Measures:
    """The measures of one replay; times in seconds."""

    policy: str
    workers: int
    load: float | None
    documents: int
    customers: int
    waits: dict[str, Spread]
    slowdowns: dict[str, Spread]
    jain: float
    service_gap: float
    starved: int
    overtaken: float
    utilisation: float

    def as_json(self) -> dict[str, Any]:
        """Return the measures as JSON values."""
        data = asdict(self)
        for name in ("waits", "slowdowns"):
            data[name] = {group: spread._asdict() for group, spread in getattr(self, name).items()}
        return data


def measure(replay: Replay) -> Measures:
    """Measure a replay."""
    workload = replay.workload
    wait_us = replay.wait_us()
    response_us = array("q", (wait + service for wait, service in zip(wait_us, workload.service_us, strict=True)))
    alone_us = _alone(workload, replay.workers)
    slowdowns = [max(1.0, response / max(alone, ALONE_US_MIN)) for response, alone in zip(response_us, alone_us, strict=True)]
    return Measures(
        policy=replay.contender.name,
        workers=replay.workers,
        load=None if (load := workload.load(replay.workers)) is None else round(load, 6),
        documents=len(workload),
        customers=len(workload.customers),
        waits=_by_class(workload, [wait / SECOND_US for wait in wait_us]),
        slowdowns=_by_class(workload, slowdowns),
        jain=_jain(_speeds(workload, response_us, alone_us)),
        service_gap=_service_gap(replay) / SECOND_US,
        starved=_starved(replay),
        overtaken=_overtaken(replay),
        utilisation=_utilisation(replay),
    )


def spread(values: Iterable[float]) -> Spread:
    """Return mean, percentiles and maximum."""
    ordered = sorted(values)
    if not ordered:
        return Spread(None, None, None, None, None)
    p50, p95, p99 = (nearest_rank(ordered, percent) for percent in (50, 95, 99))
    return Spread(sum(ordered) / len(ordered), p50, p95, p99, ordered[-1])


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """Return the percentile of sorted values: the smallest value that this many per cent do not exceed."""
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]


def members(workload: Workload) -> dict[str, Iterator[bool]]:
    """Yield for each class, document by document, whether the document is a member."""
    most = workload.most_recent()
    return {
        "all": (True for _ in workload.customer),
        "light": (count <= LIGHT_MAX for count in workload.recent),
        "quiet": (most[customer] <= LIGHT_MAX for customer in workload.customer),
        "heavy": (most[customer] >= HEAVY_MIN for customer in workload.customer),
    }


def _by_class(workload: Workload, values: Sequence[float]) -> dict[str, Spread]:
    return {
        name: spread(value for value, is_member in zip(values, flags, strict=True) if is_member)
        for name, flags in members(workload).items()
    }


def _alone(workload: Workload, workers: int) -> array[int]:
    """Return how long each document would have taken if its customer had had all workers to itself, in FIFO order."""
    busy: list[list[int]] = [[] for _ in workload.customers]  # for each customer a heap of ends
    alone = array("q")
    for customer, at_us, service_us in zip(workload.customer, workload.at_us, workload.service_us, strict=True):
        ends = busy[customer]
        while ends and ends[0] <= at_us:
            heappop(ends)
        start_us = at_us if len(ends) < workers else heappop(ends)
        heappush(ends, start_us + service_us)
        alone.append(start_us + service_us - at_us)
    return alone


def _speeds(workload: Workload, response_us: Sequence[int], alone_us: Sequence[int]) -> list[float]:
    """Return for each customer the time its documents would have taken alone, as a share of the time they took."""
    response, alone = [0] * len(workload.customers), [0] * len(workload.customers)
    for customer, took_us, least_us in zip(workload.customer, response_us, alone_us, strict=True):
        response[customer] += max(took_us, ALONE_US_MIN)
        alone[customer] += max(least_us, ALONE_US_MIN)
    return [min(1.0, least / took) for least, took in zip(alone, response, strict=True)]


def _jain(values: Sequence[float]) -> float:
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def _overtaken(replay: Replay) -> float:
    latest: dict[int, int] = {}
    count = 0
    for customer, turn in zip(replay.workload.customer, replay.turn, strict=True):
        if turn < latest.get(customer, 0):
            count += 1
        else:
            latest[customer] = turn
    return count / len(replay.turn)


def in_turn(replay: Replay) -> array[int]:
    """Return the documents in the order in which they were started."""
    order = array("q", bytes(8 * len(replay.turn)))
    for number, turn in enumerate(replay.turn):
        order[turn - 1] = number
    return order


def _starved(replay: Replay) -> int:
    """Count documents that had waited longer than the reset interval when a later document was started before them."""
    at_us, turn, start_us = replay.workload.at_us, replay.turn, replay.start_us
    interval_us = interval_ms_of(replay.contender.rules.policy) * 1000
    starved = judged = 0
    for taken, number in enumerate(in_turn(replay), start=1):
        while judged < number and at_us[judged] + interval_us < start_us[number]:
            starved += turn[judged] > taken
            judged += 1
    return starved


def _utilisation(replay: Replay) -> float:
    service_us = replay.workload.service_us
    span_us = max(start + service for start, service in zip(replay.start_us, service_us, strict=True))
    return sum(service_us) / (replay.workers * span_us) if span_us else 0.0


def _service_gap(replay: Replay) -> int:
    """Return the widest swing of the service difference between two of the busiest customers while both wait."""
    sizes = replay.workload.sizes()
    busiest = sorted(range(len(sizes)), key=lambda customer: (-sizes[customer], customer))[:GAP_CUSTOMERS_MAX]
    waiting = dict.fromkeys(busiest, 0)
    differences: dict[int, dict[int, _ServiceDifference]] = {customer: {} for customer in busiest}
    for first, second in combinations(busiest, 2):
        differences[first][second] = differences[second][first] = _ServiceDifference(first)
    widest = 0
    for number, is_start in _events(replay):
        customer = replay.workload.customer[number]
        if customer not in waiting:
            continue
        if is_start:
            for other, difference in differences[customer].items():
                if waiting[other]:
                    widest = max(widest, difference.add(customer, replay.workload.service_us[number]))
        waiting[customer] += -1 if is_start else 1
        if waiting[customer] == 0:
            for difference in differences[customer].values():
                difference.reset()
    return widest


def _events(replay: Replay) -> Iterator[tuple[int, bool]]:
    """Yield submissions and starts in order of time; at the same moment the submissions come first."""
    at_us, arrived = replay.workload.at_us, 0
    for number in in_turn(replay):
        while arrived < len(at_us) and at_us[arrived] <= replay.start_us[number]:
            yield arrived, False
            arrived += 1
        yield number, True


class _ServiceDifference:
    """The difference of service between two customers since both began to wait, and its bounds."""

    __slots__ = ("difference", "first", "highest", "lowest")

    def __init__(self, first: int) -> None:
        self.first = first
        self.reset()

    def reset(self) -> None:
        self.difference = self.highest = self.lowest = 0

    def add(self, customer: int, service_us: int) -> int:
        """Add the service of one of the two; return the widest swing so far."""
        self.difference += service_us if customer == self.first else -service_us
        self.highest = max(self.highest, self.difference)
        self.lowest = min(self.lowest, self.difference)
        return self.highest - self.lowest
