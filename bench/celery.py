"""Benchmark of Celery with Fairlane: `python -m bench.celery` floods it on each broker, beside plain Celery.

It writes bench/celery.json, from which the picture of docs/celery.md is drawn: `python -m bench.pictures`.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import click

from tests.contrib.celery.flood import CELERYS_OWN, light_waits, percentile
from tests.contrib.celery.running import Project, open_broker

from .figures import Figure, Goal, show

RECORDED = Path(__file__).with_name("celery.json")
BROKERS = {"rabbitmq": "RabbitMQ", "redis": "Redis"}
TWENTY_TIMES_SOONER = Goal(1 / 20, is_least=False)


def measure(name: str, folder: Path) -> dict[str, dict[str, float]]:
    """Return the 99th percentile and the median of the light customers' waits, in seconds, plain and fair."""
    broker = open_broker(name)
    waits = light_waits(
        {
            "plain": Project(folder, broker, "", settings=CELERYS_OWN),
            "fair": Project(folder, broker, f"sqlite:///{folder}/counters-{name}.db"),
        }
    )
    seconds = {way: [wait.seconds for wait in found] for way, found in waits.items()}
    return {
        way: {"p99": round(percentile(found, 99), 4), "p50": round(percentile(found, 50), 4)} for way, found in seconds.items()
    }


@click.command()
def main() -> None:
    """Measure, show and write the figures."""
    recorded, figures = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for name, shown in BROKERS.items():
            recorded[name] = found = measure(name, Path(folder))
            for part in ("p99", "p50"):
                fair, plain = 1000 * found["fair"][part], 1000 * found["plain"][part]
                figures.append(
                    Figure(f"celery on {shown}, light {part}", fair, "ms", plain, TWENTY_TIMES_SOONER, "limit: plain Celery")
                )
    RECORDED.write_text(json.dumps(recorded, indent=2) + "\n", encoding="utf-8")
    show(figures)


if __name__ == "__main__":
    main()
