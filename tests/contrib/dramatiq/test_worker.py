"""What a worker does with it: the order in which messages begin, what they enqueue themselves, retries."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import dramatiq
import pytest
from dramatiq import Broker, pipeline
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import CurrentMessage

from fairlane.contrib.dramatiq import Fairlane
from fairlane.contrib.publish_check import NEUTRAL
from tests.api.running import until
from tests.contrib.counters import FLOOD, PATIENT, TABLE, counter, customers, flood, whales_before_the_last_light
from tests.contrib.modules import adapted, after, executed
from tests.docs.snippets import snippet
from tests.servers import rabbitmq, redis
from tests.terminal import bash, beside

from .running import fair_broker, new_broker, new_queue, take, working


class Record:
    """What began, in order: the customer, the mark's priority, and the label of each message."""

    def __init__(self) -> None:
        self.began: list[tuple[str | None, int | None, str]] = []

    def add(self, customer: str | None, label: str = "") -> None:
        message: Any = CurrentMessage.get_current_message()
        mark = message.options.get("fairlane")
        self.began.append((customer, mark and mark["priority"], label))

    def wait_for(self, count: int) -> list[tuple[str | None, int | None, str]]:
        until(lambda: len(self.began) >= count, f"{count} messages")
        return self.began[:]


@pytest.fixture
def record() -> Record:
    return Record()


@pytest.fixture
def working_broker(broker: Broker) -> Broker:
    broker.add_middleware(CurrentMessage())
    return broker


def began_in_a_flood(broker: Broker) -> list[str]:
    began: list[str] = []

    @dramatiq.actor(broker=broker, queue_name=new_queue())
    def work(customer: str) -> None:
        began.append(customer)

    published = flood(work.send)
    with working(broker):
        until(lambda: len(began) == published, "the flood")
    return began


def test_light_customers_do_not_wait_for_a_flood(broker: Broker, broker_kind: str) -> None:
    assert whales_before_the_last_light(began_in_a_flood(new_broker(broker_kind))) == FLOOD
    assert whales_before_the_last_light(began_in_a_flood(broker)) == 3  # those of priority 1, which came first


def test_a_message_that_comes_during_a_flood_is_the_next(broker: Broker, queue: str) -> None:
    began: list[str] = []
    gate = threading.Event()

    @dramatiq.actor(broker=broker, queue_name=queue)
    def work(customer: str) -> None:
        began.append(customer)
        gate.wait(40)

    for _ in range(30):
        work.send("whale")
    with working(broker):
        until(lambda: began, "the first")
        work.send("small")
        gate.set()
        until(lambda: len(began) == 31, "all")
    assert began.index("small") == 3


def test_what_a_running_message_enqueues_has_its_priority(
    working_broker: Broker, queue: str, store: str, record: Record
) -> None:
    broker = working_broker

    @dramatiq.actor(broker=broker, queue_name=queue)
    def child(customer: str | None = None, label: str = "child") -> None:
        record.add(customer, label)

    @dramatiq.actor(broker=broker, queue_name=queue)
    def parent(customer: str) -> str:
        record.add(customer, "parent")
        child.send(customer)
        child.send()
        child.send("other")
        return "other"

    for _ in range(3):
        child.send("acme", "first")
    parent.send("acme")
    with working(broker):
        began = record.wait_for(7)
    assert sorted(began[3:], key=str) == sorted(
        [("acme", 2, "parent"), ("acme", 2, "child"), (None, 2, "child"), ("other", 1, "child")], key=str
    )
    assert (counter(store, "acme"), counter(store, "other")) == (-3, 0)


