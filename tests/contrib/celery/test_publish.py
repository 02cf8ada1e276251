"""What is published: the priority of every task in the broker's own numbers, in whatever way it is published."""

from __future__ import annotations

import subprocess
import sys
import uuid
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import kombu.pools
import pytest
from celery import Celery, chain, chord, group
from celery.app.amqp import AMQP
from celery.beat import ScheduleEntry, Scheduler
from celery.schedules import schedule

from fairlane import BadValue, Mistake, Queue, StoreUnfit
from fairlane.contrib.celery import Fairlane
from fairlane.contrib.publish_check import NEUTRAL

from .running import PATIENT, RabbitMQ, RedisBroker, open_broker

MakeApp = Callable[..., Celery]
NINTH = 22  # from this document on the priority is 9
TABLE = [1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 8, 8, 8, 8, *[9] * 9]


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/counters.db"


@pytest.fixture
def make_app(broker: RabbitMQ | RedisBroker, store: str) -> Iterator[MakeApp]:
    """Apps of this process, on the broker, with settings for priorities and a queue of their own."""
    made: list[Celery] = []

    def make(customer: Any = "customer", *, amqp: Any = None, fair: Any = None, **settings: Any) -> Celery:
        app = Celery("shop", broker=broker.url, amqp=amqp, set_as_current=False)
        is_redis = broker.name == "redis"
        app.conf.update(
            task_default_queue=f"queue-{uuid.uuid4().hex}",
            task_queue_max_priority=None if is_redis else 9,
            broker_transport_options={"priority_steps": list(range(9))} if is_redis else {},
        )
        app.conf.update(settings)
        Fairlane(app, store, customer, **{"timeout": PATIENT, **(fair or {})})
        made.append(app)
        return app

    yield make
    for app in made:
        vars(app)["fairlane"].close()
        app.close()
    kombu.pools.reset()  # Celery shares connections between apps


@pytest.fixture
def app(make_app: MakeApp) -> Celery:
    return make_app()


def ocr(app: Celery, **options: Any) -> Any:
    """A task of the app, with a customer."""

    @app.task(name="shop.ocr", shared=False, **options)
    def ocr(customer: str | None = None, path: str = "", *, pages: int = 1) -> None: ...

    return ocr


def taken(app: Celery, broker: RabbitMQ | RedisBroker) -> list[dict[str, Any]]:
    """What is in the app's queue, taken out: the broker's number, and the mark."""
    messages = broker.take(app.conf.task_default_queue)
    return [{"number": message["number"], "mark": message["headers"].get("fairlane")} for message in messages]


def marked(broker: RabbitMQ | RedisBroker, customer: str, priority: int) -> dict[str, Any]:
    """A message with this priority of ours, as it must be in the broker."""
    return {"number": broker.numbers[priority - 1], "mark": {"customer": customer, "priority": priority}}


def counter(store: str, customer: str) -> float:
    with Queue(store) as queue:
        return queue.look(customer).counter


# -- priorities ------------------------------------------------------------------------------------------------------------


def test_the_nth_task_of_a_customer_has_its_priority_in_the_brokers_number(
    app: Celery, broker: RabbitMQ | RedisBroker, store: str
) -> None:
    task = ocr(app)
    for _ in TABLE:
        task.delay("acme")
    task.delay("small")
    assert taken(app, broker) == sorted(
        [*(marked(broker, "acme", priority) for priority in TABLE), marked(broker, "small", 1)],
        key=lambda message: message["mark"]["priority"],
    )
    assert counter(store, "acme") == 1 - len(TABLE)
    assert vars(app)["fairlane"].counts == (len(TABLE) + 1, 0)


def test_the_broker_serves_the_later_light_customer_first(app: Celery, broker: RabbitMQ | RedisBroker) -> None:
    task = ocr(app)
    for _ in range(NINTH + 3):
        task.delay("acme")
    broker.take(app.conf.task_default_queue)
    for customer in ("acme", "acme", "small", "other"):
        task.delay(customer)
    assert [message["mark"]["customer"] for message in taken(app, broker)] == ["small", "other", "acme", "acme"]


