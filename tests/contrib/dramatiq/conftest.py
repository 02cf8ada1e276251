"""What tests of this folder share: each runs on RabbitMQ and on Redis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dramatiq import Broker

from tests.contrib.counters import new_store

from .running import close_brokers, fair_broker, new_queue


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_brokers()


@pytest.fixture
def store(tmp_path: Path) -> str:
    return new_store(tmp_path)


@pytest.fixture
def queue() -> str:
    return new_queue()


@pytest.fixture(params=["rabbitmq", "redis"])
def broker_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def broker(broker_kind: str, store: str) -> Iterator[Broker]:
    broker, fairlane = fair_broker(broker_kind, store)
    yield broker
    fairlane.close()


@pytest.fixture
def make_broker(broker_kind: str, store: str) -> Iterator[Any]:
    """Fair brokers with options of their own."""
    made: list[Any] = []

    def make(customer: Any = "customer", *, url: str = store, **options: Any) -> Broker:
        made.append(fair_broker(broker_kind, url, customer, **options))
        return made[-1][0]  # type: ignore[no-any-return]

    yield make
    for _, fairlane in made:
        fairlane.close()
