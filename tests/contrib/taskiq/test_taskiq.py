"""Fair priorities for Taskiq, with its own worker on a real RabbitMQ: what is in its messages, and what runs first."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import suppress
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import taskiq
from taskiq.api import run_receiver_task
from taskiq.kicker import AsyncKicker
from taskiq_aio_pika import AioPikaBroker, Exchange, QueueType
from taskiq_aio_pika import Queue as TaskiqQueue

from fairlane import BadValue, Mistake, Queue, StoreUnfit
from fairlane.contrib.publish_check import NEUTRAL
from fairlane.contrib.taskiq import BrokerSettings, Fairlane
from tests.contrib.celery.running import ROOT, RabbitMQ, open_broker
from tests.contrib.counters import PATIENT, TABLE, counter
from tests.contrib.modules import adapted, after, executed
from tests.contrib.peers import FLOOD, LIGHT, floods_before, locked
from tests.docs.snippets import snippet
from tests.servers import rabbitmq

NINE: dict[str, Any] = {"type": QueueType.CLASSIC, "max_priority": 9}
_names = count(1)


class Project:
    """A broker as a user has one, its Fairlane, and what its tasks wrote down."""

    def __init__(
        self,
        counters: str,
        customer: Any = "customer",
        *,
        is_fair: bool = True,
        queue: Any = None,
        broker: Any = None,
        **more: Any,
    ) -> None:
        self.queue = f"taskiq-{os.getpid()}-{next(_names)}"
        self.counters, self.began, self.expected = counters, list[str](), asyncio.Semaphore(0)
        self.broker: Any = AioPikaBroker(
            rabbitmq.shared().url,
            task_queues=[TaskiqQueue(name=self.queue, **(NINE if queue is None else queue))],
            exchange=Exchange(name=self.queue),
            **{"qos": 1, **(broker or {})},
        ).with_middlewares(taskiq.SimpleRetryMiddleware())
        if is_fair:
            self.fairlane = Fairlane(self.broker, counters, customer, **{"timeout": PATIENT, **more})
        self._add_tasks()

    def _add_tasks(self) -> None:
        @self.broker.task("work")
        async def work(customer: str | None = None, label: str = "") -> None:
            self.record(label)

        @self.broker.task("urgent", priority=7)
        async def urgent(customer: str) -> None: ...

        @self.broker.task("parent")
        async def parent(customer: str | None, others: list[str | None]) -> None:
            for other in others:
                await work.kiq(customer=other, label="child")
            self.record("parent")

        @self.broker.task("nested")
        async def nested(depth: int, customer: str | None = None) -> None:
            if depth:
                await nested.kiq(depth - 1)
            self.record(f"nested {depth}")

        @self.broker.task("fails_at_first", retry_on_error=True, max_retries=5)
        async def fails_at_first(customer: str, context: taskiq.Context = taskiq.TaskiqDepends()) -> None:  # noqa: B008
            labels = context.message.labels
            self.record(f"{labels.get('_retries', 0)} {labels['priority']} {labels['fairlane']}")
            if int(labels.get("_retries", 0)) < 2:
                raise ZeroDivisionError

        self.work: Any = work
        self.parent: Any = parent

    def record(self, label: str) -> None:
        self.began.append(label)
        self.expected.release()

    def task(self, name: str) -> Any:
        return self.broker.find_task(name)

    def run(self, act: Callable[[], Awaitable[Any]], works: int = 0) -> None:
        """Start the broker, act, and let a worker run until so many tasks wrote something down."""

        async def run() -> None:
            self.broker.is_worker_process = False
            await self.broker.startup()
            try:
                await act()
            finally:
                await self.broker.shutdown()
            if works:
                await self._work(works)

        asyncio.run(run())

    async def _work(self, works: int) -> None:
        self.expected = asyncio.Semaphore(0)
        worker = asyncio.create_task(run_receiver_task(self.broker, max_async_tasks=1, run_startup=True))
        async with asyncio.timeout(PATIENT):
            for _ in range(works):
                await self.expected.acquire()
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker
        await self.broker.shutdown()

    def sent(self) -> list[tuple[int | None, Any]]:
        return sent(self.queue)

    def spend(self, customer: str, checks: int) -> None:
        """Let a customer have had so many checks."""
        with Queue(self.counters) as queue:
            for _ in range(checks):
                queue.check(customer)


def sent(queue: str) -> list[tuple[int | None, Any]]:
    """Take the messages out of a queue: RabbitMQ's priority, and the mark."""
    broker = open_broker("rabbitmq")
    assert isinstance(broker, RabbitMQ)
    marks = [(message["number"], message["headers"].get("fairlane")) for message in broker.take(queue)]
    return [(number, mark and json.loads(mark)) for number, mark in marks]


