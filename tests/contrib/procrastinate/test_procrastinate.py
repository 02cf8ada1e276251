"""Fair priorities for Procrastinate, with its own worker on a real PostgreSQL: what is in its table, and what runs first."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import procrastinate
import psycopg
import pytest
from procrastinate.periodic import PeriodicDeferrer

from fairlane import BadValue, Mistake, Queue, StoreUnfit
from fairlane.contrib.procrastinate import Fairlane
from fairlane.contrib.publish_check import NEUTRAL
from tests.contrib.counters import PATIENT, TABLE, counter
from tests.contrib.modules import adapted, after, executed
from tests.contrib.peers import FLOOD, LIGHT, database, floods_before, locked
from tests.docs.snippets import snippet


class Project:
    """An app as a user has one, its Fairlane, and what its tasks wrote down."""

    def __init__(self, url: str, counters: str, *, is_fair: bool = True, customer: Any = "customer", **options: Any) -> None:
        self.url, self.counters, self.began = url, counters, list[str]()
        self.work: Any
        self.parent: Any
        self.app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=1))
        if is_fair:
            self.fairlane = Fairlane(self.app, counters, customer, **{"timeout": PATIENT, **options})
        self._add_tasks()

    def _add_tasks(self) -> None:
        @self.app.task(name="work")
        async def work(customer: str | None = None, label: str = "") -> None:
            self.began.append(label)

        @self.app.task(name="urgent", priority=7)
        async def urgent(customer: str) -> None: ...

        @self.app.task(name="parent")
        async def parent(customer: str | None, others: list[str | None]) -> None:
            for other in others:
                await work.defer_async(customer=other, label="child")
            await work.batch_defer_async({"label": "batch"})

        @self.app.task(name="sync_parent")
        def sync_parent(customer: str) -> None:
            work.defer(label="child")

        @self.app.task(name="nested")
        async def nested(depth: int, customer: str | None = None) -> None:
            if depth:
                await nested.defer_async(depth=depth - 1)

        @self.app.task(name="fails_at_first", retry=3, pass_context=True)
        async def fails_at_first(context: procrastinate.JobContext, customer: str) -> None:
            self.began.append(f"attempt {context.job.attempts}")
            if context.job.attempts < 2:
                raise ZeroDivisionError

        self.work, self.parent = work, parent

    def task(self, name: str) -> Any:
        return self.app.tasks[name]

    def rows(self, task: str = "work") -> list[int]:
        """The priorities in Procrastinate's table, in the order in which jobs were deferred."""
        with psycopg.connect(self.url) as connection:
            query = "SELECT priority FROM procrastinate_jobs WHERE task_name = %s ORDER BY id"
            return [number for (number,) in connection.execute(query, (task,))]

    def run(self, act: Callable[[], Awaitable[Any]], *, works: bool = False, **options: Any) -> Any:
        """Open the app, act, and let a worker do what there is to do."""

        async def run() -> Any:
            async with self.app.open_async():
                result = await act()
                if works:
                    await self.app.run_worker_async(wait=False, install_signal_handlers=False, listen_notify=False, **options)
                return result

        return asyncio.run(run())

    def spend(self, customer: str, checks: int) -> None:
        """Let a customer have had so many checks."""
        with Queue(self.counters) as queue:
            for _ in range(checks):
                queue.check(customer)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with database("procrastinate") as url:
        with procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=url)).open() as app:
            app.schema_manager.apply_schema()
        yield url


MakeProject = Callable[..., Project]


@pytest.fixture
def make(url: str, tmp_path: Path) -> Iterator[MakeProject]:
    with psycopg.connect(url) as connection:
        connection.execute("TRUNCATE procrastinate_jobs, procrastinate_periodic_defers RESTART IDENTITY CASCADE")
    made: list[Project] = []

    def make(**options: Any) -> Project:
        made.append(Project(url, **{"counters": f"sqlite:///{tmp_path}/counters.db", **options}))
        return made[-1]

    yield make
    for project in made:
        if hasattr(project, "fairlane"):
            project.fairlane.close()


# -- deferring -------------------------------------------------------------------------------------------------------------


