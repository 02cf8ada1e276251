"""Fair priorities for RQ: each job is checked when it is enqueued, and goes to one of nine queues that workers read in order.

from fairlane.contrib.rq import Fairlane

Fairlane(queue, "postgresql://fairlane@db/fairlane", customer="customer")

Laws:
- A job of queue `default` with priority 3 is a job of queue `default.3`; a job of nobody stays in `default`.
- RQ keeps a job in the queue that it is of: so retries, repeats, scheduled and deferred jobs keep their priority without us.
- A job is decided in the queue's `enqueue_job`, `schedule_job` and `enqueue_many`; all else that enqueues calls one of them.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

try:
    from rq import Queue, SimpleWorker, Worker, get_current_job
    from rq.job import Job
    from rq.queue import EnqueueData
    from rq.worker import DequeueStrategy
except ImportError as error:
    raise ImportError("fairlane.contrib.rq needs RQ, which is not installed here: pip install rq") from error

from fairlane.contrib.publish_check import (
    NEUTRAL,
    TIMEOUT_SECONDS,
    CustomerFunction,
    FairPublisher,
    Mark,
    PublishCheck,
    PublishedTask,
    WhenAway,
)
from fairlane.core.errors import Mistake
from fairlane.core.policy import LEVELS_MAX

META = "fairlane"  # the key of a job's meta with its mark
WORKER = "rq worker --worker-class fairlane.contrib.rq.FairWorker"

logger = logging.getLogger("fairlane.contrib")


def names_of(queue: str) -> list[str]:
    """Return the names of the queues that a queue consists of, in the order in which workers must read them."""
    return [*(f"{queue}.{priority}" for priority in range(1, LEVELS_MAX + 1)), queue]


def priority_of(queue: str) -> int | None:
    """Return the priority of the jobs of a queue, by its name; None: it has none."""
    found = re.search(r"\.([1-9])$", queue)
    return None if found is None else int(found[1])


class Fairlane(FairPublisher):
    """Fair priorities for the jobs that are enqueued with one object of RQ's class Queue.

    The counters are in the store at the URL, which all publishers share. `customer` says whose a job is: the name of an
    argument, `header:` and a key of the job's meta, or a function of name, args, kwargs and meta. If the store is away, jobs
    are enqueued unchecked, at a neutral priority, or with `when_away="fail"` not at all.

    `queues` are the nine queues, best first: what is enqueued with one of them has its priority by hand.
    """

    def __init__(
        self,
        queue: Queue,
        url: str,
        customer: str | CustomerFunction,
        *,
        when_away: WhenAway = "publish",
        timeout: float | timedelta = TIMEOUT_SECONDS,
        key: str | None = None,
    ) -> None:
        if "enqueue_job" in vars(queue):  # ours
            raise Mistake(f"the queue {queue.name!r} has a Fairlane already; make one for each queue")
        if priority_of(queue.name) is not None:
            raise Mistake(
                f"the queue {queue.name!r} has the name of one of the nine queues of another; "
                "give Fairlane a queue whose name does not end in a dot and a digit"
            )
        super().__init__(PublishCheck(url, customer, when_away=when_away, timeout=timeout, key=key, peer="rq"))
        self.queue = queue
        self.queues = [_sibling(queue, name) for name in names_of(queue.name)[:-1]]
        self._are_workers_verified = False
        if queue.is_async:  # else jobs run in the caller and nothing is enqueued
            FairEnqueueing(self, queue)
            for by_hand in self.queues:
                FairEnqueueing(self, by_hand)

    def decide(self, task: PublishedTask, by_hand: int | None) -> tuple[Mark | None, int | None]:
        """Return a job's mark and priority, which may be a check; `by_hand` is what the caller has set."""
        running, running_priority = self._running()
        customer = self._check.customer_of(task, running)
        if customer is None:
            return None, by_hand
        mark = self._check.mark(customer, running, by_hand is not None)
        return mark, by_hand or mark.priority or running_priority or NEUTRAL

    def _running(self) -> tuple[Mark | None, int | None]:
        """Return the mark of the job that this process runs, and its priority."""
        job = get_current_job()
        if job is None:
            self._warn_of_workers()  # not in a worker, which may have a new process for each job
        return (None, None) if job is None else (Mark.parse(job.meta.get(META)), priority_of(job.origin))

    # -- workers -------------------------------------------------------------------------------------------------------

    def verify_workers(self) -> None:
        """Raise Mistake if a worker that is running does not serve the jobs of this queue in the order of their priorities."""
        findings = list(self._worker_findings())
        if findings:
            raise Mistake("\n".join(findings))

    def _warn_of_workers(self) -> None:
        """Warn once of workers that do not serve the jobs of this queue in order."""
        if not self._are_workers_verified:
            self._are_workers_verified = True
            for finding in self._worker_findings():
                logger.warning("%s", finding)

    def _worker_findings(self) -> Iterator[str]:
        ours = names_of(self.queue.name)
        for worker in Worker.all(connection=self.queue.connection):
            names = [name for name in worker.queue_names() if name in ours]
            if names and names != ours and names != ours[:-1]:
                yield (
                    f"the worker {worker.name} reads {', '.join(names)}: jobs of the queue {self.queue.name!r} are in "
                    f"{ours[0]} to {ours[-2]} now, and it must read these in order; start it with: {WORKER} {self.queue.name}"
                )


