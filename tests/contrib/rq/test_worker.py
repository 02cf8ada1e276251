"""What workers do with it: the order in which jobs begin, what they enqueue themselves, retries, and settings of workers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from rq import Queue, Repeat, Retry, SimpleWorker
from rq.worker import DequeueStrategy

from fairlane import Mistake
from fairlane.contrib.rq import Fairlane, FairSimpleWorker, FairWorker, names_of
from tests.contrib.counters import FLOOD, counter, flood, whales_before_the_last_light
from tests.contrib.modules import adapted, after, executed
from tests.docs.snippets import ROOT, snippet
from tests.servers import redis
from tests.terminal import bash

from . import jobs


@pytest.fixture
def known(queue: Queue) -> Iterator[Queue]:
    """A queue by which jobs that run in this process enqueue others."""
    jobs.fair_queues[queue.name] = queue
    yield queue
    del jobs.fair_queues[queue.name]


def work_off(queue: Queue, worker: Any = FairSimpleWorker, **options: Any) -> list[list[Any]]:
    """Run a worker until nothing is left; return what began, in order."""
    worker([queue.name], connection=queue.connection).work(burst=True, logging_level="ERROR", **options)
    return jobs.began(queue)


def test_light_customers_do_not_wait_for_a_flood(queue: Queue, connection: Redis) -> None:
    plain = Queue(f"plain-{queue.name}", connection=connection)
    flood(lambda customer: plain.enqueue(jobs.work, customer))
    flood(lambda customer: queue.enqueue(jobs.work, customer))
    assert whales_before_the_last_light([line[0] for line in work_off(plain, SimpleWorker)]) == FLOOD
    assert whales_before_the_last_light([line[0] for line in work_off(queue)]) == 3  # those of priority 1, which came first


def test_what_a_running_job_enqueues_has_its_priority(known: Queue, store: str) -> None:
    for _ in range(3):
        known.enqueue(jobs.work, "acme")
    known.enqueue(jobs.enqueues, "acme", known.name, ["acme", None, "other"])
    began = work_off(known)
    assert began[3:] == [
        ["acme", 2, "2", "parent"], ["other", 1, "1", "child"], ["acme", 2, "2", "child"], [None, 2, "2", "child"],
    ]  # fmt: skip
    assert (counter(store, "acme"), counter(store, "other")) == (-3, 0)


def test_what_a_job_by_hand_enqueues_has_its_priority(fairlane: Fairlane, known: Queue, store: str) -> None:
    fairlane.queues[5].enqueue(jobs.enqueues, "acme", known.name, ["acme", "other"])
    assert work_off(known) == [["acme", None, "6", "parent"], ["other", 1, "1", "child"], ["acme", None, "6", "child"]]


def test_a_retry_and_a_repeat_are_no_checks_and_keep_their_priority(queue: Queue, store: str) -> None:
    queue.enqueue(jobs.fails_at_first, "acme", retry=Retry(max=3))
    assert work_off(queue) == [["acme", 1, "1", ""]] * 3
    queue.enqueue(jobs.work, "other", "again", repeat=Repeat(times=2))
    assert work_off(queue)[3:] == [["other", 1, "1", "again"]] * 3
    assert (counter(store, "acme"), counter(store, "other")) == (0, 0)


def test_a_job_that_waited_for_another_keeps_its_priority(queue: Queue, store: str) -> None:
    for _ in range(3):
        queue.enqueue(jobs.work, "acme")
    first = queue.enqueue(jobs.work, "other", "first")
    queue.enqueue(jobs.work, "acme", "second", depends_on=first)
    assert work_off(queue)[3:] == [["other", 1, "1", "first"], ["acme", 2, "2", "second"]]
    assert counter(store, "acme") == -3


def test_a_scheduled_job_that_is_due_keeps_its_priority(queue: Queue, store: str) -> None:
    queue.enqueue_in(timedelta(seconds=-1), jobs.work, "acme", "due")
    assert work_off(queue, with_scheduler=True) == [["acme", 1, "1", "due"]]
    assert counter(store, "acme") == 0


MODULE = after(snippet("docs/other-queues.md", " from redis import Redis\n from rq import Queue"))
WORKER = snippet("docs/other-queues.md", "rq worker --worker-class").strip()


def test_the_queue_and_the_worker_of_the_docs(connection: Redis, store: str, tmp_path: Path) -> None:
    """This worker forks a process for each job, in which it holds too."""
    with executed(adapted(MODULE, store, {'Redis("redis")': "connection"}), connection=connection, ocr=jobs.work) as names:
        queue = names["queue"]
        for _ in range(3):
            queue.enqueue(jobs.work, "acme")
        queue.enqueue(jobs.enqueues_with_a_fairlane_of_its_own, "other", store)
        queue.enqueue(jobs.enqueues_with_a_fairlane_of_its_own, "acme", store)
        bash(f"{WORKER} --burst --url unix://{redis.shared('redis').socket}", tmp_path, PYTHONPATH=str(ROOT))
        began = jobs.began(queue)
    first = [["acme", 1, "1", "invoice.pdf"], ["acme", 1, "1", ""], ["acme", 1, "1", ""], ["other", 1, "1", "parent"]]
    assert began == [
        *first,
        ["other", 1, "1", "child"],
        ["acme", 2, "2", ""],
        ["acme", 2, "2", "parent"],
        ["acme", 2, "2", "child"],
    ]
    assert (counter(store, "acme"), counter(store, "other")) == (-4, 0)


# -- settings --------------------------------------------------------------------------------------------------------------


def rq_worker(queue: Queue, *options: str) -> subprocess.CompletedProcess[str]:
    url = f"unix://{redis.shared('redis').socket}"
    command = [sys.executable, "-m", "rq.cli", "worker", "--url", url, *options, queue.name]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_a_worker_that_would_not_read_in_order_says_what_to_set_and_ends(queue: Queue) -> None:
    done = rq_worker(queue, "--worker-class", "fairlane.contrib.rq.FairWorker", "--dequeue-strategy", "random")
    assert done.returncode == 1
    assert "--dequeue-strategy is random; leave it out, then it is default" in done.stderr
    assert "Traceback" not in done.stderr
    with pytest.raises(SystemExit):
        FairSimpleWorker(queue).work(burst=True, dequeue_strategy=DequeueStrategy.ROUND_ROBIN)


def test_a_worker_reads_the_nine_queues_of_each_before_it(connection: Redis) -> None:
    worker = FairWorker(["high", "low", "by-hand.3"], connection=connection)
    assert worker.queue_names() == [*names_of("high"), *names_of("low"), "by-hand.3"]
    queue = Queue("high", connection=connection, default_timeout=77)
    worker = FairWorker(queue)
    assert worker.queue_names() == names_of("high")
    assert worker.queues[-1] is queue
    assert FairWorker(names_of("high"), connection=connection).queue_names() == names_of("high")


def test_workers_that_run_and_do_not_read_in_order_are_named(
    fairlane: Fairlane, connection: Redis, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = fairlane.queue.name
    fine = FairSimpleWorker([name], connection=connection)
    plain = SimpleWorker([name], connection=connection, name=f"plain-{name}")
    elsewhere = SimpleWorker([f"elsewhere-{name}"], connection=connection)
    for worker in (fine, elsewhere):
        worker.register_birth()
    fairlane.verify_workers()
    plain.register_birth()
    expected = (
        rf"the worker plain-{name} reads {name}: jobs of the queue '{name}' are in {name}\.1 to {name}\.9 now, and it must "
        rf"read these in order; start it with: rq worker --worker-class fairlane\.contrib\.rq\.FairWorker {name}"
    )
    with pytest.raises(Mistake, match=expected):
        fairlane.verify_workers()
    fairlane.queue.enqueue(jobs.work, "acme")
    fairlane.queue.enqueue(jobs.enqueues_with_a_fairlane_of_its_own, "acme", store)
    work_off(fairlane.queue)
    assert len(jobs.began(fairlane.queue)) == 3
    assert len([record for record in caplog.records if f"plain-{name}" in record.message]) == 1  # by this program, once
    for worker in (fine, plain, elsewhere):
        worker.register_death()
