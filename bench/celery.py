"""Benchmark of Celery with Fairlane: `python -m bench.celery` floods it on each broker, plain, the light way and the bridge,
and measures how fast plain Celery and the bridge work off what waits.

It writes bench/celery.json, from which the picture of docs/celery.md is drawn: `python -m bench.pictures`.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import click

from tests.contrib.celery.flood import CELERYS_OWN, light_waits, percentile
from tests.contrib.celery.running import Feeder, Project, Worker, open_broker

from .figures import Figure, Goal, show

RECORDED = Path(__file__).with_name("celery.json")
BROKERS = {"rabbitmq": "RabbitMQ", "redis": "Redis"}
TWENTY_TIMES_SOONER = Goal(1 / 20, is_least=False)
DRAINS_AS_FAST = Goal(0.8)
DRAINED = {20.0: 400, 0.0: 2000}  # tasks, by how many milliseconds each takes
ROUNDS = 3  # of each way, in turns


def measure(name: str, folder: Path) -> dict[str, dict[str, float]]:
    """Return the 99th percentile and the median of the light customers' waits, in seconds, plain, fair and with the bridge."""
    broker = open_broker(name)
    waits = light_waits(
        {
            "plain": Project(folder, broker, "", settings=CELERYS_OWN),
            "fair": Project(folder, broker, f"sqlite:///{folder}/counters-{name}.db"),
            "bridge": Project(folder, broker, f"sqlite:///{folder}/queue-{name}.db", is_bridge=True),
        }
    )
    seconds = {way: [wait.seconds for wait in found] for way, found in waits.items()}
    return {
        way: {"p99": round(percentile(found, 99), 4), "p50": round(percentile(found, 50), 4)} for way, found in seconds.items()
    }


def drain(name: str, folder: Path, milliseconds: float, is_bridge: bool, number: int) -> float:
    """Return how many tasks a second a worker of two processes finishes of those that wait."""
    tasks, store = DRAINED[milliseconds], f"sqlite:///{folder}/drain-{name}-{milliseconds}-{number}.db"
    settings = {} if is_bridge else CELERYS_OWN
    project = Project(folder, open_broker(name), store if is_bridge else "", settings=settings, is_bridge=is_bridge)
    project.publish(f"for number in range({tasks}): spin.delay(f'c{{number % 20}}', {milliseconds})")
    with ExitStack() as stack:
        stack.enter_context(Worker(project, 2, "--loglevel", "WARNING"))
        if is_bridge:
            stack.enter_context(Feeder(project))
        began = sorted(line["at"] for line in project.wait_for(tasks))
    rate: float = (tasks - tasks // 10) / (began[-1] - began[tasks // 10])
    return rate


def drain_figure(name: str, shown: str, folder: Path, milliseconds: float) -> Figure:
    """Return how fast the bridge drains, beside plain Celery on the same broker, the median of some rounds in turns."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    for number in range(ROUNDS):
        for is_bridge, found in rates.items():
            found.append(drain(name, folder, milliseconds, is_bridge, number))
    plain, bridge = median(rates[False]), median(rates[True])
    what = f"tasks of {milliseconds:g} ms" if milliseconds else "empty tasks"
    return Figure(f"bridge on {shown}, {what}", bridge, "tasks/s", plain, DRAINS_AS_FAST, "limit: plain Celery")


@click.command()
def main() -> None:
    """Measure, show and write the figures."""
    recorded, figures = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for name, shown in BROKERS.items():
            recorded[name] = found = measure(name, Path(folder))
            for part in ("p99", "p50"):
                for way, title in (("fair", "celery"), ("bridge", "bridge")):
                    fair, plain = 1000 * found[way][part], 1000 * found["plain"][part]
                    figures.append(
                        Figure(
                            f"{title} on {shown}, light {part}", fair, "ms", plain, TWENTY_TIMES_SOONER, "limit: plain Celery"
                        )
                    )
            figures += [drain_figure(name, shown, Path(folder), milliseconds) for milliseconds in DRAINED]
    RECORDED.write_text(json.dumps(recorded, indent=2) + "\n", encoding="utf-8")
    show(figures)


if __name__ == "__main__":
    main()