MakeProject = Callable[..., Project]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeProject]:
    made: list[Project] = []

    def make(**options: Any) -> Project:
        made.append(Project(**{"counters": f"sqlite:///{tmp_path}/counters.db", **options}))
        return made[-1]

    yield make
    for project in made:
        if hasattr(project, "fairlane"):
            project.fairlane.close()


def marked(customer: str, priority: int) -> tuple[int, dict[str, Any]]:
    return 10 - priority, {"customer": customer, "priority": priority}


# -- sending ---------------------------------------------------------------------------------------------------------------


def test_each_task_is_a_check_however_it_is_sent(make: MakeProject) -> None:
    project = make()

    async def send() -> None:
        for _ in range(len(TABLE) - 3):
            await project.work.kiq(customer="acme")
        await project.work.kiq("acme", "by position")
        by_name: Any = AsyncKicker("work", project.broker, {})
        await by_name.kiq("acme")
        await project.work.kicker().with_labels(colour="red").kiq(customer="acme")

    project.run(send)
    assert project.sent() == [marked("acme", priority) for priority in TABLE]
    assert counter(project.counters, "acme") == 1 - len(TABLE)
    assert project.fairlane.counts == (len(TABLE), 0)


MODULE = after(snippet("docs/other-queues.md", "-from taskiq_aio_pika import AioPikaBroker"))


def test_the_broker_of_the_docs(tmp_path: Path) -> None:
    module = adapted(MODULE, f"sqlite:///{tmp_path}/counters.db", {"amqp://rabbitmq": rabbitmq.shared().url})
    with executed(module) as names:
        broker = names["broker"]

        @broker.task("ocr")
        async def ocr(customer: str, path: str) -> None: ...

        async def send() -> None:
            await broker.startup()
            for page in range(4):
                await ocr.kiq("acme", f"{page}.pdf")
            await broker.shutdown()

        asyncio.run(send())
    assert sent("fair") == [marked("acme", priority) for priority in TABLE[:4]]


def test_whose_a_task_is_may_be_a_label(make: MakeProject) -> None:
    project = make(customer="header:tenant")
    project.spend("acme", 3)
    project.run(lambda: project.work.kicker().with_labels(tenant="acme").kiq())
    assert project.sent() == [marked("acme", 2)]


def test_whose_a_task_is_may_be_what_a_function_says(make: MakeProject) -> None:
    project = make(customer=lambda name, args, kwargs, labels: args[1] if name == "work" else None)
    project.run(lambda: project.work.kiq(None, "acme"))
    assert project.sent() == [marked("acme", 1)]


def test_a_priority_by_hand_stands(make: MakeProject) -> None:
    project = make()

    async def send() -> None:
        await project.task("urgent").kiq(customer="acme")
        await project.work.kicker().with_labels(priority=0).kiq(customer="acme")

    project.run(send)
    by_hand = {"customer": "acme", "priority": None}
    assert project.sent() == [(7, by_hand), (0, by_hand)]
    assert project.fairlane.counts == (0, 0)


def test_another_label_may_be_the_priority(make: MakeProject) -> None:
    project = make(broker={"label_for_priority": "urgency"})
    project.run(lambda: project.work.kiq(customer="acme"))
    assert project.sent() == [marked("acme", 1)]


def test_a_task_of_nobody_is_not_touched(make: MakeProject) -> None:
    project = make()
    project.run(lambda: project.work.kiq(label="nobody's"))
    assert (project.sent(), project.fairlane.counts) == ([(0, None)], (0, 0))


def test_a_customer_that_is_none_is_an_error(make: MakeProject) -> None:
    project = make()
    with pytest.raises(BadValue, match=r"^the customer of task work is 1\.5; it must be text"):
        project.run(lambda: project.work.kiq(customer=1.5))
    assert (project.sent(), project.fairlane.counts) == ([], (0, 0))