def test_each_job_is_a_check_however_it_is_deferred(make: MakeProject) -> None:
    project = make()

    async def defer() -> None:
        for _ in range(len(TABLE) - 9):
            await project.work.defer_async(customer="acme")
        await project.work.configure(task_kwargs={"customer": "acme"}, queue="other").defer_async()
        await project.work.configure(schedule_at=datetime.now(UTC)).defer_async(customer="acme")
        await project.app.configure_task("work").defer_async(customer="acme")
        await project.work.batch_defer_async({"customer": "acme"}, {"customer": "acme"})

    project.run(defer)
    with project.app.open():
        project.work.defer(customer="acme")
        project.work.batch_defer({"customer": "acme"}, {"customer": "acme"})
        project.app.configure_task("work").defer(customer="acme")
    assert project.rows() == [1 - priority for priority in TABLE]
    assert counter(project.counters, "acme") == 1 - len(TABLE)
    assert project.fairlane.counts == (len(TABLE), 0)


def test_a_task_that_this_program_does_not_know_is_checked_too(make: MakeProject) -> None:
    project = make()
    project.spend("acme", 3)
    project.run(lambda: project.app.configure_task("elsewhere").defer_async(customer="acme"))
    assert project.rows("elsewhere") == [-1]


def test_a_batch_charges_each_customer_for_its_own(make: MakeProject) -> None:
    project = make()
    project.spend("acme", 21)
    jobs = [{"customer": "acme"}, {"customer": "other"}, {}, {"customer": "acme"}]
    project.run(lambda: project.work.batch_defer_async(*jobs))
    assert project.rows() == [-8, 0, 0, -8]


def test_a_priority_by_hand_stands(make: MakeProject) -> None:
    project = make()

    async def defer() -> None:
        await project.work.configure(priority=3).defer_async(customer="acme")
        await project.work.configure(priority=-20).defer_async(customer="acme")
        await project.task("urgent").defer_async(customer="acme")

    project.run(defer)
    assert (project.rows(), project.rows("urgent")) == ([3, -20], [7])
    assert project.fairlane.counts == (0, 0)


def test_a_job_of_nobody_is_not_touched(make: MakeProject) -> None:
    project = make()
    project.run(lambda: project.work.defer_async(label="nobody's"))
    assert (project.rows(), project.fairlane.counts) == ([0], (0, 0))


@pytest.mark.parametrize(
    "customer", ["label.owner", lambda name, args, kwargs, headers: kwargs["label"]["owner"] if name == "work" else None]
)
def test_whose_a_job_is_may_be_anywhere_in_its_arguments(make: MakeProject, customer: Any) -> None:
    project = make(customer=customer)
    project.spend("acme", 21)
    project.run(lambda: project.app.configure_task("work").defer_async(label={"owner": "acme"}))
    assert project.rows() == [-8]


def test_a_customer_that_is_none_is_an_error_and_nobody_is_charged(make: MakeProject) -> None:
    project = make()
    with pytest.raises(BadValue, match=r"^the customer of task work is 1\.5; it must be text"):
        project.run(lambda: project.work.batch_defer_async({"customer": "acme"}, {"customer": 1.5}))
    assert (project.rows(), project.fairlane.counts) == ([], (0, 0))


def test_a_check_does_not_hold_up_the_event_loop(make: MakeProject, tmp_path: Path) -> None:
    """The counters are locked until another coroutine unlocks them."""
    project = make()
    project.spend("acme", 3)

    @asynccontextmanager
    async def deferring() -> AsyncIterator[None]:
        deferred = asyncio.create_task(project.work.defer_async(customer="acme"))
        yield
        await deferred

    async def defer() -> None:
        async with deferring():
            with locked(tmp_path / "counters.db"):
                await asyncio.to_thread(list)  # meanwhile the other coroutine has its turn, and waits for the lock

    project.run(defer)
    assert (project.rows(), project.fairlane.counts) == ([-1], (1, 0))


# -- a worker --------------------------------------------------------------------------------------------------------------


def test_light_customers_pass_a_flood(make: MakeProject) -> None:
    """The same flood with and without Fairlane: how many of its jobs began before each light customer's."""
    labels = [f"whale {number}" for number in range(FLOOD)] + [f"light {number}" for number in range(LIGHT)]
    jobs = [{"customer": label if label.startswith("light") else "whale", "label": label} for label in labels]
    before: dict[bool, list[int]] = {}
    for is_fair in (False, True):
        project = make(is_fair=is_fair)
        project.run(partial(project.work.batch_defer_async, *jobs), works=True)
        assert sorted(project.began) == sorted(labels)
        before[is_fair] = floods_before(project.began)
    assert before == {False: [FLOOD] * LIGHT, True: [3] * LIGHT}  # the whale's first three are of priority 1 too


