"""Fair priorities for PgQueuer, with its own worker on a real PostgreSQL: what is in its table, and what runs first."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped,unused-ignore]
import psycopg
import pytest
from pgqueuer import AsyncpgDriver, DatabaseRetryEntrypointExecutor, Job, PgQueuer, Queries
from pgqueuer.adapters.drivers.psycopg import SyncPsycopgDriver
from pgqueuer.errors import DuplicateJobError
from pgqueuer.types import QueueExecutionMode

from fairlane import BadValue, Mistake, Queue, StoreUnfit
from fairlane.contrib.pgqueuer import Fairlane
from fairlane.contrib.publish_check import NEUTRAL
from tests.contrib.counters import PATIENT, TABLE, counter
from tests.contrib.modules import adapted, after, execute
from tests.contrib.peers import FLOOD, LIGHT, database, floods_before, locked
from tests.docs.snippets import snippet

LIMITS: dict[str, Any] = {"batch_size": 1, "max_concurrent_tasks": 2}  # the fewest that PgQueuer takes


def payload(customer: object = None, **more: object) -> bytes:
    return json.dumps({"customer": customer, **more}).encode()


class Project:
    """A program as a user has one: PgQueuer, its Fairlane, and what its jobs wrote down."""

    def __init__(self, url: str, counters: str, customer: Any = "customer", *, is_fair: bool = True, **options: Any) -> None:
        self.url, self.counters, self.began, self.is_fair = url, counters, list[str](), is_fair
        self.fairlane = Fairlane(counters, customer, **{"timeout": PATIENT, **options})
        self.queries: Any
        self.pgq: Any

    def _add_entrypoints(self) -> None:
        @self.pgq.entrypoint("work")
        async def work(job: Job) -> None:
            self.began.append(json.loads(job.payload or b"{}").get("label", ""))

        @self.pgq.entrypoint("parent")
        async def parent(job: Job) -> None:
            for other in json.loads(job.payload or b"")["others"]:
                await self.queries.enqueue("child", payload(other))

        @self.pgq.entrypoint("nested")
        async def nested(job: Job) -> None:
            depth = json.loads(job.payload or b"")["depth"]
            if depth:
                await self.queries.enqueue("nested" if depth > 1 else "child", payload(depth=depth - 1))

        retrying = DatabaseRetryEntrypointExecutor

        @self.pgq.entrypoint(
            "fails_at_first", executor_factory=lambda parameters: retrying(parameters, initial_delay=timedelta(0))
        )
        async def fails_at_first(job: Job) -> None:
            self.began.append(f"{job.attempts} {job.priority}")
            if job.attempts < 2:
                raise ZeroDivisionError

    def run(self, act: Callable[[], Awaitable[Any]], *, works: bool = False) -> Any:
        """Connect, act, and let a worker do what there is to do."""

        async def run() -> Any:
            connection = await asyncpg.connect(self.url)
            try:
                driver = AsyncpgDriver(connection)
                self.queries = self.fairlane.queries(driver) if self.is_fair else Queries(driver)
                self.pgq = self.fairlane.pgqueuer(driver) if self.is_fair else PgQueuer(driver)
                self._add_entrypoints()
                result = await act()
                if works:
                    await self.pgq.run(mode=QueueExecutionMode.drain, **LIMITS)
                return result
            finally:
                await connection.close()

        return asyncio.run(run())

    def rows(self, entrypoint: str) -> list[tuple[int, Any]]:
        """The priorities and the marks in PgQueuer's table, in the order in which jobs were enqueued."""
        with psycopg.connect(self.url) as connection:
            query = "SELECT priority, headers -> 'fairlane' FROM pgqueuer WHERE entrypoint = %s ORDER BY id"
            return list(connection.execute(query, (entrypoint,)))

    def spend(self, customer: str, checks: int) -> None:
        """Let a customer have had so many checks."""
        with Queue(self.counters) as queue:
            for _ in range(checks):
                queue.check(customer)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    async def install(url: str) -> None:
        connection = await asyncpg.connect(url)
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    with database("pgqueuer") as url:
        asyncio.run(install(url))
        yield url


MakeProject = Callable[..., Project]


@pytest.fixture
def make(url: str, tmp_path: Path) -> Iterator[MakeProject]:
    with psycopg.connect(url) as connection:
        connection.execute("TRUNCATE pgqueuer, pgqueuer_log RESTART IDENTITY")
    made: list[Project] = []

    def make(**options: Any) -> Project:
        made.append(Project(url, **{"counters": f"sqlite:///{tmp_path}/counters.db", **options}))
        return made[-1]

    yield make
    for project in made:
        project.fairlane.close()


def marked(customer: str, priority: int) -> tuple[int, dict[str, Any]]:
    return 1 - priority, {"customer": customer, "priority": priority}


# -- enqueueing ------------------------------------------------------------------------------------------------------------


