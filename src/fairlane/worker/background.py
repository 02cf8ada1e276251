"""Background jobs of a run: expired leases of dead workers, files without documents, progress reports.

Laws:
- Every worker does them, at random times, so that workers do not come all at once.
- A failure of the store is reported, and the job goes on at its next time.
"""

from __future__ import annotations

import asyncio
import random

from .context import RunContext
from .progress import WRITE_SECONDS
from .threads import CallThread

RECLAIM_SECONDS_MAX = 10.0


async def reclaim(context: RunContext, store_thread: CallThread) -> None:
    """Give back the documents of dead workers, several times in a lease; for ever."""
    seconds = min(RECLAIM_SECONDS_MAX, context.lease_ms / 1000 / 4)
    while True:
        await asyncio.sleep(seconds * random.uniform(0.5, 1.5))
        failure = await store_thread.call(context.store.reclaim)
        if failure is not None:
            context.hooks.emit("store_failed", reason=failure)


async def collect_blobs(context: RunContext, thread: CallThread) -> None:
    """Remove files that no document owns, from time to time; for ever."""
    while True:
        await asyncio.sleep(context.blobs.pause_seconds * random.uniform(0.5, 1.5))
        failure = await thread.call(context.blobs.slice)
        if failure is not None:
            context.hooks.emit("store_failed", reason=failure)


async def write_progress(context: RunContext, store_thread: CallThread) -> None:
    """Write progress reports, for ever."""
    while True:
        await asyncio.sleep(WRITE_SECONDS)
        if unwritten := context.progress.take_unwritten():
            await store_thread.call(lambda: context.progress.write(unwritten))
