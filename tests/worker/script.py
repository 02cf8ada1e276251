"""A worker as people write one, in a plain script; tests start it, signal it and kill it.

Arguments: URL, and options as JSON. Handlers note what they do in files of the folder that the payload names.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from fairlane import Backoff, Worker
from fairlane.worker import Document, run_loop
from fairlane.worker.resources import ClaimRequest
from fairlane.worker.store import Exchange, Settlement, WorkerStore

options = json.loads(sys.argv[2])
is_hog, is_late, is_impatient = (options.pop(name, False) for name in ("is_hog", "is_late", "is_impatient"))
worker = Worker(sys.argv[1], backoff=Backoff(0, ceiling=0), **options)


def note(document: Document, what: str) -> Path:
    """Make a file that shows the test what happened."""
    path = Path(document.payload["folder"]) / f"{what}-{document.id}"
    path.touch()
    return path


async def yield_loop() -> None:
    """Let the loop do something else."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 0.005)


def gate(document: Document) -> Path:
    """The file that the test makes when the handler may go on."""
    return Path(document.payload["folder"]) / "gate"


@worker.handler("wait", timeout=60)
def wait(document: Document) -> int:
    note(document, "began")
    pause = threading.Event()
    while not gate(document).exists():
        pause.wait(0.005)
    note(document, "ended")
    return document.attempt


@worker.handler("forks", timeout=60)
def forks(document: Document) -> None:
    """Starts a program, a fork, and a daemon that flees to its own session; then waits for ever."""
    subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    if os.fork() == 0:
        threading.Event().wait()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            threading.Event().wait()
        os._exit(0)
    note(document, "began")
    threading.Event().wait()


@worker.handler("polite", timeout=60)
async def polite(document: Document) -> int:
    note(document, "began")
    while not gate(document).exists():
        await yield_loop()
    note(document, "ended")
    return document.attempt


@worker.handler("stubborn", timeout=60)
async def stubborn(document: Document) -> None:
    note(document, "began")
    while True:
        try:
            await yield_loop()
        except asyncio.CancelledError:
            note(document, "cancelled")


@worker.handler("interpreter", timeout=60)
async def interpreter(document: Document) -> int:
    """Holds the interpreter in one call that takes some seconds: nothing else of this process runs."""
    note(document, "began")
    letters, took = 14, 0.0
    while took < 0.02:  # each letter doubles the time
        began, letters = time.thread_time(), letters + 1  # of the processor, as others may use it too
        re.match("(a|a)*b", "a" * letters)
        took = time.thread_time() - began
    re.match("(a|a)*b", "a" * (letters + round(math.log2(2.5 / took))))
    note(document, "ended")
    return document.attempt


async def hog(document: Document) -> None:
    """Blocks the loop for ever."""
    note(document, "began")
    threading.Event().wait()


def worker_with_slow_store() -> Worker:
    """A worker with one `def` handler, whose claims have been on their way for half a second, and which then stops itself."""
    exchange_now = WorkerStore.exchange

    def exchange(store: WorkerStore, settlements: Sequence[Settlement], request: ClaimRequest) -> Exchange:
        result = exchange_now(store, settlements, request)
        return result._replace(requested_at=result.requested_at - 0.5)

    WorkerStore.exchange = exchange  # type: ignore[assignment,method-assign]
    WorkerStore.reclaim = lambda _: None  # type: ignore[assignment,method-assign] # stopped in the middle of it, it would keep all others out
    late = Worker(sys.argv[1], **options)
    late.handler("wait", timeout=60)(wait)
    late.on("claimed", lambda event: os.kill(os.getpid(), signal.SIGSTOP))
    return late


if __name__ == "__main__":
    if is_late:
        worker = worker_with_slow_store()
    if is_hog:
        worker.handler("hog", attempts=1, timeout=0.5)(hog)
    if is_impatient:  # with a store that does not answer
        run_loop.LAST_TRIES_SECONDS, run_loop.LAST_CALL_SECONDS = 1.0, 2.0
        for name in ("lost", "finished", "unfinished"):
            worker.on(name, lambda event: print(event.name, event.id, flush=True))  # noqa: T201
    worker.on("stopping", lambda event: print("stopping", flush=True))  # noqa: T201
    worker.on("stopped", lambda event: print(json.dumps(event.value._asdict()), flush=True))  # noqa: T201
    worker.run()
