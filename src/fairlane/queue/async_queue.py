"""`AsyncQueue`: the verbs of `Queue` for asyncio, each on a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from datetime import timedelta
from functools import update_wrapper
from itertools import islice
from typing import Any, Concatenate, ParamSpec, TypeVar

from fairlane.core.document import ENDED
from fairlane.settings import DEFAULT_URL

from .models import Document
from .queue import PAGE_SIZE, Queue
from .wait import wait_pauses

P = ParamSpec("P")
T = TypeVar("T")


def _on_thread(verb: Callable[Concatenate[Queue, P], T]) -> Callable[Concatenate[AsyncQueue, P], Coroutine[Any, Any, T]]:
    """Make a verb awaitable: it runs on a thread."""

    async def run(self: AsyncQueue, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(lambda: verb(self.queue, *args, **kwargs))

    return update_wrapper(run, verb)


def _pages_on_thread(
    verb: Callable[Concatenate[Queue, P], Iterator[T]],
) -> Callable[Concatenate[AsyncQueue, P], AsyncIterator[T]]:
    """Make an async iterator of a verb that yields: it is read page by page on a thread."""

    async def iterate(self: AsyncQueue, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        items = verb(self.queue, *args, **kwargs)
        while page := await self._run(lambda: list(islice(items, PAGE_SIZE))):
            for item in page:
                yield item

    return update_wrapper(iterate, verb)


async def _wait_for_end(running: asyncio.Future[T]) -> None:
    """Wait for a verb that nobody awaits any more, however often this is cancelled too."""
    while not running.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([running])
    running.exception()  # it has been looked at: asyncio warns of it otherwise


class AsyncQueue:
    """A queue whose verbs are awaited; they run on threads, so that concurrent submissions share a commit."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        create: bool = True,
        blobs: str | None = None,
        encryption_key_file: str | None = None,
        threads: int = 16,
    ) -> None:
        self.queue = Queue(url, create=create, blobs=blobs, encryption_key_file=encryption_key_file)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="fairlane")
        self._in_transaction = False

    async def __aenter__(self) -> AsyncQueue:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, call: Callable[[], T]) -> T:
        running = asyncio.get_running_loop().run_in_executor(self._threads, call)
        if not self._in_transaction:
            return await running
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await _wait_for_end(running)  # until then a statement of ours may run on the caller's connection
            raise

    async def close(self) -> None:
        """Close the store."""
        await self._run(self.queue.close)
        self._threads.shutdown()

    def within(self, transaction: object) -> AsyncQueue:
        """Return this queue inside a transaction that you have open on its PostgreSQL database; call it on your event loop.

        A document exists exactly if your transaction commits. It may be an async or a plain connection of psycopg, a connection
        of asyncpg, or a connection or session of SQLAlchemy.
        """
        joined = copy(self)
        joined.queue = self.queue._join(transaction, asyncio.get_running_loop())
        joined._in_transaction = True
        # A thread of its own: on those of all verbs it might wait behind others that wait for this transaction to end.
        joined._threads = ThreadPoolExecutor(1, thread_name_prefix="fairlane-transaction")
        return joined

    async def wait(self, id: str, timeout: float | timedelta | None = None) -> Document:
        """Wait until a document has ended and return it; after `timeout` seconds return it as it is. It keeps no thread."""
        for pause in wait_pauses(timeout):
            if (await self.document(id)).state in ENDED:
                break
            await asyncio.sleep(pause)
        return await self.document(id)

    submit = _on_thread(Queue.submit)
    submit_many = _on_thread(Queue.submit_many)
    submit_files = _on_thread(Queue.submit_files)
    check = _on_thread(Queue.check)
    look = _on_thread(Queue.look)
    customers = _pages_on_thread(Queue.customers)
    document = _on_thread(Queue.document)
    documents = _pages_on_thread(Queue.documents)
    payload = _on_thread(Queue.payload)
    result = _on_thread(Queue.result)
    input = _on_thread(Queue.input)
    file = _on_thread(Queue.file)
    text = _on_thread(Queue.text)
    facts = _on_thread(Queue.facts)
    thumbnail = _on_thread(Queue.thumbnail)
    parts = _on_thread(Queue.parts)
    steps = _on_thread(Queue.steps)
    put_results = _on_thread(Queue.put_results)
    progress = _on_thread(Queue.progress)
    attempts = _on_thread(Queue.attempts)
    history = _on_thread(Queue.history)
    workers = _on_thread(Queue.workers)
    unserved_kinds = _on_thread(Queue.unserved_kinds)
    explain = _on_thread(Queue.explain)
    explain_customer = _on_thread(Queue.explain_customer)
    changes = _pages_on_thread(Queue.changes)
    cancel = _on_thread(Queue.cancel)
    retry = _on_thread(Queue.retry)
    bulk = _on_thread(Queue.bulk)
    prioritize = _on_thread(Queue.prioritize)
    apply_table = _on_thread(Queue.apply_table)
    kinds = _pages_on_thread(Queue.kinds)
    kind = _on_thread(Queue.kind)
    limit_kind = _on_thread(Queue.limit_kind)
    pause = _on_thread(Queue.pause)
    resume = _on_thread(Queue.resume)
    tune = _on_thread(Queue.tune)
    drain_worker = _on_thread(Queue.drain_worker)
    undrain_worker = _on_thread(Queue.undrain_worker)
    terms = _on_thread(Queue.terms)
    rules = _on_thread(Queue.rules)
    configure = _on_thread(Queue.configure)
    reset = _on_thread(Queue.reset)
    purge = _on_thread(Queue.purge)
    export = _on_thread(Queue.export)
    forget = _on_thread(Queue.forget)
    vacuum = _on_thread(Queue.vacuum)
    sweep = _on_thread(Queue.sweep)
