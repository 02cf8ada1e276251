"""Accuracy of estimated starts: how often a document starts in the range that `explain` gave. `python -m bench.ranges`.

Workloads of the simulator, or recorded ones, are served by a queue in memory in virtual time, which samples its own starts
meanwhile as workers do. `explain` is called for waiting documents at random moments of their waits, and its ranges are compared
with the true starts.
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
from fairlane.queue.start_samples import StartSampler
from fairlane.sim.contenders import CONTENDERS
from fairlane.sim.generators import GENERATORS, generate
from fairlane.sim.replay import replay
from fairlane.sim.workload import HEAVY_MIN, LIGHT_MAX, Workload, read_csv

LEASE_MS = 10**12
BEGIN_MS = 10**12


class Load(NamedTuple):
    """The load and the number of workers; with `speed` 30 everything happens in a thirtieth of the time."""

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
POLICIES = list(CONTENDERS)


class Prediction(NamedTuple):
    """The estimated start of a waiting document at some moment of its wait, and its true start."""

    workload: str
    load: Load
    sender: str  # light, middle or heavy
    ahead: int
    estimate: StartEstimate | None
    started_in: float

    @property
    def is_hit(self) -> bool:
        """Whether the start was in the range, to the millisecond."""
        return self.estimate is not None and self.estimate.low - 0.001 <= self.started_in <= self.estimate.high + 0.001


def share(predictions: Iterable[Prediction]) -> float:
    """Return the share of ranges that contained the start; 0 if there are none."""
    hits = [prediction.is_hit for prediction in predictions if prediction.estimate is not None]
    return sum(hits) / max(1, len(hits))


def predict(made: Workload, load: Load, count: int, policy: str = "texts") -> list[Prediction]:
    """Serve a workload, and explain up to `count` documents each of light, middle and heavy senders."""
    workload, dice = _scale(made, load), Random(f"{made.name} {load}")
    start_ms = [start_us // 1000 for start_us in replay(workload, CONTENDERS[policy], load.workers).start_us]
    moments = sorted(_moments(workload, start_ms, count, dice))
    predictions: list[Prediction] = []
    with Queue("memory://") as queue:
        queue.engine.configure(replace(CONTENDERS[policy].rules, version=1), now_ms=0)

        def look(now_ms: int, number: int) -> None:
            facts = queue.explain(str(number), now=(BEGIN_MS + now_ms) / 1000).facts
            likely = facts["expected_in"]
            estimate = None if likely is None else StartEstimate(facts["expected_in_low"], likely, facts["expected_in_high"])
            sender = _sender(workload, number)
            predictions.append(
                Prediction(workload.name, load, sender, facts["ahead"], estimate, (start_ms[number] - now_ms) / 1000)
            )

        started_ms = _serve(queue, workload, load.workers, moments, look)
    assert started_ms == start_ms, "the queue did not serve what the replay served"
    return predictions


def _scale(workload: Workload, load: Load) -> Workload:
    """Scale a workload to this load and speed, in whole milliseconds, with checks on the replay's clock."""
    if load.load is not None:
        workload = workload.at_load(load.load, load.workers)
    at_ms = array("q", (int(time / load.speed) // 1000 for time in workload.at_us))
    service_us = array("q", (max(1000, int(time / load.speed) // 1000 * 1000) for time in workload.service_us))
    return replace(workload, checked_ms=at_ms, at_us=array("q", (time * 1000 for time in at_ms)), service_us=service_us)


def _sender(workload: Workload, number: int) -> str:
    recent = workload.recent[number]
    return "light" if recent <= LIGHT_MAX else "heavy" if recent >= HEAVY_MIN else "middle"


def _moments(workload: Workload, start_ms: list[int], count: int, dice: Random) -> Iterator[tuple[int, int]]:
    """Choose random moments of documents that waited, some for each kind of sender."""
    waited: dict[str, list[int]] = {}
    for number, start in enumerate(start_ms):
        if start > workload.checked_ms[number] + 1:
            waited.setdefault(_sender(workload, number), []).append(number)
    for numbers in waited.values():
        for number in dice.sample(numbers, min(count, len(numbers))):
            yield dice.randrange(workload.checked_ms[number], start_ms[number]), number


def _serve(
    queue: Queue, workload: Workload, workers: int, moments: list[tuple[int, int]], look: Callable[[int, int], None]
) -> list[int]:
    """Serve the workload with a queue and call `look` at each of the moments; return when each document started."""
    engine, at_ms, service_us = queue.engine, workload.checked_ms, workload.service_us
    sampler = StartSampler(engine, Random(f"{workload.name} {workers}"))
    start_ms = [0] * len(workload)
    ends: list[tuple[int, int, Claim]] = []
    arrived = looked = sample_ms = 0
    while arrived < len(workload) or ends:
        now_ms = min([*at_ms[arrived : arrived + 1], *(end for end, _, _ in ends[:1])])
        while (next_look := moments[looked][0] if looked < len(moments) else now_ms) < now_ms or sample_ms < now_ms:
            if sample_ms <= next_look:
                sample_ms += sampler.step(BEGIN_MS + sample_ms)
            else:
                look(*moments[looked])
                looked += 1
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


def table(predictions: list[Prediction], title: str) -> Table:
    """Build a table of the hit rates: in total, and by workload, load, sender and number of documents ahead."""
    shown = Table(title=title)
    for column in ("", "ranges", "none given", "hit", "too early", "too late", "likely too late", "high / low"):
        shown.add_column(column, justify="left" if not column else "right")
    by: dict[str, Callable[[Prediction], str]] = {
        "all": lambda prediction: "",
        "of": lambda prediction: prediction.workload,
        "": lambda prediction: str(prediction.load),
        "sender": lambda prediction: prediction.sender,
        "both": lambda prediction: f"{prediction.workload}, {prediction.sender}",
        "ahead, up to": lambda prediction: f"{2 ** (prediction.ahead - 1).bit_length() if prediction.ahead else 0:5,}",
    }
    for name, of in by.items():
        groups: dict[str, list[Prediction]] = {}
        for prediction in predictions:
            groups.setdefault(of(prediction), []).append(prediction)
        for group in sorted(groups):
            shown.add_row(f"{name} {group}", *_row(groups[group]))
        shown.add_section()
    return shown


def _row(predictions: list[Prediction]) -> list[str]:
    pairs = [(prediction, prediction.estimate) for prediction in predictions if prediction.estimate is not None]
    if not pairs:
        return ["0", f"{len(predictions):,}", *("-",) * 5]
    shares = (
        share(predictions),
        sum(prediction.started_in < estimate.low - 0.001 for prediction, estimate in pairs) / len(pairs),
        sum(prediction.started_in > estimate.high + 0.001 for prediction, estimate in pairs) / len(pairs),
        sum(prediction.started_in < estimate.likely for prediction, estimate in pairs) / len(pairs),
    )
    widths = sorted(estimate.high / max(estimate.low, 0.001) for _, estimate in pairs)
    return [
        f"{len(pairs):,}",
        f"{len(predictions) - len(pairs):,}",
        *(f"{100 * share:.0f} %" for share in shares),
        f"{widths[len(widths) // 2]:.1f}",
    ]


@click.command()
@click.argument("traces", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option("--seeds", default="100:110", show_default=True, help="A range of seeds, first:end, without the end.")
@click.option("--count", default=40, show_default=True, help="Documents to explain, for each workload and kind of sender.")
@click.option("--policy", default="texts", show_default=True, type=click.Choice(POLICIES))
def main(traces: tuple[Path, ...], seeds: str, count: int, policy: str) -> None:
    """Measure how often documents start in their estimated range, with all generators or with these TRACES."""
    first, last = (int(seed) for seed in seeds.split(":"))
    predictions: list[Prediction] = []
    if traces:
        for trace, load in product(traces, TRACE_LOADS):
            predictions += predict(read_csv(trace), load, count, policy)
    else:
        for generator, seed, load in product(GENERATORS, range(first, last), LOADS):
            predictions += predict(generate(generator, seed), load, count, policy)
    Console(width=120).print(table(predictions, f"{policy}, {len(traces)} traces" if traces else f"{policy}, seeds {seeds}"))


if __name__ == "__main__":
    main()
