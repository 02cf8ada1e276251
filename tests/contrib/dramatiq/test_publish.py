"""What is enqueued: the priority of every message in the server's own order, in whatever way it is enqueued."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import dramatiq
import pytest
from dramatiq import Actor, Broker, GenericActor, group, pipeline
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import Middleware

from fairlane import BadValue, Mistake, StoreUnfit
from fairlane.contrib.dramatiq import Fairlane
from fairlane.contrib.publish_check import NEUTRAL
from tests.contrib.counters import TABLE, counter, customers

from .running import new_broker, take

MakeBroker = Callable[..., Broker]


def ocr(broker: Broker, queue: str, **options: Any) -> Actor[..., None]:
    """An actor with a customer."""

    @dramatiq.actor(broker=broker, queue_name=queue, actor_name=f"ocr of {queue}", **options)
    def ocr(customer: str | None = None, path: str = "", *, pages: int = 1) -> None: ...

    return ocr


def taken(broker: Broker, queue: str) -> list[tuple[int | None, Any]]:
    """What is in the queue, taken out: the server's number, and the mark."""
    return [(number, message["options"].get("fairlane")) for number, message in take(broker, queue)]


def marked(customer: str, priority: int) -> tuple[int, Any]:
    """A message with this priority of ours, as it must be on the server."""
    return 10 - priority, {"customer": customer, "priority": priority}


def test_the_nth_message_of_a_customer_has_its_priority_in_the_servers_order(broker: Broker, queue: str, store: str) -> None:
    actor = ocr(broker, queue)
    for _ in TABLE:
        actor.send("acme")
    actor.send("small")
    expected = [marked("acme", 1)] * 3 + [marked("small", 1)] + [marked("acme", priority) for priority in TABLE[3:]]
    assert taken(broker, queue) == expected
    assert counter(store, "acme") == 1 - len(TABLE)


def test_however_a_message_is_enqueued_it_is_one_check(broker: Broker, queue: str, store: str) -> None:
    actor = ocr(broker, queue)
    actor.send("acme")
    actor.send(customer="acme", pages=2)
    actor.send_with_options(args=("acme", "a.pdf"))
    actor.send_with_options(kwargs={"customer": "acme"}, delay=timedelta(minutes=1))
    broker.enqueue(actor.message("acme"))
    group([actor.message("acme"), actor.message("acme")], broker=broker).run()
    pipeline([actor.message("acme"), actor.message("acme")], broker=broker).run()  # the second is enqueued by a worker
    assert counter(store, "acme") == -7
    delayed = taken(broker, f"{queue}.DQ")
    assert [mark for _, mark in delayed] == [{"customer": "acme", "priority": 2}]
    assert sorted(mark["priority"] for _, mark in taken(broker, queue)) == [1, 1, 1, 2, 3, 3, 4]


def test_a_message_that_is_enqueued_twice_is_two_checks(broker: Broker, queue: str, store: str) -> None:
    message = ocr(broker, queue).message("acme")
    broker.enqueue(message)
    broker.enqueue(message)
    assert "fairlane" not in message.options
    assert counter(store, "acme") == -1


def test_a_priority_by_hand_stands_and_is_no_check(broker: Broker, queue: str, store: str) -> None:
    ocr(broker, queue).send_with_options(args=("acme",), broker_priority=6)
    assert taken(broker, queue) == [(6, {"customer": "acme", "priority": None})]
    assert customers(store) == []


def test_a_message_of_nobody_is_left_alone(broker: Broker, queue: str, store: str) -> None:
    ocr(broker, queue).send(None)

    @dramatiq.actor(broker=broker, queue_name=queue)
    def tidy(path: str) -> None: ...

    tidy.send("/tmp")
    assert taken(broker, queue) == [(None, None)] * 2
    assert customers(store) == []


def test_a_customer_that_can_be_none_is_said_to_the_caller_and_nothing_is_enqueued(broker: Broker, queue: str) -> None:
    with pytest.raises(BadValue, match=r"the customer of task ocr of .* is \['acme'\]; it must be text"):
        ocr(broker, queue).send(["acme"])
    assert taken(broker, queue) == []


def test_the_customer_may_be_in_an_option(make_broker: MakeBroker, queue: str) -> None:
    broker = make_broker("header:tenant")
    ocr(broker, queue).send_with_options(tenant="acme")
    assert taken(broker, queue) == [marked("acme", 1)]


