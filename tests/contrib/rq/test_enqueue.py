"""What is enqueued: each job in the queue of its priority, in whatever way it is enqueued."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from rq import Queue
from rq.decorators import job
from rq.group import Group
from rq.job import Job
from rq.registry import DeferredJobRegistry, ScheduledJobRegistry

from fairlane import BadValue, Mistake, StoreUnfit
from fairlane.contrib.publish_check import NEUTRAL
from fairlane.contrib.rq import Fairlane, names_of
from tests.contrib.counters import TABLE, counter, customers

from . import jobs

MakeQueue = Callable[..., Queue]


def placed(queue: Queue) -> list[tuple[int | None, Any]]:
    """The jobs of a queue, in the order in which a worker takes them: the number of their queue, and the mark."""
    found = []
    for number, name in enumerate(names_of(queue.name), 1):
        for placed_job in Queue(name, connection=queue.connection).jobs:
            assert placed_job.origin == name
            found.append((None if name == queue.name else number, placed_job.meta.get("fairlane")))
    return found


def marked(customer: str, priority: int) -> tuple[int, Any]:
    return priority, {"customer": customer, "priority": priority}


def test_the_nth_job_of_a_customer_is_in_the_queue_of_its_priority(queue: Queue, store: str) -> None:
    for _ in TABLE:
        queue.enqueue(jobs.work, "acme")
    queue.enqueue(jobs.work, "small")
    expected = [marked("acme", 1)] * 3 + [marked("small", 1)] + [marked("acme", priority) for priority in TABLE[3:]]
    assert placed(queue) == expected
    assert counter(store, "acme") == 1 - len(TABLE)


def test_however_a_job_is_enqueued_it_is_one_check(queue: Queue, store: str) -> None:
    decorated = job(queue, connection=queue.connection)(jobs.decorated)
    queue.enqueue(jobs.work, "acme")
    queue.enqueue("tests.contrib.rq.jobs.work", customer="acme")
    queue.enqueue(jobs.work, args=("acme",), job_timeout=10)
    queue.enqueue_call(jobs.work, kwargs={"customer": "acme"})
    queue.enqueue_job(Job.create(jobs.work, args=("acme",), connection=queue.connection))
    with queue.connection.pipeline() as pipeline:
        queue.enqueue(jobs.work, "acme", pipeline=pipeline)
        pipeline.execute()
    decorated.enqueue("acme")
    assert [mark["priority"] for _, mark in placed(queue)] == TABLE[:7]
    assert counter(store, "acme") == -6


def test_many_at_once_are_checks_in_order(queue: Queue, store: str) -> None:
    datas = [Queue.prepare_data(jobs.work, (customer,)) for customer in ["acme"] * 4 + ["small"] + ["acme"] * 2 + [None]]
    found = queue.enqueue_many(datas)
    assert [found_job.args[0] for found_job in found] == ["acme"] * 4 + ["small"] + ["acme"] * 2 + [None]
    assert [found_job.origin.rpartition(".")[2] for found_job in found[:-1]] == ["1", "1", "1", "2", "1", "2", "3"]
    assert found[-1].origin == queue.name
    Group.create(queue.connection).enqueue_many(queue, datas[:1])
    assert counter(store, "acme") == -6
    assert len(placed(queue)) == 9


def test_nothing_is_enqueued_if_one_of_many_may_not_be(queue: Queue) -> None:
    with pytest.raises(BadValue):
        queue.enqueue_many([Queue.prepare_data(jobs.work, ("acme",)), Queue.prepare_data(jobs.work, (["acme"],))])
    assert placed(queue) == []


def test_a_scheduled_job_is_checked_now_and_waits_for_the_queue_of_its_priority(queue: Queue, store: str) -> None:
    for _ in range(3):
        queue.enqueue(jobs.work, "acme")
    later = queue.enqueue_in(timedelta(minutes=1), jobs.work, "acme")
    queue.enqueue_at(datetime.now(UTC) + timedelta(minutes=1), jobs.work, "acme")
    assert counter(store, "acme") == -4
    assert len(ScheduledJobRegistry(f"{queue.name}.2", connection=queue.connection)) == 2
    assert Job.fetch(later.id, connection=queue.connection).origin == f"{queue.name}.2"


def test_a_job_that_depends_on_another_is_checked_now(queue: Queue, store: str) -> None:
    first = queue.enqueue(jobs.work, "acme")
    queue.enqueue(jobs.work, "acme", depends_on=first)
    assert counter(store, "acme") == -1
    assert len(DeferredJobRegistry(f"{queue.name}.1", connection=queue.connection)) == 1
    assert placed(queue) == [marked("acme", 1)]


def test_a_queue_by_hand_stands_and_is_no_check(fairlane: Fairlane, store: str) -> None:
    fairlane.queues[5].enqueue(jobs.work, "acme")
    fairlane.queues[5].enqueue(jobs.work, None)
    assert placed(fairlane.queue) == [(6, {"customer": "acme", "priority": None}), (6, None)]
    assert customers(store) == []


def test_a_job_that_was_enqueued_before_is_no_check(queue: Queue, store: str) -> None:
    found = queue.enqueue(jobs.work, "acme")
    queue.enqueue_job(found)
    assert counter(store, "acme") == 0


def test_a_copied_meta_is_no_way_around_the_check(queue: Queue, store: str) -> None:
    found = queue.enqueue(jobs.work, "acme", meta={"trace": 1})
    meta = dict(found.meta)
    queue.enqueue(jobs.work, "other", meta=meta)
    assert meta["fairlane"]["customer"] == "acme"
    assert (found.meta["trace"], counter(store, "other")) == (1, 0)
    assert customers(store) == ["acme", "other"]


def test_a_job_of_nobody_is_left_alone(queue: Queue, store: str) -> None:
    queue.enqueue(jobs.work)
    queue.enqueue("time.time")
    assert placed(queue) == [(None, None)] * 2
    assert customers(store) == []


def test_a_customer_that_can_be_none_is_said_to_the_caller_and_nothing_is_enqueued(queue: Queue) -> None:
    with pytest.raises(BadValue, match=r"the customer of task tests.contrib.rq.jobs.work is \['acme'\]; it must be text"):
        queue.enqueue(jobs.work, ["acme"])
    assert placed(queue) == []


def test_the_customer_may_be_in_the_meta_or_in_a_dictionary_of_a_methods_arguments(make_queue: MakeQueue) -> None:
    queue = make_queue("header:tenant")
    queue.enqueue(jobs.work, meta={"tenant": "acme"})
    assert placed(queue) == [marked("acme", 1)]
    queue = make_queue("order.customer")
    queue.enqueue(jobs.Order().bill, 3, {"customer": 17})
    assert placed(queue) == [marked("17", 1)]


def test_a_function_that_the_publisher_has_not_imported_is_not_imported(queue: Queue) -> None:
    queue.enqueue("this_module.is_elsewhere", customer="acme")
    assert placed(queue) == [marked("acme", 1)]


def test_without_counters_jobs_are_neutral_or_fail(make_queue: MakeQueue, tmp_path: Path) -> None:
    (tmp_path / "away.db").mkdir()  # no queue can be there
    away = f"sqlite:///{tmp_path}/away.db"
    queue = make_queue(url=away)
    queue.enqueue(jobs.work, "acme")
    assert placed(queue) == [marked("acme", NEUTRAL)]
    strict = make_queue(url=away, when_away="fail")
    with pytest.raises(StoreUnfit, match="is a folder, not the file of a queue"):
        strict.enqueue(jobs.work, "acme")
    assert placed(strict) == []


# -- the queue -------------------------------------------------------------------------------------------------------------


def test_the_nine_queues_are_like_the_one(make_queue: MakeQueue) -> None:
    queue = make_queue(queue={"default_timeout": 77})
    queue.enqueue_many([Queue.prepare_data(jobs.work, ("acme",))])
    (found,) = Queue(f"{queue.name}.1", connection=queue.connection).jobs
    assert found.timeout == 77


def test_a_queue_has_one_fairlane(queue: Queue, store: str) -> None:
    with pytest.raises(Mistake, match="has a Fairlane already; make one for each queue"):
        Fairlane(queue, store, "customer")


def test_a_queue_with_the_name_of_one_of_nine_is_refused(connection: Redis, store: str) -> None:
    with pytest.raises(Mistake, match=r"the queue 'high\.3' has the name of one of the nine queues of another"):
        Fairlane(Queue("high.3", connection=connection), store, "customer")


def test_a_queue_that_runs_jobs_at_once_is_left_as_it_is(make_queue: MakeQueue, store: str) -> None:
    queue = make_queue(queue={"is_async": False}, url="memory://")
    assert queue.enqueue(jobs.work, "acme", "done").return_value() == "done"


def test_counters_in_memory_are_refused_at_the_first_job(make_queue: MakeQueue) -> None:
    with pytest.raises(BadValue, match="in memory each process would count alone"):
        make_queue(url="memory://").enqueue(jobs.work, "acme")


def test_without_rq_the_import_says_what_to_install() -> None:
    program = "import sys; sys.modules['rq'] = None; import fairlane.contrib.rq"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    message = "ImportError: fairlane.contrib.rq needs RQ, which is not installed here: pip install rq"
    assert done.stderr.splitlines()[-1] == message