def test_each_job_is_a_check_however_it_is_enqueued(make: MakeProject) -> None:
    project = make()

    async def enqueue() -> None:
        for _ in range(len(TABLE) - 9):
            await project.queries.enqueue("work", payload("acme"))
        await project.queries.enqueue("work", payload("acme"), execute_after=timedelta(minutes=1))
        await project.queries.enqueue(["work"] * 3, [payload("acme")] * 3, [0, 0, 0])
        await project.queries.enqueue(["work"] * 2, [payload("acme")] * 2)

    project.run(enqueue)
    with psycopg.connect(project.url, autocommit=True) as connection:
        queries = project.fairlane.sync_queries(SyncPsycopgDriver(connection))
        queries.enqueue("work", payload("acme"))
        queries.enqueue(["work"] * 2, [payload("acme")] * 2)
    assert project.rows("work") == [marked("acme", priority) for priority in TABLE]
    assert counter(project.counters, "acme") == 1 - len(TABLE)
    assert project.fairlane.counts == (len(TABLE), 0)


ENQUEUE = after(snippet("docs/other-queues.md", " from pgqueuer import AsyncpgDriver"))
WORK = after(snippet("docs/other-queues.md", "-pgq = PgQueuer(AsyncpgDriver(connection))"))


def test_the_programs_of_the_docs(make: MakeProject) -> None:
    project = make()

    async def run() -> None:
        connection = await asyncpg.connect(project.url)
        names: dict[str, Any] = {"connection": connection}
        try:
            project.spend("acme", 3)
            await execute(adapted(ENQUEUE, project.counters, {}), names)
            assert project.rows("ocr") == [marked("acme", 2)]
            await execute(WORK, names)
            await names["pgq"].run(mode=QueueExecutionMode.drain, **LIMITS)
        finally:
            await connection.close()
            names["fairlane"].close()

    asyncio.run(run())
    assert project.rows("ocr") == []


def test_a_list_may_be_of_several_customers(make: MakeProject) -> None:
    project = make()
    project.spend("acme", 21)
    jobs = [payload("acme"), payload("other"), payload(), payload("acme"), payload("acme")]
    project.run(lambda: project.queries.enqueue(["work"] * 5, jobs, [0, 0, 0, 4, 0]))
    by_hand = (4, {"customer": "acme", "priority": None})
    assert project.rows("work") == [marked("acme", 9), marked("other", 1), (0, None), by_hand, marked("acme", 9)]


def test_other_arguments_go_on_to_pgqueuer(make: MakeProject) -> None:
    project = make()

    async def enqueue() -> Any:
        first = await project.queries.enqueue("work", payload("acme"), dedupe_key="one", headers={"colour": "red"})
        again = await project.queries.enqueue("work", payload("acme"), dedupe_key="one", on_conflict="skip")
        with pytest.raises(DuplicateJobError):
            await project.queries.enqueue("work", payload("acme"), dedupe_key="one")
        with pytest.raises(ValueError, match=r"^Expected 2 values for payload to match entrypoint, got 1"):
            await project.queries.enqueue(["work", "work"], [payload("acme")], [0, 0])
        return len(first), again

    assert project.run(enqueue) == (1, [None])
    assert project.rows("work") == [marked("acme", 1)]
    assert project.fairlane.counts == (3, 0), "those that the key kept out are charged, lists of two lengths are not"
    with psycopg.connect(project.url) as connection:
        assert connection.execute("SELECT headers ->> 'colour' FROM pgqueuer").fetchall() == [("red",)]


@pytest.mark.parametrize(
    ("customer", "job"),
    [
        ("order.customer", ("work", json.dumps({"order": {"customer": "acme"}}).encode(), {})),
        ("header:tenant", ("work", b"\x00 no JSON", {"tenant": "acme"})),
        (
            lambda entrypoint, args, keys, headers: args[0][:4].decode() if entrypoint == "work" else None,
            ("work", b"acme17", {}),
        ),
    ],
)
def test_whose_a_job_is_may_be_in_its_payload_or_its_headers(make: MakeProject, customer: Any, job: Any) -> None:
    project = make(customer=customer)
    entrypoint, content, headers = job
    project.spend("acme", 21)
    project.run(lambda: project.queries.enqueue(entrypoint, content, headers=headers))
    assert project.rows("work") == [marked("acme", 9)]


def test_a_payload_without_keys_is_told_once(make: MakeProject, caplog: pytest.LogCaptureFixture) -> None:
    project = make()
    payloads = [b"\xff", b"[1]", b"17", None, b"", b"[" * 100_000]
    project.run(lambda: project.queries.enqueue(["told"] * 6, payloads))
    assert project.rows("told") == [(0, None)] * 6
    assert [record.getMessage()[:60] for record in caplog.records if record.levelno == logging.WARNING] == [
        "the payload of a job for told is not a JSON object, so no cu"
    ]


def test_a_customer_that_is_none_is_an_error_and_nobody_is_charged(make: MakeProject) -> None:
    project = make()
    with pytest.raises(BadValue, match=r"^the customer of task work is 1\.5; it must be text"):
        project.run(lambda: project.queries.enqueue(["work"] * 2, [payload("acme"), payload(1.5)]))
    assert (project.rows("work"), project.fairlane.counts) == ([], (0, 0))


