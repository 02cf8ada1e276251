"""Draw the charts of the docs: `python -m bench.pictures`. The same seed draws the same charts.

Those of docs/celery.md are drawn from what `python -m bench.celery` measured last.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from fairlane.sim.charts import bar_chart, log_time_axis, standalone
from fairlane.sim.contenders import CONTENDERS
from fairlane.sim.generators import generate
from fairlane.sim.measures import measure
from fairlane.sim.replay import replay
from fairlane.sim.report import MeasuredReplay, before_and_after, by_size, counters

FOLDER = Path(__file__).parents[1] / "docs/pictures"
CELERY_FIGURES = Path(__file__).with_name("celery.json")
WORKERS, SEED = 4, 1


def _replays(generator: str, *policies: str) -> list[MeasuredReplay]:
    workload = generate(generator, SEED)
    replays = [replay(workload, CONTENDERS[policy], WORKERS) for policy in policies]
    return [MeasuredReplay(result, measure(result)) for result in replays]


def _celery() -> str:
    """Draw the waits of light customers' tasks during a flood, in plain Celery, with Fairlane and with the bridge."""
    measured = json.loads(CELERY_FIGURES.read_text(encoding="utf-8"))
    ways = {"plain": "Celery as it is", "fair": "the light way", "bridge": "the bridge"}
    series = [(shown, [measured[broker][way]["p99"] for broker in ("rabbitmq", "redis")]) for way, shown in ways.items()]
    axis = log_time_axis((value for _, values in series for value in values), "wait")
    return bar_chart(
        "99th percentile of the wait of light customers' tasks during a flood", ["RabbitMQ", "Redis"], axis, series
    )


def pictures() -> Iterator[tuple[str, str]]:
    """Yield the file name and the content of every chart."""
    flood = _replays("flood", "fifo", "texts")
    yield "flood-before-after.svg", standalone(before_and_after(flood))
    yield "flood-counter.svg", standalone(counters(flood[1], ["whale", "light-000", "light-001"]))
    day = _replays("day", "fifo", "round-robin", "texts")
    yield "day-by-size.svg", standalone(by_size(day))
    metronome = _replays("metronome", "fifo", "texts-strict", "texts", "texts-documents", "sliding")
    yield "metronome-before-after.svg", standalone(before_and_after(metronome))
    steady = ["steady-00"]
    yield "metronome-counter-texts.svg", standalone(counters(metronome[2], steady))
    yield "metronome-counter-sliding.svg", standalone(counters(metronome[4], steady))
    yield "celery-flood.svg", standalone(_celery())


def main() -> None:
    """Write all charts."""
    FOLDER.mkdir(exist_ok=True)
    for name, content in pictures():
        (FOLDER / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
