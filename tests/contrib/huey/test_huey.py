"""Huey: the priority of every task, in whatever way it is enqueued, and what a consumer does with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import huey as huey_package
import pytest
from huey import MemoryHuey, RedisExpireHuey, RedisHuey, chord, crontab, group
from huey.api import Huey

from fairlane import BadValue, Mistake, StoreUnfit
from fairlane.contrib.huey import Fairlane
from fairlane.contrib.publish_check import NEUTRAL
from fairlane.procs.syscalls import set_parent_death_signal
from tests.api.running import until
from tests.contrib.counters import FLOOD, TABLE, counter, customers, flood, new_store, whales_before_the_last_light
from tests.contrib.modules import adapted, after, executed
from tests.docs.snippets import snippet

from .running import STORAGES, close_pools, fair_huey, new_huey, redis_pool, waiting, working

MakeHuey = Callable[..., Huey]


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_pools()


@pytest.fixture
def store(tmp_path: Path) -> str:
    return new_store(tmp_path)


@pytest.fixture
def make_huey(tmp_path: Path, store: str) -> Iterator[MakeHuey]:
    made: list[Any] = []

    def make(storage: str = "sqlite", customer: Any = "customer", *, url: str = store, **options: Any) -> Huey:
        made.append(fair_huey(storage, tmp_path, url, customer, **options))
        return made[-1][0]

    yield make
    for huey, fairlane in made:
        fairlane.close()
        huey.storage.close()


@pytest.fixture
def huey(make_huey: MakeHuey) -> Huey:
    return make_huey()


def ocr_of(huey: Huey, **options: Any) -> Any:
    """A task with a customer."""

    @huey.task(**options)
    def ocr(customer: str | None = None, path: str = "", *, pages: int = 1) -> None: ...

    return ocr


def marked(customer: str, priority: int) -> tuple[int, Any]:
    """A task with this priority of ours, as it must be in Huey."""
    return 10 - priority, (customer, priority)


# -- what is enqueued ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", STORAGES)
def test_the_nth_task_of_a_customer_has_its_priority_in_hueys_number(make_huey: MakeHuey, storage: str, store: str) -> None:
    huey = make_huey(storage)
    ocr = ocr_of(huey)
    for _ in TABLE:
        ocr("acme")
    ocr("small")
    expected = [marked("acme", 1)] * 3 + [marked("small", 1)] + [marked("acme", priority) for priority in TABLE[3:]]
    assert waiting(huey) == expected
    taken = [huey.dequeue() for _ in expected]
    assert [task.priority for task in taken] == [number for number, _ in expected]
    assert all(task.kwargs == {} for task in taken)
    assert counter(store, "acme") == 1 - len(TABLE)


def test_however_a_task_is_enqueued_it_is_one_check(huey: Huey, store: str) -> None:
    ocr = ocr_of(huey)
    ocr("acme")
    ocr(customer="acme", pages=2)
    ocr.schedule(("acme",), delay=60)
    ocr.schedule(args=("acme",), eta=datetime.now() + timedelta(minutes=1))
    huey.enqueue(ocr.s("acme"))
    ocr.map(["acme", "acme"])
    huey.enqueue(group([ocr.s("acme"), ocr.s("acme")]))
    huey.enqueue(chord([ocr.s("acme"), ocr.s("acme")], ocr.s("acme")))  # the last is enqueued by a worker
    huey.enqueue(ocr.s("acme").then(ocr, "acme"))  # so is the second
    assert counter(store, "acme") == -11
    assert [mark for _, mark in waiting(huey)] == [("acme", priority) for priority in TABLE[:12]]


def test_a_task_that_is_enqueued_twice_is_two_checks(huey: Huey, store: str) -> None:
    task = ocr_of(huey).s("acme")
    huey.enqueue(task)
    huey.enqueue(task)
    assert task.priority is None
    assert counter(store, "acme") == -1


def test_a_priority_by_hand_stands_and_is_no_check(huey: Huey, store: str) -> None:
    ocr = ocr_of(huey, priority=3)
    ocr("acme")
    ocr("acme", priority=50)
    assert waiting(huey) == [(50, ("acme", None)), (3, ("acme", None))]
    assert customers(store) == []


def test_a_task_of_nobody_is_left_alone(huey: Huey, store: str) -> None:
    ocr_of(huey)(None)

    @huey.periodic_task(crontab())
    def tidy() -> None: ...

    tidy()
    assert waiting(huey) == [(None, None)] * 2
    assert customers(store) == []


def test_a_customer_that_can_be_none_is_said_to_the_caller_and_nothing_is_enqueued(huey: Huey) -> None:
    with pytest.raises(BadValue, match=r"the customer of task ocr is \['acme'\]; it must be text"):
        ocr_of(huey)(["acme"])
    assert waiting(huey) == []


def test_the_customer_may_come_from_a_dictionary_or_from_a_function(make_huey: MakeHuey) -> None:
    huey = make_huey(customer="order.customer")

    @huey.task(context=True)
    def bill(pages: int, order: dict[str, Any], task: Any = None) -> None: ...

    bill(3, {"customer": 17})
    assert waiting(huey) == [marked("17", 1)]
    huey = make_huey(customer=lambda task, args, kwargs, headers: f"{task} {args[0]}")
    ocr_of(huey)("acme")
    assert waiting(huey) == [marked("ocr acme", 1)]


def test_without_counters_tasks_are_neutral_or_fail(make_huey: MakeHuey, tmp_path: Path) -> None:
    (tmp_path / "away.db").mkdir()  # no queue can be there
    away = f"sqlite:///{tmp_path}/away.db"
    huey = make_huey(url=away)
    ocr_of(huey)("acme")
    assert waiting(huey) == [marked("acme", NEUTRAL)]
    strict = make_huey(url=away, when_away="fail")
    with pytest.raises(StoreUnfit, match="is a folder, not the file of a queue"):
        ocr_of(strict)("acme")
    assert waiting(strict) == []


# -- what a consumer does --------------------------------------------------------------------------------------------------


def began_in_a_flood(huey: Huey) -> list[str]:
    began: list[str] = []

    @huey.task()
    def work(customer: str) -> None:
        began.append(customer)

    published = flood(work)
    with working(huey):
        until(lambda: len(began) == published, "the flood")
    return began


@pytest.mark.parametrize("storage", ["redis", "sqlite"])
def test_light_customers_do_not_wait_for_a_flood(make_huey: MakeHuey, storage: str, tmp_path: Path) -> None:
    plain = new_huey(storage, tmp_path)
    assert whales_before_the_last_light(began_in_a_flood(plain)) == FLOOD
    assert whales_before_the_last_light(began_in_a_flood(make_huey(storage))) == 3  # those of priority 1, which came first
    plain.storage.close()


class Record:
    """Tasks that write down what began: the customer, Huey's number, the priority in the mark, and a label."""

    def __init__(self, huey: Huey) -> None:
        self.began: list[tuple[str | None, float | None, int | None, str]] = []

        @huey.task(context=True)
        def work(*values: Any, customer: str | None = None, label: str = "", task: Any = None) -> str:
            self.add(customer, task, label)
            return label

        @huey.task(context=True)
        def parent(customer: str, others: list[str | None], task: Any = None) -> None:
            self.add(customer, task, "parent")
            for other in others:
                work(customer=other, label="child")

        self.work, self.parent = work, parent

    def add(self, customer: str | None, task: Any, label: str = "") -> None:
        mark = task.fairlane_mark
        self.began.append((customer, task.priority, mark and mark.priority, label))

    def wait_for(self, count: int) -> Any:
        until(lambda: len(self.began) >= count, f"{count} tasks")
        return self.began[:]


