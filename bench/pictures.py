"""Draw the charts of docs/fairness.md: `python -m bench.pictures`. The same seed draws the same charts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fairlane.sim.charts import standalone
from fairlane.sim.contenders import CONTENDERS
from fairlane.sim.generators import generate
from fairlane.sim.measures import measure
from fairlane.sim.replay import replay
from fairlane.sim.report import MeasuredReplay, before_and_after, by_size, counters

FOLDER = Path(__file__).parents[1] / "docs/pictures"
WORKERS, SEED = 4, 1


def _replays(generator: str, *policies: str) -> list[MeasuredReplay]:
    workload = generate(generator, SEED)
    replays = [replay(workload, CONTENDERS[policy], WORKERS) for policy in policies]
    return [MeasuredReplay(result, measure(result)) for result in replays]


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


def main() -> None:
    """Write all charts."""
    FOLDER.mkdir(exist_ok=True)
    for name, content in pictures():
        (FOLDER / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