def test_however_a_task_is_published_it_is_one_check(app: Celery, broker: RabbitMQ | RedisBroker, store: str) -> None:
    task = ocr(app)
    task.delay("acme")
    task.delay(customer="acme")
    task.apply_async(args=["acme", "a.pdf"])
    task.apply_async(kwargs={"customer": "acme"}, countdown=60)
    task.apply_async(("acme",), eta=datetime.now(UTC) + timedelta(seconds=60))
    task.s("acme").delay()
    task.si(customer="acme").apply_async()
    app.send_task("shop.ocr", ["acme"])
    app.send_task("another.project", kwargs={"customer": "acme"})
    app.signature("shop.ocr", args=["acme"]).apply_async()
    group(task.s("acme") for _ in range(3)).apply_async()
    chain(task.s("acme"), task.si("acme")).apply_async()  # the second is published by a worker
    entry = ScheduleEntry(name="nightly", task="shop.ocr", args=("acme",), schedule=schedule(60), app=app)
    Scheduler(app=app).apply_async(entry)
    priorities = sorted(message["mark"]["priority"] for message in taken(app, broker))
    assert priorities == TABLE[:15]
    assert counter(store, "acme") == -14


def test_the_parts_of_a_chord_are_checks_in_order(make_app: MakeApp, broker: RabbitMQ | RedisBroker, store: str) -> None:
    app = make_app(result_backend="cache+memory://")
    task = ocr(app)
    chord((task.s("acme") for _ in range(4)), task.si("acme")).apply_async()
    assert taken(app, broker) == [marked(broker, "acme", priority) for priority in (1, 1, 1, 2)]
    assert counter(store, "acme") == -3


# -- priorities by hand ----------------------------------------------------------------------------------------------------


def test_a_priority_by_hand_stands_and_is_no_check(make_app: MakeApp, broker: RabbitMQ | RedisBroker, store: str) -> None:
    app = make_app(task_routes={"shop.routed": {"priority": 4}})
    with warnings.catch_warnings(action="ignore"):  # Celery 6 will know it no more
        by_decorator = ocr(app, priority=3)
        by_decorator.delay("acme")
    by_decorator.apply_async(("acme",), priority=6)
    app.send_task("shop.routed", kwargs={"customer": "acme"})
    mark = {"customer": "acme", "priority": None}
    found = sorted(taken(app, broker), key=lambda message: int(message["number"]))
    assert found == [{"number": number, "mark": mark} for number in (3, 4, 6)]
    with Queue(store) as queue:
        assert list(queue.customers()) == []


def test_task_default_priority_is_not_by_hand(make_app: MakeApp, broker: RabbitMQ | RedisBroker) -> None:
    app = make_app(task_default_priority=4)
    ocr(app).delay("acme")
    assert taken(app, broker) == [marked(broker, "acme", 1)]


# -- whose a task is -------------------------------------------------------------------------------------------------------


def test_a_task_of_nobody_is_left_alone(make_app: MakeApp, broker: RabbitMQ | RedisBroker, store: str) -> None:
    app = make_app(task_default_priority=4)
    ocr(app).delay(None)

    @app.task(shared=False)
    def tidy(path: str) -> None: ...

    tidy.delay("/tmp")
    assert taken(app, broker) == [{"number": 4, "mark": None}] * 2
    with Queue(store) as queue:
        assert list(queue.customers()) == []


def test_a_customer_that_can_be_none_is_said_to_the_caller_and_nothing_is_published(
    app: Celery, broker: RabbitMQ | RedisBroker
) -> None:
    task = ocr(app)
    task.delay("acme")
    with pytest.raises(BadValue, match=r"the customer of task shop\.ocr is \['acme'\]; it must be text"):
        task.delay(["acme"])
    assert len(taken(app, broker)) == 1


def test_the_customer_may_be_in_a_header(make_app: MakeApp, broker: RabbitMQ | RedisBroker) -> None:
    app = make_app("header:tenant")
    ocr(app).apply_async(headers={"tenant": "acme", "trace": "1"})
    (message,) = broker.take(app.conf.task_default_queue)
    assert message["headers"]["fairlane"] == {"customer": "acme", "priority": 1}
    assert (message["headers"]["tenant"], message["headers"]["trace"]) == ("acme", "1")


