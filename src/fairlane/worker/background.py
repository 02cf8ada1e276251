"""Background jobs of a run: expired leases of dead workers, the registry, samples of starts, files without documents, progress.

Laws:
- Every worker does them, at random times, so that workers do not come all at once.
- A failure of the store is reported, and the job goes on at its next time. Leases that ran out meanwhile do not wait for that.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Protocol

from fairlane.queue.models import WorkerState

from .blob_gc import LOST_SECONDS
from .context import RunContext
from .progress import WRITE_SECONDS
from .registration import LOOK_SECONDS
from .threads import CallThread

RECLAIM_SECONDS_MAX = 10.0
RECLAIM_AGAIN_SECONDS = 2.0  # after the store failed
SAMPLE_SECONDS_MIN = 2.0  # also after the store failed


class RegisteredRun(Protocol):
    """What the registry shows of a run, and what an operator may do with it there."""

    @property
    def state(self) -> WorkerState: ...

    def running(self) -> Mapping[str, float]:
        """Return the documents whose handlers run, by id, each with the seconds since it began."""

    def drain(self, is_draining: bool) -> None:
        """Claim no more, or again."""


async def reclaim(context: RunContext, store_thread: CallThread) -> None:
    """Give back the documents of dead workers, several times in a lease; for ever."""
    failure: str | None = None
    while True:
        await asyncio.sleep(reclaim_pause(context.lease_ms, failure is not None))
        failure = await store_thread.call(context.store.reclaim)
        if failure is not None:
            context.hooks.emit("store_failed", reason=failure)


def reclaim_pause(lease_ms: int, has_failed: bool) -> float:
    """Return how long to wait before the next time."""
    seconds = min(RECLAIM_SECONDS_MAX, lease_ms / 1000 / 4) * random.uniform(0.5, 1.5)
    return min(seconds, RECLAIM_AGAIN_SECONDS * random.uniform(0.5, 1)) if has_failed else seconds


async def report(context: RunContext, run: RegisteredRun, store_thread: CallThread) -> None:
    """Write the worker's record in the registry, and do what an operator wrote there."""
    state, running = run.state, run.running()
    failure = await store_thread.call(lambda: context.registration.beat(state, running))
    if failure is not None:
        context.hooks.emit("store_failed", reason=failure)
    run.drain(context.registration.is_drain_wanted)


async def stay_registered(context: RunContext, run: RegisteredRun, store_thread: CallThread) -> None:
    """Report to the registry, for ever."""
    while True:
        await asyncio.sleep(LOOK_SECONDS * random.uniform(0.5, 1.5))
        await report(context, run, store_thread)


async def sample_starts(context: RunContext, thread: CallThread) -> None:
    """Let the queue learn from when documents start, whenever no other worker does; for ever."""
    pause_ms = 0
    while True:
        await asyncio.sleep(max(SAMPLE_SECONDS_MIN, pause_ms / 1000) * random.uniform(1, 1.5))
        pause_ms, failure = await thread.call(context.store.sample_starts)
        if failure is not None:
            context.hooks.emit("store_failed", reason=failure)


async def collect_blobs(context: RunContext, thread: CallThread) -> None:
    """Remove files that no document owns, from time to time; for ever."""
    while True:
        await asyncio.sleep(context.blobs.pause_seconds * random.uniform(0.5, 1.5))
        failure = await thread.call(context.blobs.slice)
        if failure is not None:
            context.hooks.emit("store_failed", reason=failure)


async def remove_lost_files(context: RunContext, thread: CallThread) -> None:
    """Remove files of documents that are gone since this worker claimed them; for ever."""
    while True:
        await asyncio.sleep(LOST_SECONDS)
        failure = await thread.call(context.blobs.remove_lost)
        if failure is not None:
            context.hooks.emit("store_failed", reason=failure)


async def write_progress(context: RunContext, store_thread: CallThread) -> None:
    """Write progress reports, for ever."""
    while True:
        await asyncio.sleep(WRITE_SECONDS)
        if unwritten := context.progress.take_unwritten():
            await store_thread.call(lambda: context.progress.write(unwritten))
