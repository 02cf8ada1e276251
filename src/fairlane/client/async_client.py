"""`AsyncClient`: the verbs of `Client` for asyncio, each on a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import update_wrapper
from itertools import islice
from typing import Any, Concatenate, ParamSpec, TypeVar

from fairlane.queue.models import Change

from .client import PAGE_SIZE, Client
from .events import Events

P = ParamSpec("P")
T = TypeVar("T")


def _on_thread(verb: Callable[Concatenate[Client, P], T]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """Make a verb awaitable: it runs on a thread."""

    async def run(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(lambda: verb(self.client, *args, **kwargs))

    return update_wrapper(run, verb)


def _pages_on_thread(
    verb: Callable[Concatenate[Client, P], Iterator[T]],
) -> Callable[Concatenate[AsyncClient, P], AsyncIterator[T]]:
    """Make an async iterator of a verb that yields: it is read page by page on a thread."""

    async def iterate(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        items = verb(self.client, *args, **kwargs)
        while page := await self._run(lambda: list(islice(items, PAGE_SIZE))):
            for item in page:
                yield item

    return update_wrapper(iterate, verb)


class AsyncEvents:
    """Events as they happen, as an async iterator; ends when it is closed."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fairlane-events")  # of its own: it blocks for long

    async def __aenter__(self) -> AsyncEvents:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncEvents:
        return self

    async def __anext__(self) -> Change:
        event = await asyncio.get_running_loop().run_in_executor(self._thread, next, self._events, None)
        if event is None:
            raise StopAsyncIteration
        return event

    async def aclose(self) -> None:
        """Close the stream."""
        self._events.close()
        self._thread.shutdown(wait=False, cancel_futures=True)


class AsyncClient:
    """A server whose verbs are awaited; they run on threads, so many may run at once."""

    def __init__(
        self, url: str, key: str, *, timeout: float | timedelta = 30.0, patience: float | timedelta = 60.0, threads: int = 16
    ) -> None:
        self.client = Client(url, key, timeout=timeout, patience=patience)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="fairlane")

    def __repr__(self) -> str:
        return f"Async{self.client!r}"

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def close(self) -> None:
        """Close every connection."""
        self.client.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def events(self, after: int | None = None) -> AsyncEvents:
        """Return the events as they happen: from now on, or after an event's number, 0 for all that are kept."""
        return AsyncEvents(self.client.events(after))

    submit = _on_thread(Client.submit)
    submit_many = _on_thread(Client.submit_many)
    check = _on_thread(Client.check)
    me = _on_thread(Client.me)
    look = _on_thread(Client.look)
    customers = _pages_on_thread(Client.customers)
    document = _on_thread(Client.document)
    documents = _pages_on_thread(Client.documents)
    wait = _on_thread(Client.wait)
    result = _on_thread(Client.result)
    file = _on_thread(Client.file)
    export = _on_thread(Client.export)
    text = _on_thread(Client.text)
    thumbnail = _on_thread(Client.thumbnail)
    batch = _on_thread(Client.batch)
    attempts = _on_thread(Client.attempts)
    history = _on_thread(Client.history)
    steps = _on_thread(Client.steps)
    parts = _on_thread(Client.parts)
    workers = _on_thread(Client.workers)
    unserved_kinds = _on_thread(Client.unserved_kinds)
    explain = _on_thread(Client.explain)
    explain_customer = _on_thread(Client.explain_customer)
    cancel = _on_thread(Client.cancel)
    retry = _on_thread(Client.retry)
    bulk = _on_thread(Client.bulk)
    prioritize = _on_thread(Client.prioritize)
    apply_table = _on_thread(Client.apply_table)
    kinds = _pages_on_thread(Client.kinds)
    kind = _on_thread(Client.kind)
    limit_kind = _on_thread(Client.limit_kind)
    pause = _on_thread(Client.pause)
    resume = _on_thread(Client.resume)
    tune = _on_thread(Client.tune)
    drain_worker = _on_thread(Client.drain_worker)
    undrain_worker = _on_thread(Client.undrain_worker)
    terms = _on_thread(Client.terms)
    rules = _on_thread(Client.rules)
    configure = _on_thread(Client.configure)
    reset = _on_thread(Client.reset)
    audit = _pages_on_thread(Client.audit)
    keys = _pages_on_thread(Client.keys)
    create_key = _on_thread(Client.create_key)
    create_keys = _on_thread(Client.create_keys)
    rotate_key = _on_thread(Client.rotate_key)
    revoke_key = _on_thread(Client.revoke_key)
    create_upload_token = _on_thread(Client.create_upload_token)
    upload_token = _on_thread(Client.upload_token)