@pytest.fixture
def record(huey: Huey) -> Record:
    return Record(huey)


def test_what_a_running_task_enqueues_has_its_priority(huey: Huey, store: str, record: Record) -> None:
    for _ in range(3):
        record.work(customer="acme")
    record.parent("acme", ["acme", None, "other"])
    with working(huey):
        began = record.wait_for(7)
    assert began[3:] == [("acme", 8, 2, "parent"), ("other", 9, 1, "child"), ("acme", 8, 2, "child"), (None, 8, 2, "child")]
    assert (counter(store, "acme"), counter(store, "other")) == (-3, 0)


def test_what_a_task_by_hand_enqueues_has_its_number(huey: Huey, store: str, record: Record) -> None:
    record.parent("acme", ["acme"], priority=2.5)
    with working(huey):
        assert record.wait_for(2) == [("acme", 2.5, None, "parent"), ("acme", 2.5, None, "child")]
    assert customers(store) == []


def test_the_next_task_of_a_pipeline_and_the_end_of_a_chord_have_the_priority_of_the_one_before(
    huey: Huey, store: str, record: Record
) -> None:
    for _ in range(3):
        record.work(customer="acme")
    pipeline = record.work.s(customer="acme", label="first").then(record.work, customer="acme", label="second")
    huey.enqueue(pipeline.then(record.work, label="third").then(record.work, customer="other", label="fourth"))
    with working(huey):
        began = record.wait_for(7)
        assert began[3:] == [
            ("acme", 8, 2, "first"), ("acme", 8, 2, "second"), (None, 8, 2, "third"), ("other", 9, 1, "fourth"),
        ]  # fmt: skip
        huey.enqueue(chord([record.work.s(customer="acme")], record.work.s(label="end")))
        assert record.wait_for(9)[8:] == [(None, 8, 2, "end")]
    assert counter(store, "acme") == -4