def test_a_check_does_not_hold_up_the_event_loop(make: MakeProject, tmp_path: Path) -> None:
    """The counters are locked until another coroutine unlocks them."""
    project = make()
    project.spend("acme", 3)

    async def send() -> None:
        sent = asyncio.create_task(project.work.kiq(customer="acme"))
        with locked(tmp_path / "counters.db"):
            await asyncio.to_thread(list)  # meanwhile the other coroutine has its turn, and waits for the lock
        await sent

    project.run(send)
    assert (project.sent(), project.fairlane.counts) == ([marked("acme", 2)], (1, 0))


# -- a worker --------------------------------------------------------------------------------------------------------------


def test_light_customers_pass_a_flood(make: MakeProject) -> None:
    """The same flood with and without Fairlane: how many of its tasks began before each light customer's."""
    labels = [f"whale {number}" for number in range(FLOOD)] + [f"light {number}" for number in range(LIGHT)]
    before: dict[bool, list[int]] = {}
    for is_fair in (False, True):
        project = make(is_fair=is_fair)

        async def send(project: Project = project) -> None:
            for label in labels:
                await project.work.kiq(label if label.startswith("light") else "whale", label)

        project.run(send, works=len(labels))
        assert sorted(project.began) == sorted(labels)
        before[is_fair] = floods_before(project.began)
    assert before == {False: [FLOOD] * LIGHT, True: [3] * LIGHT}  # the whale's first three are of priority 1 too


def test_what_a_running_task_sends_inherits(make: MakeProject) -> None:
    project = make()
    project.spend("acme", 5)
    project.run(lambda: project.parent.kiq("acme", ["acme", None, "other"]), works=1)
    assert project.sent() == [marked("other", 1), marked("acme", 3), marked("acme", 3)]
    assert (counter(project.counters, "acme"), counter(project.counters, "other")) == (-5, 0)


def test_the_mark_goes_on_through_tasks_without_a_customer(make: MakeProject) -> None:
    project = make()
    project.spend("acme", 5)
    project.run(lambda: project.task("nested").kiq(3, "acme"), works=3)
    assert project.sent() == [marked("acme", 3)]
    assert counter(project.counters, "acme") == -5


def test_a_priority_by_hand_is_handed_on(make: MakeProject) -> None:
    project = make()
    project.run(lambda: project.parent.kicker().with_labels(priority=4).kiq("acme", ["acme"]), works=1)
    assert project.sent() == [(4, {"customer": "acme", "priority": None})]
    assert project.fairlane.counts == (0, 0)


def test_a_retry_is_no_check(make: MakeProject) -> None:
    project = make()
    project.spend("acme", 5)
    project.run(lambda: project.task("fails_at_first").kiq(customer="acme"), works=3)
    mark = '{"customer": "acme", "priority": 3}'
    assert project.began == [f"{attempt} 7 {mark}" for attempt in range(3)]
    assert counter(project.counters, "acme") == -5


# -- counters that are away, settings and mistakes -------------------------------------------------------------------------


def test_while_the_counters_are_away_tasks_get_a_neutral_priority(make: MakeProject, tmp_path: Path) -> None:
    project = make(counters=f"sqlite:///{tmp_path}")
    project.run(lambda: project.work.kiq(customer="acme"))
    assert project.sent() == [marked("acme", NEUTRAL)]
    assert project.fairlane.counts == (0, 1)
    strict = make(counters=f"sqlite:///{tmp_path}", when_away="fail")
    with pytest.raises(StoreUnfit, match="is a folder, not the file of a queue"):
        strict.run(lambda: strict.work.kiq(customer="acme"))
    assert strict.sent() == []


@pytest.mark.parametrize(
    ("queue", "name", "message"),
    [
        ({"type": QueueType.CLASSIC}, "max_priority", r"^max_priority of the queue 'taskiq-\S+' is None: RabbitMQ serves nine"),
        ({**NINE, "max_priority": 5}, "max_priority", r" is 5: RabbitMQ serves nine priorities only with 9 or more"),
        ({}, "type", r"^the queue 'taskiq-\S+' is a quorum queue, taskiq-aio-pika's default, which does not have nine"),
    ],
)
def test_nothing_is_sent_to_a_queue_without_priorities(make: MakeProject, queue: Any, name: str, message: str) -> None:
    project = make(queue=queue)
    with pytest.raises(Mistake, match=f"{message}.*; the task was not sent$"):
        project.run(lambda: project.work.kiq(customer="acme"))
    assert (project.sent(), project.fairlane.counts) == ([], (0, 0))
    accepting = make(queue=queue, accept=(name,))
    accepting.run(lambda: accepting.work.kiq(customer="acme"))
    assert len(accepting.sent()) == 1