def test_the_customer_may_come_from_a_function_and_its_errors_reach_the_caller(make_broker: MakeBroker, queue: str) -> None:
    broker = make_broker(lambda task, args, kwargs, options: args[0]["owner"])
    actor = ocr(broker, queue)
    actor.send({"owner": 17})
    assert taken(broker, queue) == [marked("17", 1)]
    with pytest.raises(KeyError):
        actor.send({})


def test_actors_that_are_classes_have_their_arguments(make_broker: MakeBroker, queue: str) -> None:
    broker = make_broker("order.customer")

    class Bill(GenericActor):
        class Meta:
            queue_name = queue

            @staticmethod
            def actor(function: Any, **options: Any) -> Any:
                return dramatiq.actor(broker=broker, **options)(function)

        def perform(self, pages: int, order: dict[str, Any]) -> None: ...

    Bill.send(3, {"customer": "acme"})
    assert taken(broker, queue) == [marked("acme", 1)]


# -- the broker ------------------------------------------------------------------------------------------------------------


def test_a_broker_has_one_fairlane(broker: Broker, store: str) -> None:
    with pytest.raises(Mistake, match="this Dramatiq broker has a Fairlane already"):
        Fairlane(broker, store, "customer")


@pytest.mark.parametrize("maximum", [None, 5])
def test_a_rabbitmq_broker_with_fewer_priorities_is_refused(maximum: int | None, store: str) -> None:
    with pytest.raises(Mistake, match=rf"max_priority of the RabbitmqBroker is {maximum}.*RabbitmqBroker\(…, max_priority=9\)"):
        Fairlane(new_broker("rabbitmq", max_priority=maximum), store, "customer")


def test_another_broker_is_refused_by_its_name(store: str) -> None:
    class KafkaBroker(Broker): ...

    with pytest.raises(Mistake, match="the broker is a KafkaBroker, and Fairlane knows how to order messages with"):
        Fairlane(KafkaBroker(), store, "customer")


def test_the_broker_of_unit_tests_is_left_as_it_is() -> None:
    broker = StubBroker()
    fairlane = Fairlane(broker, "memory://", "customer")
    actor = ocr(broker, "default")
    assert actor.send("acme").options == {}
    assert fairlane.counts == (0, 0)


def test_a_name_that_can_not_be_accepted_is_refused(store: str) -> None:
    with pytest.raises(BadValue, match=r"accept is \('max_priority',\); it must be .* dramatiq_queue_prefetch"):
        Fairlane(new_broker("rabbitmq"), store, "customer", accept=("max_priority",))


def test_without_counters_messages_are_neutral_or_fail(make_broker: MakeBroker, queue: str, tmp_path: Path) -> None:
    (tmp_path / "away.db").mkdir()  # no queue can be there
    away = f"sqlite:///{tmp_path}/away.db"
    broker = make_broker(url=away)
    ocr(broker, queue).send("acme")
    assert taken(broker, queue) == [marked("acme", NEUTRAL)]
    strict = make_broker(url=away, when_away="fail")
    with pytest.raises(StoreUnfit, match="is a folder, not the file of a queue"):
        ocr(strict, queue).send("acme")
    assert taken(strict, queue) == []


def test_the_users_middleware_sees_the_priority(broker: Broker, queue: str) -> None:
    seen: list[Any] = []

    class Log(Middleware):
        def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
            seen.append((message.options["broker_priority"], message.options["fairlane"]))

    broker.add_middleware(Log())
    ocr(broker, queue).send("acme")
    assert seen == [marked("acme", 1)]


# -- programs --------------------------------------------------------------------------------------------------------------

PROGRAM = """
import dramatiq
from dramatiq.brokers.redis import RedisBroker
from fairlane.contrib.dramatiq import Fairlane
broker = RedisBroker(host="127.0.0.1", port=1)
Fairlane(broker, "memory://", customer="customer")
dramatiq.set_broker(broker)
"""


def test_a_worker_that_would_hold_messages_says_what_to_set_and_ends(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "dramatiq", "app", "--processes", "1", "--threads", "3"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("dramatiq_")}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 1
    expected = "it has 3 threads and takes 6 messages of a queue from the broker, and no later one can overtake those. Set the "
    assert expected + "environment variable dramatiq_queue_prefetch=3 where the worker starts." in done.stderr
    assert "Traceback" not in done.stderr


def test_without_dramatiq_the_import_says_what_to_install() -> None:
    program = "import sys; sys.modules['dramatiq'] = None; import fairlane.contrib.dramatiq"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    message = "ImportError: fairlane.contrib.dramatiq needs Dramatiq, which is not installed here: pip install dramatiq"
    assert done.stderr.splitlines()[-1] == message
