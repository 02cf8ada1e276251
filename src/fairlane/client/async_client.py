"""How does a program that awaits use a server? `AsyncClient`: the same verbs, each on a thread."""

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
    """Where every customer stands, by id; with a customer's key that one alone."""
    return list(client.customers())


def _documents(client: Client, customer: str | None = None, state: State | None = None) -> list[Document]:
    """Documents, newest first; of one customer, or in one state, or both."""
    return list(client.documents(customer, state))


def _awaited(verb: Callable[Concatenate[Client, P], T]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """The same verb on a thread, awaited."""

    async def awaited(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._on_thread(lambda: verb(self.client, *args, **kwargs))

    return update_wrapper(awaited, verb)


class AsyncEvents:
    """Events as they happen, awaited; ends when it is closed."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fairlane-events")  # it waits long: a thread of its own

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
        """End it."""
        self._events.close()
        self._thread.shutdown(wait=False, cancel_futures=True)


class AsyncClient:
    """A server whose verbs are awaited; they run on threads, so many may be under way at once."""

    def __init__(self, url: str, key: str, *, timeout: float = 30.0, patience: float = 60.0, threads: int = 16) -> None:
        self.client = Client(url, key, timeout=timeout, patience=patience)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="fairlane")

    def __repr__(self) -> str:
        return f"Async{self.client!r}"

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _on_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def close(self) -> None:
        """Let go of every connection."""
        self.client.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def events(self, after: int | None = None) -> AsyncEvents:
        """What happens, as it happens: from now on, or everything after an event's number, 0 being all that is kept."""
        return AsyncEvents(self.client.events(after))

    submit = _awaited(Client.submit)
    submit_many = _awaited(Client.submit_many)
    check = _awaited(Client.check)
    me = _awaited(Client.me)
    look = _awaited(Client.look)
    customers = _awaited(_customers)
    document = _awaited(Client.document)
    documents = _awaited(_documents)
    wait = _awaited(Client.wait)
    result = _awaited(Client.result)
    text = _awaited(Client.text)
    thumbnail = _awaited(Client.thumbnail)
    batch = _awaited(Client.batch)
    explain = _awaited(Client.explain)
    explain_customer = _awaited(Client.explain_customer)
    cancel = _awaited(Client.cancel)
    retry = _awaited(Client.retry)
    pause = _awaited(Client.pause)
    resume = _awaited(Client.resume)
    tune = _awaited(Client.tune)
    terms = _awaited(Client.terms)
    rules = _awaited(Client.rules)
    configure = _awaited(Client.configure)
    reset = _awaited(Client.reset)