def test_arguments_of_a_queue_count_as_well(make: MakeProject) -> None:
    project = make(queue={"arguments": {"x-queue-type": "classic", "x-max-priority": 10}})
    project.run(lambda: project.work.kiq(customer="acme"))
    assert project.sent() == [marked("acme", 1)]


@pytest.mark.parametrize(("qos", "is_fine"), [(0, False), (1, True), (100, True), (101, False)])
def test_a_worker_that_takes_more_than_it_runs_is_found(make: MakeProject, qos: int, is_fine: bool) -> None:
    settings = BrokerSettings.of(make(broker={"qos": qos}).broker)
    assert list(settings.worker_findings()) == ([] if is_fine else ["qos"])


def test_a_worker_is_told_of_tasks_that_are_no_coroutines(make: MakeProject) -> None:
    broker = make(broker={"qos": 90}).broker
    assert list(BrokerSettings.of(broker).advice(broker)) == []

    @broker.task("sync")
    def sync() -> None: ...

    (sentence,) = BrokerSettings.of(broker).advice(broker)
    assert sentence.startswith("qos is 90, and tasks that are no coroutines (sync) have ")


WORKER = """
from taskiq_aio_pika import AioPikaBroker
from fairlane.contrib.taskiq import Fairlane
broker = AioPikaBroker({url!r}, qos=0)
Fairlane(broker, "sqlite:///counters.db", customer="customer")
"""


def test_a_worker_with_bad_settings_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "proj.py").write_text(WORKER.format(url=rabbitmq.shared().url))
    command = [sys.executable, "-m", "taskiq", "worker", "proj:broker", "--workers", "1", "--max-fails", "1"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=PATIENT)
    assert (
        "this worker would not serve tasks in the order of their priorities:\n- the queue 'taskiq' is a quorum" in done.stderr
    )
    assert "\n- qos is 0: the worker takes all tasks there are from RabbitMQ" in done.stderr
    assert 'accept=("type", "qos",))' in done.stderr


def test_mistakes_are_told(make: MakeProject) -> None:
    project = make()
    with pytest.raises(Mistake, match=r"^this Taskiq broker has a Fairlane already"):
        Fairlane(project.broker, project.counters, "customer")
    with pytest.raises(BadValue, match=r"^accept is .*; it must be a tuple of names among max_priority, qos, type"):
        make(accept=("prefetch",))


class ListBroker(taskiq.AsyncBroker):
    """A broker that has a list for a queue, as Redis is used by Taskiq."""

    async def kick(self, message: taskiq.BrokerMessage) -> None: ...

    async def listen(self) -> AsyncGenerator[bytes, None]:
        yield b""


def test_other_brokers_are_refused_by_name() -> None:
    with pytest.raises(
        Mistake, match=r"^the broker of this program is a ListBroker, which has no priorities that Fairlane knows"
    ):
        Fairlane(ListBroker(), "sqlite:///counters.db", "customer")


def test_in_memory_nothing_is_checked() -> None:
    """For tests of tasks."""
    broker = taskiq.InMemoryBroker(await_inplace=True)
    fairlane = Fairlane(broker, "memory://", "customer")

    @broker.task("work")
    async def work(customer: str) -> str:
        return customer

    async def send() -> Any:
        return (await (await work.kiq("acme")).wait_result()).return_value

    assert (asyncio.run(send()), fairlane.counts) == ("acme", (0, 0))


def test_the_private_names_that_are_read_are_those_of_this_version() -> None:
    """Look at BrokerSettings when this is raised."""
    assert version("taskiq-aio-pika").startswith("0.6.")
    with pytest.raises(Mistake, match=r"^Fairlane does not know this version of taskiq-aio-pika"):
        BrokerSettings.of(object())  # type: ignore[arg-type]


def test_without_taskiq_the_import_says_what_to_install() -> None:
    program = "import sys; sys.modules['taskiq_aio_pika'] = None; import fairlane.contrib.taskiq"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith("not installed here: pip install taskiq taskiq-aio-pika")
