"""`MemoryQueue`: a queue in memory whose time stands still until a test, or `run_all`, moves it.

Laws:
- It has all verbs of `Queue`, and the memory engine behind them is the one that all engines are tested against.
- Its time never moves backwards. Ids of documents, and the age of files in a sweep, follow the machine's clock.
- `within(transaction)` returns the queue itself: what is submitted exists at once, as after a commit.
"""

from __future__ import annotations

import time
from asyncio import AbstractEventLoop
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from fairlane.core.errors import BadValue, Mistake
from fairlane.core.policy import TIME_MAX_MS, to_milliseconds
from fairlane.encryption import inner_engine
from fairlane.engine import set_memory_clock
from fairlane.queue import AsyncQueue, Document, Queue
from fairlane.queue.validation import now_milliseconds

from .temporary_folder import temporary_folder


class MemoryQueue(Queue):
    """A queue in memory with virtual time, for tests."""

    def __init__(self, now: float | datetime | None = None) -> None:
        now_ms = now_milliseconds(now)
        self._now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        folder, self._remove_folder = temporary_folder(self)
        super().__init__("memory://", blobs=folder)
        set_memory_clock(inner_engine(self.engine), self._clock)

    def _clock(self) -> int:
        return self._now_ms

    @property
    def now(self) -> datetime:
        """The queue's time."""
        return datetime.fromtimestamp(self._now_ms / 1000, UTC)

    def advance(self, by: float | timedelta) -> datetime:
        """Move the queue's time on by a timedelta, or by so many seconds; return the new time."""
        self._now_ms += to_milliseconds("by", by, 0, TIME_MAX_MS)
        if self._now_ms > TIME_MAX_MS:
            raise BadValue("by", by, "less: the queue's time would leave the range of times")
        return self.now

    def close(self) -> None:
        """Forget everything, and remove the files."""
        super().close()
        self._remove_folder()

    def as_async(self) -> MemoryAsyncQueue:
        """Return the same queue with awaited verbs; close it, or use it in an `async with`, which closes this one too."""
        return MemoryAsyncQueue(self)

    def wait(self, id: str, timeout: float | timedelta | None = None) -> Document:
        """Return a document that has ended; with a timeout move the time on by that, and return it as it is."""
        document = self.document(id)
        if document.is_ended:
            return document
        if timeout is None:
            raise Mistake(
                f"document {id} is {document.state}, and nothing processes it while this waits; "
                "call run_all(queue, handlers) before"
            )
        self.advance(timeout)
        return document

    def _join(self, transaction: object, loop: AbstractEventLoop | None = None) -> Queue:
        return self


class MemoryAsyncQueue(AsyncQueue):
    """A `MemoryQueue` whose verbs are awaited."""

    def __init__(self, queue: MemoryQueue) -> None:
        self.queue = queue
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="fairlane-testing")
        self._in_transaction = False

    async def wait(self, id: str, timeout: float | timedelta | None = None) -> Document:
        """Return a document that has ended; with a timeout move the time on by that, and return it as it is."""
        return await self._run(lambda: self.queue.wait(id, timeout))

    def close_threads(self) -> None:
        """End the thread of its verbs, outside an event loop."""
        self._threads.shutdown()
