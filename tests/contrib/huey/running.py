"""How tests run Huey: storages of their own, what waits in them, and a consumer in this process."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huey import FileHuey, MemoryHuey, PostgresHuey, PriorityRedisExpireHuey, PriorityRedisHuey, SqliteHuey
from huey.api import Huey
from huey.consumer import Consumer
from redis import ConnectionPool, UnixDomainSocketConnection

from fairlane.contrib.huey import Fairlane
from tests.contrib.counters import PATIENT
from tests.servers import postgres, redis

STORAGES = ["redis", "redis-expire", "sqlite", "postgres", "file", "memory"]


_pools: list[ConnectionPool] = []


def redis_pool() -> ConnectionPool:
    """Connections to the Redis that tests share; they are closed when the test ends."""
    _pools.append(ConnectionPool(connection_class=UnixDomainSocketConnection, path=str(redis.shared("redis").socket)))
    return _pools[-1]


def close_pools() -> None:
    while _pools:
        _pools.pop().disconnect()


def new_huey(storage: str, folder: Path) -> Huey:
    name = f"huey{uuid.uuid4().hex}"
    if storage == "redis":
        return PriorityRedisHuey(name, connection_pool=redis_pool())
    if storage == "redis-expire":
        return PriorityRedisExpireHuey(name, connection_pool=redis_pool())
    if storage == "postgres":
        return PostgresHuey(name, dsn=postgres.shared().url)
    if storage == "sqlite":
        return SqliteHuey(name, filename=f"{folder}/{name}.db")
    return FileHuey(name, path=f"{folder}/{name}") if storage == "file" else MemoryHuey(name)


def fair_huey(storage: str, folder: Path, store: str, customer: Any = "customer", **options: Any) -> tuple[Huey, Fairlane]:
    huey = new_huey(storage, folder)
    return huey, Fairlane(huey, store, customer, **{"timeout": PATIENT, **options})


def waiting(huey: Huey) -> list[tuple[float | None, Any]]:
    """What waits, in the order in which workers take it: Huey's number, and the mark."""
    return [(task.priority, task.fairlane_mark and tuple(task.fairlane_mark)) for task in huey.pending()]


class QuietConsumer(Consumer):  # type: ignore[misc]
    """A consumer that leaves the signals of this process alone."""

    def _set_signal_handlers(self) -> None: ...


@contextmanager
def working(huey: Huey) -> Iterator[None]:
    """A consumer with one worker, a thread of this process."""
    consumer = QuietConsumer(huey, workers=1, periodic=False, initial_delay=0.01, max_delay=0.05)
    consumer.start()
    try:
        yield
    finally:
        consumer.stop(graceful=True)