def test_the_next_message_of_a_pipeline_has_the_priority_of_the_one_before(
    working_broker: Broker, queue: str, store: str, record: Record
) -> None:
    @dramatiq.actor(broker=working_broker, queue_name=queue)
    def step(*values: Any, customer: str | None = None) -> str:
        record.add(customer, "step")
        return "done"

    for _ in range(3):
        step.send(customer="acme")
    links = [step.message(customer="acme"), step.message(customer="acme"), step.message(), step.message(customer="other")]
    pipeline(links, broker=working_broker).run()
    with working(working_broker):
        began = record.wait_for(7)
    assert began[3:] == [("acme", 2, "step"), ("acme", 2, "step"), (None, 2, "step"), ("other", 1, "step")]
    assert counter(store, "acme") == -3


def test_a_retry_is_no_check_and_keeps_its_priority(working_broker: Broker, queue: str, store: str, record: Record) -> None:
    @dramatiq.actor(broker=working_broker, queue_name=queue, max_retries=3, min_backoff=1, max_backoff=1)
    def fails_at_first(customer: str) -> None:
        record.add(customer)
        if len(record.began) < 3:
            raise ZeroDivisionError

    fails_at_first.send("acme")
    with working(working_broker):
        began = record.wait_for(3)
    assert began == [("acme", 1, "")] * 3
    assert counter(store, "acme") == 0


def test_a_delayed_message_has_the_priority_of_its_check(
    working_broker: Broker, queue: str, store: str, record: Record
) -> None:
    @dramatiq.actor(broker=working_broker, queue_name=queue)
    def later(customer: str) -> None:
        record.add(customer)

    later.send_with_options(args=("acme",), delay=1)
    with working(working_broker):
        assert record.wait_for(1) == [("acme", 1, "")]
    assert counter(store, "acme") == 0


def test_what_a_message_by_hand_enqueues_has_its_number(working_broker: Broker, queue: str, store: str, record: Record) -> None:
    idle = new_queue()  # no worker takes from it

    @dramatiq.actor(broker=working_broker, queue_name=idle)
    def child(customer: str) -> None: ...

    @dramatiq.actor(broker=working_broker, queue_name=queue)
    def parent(customer: str) -> None:
        child.send(customer)
        record.add(customer)

    parent.send_with_options(args=("acme",), broker_priority=6)
    worker = dramatiq.Worker(working_broker, queues={queue}, worker_threads=1, worker_timeout=50)
    worker.queue_prefetch = 1
    worker.start()
    record.wait_for(1)
    worker.stop()
    (found,) = take(working_broker, idle)
    assert (found[0], found[1]["options"]["fairlane"]) == (6, {"customer": "acme", "priority": None})
    assert customers(store) == []


def test_a_pipeline_goes_on_while_the_counters_are_away(broker_kind: str, queue: str, tmp_path: Any, record: Record) -> None:
    """Dramatiq would drop the message that could not be enqueued."""
    (tmp_path / "away.db").mkdir()
    broker, fairlane = fair_broker(broker_kind, f"sqlite:///{tmp_path}/away.db", when_away="fail")
    broker.add_middleware(CurrentMessage())

    @dramatiq.actor(broker=broker, queue_name=queue)
    def step(*values: Any, customer: str | None = None) -> str:
        record.add(customer, str(CurrentMessage.get_current_message().options.get("broker_priority")))  # type: ignore[union-attr]
        return "done"

    pipeline([step.message(), step.message(customer="acme")], broker=broker).run()
    with working(broker):
        began = record.wait_for(2)
    assert began == [(None, None, "None"), ("acme", None, str(10 - NEUTRAL))]
    fairlane.close()


# -- the docs --------------------------------------------------------------------------------------------------------------

LINE = snippet("docs/other-queues.md", 'Fairlane(broker, "postgresql')
MODULE = after(snippet("docs/other-queues.md", " import dramatiq"))
RUN = snippet("docs/other-queues.md", "dramatiq_queue_prefetch=8").strip()


def test_the_line_of_the_docs_is_all_on_redis(store: str, queue: str) -> None:
    broker = new_broker("redis")
    with executed(adapted(LINE, store, {}), broker=broker, Fairlane=Fairlane):

        @dramatiq.actor(broker=broker, queue_name=queue)
        def ocr(customer: str, path: str) -> None: ...

        for page in range(4):
            ocr.send("acme", f"{page}.pdf")
    assert [number for number, _ in take(broker, queue)] == [10 - priority for priority in TABLE[:4]]


