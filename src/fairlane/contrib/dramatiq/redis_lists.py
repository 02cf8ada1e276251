"""Ordered lists on Redis: each queue of Dramatiq's becomes a list for each priority, and a worker reads them in order.

Dramatiq on Redis serves a queue first come, first served: `priority` of an actor orders only what a worker holds already. So a
message of queue `default` with the number 9 is kept in the list `default.p9`, and one without a number stays in `default`.

Laws:
- Only Dramatiq's own commands touch Redis, each on one list, so redeliveries and dead letters work as they do without us.
- A consumer fetches one message at a time, from the best list that has one, and only for a thread that is free.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from dramatiq import Broker, Consumer, Message, MessageProxy
from dramatiq.common import compute_backoff, q_name
from dramatiq.errors import ConnectionClosed
from redis import ConnectionError as RedisConnectionError

NUMBERS = range(9, -1, -1)  # the highest is served first; 0 is what has none


def list_of(queue: str, options: Any) -> str:
    """Return the list that a message of a queue is kept in; delayed messages stay together."""
    number = options.get("broker_priority")
    if q_name(queue) != queue or not isinstance(number, int) or number <= 0:
        return queue
    return f"{queue}.p{min(number, NUMBERS[0])}"


def lists_of(queue: str) -> list[str]:
    """Return the lists of a queue, in the order in which they are served."""
    return [list_of(queue, {"broker_priority": number}) for number in NUMBERS]


class OrderedLists:
    """The commands of a RedisBroker, for queues that are several lists."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self._enqueue, self._purge, self._count = broker.do_enqueue, broker.do_purge, broker.do_qsize
        self._consume: Callable[..., Consumer] = broker.consume

    @classmethod
    def install(cls, broker: Any) -> None:
        """Make a broker keep its queues in ordered lists."""
        lists = cls(broker)
        broker.do_enqueue, broker.do_purge, broker.do_qsize = lists.enqueue, lists.purge, lists.count
        broker.consume = lists.consume

    def enqueue(self, queue: str, redis_message_id: str, data: bytes) -> None:
        self._enqueue(list_of(queue, Message.decode(data).options), redis_message_id, data)

    def purge(self, queue: str) -> None:
        for name in lists_of(queue) if q_name(queue) == queue else [queue]:
            self._purge(name)

    def count(self, queue: str) -> int:
        return sum(int(self._count(name)) for name in lists_of(queue))

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5000) -> Consumer:
        """Consume a queue in the order of its lists; delayed messages, which have no order yet, as Dramatiq does."""
        if q_name(queue_name) != queue_name:
            return self._consume(queue_name, prefetch, timeout)
        return OrderedConsumer(self._broker, queue_name, prefetch, timeout)


class OrderedConsumer(Consumer):
    """Takes the messages of one queue from Redis, best list first."""

    def __init__(self, broker: Broker, queue: str, prefetch: int, timeout: int) -> None:
        self._redis: Any = broker
        self._queue = queue
        self._lists = lists_of(queue)
        self._prefetch = prefetch
        self._timeout = timeout
        self._misses = 0
        self._taken: set[str] = set()
        self._is_free = threading.Event()  # a thread has ended a message since we looked

    def __next__(self) -> MessageProxy | None:
        self._is_free.clear()
        data = self._fetch() if len(self._taken) < self._prefetch else None
        if data is None:
            self._misses, pause = compute_backoff(self._misses, max_backoff=self._timeout)
            self._is_free.wait(pause / 1000)
            return None
        self._misses = 0
        message = Message.decode(data)
        self._taken.add(message.options["redis_message_id"])
        return MessageProxy(message)

    def _fetch(self) -> bytes | None:
        try:
            for name in self._lists:
                for data in self._redis.do_fetch(name, 1):
                    if data is not None:
                        return bytes(data)
        except RedisConnectionError as error:
            raise ConnectionClosed(error) from None  # type: ignore[no-untyped-call]
        return None

    def ack(self, message: MessageProxy) -> None:
        self._end("do_ack", message)

    def nack(self, message: MessageProxy) -> None:
        self._end("do_nack", message)

    def _end(self, command: str, message: MessageProxy) -> None:
        redis_message_id = message.options["redis_message_id"]
        try:
            getattr(self._redis, command)(list_of(self._queue, message.options), redis_message_id)
        except RedisConnectionError as error:
            raise ConnectionClosed(error) from None  # type: ignore[no-untyped-call]
        finally:
            self._taken.discard(redis_message_id)
            self._is_free.set()

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        ids: dict[str, list[str]] = defaultdict(list)
        for message in messages:
            ids[list_of(self._queue, message.options)].append(message.options["redis_message_id"])
        for name, found in ids.items():
            self._redis.do_requeue(name, *found)