def test_what_a_running_job_defers_inherits(make: MakeProject) -> None:
    project = make()
    project.spend("acme", 5)
    project.run(lambda: project.parent.defer_async(customer="acme", others=["acme", None, "other"]), works=True)
    assert project.rows("parent") == [-2]
    assert project.rows() == [-2, -2, 0, -2]
    assert (counter(project.counters, "acme"), counter(project.counters, "other")) == (-5, 0)


def test_what_a_sync_task_defers_inherits(make: MakeProject) -> None:
    project = make()
    project.spend("acme", 5)
    project.run(lambda: project.task("sync_parent").defer_async(customer="acme"), works=True)
    assert project.rows() == [-2]


def test_the_priority_goes_on_through_jobs_without_a_customer(make: MakeProject) -> None:
    project = make()
    project.spend("acme", 21)
    project.run(lambda: project.task("nested").defer_async(customer="acme", depth=3), works=True)
    assert project.rows("nested") == [-8] * 4


def test_jobs_of_nobody_hand_nothing_on(make: MakeProject) -> None:
    project = make()
    project.run(lambda: project.parent.defer_async(customer=None, others=["acme", None]), works=True)
    assert project.rows() == [0, 0, 0]
    assert project.fairlane.counts == (1, 0)


def test_a_priority_by_hand_is_handed_on(make: MakeProject) -> None:
    project = make()
    project.run(lambda: project.parent.configure(priority=4).defer_async(customer="acme", others=["acme"]), works=True)
    assert (project.rows(), project.fairlane.counts) == ([4, 4], (0, 0))


def test_a_retry_is_no_check(make: MakeProject) -> None:
    project = make()
    project.spend("acme", 5)
    project.run(lambda: project.task("fails_at_first").defer_async(customer="acme"), works=True)
    assert project.began == ["attempt 0", "attempt 1", "attempt 2"]
    assert (project.rows("fails_at_first"), counter(project.counters, "acme")) == ([-2], -5)


def test_a_periodic_job_is_charged_once_however_many_workers_defer_it(make: MakeProject) -> None:
    projects = [make(), make()]
    projects[0].spend("acme", 3)
    for project in projects:

        @project.app.periodic(cron="* * * * *", periodic_id="acme", task_kwargs={"customer": "acme"})
        @project.app.task(name="hourly")
        async def hourly(timestamp: int, customer: str) -> None: ...

    for timestamp in (1_800_000_000, 1_800_000_060):
        for project in projects:
            (periodic,) = project.app.periodic_registry.periodic_tasks.values()
            deferrer = PeriodicDeferrer(project.app.periodic_registry)
            project.run(partial(deferrer.defer_jobs, [(periodic, timestamp)]))
    assert projects[0].rows("hourly") == [-1, -1]
    assert counter(projects[0].counters, "acme") == -4
    assert [project.fairlane.counts.checked for project in projects] == [2, 0]


def test_a_worker_with_middleware_of_its_own_is_warned(make: MakeProject, caplog: pytest.LogCaptureFixture) -> None:
    async def own(call_next: Any, context: Any, worker: Any) -> Any:
        return await call_next()

    project = make()
    jobs = [{"customer": "acme"}] * 4
    with caplog.at_level(logging.WARNING):
        project.run(
            lambda: project.work.batch_defer_async(*jobs), works=True, worker_middleware=[own, project.fairlane.middleware]
        )
        other = make()
        other.run(lambda: other.app.configure_task("elsewhere").batch_defer_async({}, {}), works=True, worker_middleware=[own])
        assert not [record for record in caplog.records if record.name.startswith("fairlane")], (
            "jobs of unknown tasks do not begin"
        )
        other.run(lambda: other.work.batch_defer_async(*jobs), works=True, worker_middleware=[own])
    messages = [record.getMessage()[:52] for record in caplog.records if record.name.startswith("fairlane")]
    assert messages == ["this worker runs without the middleware of Fairlane,"]


# -- counters that are away, and mistakes ----------------------------------------------------------------------------------


