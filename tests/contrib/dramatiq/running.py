"""How tests run Dramatiq: brokers with queues of their own, workers in this process, and what is in the queues."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import amqp
from dramatiq import Broker, Worker
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.brokers.redis import RedisBroker
from redis import Redis

from fairlane.contrib.dramatiq import Fairlane
from tests.contrib.counters import PATIENT
from tests.servers import rabbitmq, redis

Message = dict[str, Any]
_opened: list[Broker] = []


def new_broker(name: str, **options: Any) -> Broker:
    """A broker on a server that tests share; it is closed when the test ends."""
    _opened.append(_rabbitmq_broker(**options) if name == "rabbitmq" else _redis_broker(**options))
    return _opened[-1]


def close_brokers() -> None:
    while _opened:
        broker = _opened.pop()
        broker.close()
        if isinstance(broker, RedisBroker):
            broker.client.connection_pool.disconnect()


def _rabbitmq_broker(**options: Any) -> Broker:
    return RabbitmqBroker(url=rabbitmq.shared().url.rstrip("/"), confirm_delivery=True, **{"max_priority": 9, **options})


def _redis_broker(**options: Any) -> Broker:
    client = Redis(unix_socket_path=str(redis.shared("redis").socket))
    return RedisBroker(client=client, **{"namespace": f"dramatiq-{uuid.uuid4().hex}", **options})


def fair_broker(name: str, store: str, customer: Any = "customer", **options: Any) -> tuple[Broker, Fairlane]:
    broker = new_broker(name)
    return broker, Fairlane(broker, store, customer, **{"timeout": PATIENT, **options})


def new_queue() -> str:
    return f"queue-{uuid.uuid4().hex}"


def take(broker: Broker, queue: str) -> list[tuple[int | None, Message]]:
    """Take all messages out, in the server's order: the number that the server orders by, and the message; without Dramatiq."""
    if isinstance(broker, RedisBroker):
        return _take_from_redis(broker, queue)
    taken = []
    with rabbitmq.shared().connect() as connection:
        channel = connection.channel()
        with contextlib.suppress(amqp.NotFound):
            while (message := channel.basic_get(queue, no_ack=True)) is not None:
                taken.append((message.properties.get("priority"), json.loads(message.body)))
    return taken


def _take_from_redis(broker: RedisBroker, queue: str) -> list[tuple[int | None, Message]]:
    taken: list[tuple[int | None, Message]] = []
    with redis.shared("redis").client() as client:
        for number in (9, 8, 7, 6, 5, 4, 3, 2, 1, None):
            key = f"{broker.namespace}:{queue}" + (f".p{number}" if number else "")
            while (found := client.lpop(key)) is not None:
                taken.append((number, json.loads(str(client.hget(f"{key}.msgs", str(found))))))
    return taken


@contextmanager
def working(broker: Broker, threads: int = 1) -> Iterator[Worker]:
    """A worker of this process, which takes only what its threads run."""
    worker = Worker(broker, worker_threads=threads, worker_timeout=50)
    worker.queue_prefetch = threads  # as dramatiq_queue_prefetch would
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()
