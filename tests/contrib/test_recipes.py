"""The recipes of docs/queue-recipes.md that can run here, as they stand there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped,unused-ignore]
import pytest

from tests.contrib.celery.running import redis_with_port
from tests.contrib.counters import FLOOD, LIGHT, flood, new_store, whales_before_the_last_light
from tests.docs.snippets import snippet
from tests.servers import redis
from tests.servers.s3 import s3_server

NUMBER = snippet("docs/queue-recipes.md", "from fairlane import Queue, StoreError")
URL = "postgresql://fairlane@db/fairlane?timeout=2"


@pytest.fixture
def names(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """What the first recipe defines, with counters in a file."""
    names: dict[str, Any] = {}
    assert NUMBER.count(URL) == 1
    exec(NUMBER.replace(URL, new_store(tmp_path)), names)
    yield names
    names["counters"].close()


def test_the_number_is_neutral_while_the_counters_are_away(names: dict[str, Any]) -> None:
    server = redis.Server("valkey")
    try:
        exec(NUMBER.replace(URL, f"{server.url()}&timeout=0.5"), names)
        assert names["priority_of"]("acme") == 1
        server.kill()
        assert names["priority_of"]("acme") == 5
        names["counters"].close()
    finally:
        server.remove()


def test_redis_lists(names: dict[str, Any]) -> None:
    exec(snippet("docs/queue-recipes.md", "import json\n\nLISTS"), names)
    with redis_with_port().client() as client:
        client.delete(*names["LISTS"])
        jobs = flood(lambda customer: names["enqueue"](client, {"customer": customer}))
        taken = [names["take"](client)["customer"] for _ in range(jobs)]
        assert names["take"](client, 0.01) is None
    assert whales_before_the_last_light(taken) == 3  # those of priority 1
    assert taken.count("whale") == FLOOD


def test_sqs(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as environment:  # it is an SQS too
        for name, value in (environment | {"AWS_DEFAULT_REGION": "us-east-1"}).items():
            monkeypatch.setenv(name, value)
        sqs = boto3.client("sqs")
        for priority in range(1, 10):
            sqs.create_queue(QueueName=f"ocr-{priority}")
        exec(snippet("docs/queue-recipes.md", "import json\n\nimport boto3"), names)
        for customer in (*["whale"] * 9, *(f"light {number}" for number in range(LIGHT))):
            names["enqueue"]({"customer": customer})
        bodies = []
        while (message := names["receive"]()) is not None:
            bodies.append(message[1]["Body"])
    assert [("light" in body) for body in bodies] == [False] * 3 + [True] * LIGHT + [False] * 6
