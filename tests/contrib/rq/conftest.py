"""What tests of this folder share: a queue of RQ's on a real Redis, with a Fairlane."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from rq import Queue

from fairlane.contrib.rq import Fairlane
from tests.contrib.counters import PATIENT, new_store
from tests.servers import redis


@pytest.fixture
def store(tmp_path: Path) -> str:
    return new_store(tmp_path)


@pytest.fixture
def connection() -> Iterator[Redis]:
    with Redis(unix_socket_path=str(redis.shared("redis").socket)) as connection:
        yield connection


@pytest.fixture
def plain(connection: Redis) -> Queue:
    return Queue(f"queue-{uuid.uuid4().hex}", connection=connection)


@pytest.fixture
def make_queue(connection: Redis, store: str) -> Iterator[Any]:
    """Queues with a Fairlane of their own options."""
    made: list[Fairlane] = []

    def make(customer: Any = "customer", *, url: str = store, queue: Any = None, **options: Any) -> Queue:
        made_queue = Queue(f"queue-{uuid.uuid4().hex}", connection=connection, **(queue or {}))
        made.append(Fairlane(made_queue, url, customer, **{"timeout": PATIENT, **options}))
        return made_queue

    yield make
    for fairlane in made:
        fairlane.close()


@pytest.fixture
def fairlane(plain: Queue, store: str) -> Iterator[Fairlane]:
    fairlane = Fairlane(plain, store, "customer", timeout=PATIENT)
    yield fairlane
    fairlane.close()


@pytest.fixture
def queue(fairlane: Fairlane) -> Queue:
    return fairlane.queue
