"""Jobs for tests: workers of RQ import them by name, in this process or in one of their own; what began is kept in Redis."""

from __future__ import annotations

import json
from typing import Any

from rq import Queue, get_current_job

from fairlane.contrib.rq import Fairlane

fair_queues: dict[str, Queue] = {}  # by which jobs enqueue others


def record(customer: str | None, label: str = "") -> None:
    """Write down that a job began: its customer, the mark's priority, its queue's number and a label."""
    job = get_current_job()
    assert job is not None
    mark = job.meta.get("fairlane")
    line = [customer, mark and mark["priority"], job.origin.partition(".")[2], label]
    job.connection.rpush(f"began:{job.origin.partition('.')[0]}", json.dumps(line))


def began(queue: Queue) -> list[list[Any]]:
    return [json.loads(line) for line in queue.connection.lrange(f"began:{queue.name}", 0, -1)]


def work(customer: str | None = None, label: str = "") -> str:
    record(customer, label)
    return label


def enqueues(customer: str, queue: str, others: list[str | None]) -> None:
    """A job that enqueues others itself."""
    record(customer, "parent")
    for other in others:
        fair_queues[queue].enqueue(work, other, "child")


def enqueues_with_a_fairlane_of_its_own(customer: str, store: str) -> None:
    """The same as in a process of its own, where a module that is imported makes the queue."""
    job = get_current_job()
    assert job is not None
    queue = Queue(job.origin.partition(".")[0], connection=job.connection)
    fairlane = Fairlane(queue, store, "customer", timeout=60)
    record(customer, "parent")
    queue.enqueue(work, customer, "child")
    fairlane.close()


def decorated(customer: str) -> None:
    record(customer)


def fails_at_first(customer: str) -> None:
    record(customer)
    job = get_current_job()
    assert job is not None
    if len(began(Queue(job.origin.partition(".")[0], connection=job.connection))) < 3:
        raise ZeroDivisionError


class Order:
    def bill(self, pages: int, order: dict[str, Any]) -> None: ...
