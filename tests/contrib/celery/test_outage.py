"""The broker and the store are killed during floods: what was published is run, each document ends once, and all recovers.

`make chaos-celery` is the long form for the bridge.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from chaos.checker import fold_feed
from chaos.history import StoreSnapshot, walk_changes
from fairlane import Queue
from fairlane.contrib.publish_check import NEUTRAL
from tests.api.running import until
from tests.servers import redis

from .running import KEEPS, Feeder, Project, Worker, open_broker

Outcome = dict[str, Any]
NO_RETRIES = {"max_retries": 0, "interval_start": 0, "interval_step": 0}  # an error at once; Celery would wait for the broker
TRANSPORT = {"rabbitmq": {"confirm_publish": True, **NO_RETRIES}, "redis": {"priority_steps": list(range(9)), **NO_RETRIES}}
LONG = 20  # the number of the task that takes a second
FLOOD = f"""
import json, select
with open(sys.argv[1], "a") as outcomes:
    number = 0
    while not select.select([sys.stdin], [], [], 0.01)[0]:
        number += 1
        before, id, failure = app.fairlane.counts, None, None
        try:
            id = work.delay("whale", str(number), seconds=float(number == {LONG})).id
        except Exception as error:
            failure = type(error).__name__
        is_checked = app.fairlane.counts.checked > before.checked
        outcome = dict(label=str(number), id=id, failure=failure, is_checked=is_checked)
        print(json.dumps(outcome), file=outcomes, flush=True)
"""


class Flood:
    """A program that publishes all along, and what it says of each task that it published, or tried to."""

    def __init__(self, project: Project, stack: ExitStack) -> None:
        self._path = project.folder / f"outcomes-{project.queue}"
        self._path.touch()
        self._publisher: subprocess.Popen[str] = stack.enter_context(project.script(FLOOD, str(self._path)))
        stack.callback(self._publisher.kill)

    def outcomes(self) -> list[Outcome]:
        return [json.loads(line) for line in self._path.read_text().splitlines()]

    def wait_for(self, number: int, matches: Callable[[Outcome], bool]) -> None:
        """Wait until so many more outcomes are like this."""
        began = len(self.outcomes())
        until(lambda: sum(map(matches, self.outcomes()[began:])) >= number, f"{number} such outcomes")

    def stop(self) -> list[Outcome]:
        """End it; return what it has published."""
        assert self._publisher.stdin is not None
        self._publisher.stdin.close()
        assert self._publisher.wait(40) == 0
        return [outcome for outcome in self.outcomes() if outcome["failure"] is None]


def is_refused(outcome: Outcome) -> bool:
    return outcome["failure"] is not None


def is_checked(outcome: Outcome) -> bool:
    return outcome["failure"] is None and outcome["is_checked"]


def is_unchecked(outcome: Outcome) -> bool:
    return outcome["failure"] is None and not outcome["is_checked"]


def everything_runs(project: Project, published: list[Outcome]) -> None:
    """Wait for all that was published, the light way; each task has the priority of its check, or the neutral one."""
    labels = {outcome["label"] for outcome in published}
    until(lambda: labels <= {line["label"] for line in project.records()}, "every task that was published")
    began = {line["label"]: line["mark"]["priority"] for line in project.records()}
    assert {began[outcome["label"]] for outcome in published if not outcome["is_checked"]} == {NEUTRAL}
    assert {began[outcome["label"]] for outcome in published if outcome["is_checked"]} == {*range(1, 10)}


def every_document_ends_once(project: Project, published: list[Outcome]) -> None:
    with Queue(project.store) as queue:
        until(lambda: queue.look("whale").waiting == queue.look("whale").running == 0, "everything ends")
        states = Counter(document.state for document in queue.documents())
        histories = fold_feed(StoreSnapshot(changes=list(walk_changes(queue.engine))))
    assert set(states) == {"done"}
    assert {outcome["id"] for outcome in published} <= histories.keys()
    assert {id for id, history in histories.items() if history.endings != 1 or history.wrong} == set()
    begun = Counter((line["mark"]["id"], line["mark"]["token"]) for line in project.records())
    assert set(begun.values()) == {1}, "each token begins one task at most"


def test_the_store_and_rabbitmq_killed_during_two_floods_lose_nothing(tmp_path: Path) -> None:
    """One flood goes the light way, the other over the bridge, whose worker and feeder are killed, too."""
    store, broker = redis.Server("valkey", *KEEPS), open_broker("rabbitmq")
    settings = {"broker_transport_options": TRANSPORT["rabbitmq"]}
    light = Project(tmp_path, broker, store.url(), settings=settings, options={"timeout": 2})
    bridge = Project(tmp_path, broker, store.url(), options={"timeout": 2, "lease": 5, "attempts": 20}, is_bridge=True)
    with ExitStack() as stack:
        stack.callback(store.remove)
        light_flood, bridge_flood = Flood(light, stack), Flood(bridge, stack)
        stack.enter_context(Worker(light, 1))
        with Worker(bridge, 1), Feeder(bridge):
            until(lambda: str(LONG) in {line["label"] for line in bridge.records()}, "a task that takes long enough")
        stack.enter_context(Worker(bridge, 1))
        stack.enter_context(Feeder(bridge))
        bridge.wait_for(len(bridge.records()) + 20)
        light.wait_for(50)
        light_flood.wait_for(30, is_checked)
        store.kill()
        light_flood.wait_for(30, is_unchecked)  # this publisher goes on
        bridge_flood.wait_for(3, is_refused)  # and this one gets errors
        broker.server.kill()
        light_flood.wait_for(20, is_refused)
        store.start()
        bridge_flood.wait_for(20, is_checked)  # tasks are accepted without a broker
        broker.server.start()
        light_flood.wait_for(30, is_checked)  # both are used again, and nobody did anything
        everything_runs(light, light_flood.stop())
        every_document_ends_once(bridge, bridge_flood.stop())


def test_redis_and_the_counters_killed_during_a_flood_lose_nothing(tmp_path: Path) -> None:
    """The worker comes later: a Redis that is killed may take along what a worker of Celery's was just taking from it."""
    counters, broker = redis.Server("valkey", *KEEPS), open_broker("redis")
    settings = {"broker_transport_options": TRANSPORT["redis"]}
    project = Project(tmp_path, broker, counters.url(), settings=settings, options={"timeout": 2})
    with ExitStack() as stack:
        stack.callback(counters.remove)
        flood = Flood(project, stack)
        flood.wait_for(30, is_checked)
        counters.kill()
        flood.wait_for(30, is_unchecked)
        broker.server.kill()
        flood.wait_for(20, is_refused)
        broker.server.start()
        counters.start()
        flood.wait_for(30, is_checked)
        published = flood.stop()
        stack.enter_context(Worker(project, 1))
        everything_runs(project, published)
