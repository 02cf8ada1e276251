"""What tests of this folder share: brokers, and for each a project whose worker runs while a file of tests does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .running import Feeder, Project, RabbitMQ, RedisBroker, Worker, open_broker, redis_with_port


@pytest.fixture(params=["rabbitmq", "redis"], scope="module")
def broker(request: pytest.FixtureRequest) -> RabbitMQ | RedisBroker:
    return open_broker(request.param)


@pytest.fixture
def project(broker: RabbitMQ | RedisBroker, tmp_path: Path) -> Project:
    """A project without a worker: what is published stays in the queue."""
    return Project(tmp_path, broker, f"sqlite:///{tmp_path}/counters.db")


@pytest.fixture(scope="module")
def served(broker: RabbitMQ | RedisBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project with a worker and with results; its tests use customers of their own."""
    folder = Path(tmp_path_factory.mktemp("served"))
    backend = f"redis://127.0.0.1:{redis_with_port().port}/1"
    project = Project(folder, broker, f"sqlite:///{folder}/counters.db", backend=backend)
    with Worker(project) as worker, project.publisher():
        worker.wait_until_ready()
        yield project


@pytest.fixture(scope="module")
def bridged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project with the bridge, a feeder, a worker and results; its tests use customers of their own."""
    broker = open_broker("rabbitmq")
    folder = Path(tmp_path_factory.mktemp("bridged"))
    backend = f"redis://127.0.0.1:{redis_with_port().port}/1"
    project = Project(folder, broker, f"sqlite:///{folder}/queue.db", backend=backend, options={"lease": 4}, is_bridge=True)
    with Worker(project) as worker, Feeder(project), project.publisher():
        worker.wait_until_ready()
        yield project
