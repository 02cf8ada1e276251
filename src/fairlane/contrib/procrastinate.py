"""Fair priorities for Procrastinate: each job is checked when it is deferred, and its row has the priority.

from fairlane.contrib.procrastinate import Fairlane

Fairlane(app, "postgresql://fairlane@db/fairlane", customer="customer")

Laws:
- A job is decided where the app's JobManager inserts it, so `defer`, `batch_defer`, `configure_task`, their async forms and the
  command line are all the same. A retry is an update of the row there is, which is left alone.
- A row has no place for a mark. Its priority is the mark: a running job hands it on.
- Every worker defers every periodic job, and the database keeps one: only the one that is kept is charged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, NamedTuple

from fairlane.contrib.publish_check import (
    HEADER,
    TIMEOUT_SECONDS,
    CustomerFunction,
    FairPublisher,
    PublishCheck,
    PublishedTask,
    WhenAway,
)
from fairlane.core.errors import BadValue, Mistake, StoreError
from fairlane.core.policy import LEVELS_MAX

try:
    from procrastinate import App, JobContext
    from procrastinate import __version__ as procrastinate_version
    from procrastinate.app import WorkerOptions
    from procrastinate.jobs import DEFAULT_PRIORITY, Job
    from procrastinate.manager import JobManager
    from procrastinate.worker import Worker
except ImportError as error:
    raise ImportError(
        "fairlane.contrib.procrastinate needs Procrastinate, which is not installed here: pip install procrastinate"
    ) from error

OURS = range(1 - LEVELS_MAX, 1)  # Procrastinate's numbers for our priorities: 0 for the first, -8 for the last

logger = logging.getLogger(__name__)


def number_of(priority: int) -> int:
    """Return Procrastinate's number for one of our priorities: it serves higher ones first, and 0 is its default."""
    return 1 - priority


class Parent(NamedTuple):
    """The job that is running, as far as the jobs that it defers inherit from it."""

    customer: str | None
    number: int

    @property
    def is_somebodys(self) -> bool:
        """A job without a customer has a number of ours if a customer's job deferred it."""
        return self.customer is not None or self.number in OURS


_running: ContextVar[Job | None] = ContextVar("fairlane_procrastinate_running", default=None)


