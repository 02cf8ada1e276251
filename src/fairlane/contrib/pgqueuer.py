"""Fair priorities for PgQueuer: each job is checked when it is enqueued, and its row has the priority.

from fairlane.contrib.pgqueuer import Fairlane

fairlane = Fairlane("postgresql://fairlane@db/fairlane", customer="customer")
queries = fairlane.queries(driver)  # in place of Queries(driver)
pgq = fairlane.pgqueuer(driver)  # in place of PgQueuer(driver)

Laws:
- PgQueuer has no hook that every job passes, so fair subclasses take the place of its `Queries` and its `PgQueuer`.
- The mark is a header. A retry is an update of the row there is.
- A worker must leave in the table what it does not run at once.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from fairlane.contrib.publish_check import (
    HEADER,
    TIMEOUT_SECONDS,
    CustomerFunction,
    FairPublisher,
    Mark,
    PublishCheck,
    PublishedTask,
    WhenAway,
)
from fairlane.core.errors import Mistake

try:
    from pgqueuer import Job, PgQueuer, Queries
    from pgqueuer.executors import AbstractEntrypointExecutor, EntrypointExecutor, EntrypointExecutorParameters
    from pgqueuer.models import Context
    from pgqueuer.queries import SyncQueries
except ImportError as error:
    raise ImportError("fairlane.contrib.pgqueuer needs PgQueuer, which is not installed here: pip install pgqueuer") from error

HEADER_NAME = "fairlane"
DEFAULT_PRIORITY = 0  # PgQueuer's

logger = logging.getLogger(__name__)

_running: ContextVar[Job | None] = ContextVar("fairlane_pgqueuer_running", default=None)


def number_of(priority: int) -> int:
    """Return PgQueuer's number for one of our priorities: it serves higher ones first, and 0 is its default."""
    return 1 - priority


class EnqueuedJob(NamedTuple):
    """A job as it is enqueued."""

    entrypoint: str
    payload: bytes | None
    priority: int
    headers: Mapping[str, Any] | None


class DecidedJob(NamedTuple):
    """A job, its mark if it needs no check, and whom to check otherwise; neither: it is nobody's."""

    job: EnqueuedJob
    mark: Mark | None
    customer: str | None


class Fairlane(FairPublisher):
    """Fair priorities for the jobs of PgQueuer; make one in each program, where it makes its connections.

    The counters are in the store at the URL, which all programs share. `customer` says whose a job is: a key of its payload, if
    that is a JSON object; `header:` and the name of a header; or a function of the entrypoint, a tuple with the payload, the
    keys of the payload, and the headers. If the store is away, jobs are enqueued unchecked, at a neutral priority, or with
    `when_away="fail"` not at all.
    """

    def __init__(
        self,
        url: str,
        customer: str | CustomerFunction,
        *,
        when_away: WhenAway = "publish",
        timeout: float | timedelta = TIMEOUT_SECONDS,
        key: str | None = None,
    ) -> None:
        super().__init__(PublishCheck(url, customer, when_away=when_away, timeout=timeout, key=key, peer="pgqueuer"))
        self._is_by_key = isinstance(customer, str) and not customer.startswith(HEADER)

    def queries(self, driver: Any) -> FairQueries:
        """Return PgQueuer's Queries over a driver, whose `enqueue` is fair."""
        return FairQueries(driver, fairlane=self)

    def sync_queries(self, driver: Any) -> FairSyncQueries:
        """Return PgQueuer's SyncQueries over a driver, whose `enqueue` is fair."""
        return FairSyncQueries(driver, fairlane=self)

    def pgqueuer(self, driver: Any, **options: Any) -> FairPgQueuer:
        """Return PgQueuer over a driver: what its jobs enqueue inherits, and its settings are verified when it runs."""
        return FairPgQueuer(driver, queries=self.queries(driver), fairlane=self, **options)

    # -- enqueueing ----------------------------------------------------------------------------------------------------

    def fair_jobs(self, jobs: Sequence[EnqueuedJob]) -> list[EnqueuedJob]:
        """Return the jobs with their priorities and marks; those that are of a customer and do not inherit are a check each."""
        decided = self._decide(jobs)
        return list(_marked(decided, self._check.priorities(_customers(decided))))

    async def fair_jobs_async(self, jobs: Sequence[EnqueuedJob]) -> list[EnqueuedJob]:
        decided = self._decide(jobs)
        return list(_marked(decided, await self._check.priorities_async(_customers(decided))))

    def _decide(self, jobs: Sequence[EnqueuedJob]) -> list[DecidedJob]:
        parent = _running.get()
        running = None if parent is None else Mark.parse((parent.headers or {}).get(HEADER_NAME))
        return [self._decide_one(job, running) for job in jobs]

    def _decide_one(self, job: EnqueuedJob, running: Mark | None) -> DecidedJob:
        customer = self._check.customer_of(self._task(job), running)
        if customer is None:
            return DecidedJob(job, None, None)
        mark = self._check.mark_unchecked(customer, running, job.priority != DEFAULT_PRIORITY)
        return DecidedJob(job, mark, customer if mark is None else None)

    def _task(self, job: EnqueuedJob) -> PublishedTask:
        keys = _json_object(job.payload)
        if keys is None and job.payload and self._is_by_key:
            _warn_of_payload(job.entrypoint)
        return PublishedTask(job.entrypoint, (job.payload,), keys or {}, job.headers or {}, _entrypoint)


def _entrypoint(payload: bytes | None) -> None:
    """What every entrypoint takes, for those who look for a customer by the name of an argument."""


def _json_object(payload: bytes | None) -> Mapping[str, Any] | None:
    try:
        value = json.loads(payload or b"null")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


