"""Bulk changes: every document that matches, in bounded steps, and nothing that came later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlane import AsyncQueue, BadValue, Queue
from fairlane.core.document import Failed
from fairlane.queue import bulk
from fairlane.queue.bulk import Action, all_steps
from tests.servers import postgres, redis


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    urls: dict[str, Callable[[], str]] = {
        "memory": lambda: "memory://",
        "sqlite": lambda: f"sqlite:///{tmp_path}/queue.db",
        "postgres": lambda: postgres.empty_queue(postgres.shared(), "bulk"),
        "redis": lambda: redis.shared("redis").url(),
    }
    url = urls[request.param]()
    with Queue(url) as queue:
        yield queue
    redis.drop_url(url)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "CHANGES_MAX", {"cancel": 3, "retry": 3})
    monkeypatch.setattr(bulk, "COUNTED_MAX", 4)


def fail(queue: Queue, kind: str, reason: str) -> None:
    """Fail everything of a kind."""
    while claims := queue.engine.claim("worker", 100, 60_000, {kind: 1}):
        queue.engine.settle([(claim, Failed(reason)) for claim in claims])


def states(queue: Queue, **filter: Any) -> set[str]:
    return {document.state for document in queue.documents(**filter)}


def run_all(queue: Queue, action: Action, cursor: str | None = None, **filter: Any) -> tuple[int, int]:
    steps = list(all_steps(lambda at: queue.bulk(action, cursor=at, **filter), cursor))
    return sum(step.matched for step in steps), sum(step.changed for step in steps)


@pytest.mark.usefixtures("small_steps")
def test_all_that_match_are_cancelled(queue: Queue) -> None:
    queue.submit_many("acme", range(10), kind="scan")
    queue.submit_many("acme", range(4), kind="ocr")
    queue.submit_many("bolt", range(5), kind="scan", delay=3600)
    (running,) = queue.engine.claim("worker", 1, 60_000, {"scan": 3})
    assert run_all(queue, "cancel", kind="scan", dry_run=True) == (15, 0)
    assert run_all(queue, "cancel", kind="scan") == (15, 15)
    assert (states(queue, kind="scan"), states(queue, kind="ocr")) == ({"cancelled"}, {"ready"})
    assert queue.engine.settle([(running, Failed("late"))]) == [running]  # its worker has lost it
    assert run_all(queue, "cancel", kind="scan") == (0, 0)


@pytest.mark.usefixtures("small_steps")
def test_all_that_match_are_retried_with_their_priority(queue: Queue) -> None:
    queue.submit_many("acme", range(8), kind="scan")
    fail(queue, "scan", "timed_out: 60 s")
    queue.submit_many("acme", range(4), kind="scan")
    fail(queue, "scan", "corrupt")
    before = {document.id: document.priority for document in queue.documents()}
    assert run_all(queue, "retry", reason="timed_out", dry_run=True) == (8, 0)
    assert run_all(queue, "retry", reason="timed_out") == (8, 8)
    assert {document.id: document.priority for document in queue.documents()} == before
    assert len(list(queue.documents(state="ready"))) == 8
    assert run_all(queue, "retry", customer="acme") == (4, 4)


@pytest.mark.usefixtures("small_steps")
def test_what_comes_after_the_count_is_not_touched(queue: Queue) -> None:
    queue.submit_many("acme", range(7), kind="scan")
    counted = queue.bulk("cancel", kind="scan", dry_run=True)
    (late,) = queue.submit_many("acme", [1], kind="scan")
    assert run_all(queue, "cancel", counted.start, kind="scan") == (7, 7)
    assert [document.id for document in queue.documents(state="ready")] == [late.id]


@pytest.mark.usefixtures("small_steps")
def test_a_walk_that_was_interrupted_goes_on_and_a_repeated_step_changes_nothing(queue: Queue) -> None:
    queue.submit_many("acme", range(9), kind="scan")
    first = queue.bulk("cancel", kind="scan")
    assert (first.matched, first.changed) == (3, 3)
    again = queue.bulk("cancel", kind="scan", cursor=first.start)
    assert again.changed == 3  # the next three: those of the first step no longer match
    assert run_all(queue, "cancel", first.next, kind="scan")[1] == 3
    assert states(queue) == {"cancelled"}


def test_one_step_is_bounded_however_little_matches(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "READS_MAX", 1)
    monkeypatch.setattr(bulk, "CHANGES_MAX", {"cancel": 10, "retry": 10})
    queue.submit("acme", kind="scan")
    queue.submit_many("acme", range(30))
    fail(queue, "default", "corrupt")
    steps = list(all_steps(lambda cursor: queue.bulk("cancel", customer="acme", cursor=cursor), None))
    assert [step.changed for step in steps][:3] == [0, 0, 0]  # thirty have ended
    assert sum(step.changed for step in steps) == 1


@pytest.mark.parametrize(
    ("action", "filter"),
    [
        ("cancel", {}),
        ("retry", {}),
        ("cancel", {"state": "done"}),
        ("retry", {"state": "ready"}),
        ("cancel", {"reason": "x"}),
        ("purge", {"kind": "scan"}),
        ("cancel", {"kind": "scan", "cursor": "x"}),
        ("cancel", {"kind": "scan", "cursor": 5}),
        ("cancel", {"since": 5, "until": 5}),
    ],
)
def test_what_makes_no_sense_is_refused(action: Any, filter: dict[str, Any]) -> None:
    with Queue("memory://") as queue, pytest.raises(BadValue):
        queue.bulk(action, **filter)


def test_it_is_awaited_too() -> None:
    async def awaited() -> int:
        async with AsyncQueue("memory://") as queue:
            await queue.submit("acme", kind="scan")
            return (await queue.bulk("cancel", kind="scan")).changed

    assert asyncio.run(awaited()) == 1