@pytest.mark.parametrize("delay", [0, 0.01])
def test_a_retry_is_no_check_and_keeps_its_priority(huey: Huey, store: str, record: Record, delay: float) -> None:
    @huey.task(retries=2, retry_delay=delay, context=True)
    def fails_at_first(customer: str, task: Any = None) -> None:
        record.add(customer, task)
        if len(record.began) < 3:
            raise ZeroDivisionError

    fails_at_first("acme")
    with working(huey):
        assert record.wait_for(3) == [("acme", 9, 1, "")] * 3
    assert counter(store, "acme") == 0


def test_a_scheduled_task_that_is_due_keeps_its_priority(huey: Huey, store: str, record: Record) -> None:
    record.work.schedule(kwargs={"customer": "acme", "label": "due"}, delay=0.2)
    with working(huey):
        assert record.wait_for(1) == [("acme", 9, 1, "due")]
    assert counter(store, "acme") == 0


def test_a_pipeline_goes_on_while_the_counters_are_away(make_huey: MakeHuey, tmp_path: Path) -> None:
    """Huey would drop the task that could not be enqueued; what a function itself enqueues fails."""
    (tmp_path / "away.db").mkdir()
    huey = make_huey(url=f"sqlite:///{tmp_path}/away.db", when_away="fail")
    record = Record(huey)
    failures: list[Exception] = []

    @huey.task()
    def publishes() -> None:
        try:
            record.work(customer="acme", label="never")
        except StoreUnfit as error:
            failures.append(error)

    huey.enqueue(publishes.s().then(record.work, customer="acme", label="second"))
    with working(huey):
        assert record.wait_for(1) == [("acme", 10 - NEUTRAL, None, "second")]
    assert len(failures) == 1


MODULE = after(snippet("docs/other-queues.md", "-from huey import RedisHuey"))


def test_the_module_of_the_docs(store: str) -> None:
    with executed(adapted(MODULE, store, {'host="redis"': "connection_pool=pool"}), pool=redis_pool()) as names:
        for page in range(4):
            names["ocr"]("acme", f"{page}.pdf")
        assert waiting(names["huey"]) == [marked("acme", priority) for priority in TABLE[:4]]
        with working(names["huey"]):
            until(lambda: waiting(names["huey"]) == [], "its consumer takes them")


