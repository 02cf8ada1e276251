"""How often does a document start in the range that it was told? `python -m bench.ranges`, with recorded workloads if named.

Workloads of the simulator are served by a queue in memory in virtual time, `explain` is asked about waiting documents at random
moments of their waits, and the answers are compared with the starts that follow. FACTORS in `fairlane/expect.py` were found
with seeds 2 to 4; tests use others.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from heapq import heappop, heappush
from itertools import product
from pathlib import Path
from random import Random
from typing import NamedTuple

import click
from rich.console import Console
from rich.table import Table

from fairlane import Queue
from fairlane.core.document import Claim, Done, Submission
from fairlane.core.eta import StartEstimate
from fairlane.sim.contenders import CONTENDERS
from fairlane.sim.generators import GENERATORS, generate
from fairlane.sim.replay import replay
from fairlane.sim.workload import HEAVY_MIN, LIGHT_MAX, Workload, read_csv

LEASE_MS = 10**12
BEGIN_MS = 10**12


class Load(NamedTuple):
    """How busy how many workers are; `speed` 30 lets everything happen in a thirtieth of the time."""

    load: float | None  # None: as the generator made it
    workers: int
    speed: float = 1

    def __str__(self) -> str:
        load = "as made" if self.load is None else f"load {self.load:g}"
        return f"{load}, {self.workers} workers" + ("" if self.speed == 1 else f", speed {self.speed:g}")


LOADS = (
    Load(None, 4),
    Load(0.5, 1),
    Load(0.5, 8),
    Load(0.8, 30),
    Load(0.95, 2),
    Load(1.2, 3),
    Load(1.2, 40),
    Load(0.9, 8, speed=30),
    Load(0.9, 4, speed=0.3),
)
TRACE_LOADS = (Load(0.7, 2), Load(0.9, 8), Load(1.1, 30))
POLICIES = [one.name for one in CONTENDERS.values() if not one.charges_service]


class Asked(NamedTuple):
    """What was told of a waiting document at some moment of its wait, and what came of it."""

    workload: str
    load: Load
    sender: str  # light, middle or heavy
    ahead: int
    told: StartEstimate | None
    started_in: float

    @property
    def held(self) -> bool:
        """Whether the range held the start; to the millisecond, as stores tell time."""
        return self.told is not None and self.told.low - 0.001 <= self.started_in <= self.told.high + 0.001


def share(asked: Iterable[Asked]) -> float:
    """How many of the ranges that were told held the start."""
    told = [one.held for one in asked if one.told is not None]
    return sum(told) / len(told)


def ask(made: Workload, load: Load, count: int, policy: str = "texts") -> list[Asked]:
    """Serve a workload, and ask about up to `count` documents of light, middle and heavy senders each."""
    workload, dice = _timed(made, load), Random(f"{made.name} {load}")
    start_ms = [one // 1000 for one in replay(workload, CONTENDERS[policy], load.workers).start_us]
    moments = sorted(_moments(workload, start_ms, count, dice))
    asked: list[Asked] = []
    with Queue("memory://") as queue:
        queue.engine.configure(replace(CONTENDERS[policy].rules, version=1), now_ms=0)

        def look(now_ms: int, number: int) -> None:
            facts = queue.explain(str(number), now=(BEGIN_MS + now_ms) / 1000).facts
            likely = facts["expected_in"]
            told = None if likely is None else StartEstimate(facts["expected_in_low"], likely, facts["expected_in_high"])
            sender = _sender(workload, number)
            asked.append(Asked(workload.name, load, sender, facts["ahead"], told, (start_ms[number] - now_ms) / 1000))

        started_ms = _served(queue, workload, load.workers, moments, look)
    assert started_ms == start_ms, "the queue did not serve what the replay served"
    return asked


def _timed(workload: Workload, load: Load) -> Workload:
    """At this load and speed, in whole milliseconds, with checks on the clock of the replay."""
    if load.load is not None:
        workload = workload.at_load(load.load, load.workers)
    at_ms = array("q", (int(one / load.speed) // 1000 for one in workload.at_us))
    service_us = array("q", (max(1000, int(one / load.speed) // 1000 * 1000) for one in workload.service_us))
    return replace(workload, checked_ms=at_ms, at_us=array("q", (one * 1000 for one in at_ms)), service_us=service_us)


def _sender(workload: Workload, number: int) -> str:
    recent = workload.recent[number]
    return "light" if recent <= LIGHT_MAX else "heavy" if recent >= HEAVY_MIN else "middle"


def _moments(workload: Workload, start_ms: list[int], count: int, dice: Random) -> Iterator[tuple[int, int]]:
    """Moments in the lives of documents that waited, some of each kind of sender."""
    waited: dict[str, list[int]] = {}
    for number, start in enumerate(start_ms):
        if start > workload.checked_ms[number] + 1:
            waited.setdefault(_sender(workload, number), []).append(number)
    for numbers in waited.values():
        for number in dice.sample(numbers, min(count, len(numbers))):
            yield dice.randrange(workload.checked_ms[number], start_ms[number]), number


def _served(
    queue: Queue, workload: Workload, workers: int, moments: list[tuple[int, int]], look: Callable[[int, int], None]
) -> list[int]:
    """When each document was started by a queue; `look` is called between, at each of the moments."""
    engine, at_ms, service_us = queue.engine, workload.checked_ms, workload.service_us
    start_ms = [0] * len(workload)
    ends: list[tuple[int, int, Claim]] = []
    arrived = asked = 0
    while arrived < len(workload) or ends:
        now_ms = min([*at_ms[arrived : arrived + 1], *(end for end, _, _ in ends[:1])])
        while asked < len(moments) and moments[asked][0] < now_ms:
            look(*moments[asked])
            asked += 1
        submissions = []
        while arrived < len(workload) and at_ms[arrived] == now_ms:
            customer = workload.customers[workload.customer[arrived]]
            submissions.append(Submission(str(arrived), customer, "document", "null"))
            arrived += 1
        engine.submit(submissions, now_ms=BEGIN_MS + now_ms)
        over = []
        while ends and ends[0][0] == now_ms:
            over.append((heappop(ends)[2], Done()))
        engine.settle(over, now_ms=BEGIN_MS + now_ms)
        for claim in engine.claim("worker", workers - len(ends), LEASE_MS, now_ms=BEGIN_MS + now_ms):
            number = int(claim.id)
            start_ms[number] = now_ms
            heappush(ends, (now_ms + service_us[number] // 1000, number, claim))
    return start_ms


def table(asked: list[Asked], title: str) -> Table:
    """The share of ranges that held the start: in all, and one by one by generator, load, sender and what was ahead."""
    shown = Table(title=title)
    for column in ("", "ranges", "none told", "held", "too early", "too late", "likely too late", "high / low"):
        shown.add_column(column, justify="left" if not column else "right")
    by: dict[str, Callable[[Asked], str]] = {
        "all": lambda one: "",
        "of": lambda one: one.workload,
        "": lambda one: str(one.load),
        "sender": lambda one: one.sender,
        "both": lambda one: f"{one.workload}, {one.sender}",
        "ahead, up to": lambda one: f"{2 ** (one.ahead - 1).bit_length() if one.ahead else 0:5,}",
    }
    for name, of in by.items():
        groups: dict[str, list[Asked]] = {}
        for one in asked:
            groups.setdefault(of(one), []).append(one)
        for group in sorted(groups):
            shown.add_row(f"{name} {group}", *_row(groups[group]))
        shown.add_section()
    return shown


def _row(asked: list[Asked]) -> list[str]:
    told = [(one, one.told) for one in asked if one.told is not None]
    shares = (
        share(asked),
        sum(one.started_in < told.low - 0.001 for one, told in told) / len(told),
        sum(one.started_in > told.high + 0.001 for one, told in told) / len(told),
        sum(one.started_in < told.likely for one, told in told) / len(told),
    )
    widths = sorted(told.high / max(told.low, 0.001) for _, told in told)
    return [
        f"{len(told):,}",
        f"{len(asked) - len(told):,}",
        *(f"{100 * one:.0f} %" for one in shares),
        f"{widths[len(widths) // 2]:.1f}",
    ]


@click.command()
@click.argument("traces", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option("--seeds", default="100:110", show_default=True, help="From a seed up to, not including, another one.")
@click.option("--count", default=40, show_default=True, help="Documents asked about, a workload and kind of sender.")
@click.option("--policy", default="texts", show_default=True, type=click.Choice(POLICIES))
def main(traces: tuple[Path, ...], seeds: str, count: int, policy: str) -> None:
    """How often does a document start in the range that it was told? In workloads of all generators, or in these TRACES."""
    first, last = (int(one) for one in seeds.split(":"))
    asked: list[Asked] = []
    if traces:
        asked = [one for trace, load in product(traces, TRACE_LOADS) for one in ask(read_csv(trace), load, count, policy)]
    else:
        for generator, seed, load in product(GENERATORS, range(first, last), LOADS):
            asked += ask(generate(generator, seed), load, count, policy)
    Console(width=120).print(table(asked, f"{policy}, {len(traces)} traces" if traces else f"{policy}, seeds {seeds}"))


if __name__ == "__main__":
    main()