class Fairlane(FairPublisher):
    """Fair priorities for the jobs of a Procrastinate app; make it directly after the app, for all that import it.

    The counters are in the store at the URL, which all publishers share. `customer` says whose a job is: the name of an
    argument, or a function of name, args, kwargs and headers, of which only the kwargs are not empty. If the store is away,
    jobs are deferred unchecked, at a neutral priority, or with `when_away="fail"` not at all.
    """

    def __init__(
        self,
        app: App,
        url: str,
        customer: str | CustomerFunction,
        *,
        when_away: WhenAway = "publish",
        timeout: float | timedelta = TIMEOUT_SECONDS,
        key: str | None = None,
    ) -> None:
        if isinstance(customer, str) and customer.startswith(HEADER):
            raise BadValue("customer", customer, "the name of an argument or a function: Procrastinate's jobs have no headers")
        if isinstance(app.job_manager, FairJobManager):
            raise Mistake("this Procrastinate app has a Fairlane already; make one for each app")
        if type(app.job_manager) is not JobManager:
            raise Mistake(
                f"app.job_manager is a {type(app.job_manager).__name__}, and Fairlane replaces Procrastinate's own only"
            )
        if "worker_middleware" not in WorkerOptions.__annotations__:
            raise Mistake(
                f"Procrastinate {procrastinate_version} has no worker middleware, which Fairlane needs; 3.9 has it: upgrade"
            )
        super().__init__(PublishCheck(url, customer, when_away=when_away, timeout=timeout, key=key, peer="procrastinate"))
        self.app = app
        self._fetched = self._begun = 0
        app.job_manager = FairJobManager(self)
        others = app.worker_defaults.get("worker_middleware", ())
        app.worker_defaults = {**app.worker_defaults, "worker_middleware": [self.middleware, *others]}

    # -- running -------------------------------------------------------------------------------------------------------

    async def middleware(self, call_next: Callable[[], Awaitable[Any]], context: JobContext, worker: Worker) -> Any:
        """Know which job runs, for the jobs that it defers; for `worker_middleware=` where you pass a list of your own."""
        self._begun += 1
        token = _running.set(context.job)
        try:
            return await call_next()
        finally:
            _running.reset(token)

    def record_fetch(self, job: Job | None) -> None:
        """Warn, once, if jobs are fetched and none comes through the middleware."""
        if job is None or self._begun or job.task_name not in self.app.tasks:  # what is not known does not begin
            return
        self._fetched += 1
        if self._fetched == 2:  # the first has begun by now
            logger.warning(
                "this worker runs without the middleware of Fairlane, so jobs that a job defers are checked and inherit no "
                "priority: add the middleware of your Fairlane object to the list that you pass as worker_middleware"
            )

    # -- deferring -----------------------------------------------------------------------------------------------------

    def fair_jobs(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the jobs with their priorities; those that are of a customer and do not inherit are a check each."""
        decided = self._decide(jobs)
        return _numbered(decided, self._check.priorities(_customers(decided)))

    async def fair_jobs_async(self, jobs: Sequence[Job]) -> list[Job]:
        decided = self._decide(jobs)
        return _numbered(decided, await self._check.priorities_async(_customers(decided)))

    async def fair_periodic_job(self, job: Job) -> tuple[Job, str | None]:
        """Return a periodic job with the priority that a check would give, and whom to charge if it is kept."""
        ((job, customer),) = self._decide([job])
        if customer is None:
            return job, None
        priority = await asyncio.to_thread(self._check.expected_priority, customer)
        return job.evolve(priority=number_of(priority)), customer

    async def charge(self, customer: str) -> None:
        """Make a check whose priority is known; one that fails is counted and logged, and ends no worker."""
        with contextlib.suppress(StoreError):
            await self._check.priorities_async([customer])

    def _decide(self, jobs: Sequence[Job]) -> list[tuple[Job, str | None]]:
        """Return each job with the priority that it inherits, or as it is; and the customer to check, if there is one."""
        parent = self._parent()
        return [self._decide_one(job, parent) for job in jobs]

    def _decide_one(self, job: Job, parent: Parent | None) -> tuple[Job, str | None]:
        if job.priority != DEFAULT_PRIORITY:  # by hand
            return job, None
        customer = self._customer(job)
        if parent is not None and parent.is_somebodys and customer in (None, parent.customer):
            return job.evolve(priority=parent.number), None
        return job, customer

    def _parent(self) -> Parent | None:
        job = _running.get()
        if job is None:
            return None
        with contextlib.suppress(BadValue):  # deferred by a program without Fairlane
            return Parent(self._customer(job), job.priority)
        return None

    def _customer(self, job: Job) -> str | None:
        task = self.app.tasks.get(job.task_name)
        published = PublishedTask(job.task_name, (), job.task_kwargs, {}, None if task is None else task.func)
        return self._check.find_customer(published)


def _customers(decided: Sequence[tuple[Job, str | None]]) -> list[str]:
    return [customer for _, customer in decided if customer is not None]


def _numbered(decided: Sequence[tuple[Job, str | None]], priorities: Sequence[int]) -> list[Job]:
    """Return the jobs, those that were checked with the priority of their check."""
    checked = iter(priorities)
    return [job if customer is None else job.evolve(priority=number_of(next(checked))) for job, customer in decided]


class FairJobManager(JobManager):
    """Procrastinate's job manager, which inserts jobs with fair priorities."""

    def __init__(self, fairlane: Fairlane) -> None:
        super().__init__(fairlane.app.connector)
        self._fairlane = fairlane

    async def defer_job_async(self, job: Job, connection: Any | None = None) -> Job:
        return (await self.batch_defer_jobs_async([job], connection))[0]

    async def batch_defer_jobs_async(self, jobs: list[Job], connection: Any | None = None) -> list[Job]:
        return await super().batch_defer_jobs_async(await self._fairlane.fair_jobs_async(jobs), connection)

    def defer_job(self, job: Job, connection: Any | None = None) -> Job:
        return self.batch_defer_jobs([job], connection)[0]

    def batch_defer_jobs(self, jobs: list[Job], connection: Any | None = None) -> list[Job]:
        return super().batch_defer_jobs(self._fairlane.fair_jobs(jobs), connection)

    async def defer_periodic_job(self, job: Job, periodic_id: str, defer_timestamp: int) -> int | None:
        job, customer = await self._fairlane.fair_periodic_job(job)
        job_id = await super().defer_periodic_job(job, periodic_id, defer_timestamp)
        if job_id is not None and customer is not None:
            await self._fairlane.charge(customer)
        return job_id

    async def fetch_job(self, *args: Any, **kwargs: Any) -> Job | None:
        job = await super().fetch_job(*args, **kwargs)
        self._fairlane.record_fetch(job)
        return job
