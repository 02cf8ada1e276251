"""What do all routes share? One object: the queue behind its wall, threads for the store, keys, the feed, limits.

Laws:
- The event loop never waits for the store: every call of it goes through `call`, on a thread.
- Whoever waits for something to happen (an ending, an event) does not count as a request at work.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

from fairlane.console.broadcast import Frames
from fairlane.console.read_model.loader import Follower
from fairlane.console.sessions import Sessions, key_id_of
from fairlane.core.errors import FairlaneError
from fairlane.queue import DEFAULT_KIND, Progress, Queue

from .access import Wall
from .auth import Caller, Keyring, public_part
from .feed import Feed, newest
from .limits import Limits
from .logging import Log
from .metrics import Metrics
from .problems import Problem, problem_of
from .submit_batcher import Accepted, Gatherer
from .webhooks import Courier

if TYPE_CHECKING:
    from fairlane.tracing.spans import Spans

THREADS = 16
PROGRESS_SECONDS = 1.0
PROGRESS_MAX = 256  # documents whose progress is told
FORBIDDEN_KIND = "folder"  # its payload names a path on the worker's disk

P = ParamSpec("P")
T = TypeVar("T")


class Work(NamedTuple):
    """How a worker is begun."""

    command: tuple[str, ...]
    environment: dict[str, str]


@dataclass(frozen=True, slots=True)
class Options:
    """How a service is run."""

    limits: Limits = field(default_factory=Limits)
    kinds: tuple[str, ...] = ()  # that customers may submit besides the default one
    retention_seconds: float | None = None  # ended documents are purged after this long
    allow_private_webhooks: bool = False
    work: Work | None = None  # the worker that runs beside it


class Buckets:
    """How many requests a key may still make: so many a second, with some in hand."""

    def __init__(self, a_second: int, burst: int) -> None:
        self._a_second = a_second
        self._burst = float(burst)
        self._known: dict[str, tuple[float, float]] = {}

    def take(self, key_id: str) -> bool:
        """Whether there is one more."""
        now = time.monotonic()
        left, at = self._known.get(key_id, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._a_second)
        if len(self._known) > 10_000:
            self._known.clear()
        self._known[key_id] = (left - 1 if left >= 1 else left, now)
        return left >= 1


class Service:
    """Everything that runs while the server runs."""

    def __init__(self, queue: Queue, options: Options, log: Log) -> None:
        self.queue = queue
        self.options = options
        self.limits = options.limits
        self.log = log
        self.wall = Wall(queue)
        self.keyring = Keyring(queue.engine)
        self.sessions = Sessions(queue.engine)
        self.buckets = Buckets(self.limits.requests_a_second, self.limits.requests_burst)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="fairlane-http")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="fairlane-submit")
        self.gatherer = Gatherer(
            queue.engine, self._writer, self.limits.queued_documents, self.limits.submissions_at_once, self._taken
        )
        self.feed = Feed(queue.engine, self.call)
        self.metrics = Metrics(queue, self.call)
        self.courier = Courier(queue.engine, self.call, log, self.metrics, options.allow_private_webhooks)
        self.follower = Follower(queue.engine, self.call, self.feed)
        self.frames = Frames(self.follower)
        self.feed.listeners += [self.metrics.told, self.follower.told]
        self.at_work = 0  # requests being answered now
        self.is_stopping = False
        self.is_asking = False  # a question of what-if is being answered
        self.closing: list[Callable[[], None]] = []  # what else is to be let go of in the end
        self.spans: Spans | None = None  # somebody wants to know what becomes of each document
        self._tasks: list[asyncio.Task[None]] = []

    def trace(self, headers: dict[bytes, bytes], began: int, taken: Iterable[Accepted]) -> None:
        """Tell the submission of documents to whoever follows them; it began at that many nanoseconds."""
        if self.spans is None:
            return
        from fairlane.tracing.spans import Told

        ended, sender = time.time_ns(), headers.get(b"traceparent")
        for one in taken:
            if not one.is_repeat:
                told = Told(one.receipt.id, one.receipt.customer, one.receipt.priority)
                self.spans.submitted(told, began, ended, None if sender is None else sender.decode("latin-1"))

    def _taken(self, one: Accepted) -> None:
        if not one.is_repeat:
            receipt = one.receipt
            self.metrics.taken(receipt.id, receipt.number, receipt.check, receipt.check.checked_ms + one.delay_ms)
            self.follower.taken(receipt, one.delay_ms)

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call something that may block, on a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: function(*args, **kwargs))

    async def start(self) -> None:
        """Begin to follow the store."""
        last = await self.call(newest, self.queue.engine)
        await self.metrics.begin()
        self._tasks = [
            asyncio.create_task(self._for_ever("feed", lambda: self.feed.run(last))),
            asyncio.create_task(self._for_ever("webhooks", self.courier.run)),
            asyncio.create_task(self._for_ever("upkeep", self._upkeep)),
            asyncio.create_task(self._for_ever("progress", self._progress)),
        ]

    def stop(self) -> None:
        """No stream and no waiting any more: the server stops."""
        self.is_stopping = True
        self.feed.stop()
        self.frames.stop()

    async def end(self) -> None:
        """Let go of everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.courier.close()
        for close in self.closing:
            close()
        self._threads.shutdown()
        self._writer.shutdown()

    async def _for_ever(self, what: str, run: Callable[[], Awaitable[None]]) -> None:
        """A part that fails is begun again."""
        while True:
            try:
                await run()
            except Exception as error:  # noqa: BLE001 a part that fails must not end the server, nor itself for good
                self.log.failed(what, error)
                await asyncio.sleep(1)

    async def _progress(self) -> None:
        """While somebody watches, tell what handlers tell of documents that run."""
        told: dict[str, Progress] = {}
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            running = self.metrics.running(PROGRESS_MAX) if self.feed.watchers else []
            found = await self.call(self.wall.progress_of, running) if running else {}
            for (id, customer), progress in found.items():
                if told.get(id) != progress:
                    self.feed.tell_progress(customer, id, {"progress": progress.progress, "attempt": progress.attempt})
            told = {id: progress for (id, _), progress in found.items()}

    async def _upkeep(self) -> None:
        """Forget what ended long ago, as often as is due."""
        while self.options.retention_seconds is not None:
            purged = await self.call(self.queue.purge, self.options.retention_seconds)
            if purged:
                self.log.told("purged", documents=purged)
            await self.call(self.wall.forget_batches, self.options.retention_seconds)
            await asyncio.sleep(min(3600.0, max(1.0, self.options.retention_seconds / 10)))
        await asyncio.Event().wait()

    def tell_store(self, error: FairlaneError) -> None:
        """What the store says is for the log, as it may name hosts and files."""
        if problem_of(error).status >= 500:
            self.log.told("store failed", error=type(error).__name__, told=str(error)[:500])

    # -- callers -------------------------------------------------------------------------------------------------------

    async def caller(self, told: str) -> Caller | None:
        """Who shows this: a key, or the cookie of a session."""
        session_of = key_id_of(told)
        if session_of and not self.sessions.believed(session_of):
            await self.call(self.sessions.learn, session_of)
        if session_of and not self.sessions.is_open(told):
            return None
        id = session_of or public_part(told)
        if id and not self.keyring.believed(id):
            await self.call(self.keyring.learn, id)
        return self.keyring.holder(session_of) if session_of else self.keyring.caller(told)

    def refuse_kind(self, caller: Caller, kind: str) -> None:
        """Customers submit the default kind and what the operator allows; nobody submits what names a path of ours."""
        allowed = (DEFAULT_KIND, *self.options.kinds)
        if kind == FORBIDDEN_KIND or (caller.customer is not None and kind not in allowed):
            raise Problem("bad-value", f"kind is {kind!r}; this key may submit: {', '.join(allowed)}")

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """While something is waited for, the request is not at work."""
        self.at_work -= 1
        try:
            yield
        finally:
            self.at_work += 1