@lru_cache(1024)  # once for each entrypoint
def _warn_of_payload(entrypoint: str) -> None:
    logger.warning(
        "the payload of a job for %s is not a JSON object, so no customer is found in it: give Fairlane a header, as in "
        "'header:tenant', or a function as customer", entrypoint,
    )  # fmt: skip


def _customers(decided: Sequence[DecidedJob]) -> list[str]:
    return [job.customer for job in decided if job.customer is not None]


def _marked(decided: Sequence[DecidedJob], priorities: Sequence[int]) -> Iterator[EnqueuedJob]:
    checked = iter(priorities)
    parent = _running.get()
    for job, mark, customer in decided:
        if customer is not None:
            mark = Mark(customer, next(checked))
        if mark is None:
            yield job
            continue
        number = job.priority
        if number == DEFAULT_PRIORITY and mark.priority is not None:
            number = number_of(mark.priority)
        elif number == DEFAULT_PRIORITY and parent is not None:
            number = parent.priority
        yield job._replace(priority=number, headers={**(job.headers or {}), HEADER_NAME: mark._asdict()})


# -- PgQueuer's classes ----------------------------------------------------------------------------------------------------


class EnqueueCall(NamedTuple):
    """A call of `enqueue`, for one job or for a list of them."""

    arguments: Mapping[str, Any]
    jobs: Sequence[EnqueuedJob]  # none, if its lists are not of one length: PgQueuer says so

    @classmethod
    def of(cls, function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> EnqueueCall:
        arguments = inspect.signature(function).bind(*args, **options).arguments
        entrypoint, payload = arguments["entrypoint"], arguments["payload"]
        priority, headers = arguments.get("priority", DEFAULT_PRIORITY), arguments.get("headers")
        if not isinstance(entrypoint, list):
            return cls(arguments, [EnqueuedJob(entrypoint, payload, priority, headers)])
        count = len(entrypoint)
        priorities = [priority] * count if isinstance(priority, int) else priority
        columns = (entrypoint, payload, priorities, [None] * count if headers is None else headers)
        if not all(isinstance(column, list) and len(column) == count for column in columns):
            return cls(arguments, [])
        return cls(arguments, [EnqueuedJob(*row) for row in zip(*columns, strict=True)])

    def with_jobs(self, jobs: Sequence[EnqueuedJob]) -> dict[str, Any]:
        """Return the arguments with what was decided for the jobs."""
        if not jobs:
            return dict(self.arguments)
        columns = {name: [getattr(job, name) for job in jobs] for name in EnqueuedJob._fields}
        if not isinstance(self.arguments["entrypoint"], list):
            columns = {name: column[0] for name, column in columns.items()}
        return {**self.arguments, **columns}


@dataclasses.dataclass
class FairQueries(Queries):
    """PgQueuer's Queries, which enqueues jobs with fair priorities; `priority` may be left out, for lists too."""

    fairlane: Fairlane = dataclasses.field(kw_only=True)

    async def enqueue(self, *args: Any, **options: Any) -> Any:
        call = EnqueueCall.of(super().enqueue, args, options)
        return await super().enqueue(**call.with_jobs(await self.fairlane.fair_jobs_async(call.jobs)))


@dataclasses.dataclass
class FairSyncQueries(SyncQueries):
    """PgQueuer's SyncQueries, which enqueues jobs with fair priorities; `priority` may be left out, for lists too."""

    fairlane: Fairlane = dataclasses.field(kw_only=True)

    def enqueue(self, *args: Any, **options: Any) -> Any:
        call = EnqueueCall.of(super().enqueue, args, options)
        return super().enqueue(**call.with_jobs(self.fairlane.fair_jobs(call.jobs)))


@dataclasses.dataclass
class FairPgQueuer(PgQueuer):
    """PgQueuer, which knows for the jobs that are enqueued which one runs, and refuses settings that defeat priorities."""

    fairlane: Fairlane = dataclasses.field(kw_only=True)

    def entrypoint(
        self,
        name: str,
        *,
        executor_factory: Callable[[EntrypointExecutorParameters], AbstractEntrypointExecutor] | None = None,
        **options: Any,
    ) -> Callable[[Any], Any]:
        make = executor_factory or EntrypointExecutor
        return super().entrypoint(
            name, executor_factory=lambda parameters: RunningJobExecutor(parameters, make(parameters)), **options
        )

    async def run(self, *args: Any, **options: Any) -> None:
        arguments = inspect.signature(PgQueuer.run).bind(self, *args, **options).arguments
        self._verify_limits(arguments.get("max_concurrent_tasks"))
        await super().run(*args, **options)

    def _verify_limits(self, max_concurrent_tasks: int | None) -> None:
        """Raise Mistake if jobs are taken from the table without a limit."""
        unlimited = [
            name for name, executor in self.qm.entrypoint_registry.items() if not executor.parameters.concurrency_limit
        ]
        if unlimited and not max_concurrent_tasks:
            raise Mistake(
                f"max_concurrent_tasks is {max_concurrent_tasks}, and the entrypoint {unlimited[0]!r} has no "
                "concurrency_limit: this worker begins all jobs there are, and no later job overtakes them; set "
                "max_concurrent_tasks, to the number of jobs that it shall run at once"
            )


@dataclasses.dataclass
class RunningJobExecutor(AbstractEntrypointExecutor):
    """Executes a job by another executor, and knows meanwhile which one runs."""

    executor: AbstractEntrypointExecutor

    async def execute(self, job: Job, context: Context) -> None:
        token = _running.set(job)
        try:
            await self.executor.execute(job, context)
        finally:
            _running.reset(token)
