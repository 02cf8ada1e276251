"""`AsyncClient`: the verbs of `Client` for asyncio, each on a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

from fairlane.core.document import State
from fairlane.queue import Look

from .client import Client
from .events import Events
from .models import Document, Event

P = ParamSpec("P")
T = TypeVar("T")


def _customers(client: Client) -> list[Look]:
    """Return where every customer stands, by id; with a customer's key only that customer."""
    return list(client.customers())


def _documents(client: Client, customer: str | None = None, state: State | None = None) -> list[Document]:
    """Return documents, newest first; of one customer, or in one state, or both."""
    return list(client.documents(customer, state))


def _on_thread(verb: Callable[Concatenate[Client, P], T]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """Make a verb awaitable: it runs on a thread."""

    async def run(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(lambda: verb(self.client, *args, **kwargs))

    return update_wrapper(run, verb)


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

    async def __anext__(self) -> Event:
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

    def __init__(self, url: str, key: str, *, timeout: float = 30.0, patience: float = 60.0, threads: int = 16) -> None:
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
    customers = _on_thread(_customers)
    document = _on_thread(Client.document)
    documents = _on_thread(_documents)
    wait = _on_thread(Client.wait)
    result = _on_thread(Client.result)
    text = _on_thread(Client.text)
    thumbnail = _on_thread(Client.thumbnail)
    batch = _on_thread(Client.batch)
    explain = _on_thread(Client.explain)
    explain_customer = _on_thread(Client.explain_customer)
    cancel = _on_thread(Client.cancel)
    retry = _on_thread(Client.retry)
    pause = _on_thread(Client.pause)
    resume = _on_thread(Client.resume)
    tune = _on_thread(Client.tune)
    terms = _on_thread(Client.terms)
    rules = _on_thread(Client.rules)
    configure = _on_thread(Client.configure)
    reset = _on_thread(Client.reset)
