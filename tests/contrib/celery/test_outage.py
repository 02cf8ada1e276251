"""The broker and the counters are killed during a flood: what was published is run, and everything recovers by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fairlane.contrib.publish_check import NEUTRAL
from tests.api.running import until
from tests.servers import redis

from .running import KEEPS, Project, Worker, open_broker

Outcome = dict[str, Any]
NO_RETRIES = {"max_retries": 0, "interval_start": 0, "interval_step": 0}  # an error at once; Celery would wait for the broker
TRANSPORT = {"rabbitmq": {"confirm_publish": True, **NO_RETRIES}, "redis": {"priority_steps": list(range(9)), **NO_RETRIES}}
FLOOD = """
import json, select
with open(sys.argv[1], "a") as outcomes:
    number = 0
    while not select.select([sys.stdin], [], [], 0.01)[0]:
        number += 1
        before = app.fairlane.counts
        try:
            work.delay("whale", str(number))
        except Exception as error:
            failure = type(error).__name__
        else:
            failure = None
        is_checked = app.fairlane.counts.checked > before.checked
        print(json.dumps({"label": str(number), "failure": failure, "is_checked": is_checked}), file=outcomes, flush=True)
"""


class Flood:
    """What a flooding publisher says of each task that it published, or tried to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def outcomes(self) -> list[Outcome]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def wait_for(self, number: int, matches: Callable[[Outcome], bool]) -> None:
        """Wait until so many more outcomes are like this."""
        began = len(self.outcomes())
        until(lambda: sum(map(matches, self.outcomes()[began:])) >= number, f"{number} such outcomes")


def is_checked(outcome: Outcome) -> bool:
    return outcome["failure"] is None and outcome["is_checked"]


def is_unchecked(outcome: Outcome) -> bool:
    return outcome["failure"] is None and not outcome["is_checked"]


@pytest.mark.parametrize(
    ("name", "works_meanwhile"),
    # A Redis that is killed may take along what a worker of Celery's was just taking from it: there the worker comes later.
    [("rabbitmq", True), ("redis", False)],
)
def test_a_broker_and_counters_that_are_killed_lose_nothing(name: str, works_meanwhile: bool, tmp_path: Path) -> None:
    counters = redis.Server("valkey", *KEEPS)
    broker = open_broker(name)
    settings = {"broker_transport_options": TRANSPORT[name]}
    project = Project(tmp_path, broker, counters.url(), settings=settings, options={"timeout": 2})
    flood = Flood(tmp_path / "outcomes")
    with ExitStack() as stack:
        stack.callback(counters.remove)
        publisher = stack.enter_context(project.script(FLOOD, str(flood.path)))
        stack.callback(publisher.kill)
        if works_meanwhile:
            stack.enter_context(Worker(project, 1))
            project.wait_for(50)
        flood.wait_for(30, is_checked)
        counters.kill()
        flood.wait_for(30, is_unchecked)  # the publisher goes on
        broker.server.kill()
        flood.wait_for(20, lambda outcome: outcome["failure"] is not None)
        broker.server.start()
        counters.start()
        flood.wait_for(30, is_checked)  # both are used again, and nobody did anything
        assert publisher.stdin is not None
        publisher.stdin.close()
        assert publisher.wait(40) == 0
        if not works_meanwhile:
            stack.enter_context(Worker(project, 1))
        published = {outcome["label"]: outcome for outcome in flood.outcomes() if outcome["failure"] is None}
        until(lambda: published.keys() <= {line["label"] for line in project.records()}, "every task that was published")
    began = {line["label"]: line["mark"]["priority"] for line in project.records()}
    assert {began[label] for label, outcome in published.items() if not outcome["is_checked"]} == {NEUTRAL}
    assert {began[label] for label, outcome in published.items() if outcome["is_checked"]} == {*range(1, 10)}
