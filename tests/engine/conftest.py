"""Every test of this folder runs on every engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlane.core.document import Claim, Submission
from fairlane.engine import Engine, open_engine
from tests.servers import postgres, redis

# FAIRLANE_TEST_ENGINES=memory,sqlite runs the tests on these alone.
ENGINES = tuple(os.environ.get("FAIRLANE_TEST_ENGINES", "memory,sqlite,postgres,redis,valkey").split(","))


def url_of(name: str, folder: Path, index: int = 0) -> str:
    """Return the URL of a fresh queue of that engine; another index is another queue."""
    if name == "postgres":
        return postgres.empty_queue(postgres.shared(), f"tests{index or ''}")
    if name in redis.PRODUCTS:
        return redis.shared(name).url()
    return "memory://" if name == "memory" else f"sqlite:///{folder}/queue.db"


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    url = url_of(request.param, tmp_path)
    yield url
    redis.drop_url(url)


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = open_engine(url)
    yield engine
    engine.close()


Send = Callable[..., list[str]]
Take = Callable[..., list[Claim]]


@pytest.fixture
def send(engine: Engine) -> Send:
    """Submit documents for a customer at a time; return their ids."""
    sent = 0

    def send(customer: str, count: int = 1, *, at: int = 0, kind: str = "extract", **fields: object) -> list[str]:
        nonlocal sent
        ids = [f"{customer}-{sent + index}" for index in range(count)]
        sent += count
        submissions = [Submission(id, customer, kind, '{"n":1}', **fields) for id in ids]  # type: ignore[arg-type]
        engine.submit(submissions, now_ms=at)
        return ids

    return send


@pytest.fixture
def take(engine: Engine) -> Take:
    """Claim documents at a time, with a lease of ten seconds."""

    def take(limit: int = 1, *, at: int = 0, worker: str = "worker", **fields: object) -> list[Claim]:
        return engine.claim(worker, limit, 10_000, now_ms=at, **fields)  # type: ignore[arg-type]

    return take