def test_a_check_does_not_hold_up_the_event_loop(make: MakeProject, tmp_path: Path) -> None:
    """The counters are locked until another coroutine unlocks them."""
    project = make()
    project.spend("acme", 3)

    async def enqueue() -> None:
        enqueued = asyncio.create_task(project.queries.enqueue("work", payload("acme")))
        with locked(tmp_path / "counters.db"):
            await asyncio.to_thread(list)  # meanwhile the other coroutine has its turn, and waits for the lock
        await enqueued

    project.run(enqueue)
    assert (project.rows("work"), project.fairlane.counts) == ([marked("acme", 2)], (1, 0))


# -- a worker --------------------------------------------------------------------------------------------------------------


def test_light_customers_pass_a_flood(make: MakeProject) -> None:
    """The same flood with and without Fairlane: how many of its jobs began before each light customer's."""
    labels = [f"whale {number}" for number in range(FLOOD)] + [f"light {number}" for number in range(LIGHT)]
    jobs = [payload(label if label.startswith("light") else "whale", label=label) for label in labels]
    before: dict[bool, list[int]] = {}
    for is_fair in (False, True):
        project = make(is_fair=is_fair)

        async def enqueue(project: Project = project) -> None:
            await project.queries.enqueue(["work"] * len(jobs), jobs, [0] * len(jobs))

        project.run(enqueue, works=True)
        assert sorted(project.began) == sorted(labels)
        before[is_fair] = floods_before(project.began)
    assert before == {False: [FLOOD] * LIGHT, True: [3] * LIGHT}  # the whale's first three are of priority 1 too


def test_what_a_running_job_enqueues_inherits(make: MakeProject) -> None:
    project = make()
    project.spend("acme", 5)
    project.run(lambda: project.queries.enqueue("parent", payload("acme", others=["acme", None, "other"])), works=True)
    assert project.rows("child") == [marked("acme", 3), marked("acme", 3), marked("other", 1)]
    assert (counter(project.counters, "acme"), counter(project.counters, "other")) == (-5, 0)


def test_the_mark_goes_on_through_jobs_without_a_customer(make: MakeProject) -> None:
    project = make()
    project.spend("acme", 5)
    project.run(lambda: project.queries.enqueue("nested", payload("acme", depth=3)), works=True)
    assert project.rows("child") == [marked("acme", 3)]
    assert counter(project.counters, "acme") == -5


def test_a_priority_by_hand_is_handed_on(make: MakeProject) -> None:
    project = make()
    project.run(lambda: project.queries.enqueue("parent", payload("acme", others=["acme"]), 7), works=True)
    assert project.rows("child") == [(7, {"customer": "acme", "priority": None})]
    assert project.fairlane.counts == (0, 0)


def test_a_retry_is_no_check(make: MakeProject) -> None:
    project = make()
    project.spend("acme", 5)
    project.run(lambda: project.queries.enqueue("fails_at_first", payload("acme")), works=True)
    assert project.began == ["0 -2", "1 -2", "2 -2"]
    assert counter(project.counters, "acme") == -5


# -- counters that are away, settings and mistakes -------------------------------------------------------------------------


def test_while_the_counters_are_away_jobs_get_a_neutral_priority(make: MakeProject, tmp_path: Path) -> None:
    project = make(counters=f"sqlite:///{tmp_path}")
    project.run(lambda: project.queries.enqueue(["work"] * 2, [payload("acme"), payload()]))
    assert project.rows("work") == [marked("acme", NEUTRAL), (0, None)]
    assert project.fairlane.counts == (0, 1)
    strict = make(counters=f"sqlite:///{tmp_path}", when_away="fail")
    with pytest.raises(StoreUnfit, match="is a folder, not the file of a queue"):
        strict.run(lambda: strict.queries.enqueue("work", payload("acme")))
    assert len(project.rows("work")) == 2


def test_a_worker_without_a_limit_does_not_run(make: MakeProject) -> None:
    project = make()

    async def run_without() -> None:
        for limit in (None, 0):
            with pytest.raises(
                Mistake, match=rf"^max_concurrent_tasks is {limit}, and the entrypoint 'work' has no concurrency"
            ):
                await project.pgq.run(max_concurrent_tasks=limit)

    project.run(run_without)

    async def run_limited() -> None:
        pgq = project.fairlane.pgqueuer(project.pgq.connection)

        @pgq.entrypoint("limited", concurrency_limit=1)
        async def limited(job: Job) -> None: ...

        await pgq.run(mode=QueueExecutionMode.drain)

    project.run(run_limited)


def test_without_pgqueuer_the_import_says_what_to_install() -> None:
    program = "import sys; sys.modules['pgqueuer'] = None; import fairlane.contrib.pgqueuer"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    message = "fairlane.contrib.pgqueuer needs PgQueuer, which is not installed here: pip install pgqueuer"
    assert done.stderr.splitlines()[-1] == f"ImportError: {message}"