def test_the_module_and_the_worker_of_the_docs_on_rabbitmq(store: str, tmp_path: Path) -> None:
    module = adapted(MODULE, store, {"amqp://rabbitmq": rabbitmq.shared().url.rstrip("/"), "...": "open(path, 'x').close()"})
    (tmp_path / "proj.py").write_text(module)
    bash('python -c \'import proj; [proj.ocr.send("acme", f"{page}.pdf") for page in range(4)]\'', tmp_path)
    with beside(f"env {RUN} --processes 1", tmp_path):
        until(lambda: len(list(tmp_path.glob("*.pdf"))) == 4, "the worker runs what was enqueued")
    assert counter(store, "acme") == -3


# -- Redis -----------------------------------------------------------------------------------------------------------------


def test_on_redis_a_stopped_worker_and_dead_letters_lose_nothing(store: str, queue: str, record: Record) -> None:
    broker, fairlane = fair_broker("redis", store)
    assert isinstance(broker, RedisBroker)

    @dramatiq.actor(broker=broker, queue_name=queue, max_retries=0)
    def work(customer: str) -> None:
        raise ZeroDivisionError

    for _ in range(5):
        work.send("acme")
    assert broker.do_qsize(queue) == 5
    consumer = broker.consume(queue, prefetch=4)
    first, second, third, fourth = (next(consumer) for _ in range(4))
    assert next(consumer) is None  # it holds no more than its threads run
    assert first is not None
    assert second is not None
    assert third is not None
    assert fourth is not None
    consumer.ack(first)
    consumer.requeue([second, fourth])
    consumer.nack(third)
    assert broker.do_qsize(queue) == 3
    with redis.shared("redis").client() as client:
        assert client.zcard(f"{broker.namespace}:{queue}.p9.XQ") == 1
        assert client.lrange(f"{broker.namespace}:{queue}.p9", 0, -1) == [second.options["redis_message_id"]]
        assert client.lrange(f"{broker.namespace}:{queue}.p8", 0, -1)[-1] == fourth.options["redis_message_id"]
    broker.flush(queue)
    assert broker.do_qsize(queue) == 0
    fairlane.close()


def test_on_redis_what_a_dead_worker_had_taken_is_delivered_again(store: str, queue: str) -> None:
    broker, fairlane = fair_broker("redis", store)
    assert isinstance(broker, RedisBroker)

    @dramatiq.actor(broker=broker, queue_name=queue)
    def work(customer: str) -> None: ...

    for _ in range(4):
        work.send("acme")
    taken = [next(broker.consume(queue, prefetch=4)) for _ in range(4)]  # by a worker that is never heard of again
    other = new_broker("redis", namespace=broker.namespace, heartbeat_timeout=1, maintenance_chance=1_000_000)
    Fairlane(other, store, "customer").close()
    consumer = other.consume(queue, prefetch=4, timeout=1)
    again = [until(lambda: next(consumer), "a message") for _ in range(4)]
    assert [message.message_id for message in again[3:]] == [message.message_id for message in taken[3:] if message]
    assert sorted(message.message_id for message in again) == sorted(message.message_id for message in taken if message)
    fairlane.close()


def test_the_commands_that_ordered_lists_use_are_those_of_this_version() -> None:
    """`do_enqueue`, `do_fetch` and the others are not documented: look at them when this fails."""
    assert dramatiq.__version__.split(".")[0] == "2"


def test_counters_in_memory_are_refused_at_the_first_message(broker_kind: str, queue: str) -> None:
    broker = new_broker(broker_kind)
    Fairlane(broker, "memory://", "customer", timeout=PATIENT)

    @dramatiq.actor(broker=broker, queue_name=queue)
    def work(customer: str) -> None: ...

    with pytest.raises(ValueError, match="in memory each process would count alone"):
        work.send("acme")
