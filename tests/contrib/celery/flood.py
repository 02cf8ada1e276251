"""A flood: one customer publishes many tasks, then twenty others two each; how long those wait, plain and fair."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from .running import Feeder, Project, Worker

LIGHT, EACH = 20, 2
BETWEEN = 1000  # bytes that workers write down between two tasks of light customers: of about five tasks
CELERYS_OWN: dict[str, Any] = {  # settings as Celery has them when nobody sets any
    "task_acks_late": False,
    "worker_prefetch_multiplier": 4,
    "task_queue_max_priority": None,
    # But confirmed: RabbitMQ may drop the last message of a program that ends before the broker has taken it.
    "broker_transport_options": {"confirm_publish": True},
}
PUBLISH = """
import json, select, time
published = {}
def publish(customer, label):
    published[label] = time.monotonic()
    work.delay(customer, label, seconds=seconds)
flood, light, each, between, seconds = map(float, sys.argv[1:])
flood, light, each = int(flood), int(light), int(each)
for number in range(flood):
    publish("whale", f"whale {number}")
print("flooded", flush=True)
for number in range(light * each):  # one after the other, while the flood is worked off
    while os.path.getsize(RECORD) < (number + 1) * between:
        select.select([], [], [], 0.003)
    publish(f"light {number % light}", f"light {number}")
print(json.dumps(published), flush=True)
"""


class Wait(NamedTuple):
    """How long a task waited: in seconds, and in tasks that began meanwhile."""

    seconds: float
    tasks: int


def light_waits(projects: Mapping[str, Project], flood: int = 2000, seconds: float = 0.005) -> dict[str, list[Wait]]:
    """Flood these projects with so many tasks of so many seconds, side by side; return the light customers' waits in each.

    Each has a publisher, a queue and a worker of one process, and the others' noise of this machine is that of all of them.
    The seconds keep a busy machine, which delays a publisher for a while, from being taken for a queue.
    """
    arguments = [str(argument) for argument in (flood, LIGHT, EACH, BETWEEN, seconds)]
    with ExitStack() as stack:
        publishers = {name: stack.enter_context(_publishing(project, arguments)) for name, project in projects.items()}
        for publisher in publishers.values():
            assert _answer(publisher) == "flooded\n"
        for project in projects.values():
            stack.enter_context(Worker(project, 1))
            if project.is_bridge:
                stack.enter_context(Feeder(project))
        published = {name: json.loads(_answer(publisher)) for name, publisher in publishers.items()}
        for project in projects.values():
            project.wait_for(flood + LIGHT * EACH)
    return {name: _waits(project.records(), published[name]) for name, project in projects.items()}


@contextmanager
def _publishing(project: Project, arguments: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    with project.script(PUBLISH, *arguments) as process:
        yield process
    assert process.returncode == 0


def _answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _waits(records: Sequence[dict[str, Any]], published: Mapping[str, float]) -> list[Wait]:
    began = [line["at"] for line in records]
    return [
        Wait(line["at"] - published[line["label"]], sum(published[line["label"]] < at < line["at"] for at in began))
        for line in records
        if line["label"].startswith("light")
    ]


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value that so many in a hundred do not exceed."""
    return sorted(values)[math.ceil(percent / 100 * len(values)) - 1]