APP = """
import os
from huey import SqliteHuey
from fairlane.contrib.huey import Fairlane
huey = SqliteHuey("shop", filename="huey.db")
Fairlane(huey, os.environ["TEST_STORE"], customer="customer", timeout=60)

@huey.task(context=True)
def ocr(customer, pages, task=None):
    with open("began", "a") as file:
        file.write(f"{customer} {pages} {task.priority}\\n")
    if pages > 1:
        ocr(customer, pages - 1)
        ocr("other", 1)
"""


def test_in_hueys_own_consumer_with_forked_workers_it_holds_too(tmp_path: Path, store: str) -> None:
    (tmp_path / "app.py").write_text(APP)
    environment = {**os.environ, "TEST_STORE": store, "PYTHONPATH": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    enqueue = [sys.executable, "-c", "import app; [app.ocr('acme', pages) for pages in (1, 1, 1, 2)]"]
    subprocess.run(enqueue, cwd=tmp_path, env=environment, check=True, timeout=60)
    command = [sys.executable, "-m", "huey.bin.huey_consumer", "app.huey", "-k", "process", "-w", "1", "-d", "0.01"]
    with (tmp_path / "log").open("w") as log:
        consumer = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            preexec_fn=partial(set_parent_death_signal, signal.SIGKILL),
        )  # fmt: skip
    try:
        began = tmp_path / "began"
        until(lambda: began.exists() and len(began.read_text().splitlines()) == 6, "six tasks")
    finally:
        os.killpg(consumer.pid, signal.SIGKILL)
        consumer.wait()
    assert began.read_text().splitlines() == ["acme 1 9"] * 3 + ["acme 2 8", "other 1 9", "acme 1 8"]
    assert (counter(store, "acme"), counter(store, "other")) == (-3, 0)


# -- the Huey --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "better"), [(RedisHuey, "PriorityRedisHuey"), (RedisExpireHuey, "PriorityRedisExpireHuey")], ids=["", "expire"]
)
def test_a_storage_without_priorities_is_refused_by_its_name(kind: Any, better: str, store: str) -> None:
    huey = kind("shop", connection_pool=redis_pool())
    name = kind.storage_class.__name__
    with pytest.raises(
        Mistake, match=f"the storage of the Huey 'shop' is a {name}, which has no priorities: .* as {better} does"
    ):
        Fairlane(huey, store, "customer")


def test_immediate_tasks_are_not_enqueued_and_not_checked() -> None:
    huey = MemoryHuey(immediate=True)
    fairlane = Fairlane(huey, "memory://", "customer")

    @huey.task()
    def double(customer: str, number: int) -> int:
        return 2 * number

    assert double("acme", 21).get() == 42
    assert fairlane.counts == (0, 0)
    huey.immediate = False
    with pytest.raises(BadValue, match="in memory each process would count alone"):
        double("acme", 21)


def test_a_huey_has_one_fairlane(huey: Huey, store: str) -> None:
    with pytest.raises(Mistake, match="has a Fairlane already; make one for each Huey"):
        Fairlane(huey, store, "customer")


def test_a_header_is_refused(store: str) -> None:
    with pytest.raises(BadValue, match=r"customer is 'header:tenant'; it must be .*: tasks of Huey have no headers"):
        Fairlane(MemoryHuey(), store, "header:tenant")


def test_a_task_that_was_declared_before_is_an_error_that_says_what_to_do(store: str) -> None:
    huey = MemoryHuey()
    ocr = ocr_of(huey)
    Fairlane(huey, store, "customer")
    with pytest.raises(
        Mistake, match=r"the task ocr was declared before Fairlane was made.*make Fairlane directly after the Huey"
    ):
        ocr("acme")


def test_the_verbs_that_are_replaced_are_those_of_this_version() -> None:
    """`execute`, `serialize_task` and `deserialize_task` are hardly documented: look at them when this fails."""
    assert huey_package.__version__.split(".")[0] in {"2", "3"}


def test_without_huey_the_import_says_what_to_install() -> None:
    program = "import sys; sys.modules['huey'] = None; import fairlane.contrib.huey"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    message = "ImportError: fairlane.contrib.huey needs Huey, which is not installed here: pip install huey"
    assert done.stderr.splitlines()[-1] == message
