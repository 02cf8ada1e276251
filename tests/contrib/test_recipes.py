"""The recipes of docs/queue-recipes.md, as they stand there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import boto3  # type: ignore[import-untyped,unused-ignore]
import pytest

from fairlane import AsyncQueue
from tests.api.running import until
from tests.contrib.celery.running import redis_with_port
from tests.contrib.counters import FLOOD, LIGHT, TABLE, flood, new_store, whales_before_the_last_light
from tests.contrib.peers import database, floods_before
from tests.docs.snippets import snippet
from tests.servers import redis
from tests.servers.s3 import s3_server

NUMBER = snippet("docs/queue-recipes.md", "from fairlane import Queue, StoreError")
URL = "postgresql://fairlane@db/fairlane?timeout=2"
LABELS = [f"whale {number}" for number in range(len(TABLE))] + [f"light {number}" for number in range(3)]
PATIENT = 60.0


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


# -- async -----------------------------------------------------------------------------------------------------------------


def customer_of(label: str) -> str:
    return label if label.startswith("light") else "whale"


@pytest.fixture
def store(tmp_path: Path) -> str:
    return new_store(tmp_path)


def test_arq(store: str) -> None:
    arq = pytest.importorskip("arq", reason="arq is not installed")
    names: dict[str, Any] = {}
    exec(snippet("docs/queue-recipes.md", "import time\nfrom datetime"), names)
    began: list[str] = []

    async def ocr(context: Any, customer: str, label: str) -> None:
        began.append(label)

    async def run() -> None:
        pool = arq.ArqRedis(unix_socket_path=str(redis.shared("redis").socket))
        async with AsyncQueue(store) as counters:
            for label in LABELS:
                await names["enqueue"](pool, counters, "ocr", customer_of(label), label)
        function = arq.func(ocr, name="ocr")
        worker = arq.Worker([function], redis_pool=pool, burst=True, max_jobs=1, poll_delay=0.01, handle_signals=False)
        await worker.main()
        await pool.aclose()

    asyncio.run(run())
    assert sorted(began) == sorted(LABELS)
    assert floods_before(began) == [3] * 3


def test_saq(store: str) -> None:
    saq = pytest.importorskip("saq", reason="SAQ is not installed")
    names: dict[str, Any] = {}
    exec(snippet("docs/queue-recipes.md", "async def enqueue(queue, counters"), names)
    began: list[str] = []

    async def run(url: str) -> None:
        queue = saq.Queue.from_url(url)
        ended = asyncio.Event()

        async def ocr(context: Any, *, customer: str, label: str) -> None:
            began.append(label)
            if len(began) == len(LABELS):
                ended.set()

        await queue.connect()
        async with AsyncQueue(store) as counters:
            for label in LABELS:
                await names["enqueue"](queue, counters, "ocr", customer_of(label), label=label)
        worker = saq.Worker(queue, [("ocr", ocr)], concurrency=1)
        works = asyncio.create_task(worker.start())
        await asyncio.wait_for(ended.wait(), PATIENT)
        await worker.stop()
        await works
        await queue.disconnect()

    with database("saq") as url:
        asyncio.run(run(url))
    assert sorted(began) == sorted(LABELS)
    assert max(floods_before(began)) == 3  # those of priority 1: within a priority SAQ orders by seconds


def test_docket(store: str) -> None:
    pytest.importorskip("docket", reason="Docket is not installed")
    names: dict[str, Any] = {}
    server = redis_with_port()
    recipe = snippet("docs/queue-recipes.md", "import asyncio\n\nfrom docket")
    exec(recipe.replace("redis://redis", f"redis://127.0.0.1:{server.port}/4"), names)
    began: list[str] = []

    async def ocr(customer: str, label: str) -> None:
        began.append(label)

    @asynccontextmanager
    async def working(dockets: list[Any]) -> AsyncIterator[None]:
        works = asyncio.gather(*map(names["work"], dockets))
        try:
            yield
        finally:
            works.cancel()
            with suppress(asyncio.CancelledError):
                await works

    async def run() -> None:
        async with AsyncExitStack() as stack:
            dockets = [await stack.enter_async_context(names["docket_of"](priority)) for priority in range(1, 10)]
            async with AsyncQueue(store) as counters:
                for label in LABELS:
                    await names["enqueue"](dockets, counters, ocr, customer_of(label), label)
            async with working(dockets[:1]):  # the slot of priority 1, which the rest of the flood cannot take
                await asyncio.to_thread(until, lambda: len(began) == 6, "tasks of priority 1")
            async with working(dockets[1:]):
                await asyncio.to_thread(until, lambda: len(began) == len(LABELS), "the other tasks")

    asyncio.run(run())
    assert began[:6] == [*LABELS[:3], *LABELS[-3:]]
    assert sorted(began) == sorted(LABELS)


# -- queues whose servers are services of many parts: stand-ins take what their clients do -----------------------------------


def test_the_number_for_hatchet(store: str) -> None:
    class Task:
        async def aio_run_no_wait(self, input: Any, *, priority: int) -> int:
            return priority

    names: dict[str, Any] = {}
    exec(snippet("docs/queue-recipes.md", "async def enqueue(task, counters, input)"), names)

    async def run() -> list[int]:
        async with AsyncQueue(store) as counters:
            return [await names["enqueue"](Task(), counters, SimpleNamespace(customer="acme")) for _ in TABLE]

    assert asyncio.run(run()) == [3 if priority <= 3 else 2 if priority <= 6 else 1 for priority in TABLE]


def test_the_number_for_temporal(store: str) -> None:
    class Priority(NamedTuple):
        priority_key: int
        fairness_key: str

    class Client:
        async def start_workflow(self, workflow: str, arg: str, *, id: str, task_queue: str, priority: Priority) -> Priority:
            return priority

    names: dict[str, Any] = {"Priority": Priority}
    needs, _, recipe = snippet("docs/queue-recipes.md", "from temporalio.common import Priority").partition("\n")
    assert needs == "from temporalio.common import Priority"
    exec(recipe, names)

    async def run() -> list[Priority]:
        async with AsyncQueue(store) as counters:
            return [await names["start"](Client(), counters, "ocr", "acme", id="1", task_queue="ocr") for _ in TABLE]

    numbers = [
        1 if priority <= 2 else 2 if priority <= 4 else 3 if priority <= 6 else 4 if priority <= 8 else 5 for priority in TABLE
    ]
    assert asyncio.run(run()) == [Priority(number, "acme") for number in numbers]