def test_while_the_counters_are_away_jobs_get_a_neutral_priority(make: MakeProject, tmp_path: Path) -> None:
    away = {"counters": f"sqlite:///{tmp_path}"}
    project = make(**away)
    project.run(lambda: project.work.batch_defer_async({"customer": "acme"}, {}, {"customer": "acme"}))
    assert project.rows() == [1 - NEUTRAL, 0, 1 - NEUTRAL]
    assert project.fairlane.counts == (0, 2)
    strict = make(**away, when_away="fail")
    with pytest.raises(StoreUnfit, match="is a folder, not the file of a queue"):
        strict.run(lambda: strict.work.defer_async(customer="acme"))
    assert len(project.rows()) == 3


def test_a_periodic_job_is_deferred_while_the_counters_are_away(make: MakeProject, tmp_path: Path) -> None:
    """Whatever `when_away` is: an error there would end the worker."""
    project = make(counters=f"sqlite:///{tmp_path}", when_away="fail")
    job = project.work.configure(task_kwargs={"customer": "acme", "timestamp": 60}).job
    project.run(lambda: project.app.job_manager.defer_periodic_job(job, "acme", 60))
    assert (project.rows(), project.fairlane.counts) == ([1 - NEUTRAL], (0, 1))


def test_mistakes_are_told(make: MakeProject) -> None:
    project = make()
    with pytest.raises(Mistake, match=r"^this Procrastinate app has a Fairlane already"):
        Fairlane(project.app, project.counters, "customer")
    with pytest.raises(BadValue, match=r"Procrastinate's jobs have no headers$"):
        make(customer="header:tenant")
    plain = make(is_fair=False).app
    plain.job_manager = type("OwnManager", (procrastinate.manager.JobManager,), {})(plain.connector)
    with pytest.raises(Mistake, match=r"^app\.job_manager is a OwnManager, and Fairlane replaces Procrastinate's own only"):
        Fairlane(plain, project.counters, "customer")


MODULE = after(snippet("docs/other-queues.md", " import procrastinate"))


def test_the_module_of_the_docs(make: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make()
    changes = {"PsycopgConnector()": f"PsycopgConnector(conninfo={project.url!r}, min_size=1)"}
    with executed(adapted(MODULE, project.counters, changes)) as names:
        project.app, done = names["app"], list[str]()
        tasks = ModuleType("proj.tasks")

        @project.app.task(name="ocr")
        async def ocr(customer: str, path: str) -> None:
            done.append(path)

        monkeypatch.setitem(sys.modules, "proj", ModuleType("proj"))
        monkeypatch.setitem(sys.modules, "proj.tasks", tasks)  # which the app imports
        pages = [f"{page}.pdf" for page in range(4)]

        async def defer() -> None:
            for page in pages:
                await ocr.defer_async(customer="acme", path=page)

        project.run(defer, works=True)
    assert project.rows("ocr") == [1 - priority for priority in TABLE[:4]]
    assert done == pages


DJANGO = """
import sys, django
from django.conf import settings
from fairlane.contrib.procrastinate import Fairlane

def ready(app):
    Fairlane(app, {counters!r}, customer="customer", timeout=60)

settings.configure(
    INSTALLED_APPS=["procrastinate.contrib.django"], PROCRASTINATE_ON_APP_READY="proj.ready", USE_TZ=True,
    DATABASES={{"default": {{"ENGINE": "django.db.backends.postgresql", **{database!r}}}}},
)
sys.modules["proj"] = sys.modules["__main__"]
django.setup()
from django.core.management import call_command
from procrastinate.contrib.django import app

@app.task(name="child")
def child(): ...

@app.task(name="work")
def work(customer):
    child.defer()

work.defer(customer="acme")
call_command("procrastinate", "worker", "--one-shot", "--no-listen-notify", "--queues", "default")
"""


def test_in_django_it_is_made_when_the_app_is_ready(make: MakeProject) -> None:
    project = make()
    project.spend("acme", 5)
    parts = urlsplit(project.url)
    database = {"HOST": parts.hostname, "PORT": parts.port, "USER": parts.username, "NAME": parts.path[1:]}
    program = DJANGO.format(counters=project.counters, database=database)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=PATIENT)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (project.rows("work"), project.rows("child")) == ([-2], [-2]), done.stderr
    assert counter(project.counters, "acme") == -5


def test_without_procrastinate_the_import_says_what_to_install() -> None:
    program = "import sys; sys.modules['procrastinate'] = None; import fairlane.contrib.procrastinate"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    message = "fairlane.contrib.procrastinate needs Procrastinate, which is not installed here: pip install procrastinate"
    assert done.stderr.splitlines()[-1] == f"ImportError: {message}"
