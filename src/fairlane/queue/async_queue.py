"""How does a program that awaits use the queue? `AsyncQueue`: the same verbs, each on a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

from fairlane.core.document import Document, State
from fairlane.settings import DEFAULT_URL

from .queue import Look, Queue

P = ParamSpec("P")
T = TypeVar("T")


def _customers(queue: Queue, *, now: float | None = None) -> list[Look]:
    """Where every customer stands, by id."""
    return list(queue.customers(now=now))


def _documents(queue: Queue, customer: str | None = None, state: State | None = None) -> list[Document]:
    """Documents, newest first; of one customer, or in one state, or both."""
    return list(queue.documents(customer, state))


def _awaited(verb: Callable[Concatenate[Queue, P], T]) -> Callable[Concatenate[AsyncQueue, P], Coroutine[Any, Any, T]]:
    """The same verb on a thread, awaited."""

    async def awaited(self: AsyncQueue, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._on_thread(lambda: verb(self.queue, *args, **kwargs))

    return update_wrapper(awaited, verb)


class AsyncQueue:
    """A queue whose verbs are awaited; they run on threads, so that submissions made at once share a commit."""

    def __init__(self, url: str = DEFAULT_URL, *, create: bool = True, blobs: str | None = None, threads: int = 16) -> None:
        self.queue = Queue(url, create=create, blobs=blobs)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="fairlane")

    async def __aenter__(self) -> AsyncQueue:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _on_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def close(self) -> None:
        """Let go of the store."""
        await self._on_thread(self.queue.close)
        self._threads.shutdown()

    def within(self, transaction: object) -> AsyncQueue:
        """The same queue inside a transaction that you have open on its database: a psycopg connection, on PostgreSQL."""
        inside = copy(self)
        inside.queue = self.queue.within(transaction)
        return inside

    submit = _awaited(Queue.submit)
    submit_many = _awaited(Queue.submit_many)
    submit_files = _awaited(Queue.submit_files)
    check = _awaited(Queue.check)
    look = _awaited(Queue.look)
    customers = _awaited(_customers)
    document = _awaited(Queue.document)
    documents = _awaited(_documents)
    payload = _awaited(Queue.payload)
    result = _awaited(Queue.result)
    input = _awaited(Queue.input)
    file = _awaited(Queue.file)
    text = _awaited(Queue.text)
    facts = _awaited(Queue.facts)
    thumbnail = _awaited(Queue.thumbnail)
    put_results = _awaited(Queue.put_results)
    progress = _awaited(Queue.progress)
    explain = _awaited(Queue.explain)
    explain_customer = _awaited(Queue.explain_customer)
    changes = _awaited(Queue.changes)
    cancel = _awaited(Queue.cancel)
    retry = _awaited(Queue.retry)
    pause = _awaited(Queue.pause)
    resume = _awaited(Queue.resume)
    tune = _awaited(Queue.tune)
    terms = _awaited(Queue.terms)
    rules = _awaited(Queue.rules)
    configure = _awaited(Queue.configure)
    reset = _awaited(Queue.reset)
    purge = _awaited(Queue.purge)
    forget = _awaited(Queue.forget)
    sweep = _awaited(Queue.sweep)