def test_a_bound_task_has_no_argument_of_its_own(make_app: MakeApp, broker: RabbitMQ | RedisBroker) -> None:
    app = make_app("order.customer")

    @app.task(bind=True, shared=False)
    def bill(self: Any, order: dict[str, Any]) -> None: ...

    bill.delay({"customer": 17})
    assert taken(app, broker) == [marked(broker, "17", 1)]


def test_the_older_task_protocol_works_too(make_app: MakeApp, broker: RabbitMQ | RedisBroker) -> None:
    app = make_app(task_protocol=1)
    ocr(app).delay("acme")
    assert taken(app, broker) == [marked(broker, "acme", 1)]


# -- the app ---------------------------------------------------------------------------------------------------------------


def test_the_users_own_amqp_class_is_kept(make_app: MakeApp, broker: RabbitMQ | RedisBroker) -> None:
    class Own(AMQP):  # type: ignore[misc]
        published: list[str] = []  # noqa: RUF012

        @property
        def send_task_message(self) -> Any:
            send = super().send_task_message

            def count(producer: Any, name: str, message: Any, **options: Any) -> Any:
                self.published.append(name)
                return send(producer, name, message, **options)

            return count

    app = make_app(amqp=Own)
    ocr(app).delay("acme")
    assert isinstance(app.amqp, Own)
    assert Own.published == ["shop.ocr"]
    assert taken(app, broker) == [marked(broker, "acme", 1)]


def test_an_app_has_one_fairlane_made_before_anything_is_published(app: Celery, store: str) -> None:
    with pytest.raises(Mistake, match="the Celery app 'shop' has a Fairlane already"):
        Fairlane(app, store, "customer")
    other = Celery("late", set_as_current=False)
    assert other.amqp.argsrepr_maxsize
    with pytest.raises(
        Mistake, match=r"app\.amqp of the Celery app 'late' was used before; make Fairlane directly after the app"
    ):
        Fairlane(other, store, "customer")
    other.close()


def test_eager_tasks_are_not_published_and_not_checked() -> None:
    app = Celery("shop", set_as_current=False)
    app.conf.task_always_eager = True
    fairlane = Fairlane(app, "memory://", "customer")

    @app.task(shared=False)
    def double(customer: str, number: int) -> int:
        return 2 * number

    assert double.delay("acme", 21).get() == 42
    assert fairlane.counts == (0, 0)
    app.close()


@pytest.mark.parametrize("name", ["rabbitmq", "redis"])
def test_counters_in_memory_are_refused_at_the_first_task(name: str) -> None:
    broker = open_broker(name)
    app = Celery("shop", broker=broker.url, set_as_current=False)
    app.conf.update(task_queue_max_priority=9, broker_transport_options={"priority_steps": list(range(9))})
    Fairlane(app, "memory://", "customer")
    with pytest.raises(BadValue, match="in memory each process would count alone"):
        ocr(app).delay("acme")
    app.close()
    kombu.pools.reset()


def test_without_counters_tasks_are_neutral_or_fail(make_app: MakeApp, broker: RabbitMQ | RedisBroker, tmp_path: Path) -> None:
    (tmp_path / "counters.db").mkdir()  # no queue can be there
    app = make_app()
    ocr(app).delay("acme")
    assert taken(app, broker) == [marked(broker, "acme", NEUTRAL)]
    assert vars(app)["fairlane"].counts == (0, 1)
    strict = make_app(fair={"when_away": "fail"})
    with pytest.raises(StoreUnfit, match="is a folder, not the file of a queue"):
        ocr(strict).delay("acme")
    assert taken(strict, broker) == []


def test_without_celery_the_import_says_what_to_install() -> None:
    program = "import sys; sys.modules['celery'] = None; import fairlane.contrib.celery"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    message = "ImportError: fairlane.contrib.celery needs Celery, which is not installed here: pip install celery"
    assert done.stderr.splitlines()[-1] == message