def _sibling(queue: Queue, name: str) -> Queue:
    """Return a queue of another name that is like this one."""
    default_timeout: Any = queue.create_job("fairlane").timeout  # a queue says its own in no other way
    return type(queue)(
        name, connection=queue.connection, default_timeout=default_timeout, is_async=queue.is_async,
        job_class=queue.job_class, serializer=queue.serializer, death_penalty_class=queue.death_penalty_class,
    )  # fmt: skip


class FairEnqueueing:
    """The verbs by which a queue enqueues, each with a decision before it; they become the queue's own."""

    def __init__(self, fairlane: Fairlane, queue: Any) -> None:
        self._fairlane = fairlane
        self._queue = queue
        self._by_hand = priority_of(queue.name)
        for verb in ("enqueue_job", "schedule_job", "enqueue_many"):
            setattr(queue, verb, getattr(self, verb))

    def enqueue_job(self, job: Job, *args: Any, **options: Any) -> Any:
        target = self._target(job)
        return type(target).enqueue_job(target, job, *args, **options)

    def schedule_job(self, job: Job, *args: Any, **options: Any) -> Any:
        target = self._target(job)
        return type(target).schedule_job(target, job, *args, **options)

    def enqueue_many(self, job_datas: Iterable[EnqueueData], *args: Any, **options: Any) -> list[Job]:
        """Enqueue all, each in its queue; nothing is enqueued if one of them may not be."""
        datas_of: dict[str, list[EnqueueData]] = {}
        positions: dict[str, int] = {}
        for position, data in enumerate(job_datas):
            job = self._queue.create_job(data.func, args=data.args, kwargs=data.kwargs, job_id=data.job_id, meta=data.meta)
            target = self._target(job)
            datas_of.setdefault(target.name, []).append(data._replace(job_id=job.id, meta=job.meta))
            positions[job.id] = position
        jobs: list[Job] = []
        for name, datas in datas_of.items():
            target = self._named(name)
            jobs.extend(type(target).enqueue_many(target, datas, *args, **options))
        return sorted(jobs, key=lambda job: positions[job.id])

    def _named(self, name: str) -> Any:
        return next(queue for queue in (*self._fairlane.queues, self._queue) if queue.name == name)

    def _target(self, job: Job) -> Any:
        """Return the queue that a job goes to, and give it its mark."""
        queues = self._fairlane.queues
        if self._by_hand is None and Mark.parse(job.meta.get(META)) and job.origin in [queue.name for queue in queues]:
            return self._named(job.origin)  # it was enqueued before
        mark, priority = self._fairlane.decide(_task_of(job), self._by_hand)
        if mark is not None:
            job.meta = {**job.meta, META: mark._asdict()}
        target = self._queue if priority is None else queues[priority - 1]
        job.origin = target.name
        return target


def _task_of(job: Job) -> PublishedTask:
    return PublishedTask(job.func_name or "", job.args or (), job.kwargs or {}, job.meta, _function(job))


def _function(job: Job) -> Callable[..., Any] | None:
    """Return what a job will call, if this program has imported it."""
    name = job.func_name or ""
    if job.instance:
        return getattr(job.instance, name, None)
    module, _, attributes = name.rpartition(".")
    while module and module not in sys.modules:  # a method of a class
        module, _, before = module.rpartition(".")
        attributes = f"{before}.{attributes}"
    found: Any = sys.modules.get(module)
    for attribute in attributes.split("."):
        found = getattr(found, attribute, None)
    return found if callable(found) else None


# -- workers ---------------------------------------------------------------------------------------------------------------


class FairOrder:
    """What is added to a class of RQ's workers: for a queue they read its nine queues, best first, in no other order."""

    def __init__(self, queues: Any, *args: Any, **options: Any) -> None:
        super().__init__(_expand(queues), *args, **options)  # type: ignore[call-arg]

    def work(self, *args: Any, dequeue_strategy: Any = DequeueStrategy.DEFAULT, **options: Any) -> bool:
        if dequeue_strategy != DequeueStrategy.DEFAULT:
            logger.critical(
                "Fairlane: this worker would not serve jobs in the order of their priorities: --dequeue-strategy is %s; leave "
                "it out, then it is default",
                getattr(dequeue_strategy, "value", dequeue_strategy),
            )
            raise SystemExit(1)
        return super().work(*args, dequeue_strategy=dequeue_strategy, **options)  # type: ignore[misc,no-any-return]


class FairWorker(FairOrder, Worker):
    """RQ's worker, which reads the nine queues of each queue in order."""


class FairSimpleWorker(FairOrder, SimpleWorker):
    """RQ's worker without processes, which reads the nine queues of each queue in order."""


def _expand(queues: Any) -> list[Any]:
    """Return queues, or names of queues, with the nine of each before it."""
    expanded: dict[str, Any] = {}
    for queue in [queues] if isinstance(queues, str | Queue) else queues:
        name = queue.name if isinstance(queue, Queue) else queue
        for part in [name] if priority_of(name) else names_of(name):
            if part not in expanded:
                expanded[part] = _sibling(queue, part) if isinstance(queue, Queue) and part != name else part
        if isinstance(queue, Queue):
            expanded[name] = queue
    return list(expanded.values())
