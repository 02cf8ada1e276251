"""A queue on disk, workers that end even if a test is wrong, and the state of processes from /proc."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlane import Backoff, Queue, Worker
from fairlane.core.document import Claim
from fairlane.worker import Event, Summary
from fairlane.worker.blob_gc import BlobCollector
from fairlane.worker.context import RunContext
from fairlane.worker.handlers import Handlers
from fairlane.worker.hooks import Hooks
from fairlane.worker.progress import ProgressStore
from fairlane.worker.registration import Registration
from fairlane.worker.resources import Resources
from fairlane.worker.store import WorkerStore

SECONDS_MAX = 40.0  # no test of this folder needs that long, on a busy machine neither
CLAIM = Claim("id", 1, 1, "acme", "default", 1, "null", 1, 3, 0, 1, False)
AT_ONCE = Backoff(first=0, ceiling=0)


def until(condition: Callable[[], Any], what: str = "it") -> Any:
    """Wait for a condition; returns its value."""
    deadline = time.monotonic() + SECONDS_MAX
    pause = threading.Event()
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {SECONDS_MAX:g} s"
        pause.wait(0.005)
    return value


async def yield_loop() -> None:
    """Let the loop do something else, in an `async def` handler that polls a condition."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 0.005)


def is_alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def process_tree(pid: int) -> set[int]:
    """Return a process and everything that descends from it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    tree, size = {pid}, 0
    while len(tree) != size:
        size = len(tree)
        tree |= {child for child, parent in parents.items() if parent in tree}
    return tree


def lease_ms(queue: Queue, id: str) -> int:
    """Return when the lease of a document ends; 0 without one."""
    row = queue.engine.document(id)
    return 0 if row is None else row.lease_ms or 0


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/queue.db"


@pytest.fixture
def queue(url: str) -> Iterator[Queue]:
    with Queue(url) as queue:
        yield queue


class Bench:
    """Makes workers, runs them, and records their events."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.events: list[Event] = []

    def worker(self, **options: Any) -> Worker:
        """A worker whose failed attempts are tried again at once."""
        worker = Worker(options.pop("queue", self.url), **{"backoff": AT_ONCE, "slots": 2, **options})
        worker.on("*", self.events.append)
        return worker

    def run(self, worker: Worker, until_empty: bool = True) -> Summary:
        """Run it here; it is stopped if it takes far too long."""
        watchdog = threading.Timer(SECONDS_MAX, self._end, [worker])
        watchdog.start()
        try:
            return worker.run(until_empty=until_empty)
        finally:
            watchdog.cancel()

    @staticmethod
    def _end(worker: Worker) -> None:
        for _ in range(2):  # once is a request, twice is an order
            worker.stop()

    def start(self, worker: Worker) -> Callable[[], Summary]:
        """Run it on a thread; returns how to stop it. Until it has started it forks: no other thread may hold a lock then."""
        ended: list[Summary] = []
        started = threading.Event()
        worker.on("started", lambda _: started.set())
        thread = threading.Thread(target=lambda: ended.append(self.run(worker, until_empty=False)))
        thread.start()
        until(lambda: started.is_set() or not thread.is_alive(), "the start")

        def stop() -> Summary:
            worker.stop()
            thread.join(SECONDS_MAX)
            assert ended, "the worker did not stop"
            return ended[0]

        return stop

    def emitted(self, name: str) -> list[Event]:
        return [event for event in self.events if event.name == name]


@pytest.fixture
def bench(url: str) -> Bench:
    return Bench(url)


def make_context(queue: Queue, heartbeat: socket.socket, handlers: Handlers, hooks: Hooks) -> RunContext:
    """What a run works with, for tests of its parts."""
    return RunContext(
        store=WorkerStore(queue.engine, "worker", 60_000, handlers.attempts()),
        progress=ProgressStore(queue.engine),
        registration=Registration(queue.engine, "worker", handlers.attempts(), 2),
        blobs=BlobCollector(queue.files),
        files=queue.files.open,
        handlers=handlers,
        hooks=hooks,
        heartbeat=heartbeat,
        backoff=AT_ONCE,
        fork_server=None,
        slots=2,
        resources=Resources({}, handlers.attempts(), handlers.needs()),
        lease_ms=60_000,
        grace=30.0,
        until_empty=False,
    )


async def until_async(condition: Callable[[], Any], what: str = "it") -> None:
    """Wait for a condition on the loop."""
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():
            await yield_loop()
