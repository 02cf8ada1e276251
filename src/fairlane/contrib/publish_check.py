"""The check of a task when it is published to another queue: what the adapters of all queues share.

Laws:
- A task that a program publishes for a customer is one check of that customer.
- A task that a running task publishes, for the same customer or for none, has the running task's priority, without a check.
- A task without a customer, and one whose priority was set by hand, is not checked.
- A publisher is held up for `timeout` seconds at most by a store that is away, and after that only by one call every
  PAUSE_SECONDS. As soon as such a call succeeds, every task is checked again.
- The store is opened at the first check, and a forked process has connections of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, get_args
from uuid import UUID
from weakref import WeakSet

from fairlane.client import Client
from fairlane.core.document import validate_text
from fairlane.core.errors import BadValue, Mistake, StoreError, StoreUnreachable
from fairlane.engine import engine_opener
from fairlane.masking import mask_url
from fairlane.procs.threads import DaemonThreads
from fairlane.queue import Check, Look, Queue
from fairlane.queue.validation import to_seconds

NEUTRAL = 5  # the middle: behind light customers, ahead of a backlog that big senders have built up
PAUSE_SECONDS = 5.0  # between tries of a store that is away
TIMEOUT_SECONDS = 2.0
CALLS_MAX = 32  # checks of one process at once
HEADER = "header:"
KEY_VARIABLE = "FAIRLANE_KEY"

WhenAway = Literal["publish", "fail"]
CustomerFunction = Callable[[str, Sequence[Any], Mapping[str, Any], Mapping[str, Any]], object]

T = TypeVar("T")

logger = logging.getLogger("fairlane.contrib")


class PublishedTask(NamedTuple):
    """A task as it is published."""

    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    headers: Mapping[str, Any]
    function: Callable[..., Any] | None = None  # what it will call; None: not known to this program


class Mark(NamedTuple):
    """What a published task carries, for the tasks that it publishes itself: its customer and its priority."""

    customer: str
    priority: int | None  # None: set by hand

    @classmethod
    def parse(cls, value: object) -> Mark | None:
        """Return the mark in a header; None if there is none, or not one of ours."""
        if not isinstance(value, Mapping):
            return None
        customer, priority = value.get("customer"), value.get("priority")
        if not isinstance(customer, str) or not (priority is None or (type(priority) is int and 1 <= priority <= 9)):
            return None
        return cls(customer, priority)


class PublishCounts(NamedTuple):
    """How many tasks this process has had checked, and how many it could not, because the store was away."""

    checked: int
    unchecked: int


class PublishCheck:
    """Decides the priority of each task that is published; one for a program, used by all its threads."""

    def __init__(
        self,
        url: str,
        customer: str | CustomerFunction,
        *,
        when_away: WhenAway = "publish",
        timeout: float | timedelta = TIMEOUT_SECONDS,
        key: str | None = None,
        peer: str,
        clock: Callable[[], float] = time.monotonic,
        purpose: str = "checked",
    ) -> None:
        if when_away not in get_args(WhenAway):
            raise BadValue("when_away", when_away, "one of " + ", ".join(get_args(WhenAway)))
        self.find_customer = customer_finder(customer)
        self._when_away = when_away
        self._peer = peer
        self.store = CounterStore(url, to_seconds("timeout", timeout, 100, 60_000), key, clock, purpose)

    @property
    def counts(self) -> PublishCounts:
        return self.store.counts

    def verify_store(self) -> None:
        """Raise StoreError if the store cannot be used; moves nothing."""
        self.store.look()

    def close(self) -> None:
        """Close the store; the next check opens it again."""
        self.store.close()

    def customer_of(self, task: PublishedTask, running: Mark | None = None) -> str | None:
        """Return whose a task is: its own customer, or that of the running task that publishes it; None: nobody's."""
        customer = self.find_customer(task)
        return running.customer if customer is None and running is not None else customer

    def mark(self, customer: str, running: Mark | None = None, is_by_hand: bool = False) -> Mark:
        """Return the mark of a task of this customer; that may be a check, so ask last, when it can be published.

        `running` is the mark of the task that publishes it; `is_by_hand` says that its priority was set.
        """
        return self.mark_unchecked(customer, running, is_by_hand) or Mark(customer, self._check(customer))

    async def mark_async(self, customer: str, running: Mark | None = None, is_by_hand: bool = False) -> Mark:
        """Return the mark of a task of this customer, as `mark` does, while the event loop goes on."""
        if mark := self.mark_unchecked(customer, running, is_by_hand):
            return mark
        return await asyncio.to_thread(self.mark, customer)

    def mark_unchecked(self, customer: str, running: Mark | None, is_by_hand: bool) -> Mark | None:
        """Return the mark of a task that is no check; None if it is one."""
        if is_by_hand:
            return Mark(customer, None)
        return running if running is not None and running.customer == customer else None

    def priorities(self, customers: Sequence[str]) -> list[int]:
        """Make a check for each of these customers, in order; return their priorities."""
        return [self._check(customer) for customer in customers]

    async def priorities_async(self, customers: Sequence[str]) -> list[int]:
        """Make these checks while the event loop goes on."""
        return await asyncio.to_thread(self.priorities, customers) if customers else []

    def expected_priority(self, customer: str) -> int:
        """Return the priority that a check would give now, without one; the neutral one if the store is away."""
        try:
            return self.store.look(customer).next_priority
        except StoreError:
            return NEUTRAL

    def _check(self, customer: str) -> int:
        try:
            priority = self.store.check(customer).priority
        except StoreError:
            _count(self._peer, "unchecked")
            if self._when_away == "fail":
                raise
            return NEUTRAL
        _count(self._peer, "checked")
        return priority


class FairPublisher:
    """What the `Fairlane` of every library has: its check, how many tasks it has checked, and its end."""

    def __init__(self, check: PublishCheck) -> None:
        self._check = check

    @property
    def store(self) -> CounterStore:
        """The store, as publishers use it."""
        return self._check.store

    @property
    def counts(self) -> PublishCounts:
        """How many tasks this process has published with a check, and without one because the store was away."""
        return self._check.counts

    def verify_counters(self) -> None:
        """Raise StoreError if the counters cannot be reached."""
        self._check.verify_store()

    def close(self) -> None:
        """Close the store; the next check opens it again."""
        self._check.close()


# -- the customer ----------------------------------------------------------------------------------------------------------


def customer_finder(customer: str | CustomerFunction) -> Callable[[PublishedTask], str | None]:
    """Return what finds the customer of a task: the name of an argument, `header:` and the name of one, or a function."""
    if callable(customer):
        function = customer
        return lambda task: _customer_text(task, function(task.name, task.args, task.kwargs, task.headers))
    if not isinstance(customer, str) or not customer or customer == HEADER:
        expected = (
            "the name of an argument, as in 'customer' or 'order.customer', a header, as in 'header:tenant', or a function"
        )
        raise BadValue("customer", customer, expected)
    if customer.startswith(HEADER):
        name = customer.removeprefix(HEADER)
        return lambda task: _customer_text(task, task.headers.get(name))
    argument, *keys = customer.split(".")
    return lambda task: _customer_text(task, _look_up(task, _argument(task, argument), argument, keys))


def _customer_text(task: PublishedTask, value: object) -> str | None:
    """Return a customer's id as text: a whole number and a UUID count as theirs."""
    if value is None:
        return None
    if isinstance(value, str):
        value = str.__str__(value)  # of an enumeration, the value
    elif isinstance(value, UUID) or (isinstance(value, int) and not isinstance(value, bool)):
        value = str(value)
    else:
        raise BadValue(f"the customer of task {task.name}", value, "text, a whole number, a UUID, or None for no customer")
    return validate_text(f"the customer of task {task.name}", value)


def _argument(task: PublishedTask, name: str) -> object:
    if name in task.kwargs:
        return task.kwargs[name]
    if task.function is None:
        if task.args:
            _warn_of_names(task.name, name)
        return None
    position, default = _parameter(task.function, name)
    return task.args[position] if position is not None and position < len(task.args) else default


def _look_up(task: PublishedTask, value: object, path: str, keys: Sequence[str]) -> object:
    for key in keys:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise BadValue(f"{path} of task {task.name}", value, f"a mapping that may have {key!r}, or None")
        value, path = value.get(key), f"{path}.{key}"
    return value


@lru_cache(1024)
def _parameter(function: Callable[..., Any], name: str) -> tuple[int | None, object]:
    """Return the position of a parameter, if it can be given by position, and its default."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # a function of C without a signature
        return None, None
    if name not in parameters:
        return None, None
    parameter = parameters[name]
    default = None if parameter.default is parameter.empty else parameter.default
    is_positional = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    return (list(parameters).index(name) if is_positional else None), default


@lru_cache(1024)  # once for each task
def _warn_of_names(task: str, argument: str) -> None:
    logger.warning(
        "task %s is not known to this program, so its positional arguments have no names, and no customer is found among them: "
        "publish it with %s=, or give Fairlane a function as customer",
        task, argument,
    )  # fmt: skip


# -- the store -------------------------------------------------------------------------------------------------------------


class Counters(Protocol):
    """A queue, or the client of a server."""

    def check(self, customer: str) -> Check: ...

    def look(self, customer: str) -> Look: ...

    def close(self) -> None: ...


_stores: WeakSet[CounterStore] = WeakSet()


class CounterStore:
    """The store that keeps the counters, for as long as it answers: one that is away is tried again after a pause."""

    def __init__(
        self, url: str, timeout_seconds: float, key: str | None, clock: Callable[[], float], purpose: str = "checked"
    ) -> None:
        self._clock = clock
        self._purpose = purpose  # what happens to a task here
        self._timeout_seconds = timeout_seconds
        self._open = _counters_opener(url, timeout_seconds, key)
        self._name = f"the counters at {mask_url(url)}"
        self._counters: Counters | None = None
        self.begin()
        _stores.add(self)

    def begin(self) -> None:
        """Begin to count calls, in a new process too; what is opened there is not its parent's, engines see to that."""
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._threads = DaemonThreads(CALLS_MAX, "fairlane checks")
        self._checked = self._unchecked = 0
        self._away_since: float | None = None
        self._unchecked_before = 0
        self._next_try_at = 0.0
        self._failed_call: Future[Any] | None = None

    @property
    def counts(self) -> PublishCounts:
        return PublishCounts(self._checked, self._unchecked)

    def close(self) -> None:
        """Close the store; the next check opens it again."""
        with self._opening:
            counters, self._counters = self._counters, None
        if counters is not None:
            counters.close()

    def check(self, customer: str) -> Check:
        """Make a check; raise StoreError if it fails, and at once while the store is known to be away."""
        check: Check = self.call(lambda counters: counters.check(customer))
        return check

    def call(self, function: Callable[[Any], T]) -> T:
        """Call a function with the queue, or the client of a server, for one task; raise as `check` does."""
        self._refuse_while_away()
        call = self._threads.submit(lambda: function(self._opened()))
        try:
            value = call.result(self._timeout_seconds)
        except TimeoutError:
            call.cancel()  # it may have begun: then the customer may be charged later
            error = self._silent()
            self._record_failure(call, error)
            raise error from None
        except StoreError as error:
            self._record_failure(call, error)
            raise
        self._record_success()
        return value

    def look(self, customer: str = "fairlane") -> Look:
        """Return where a customer stands; raise StoreError unless the store answers. Nobody becomes known by it."""
        call = self._threads.submit(lambda: self._opened().look(customer))
        try:
            return call.result(self._timeout_seconds)
        except TimeoutError:
            raise self._silent() from None

    def _opened(self) -> Counters:
        with self._opening:
            if self._counters is None:
                self._counters = self._open()
            return self._counters

    def _silent(self) -> StoreUnreachable:
        return StoreUnreachable(f"{self._name} did not answer within {self._timeout_seconds:g} s")

    def _refuse_while_away(self) -> None:
        """Raise while the store is away, but let one caller through after each pause."""
        with self._lock:
            if self._away_since is None:
                return
            now = self._clock()
            if now >= self._next_try_at and (self._failed_call is None or self._failed_call.done()):
                self._next_try_at = now + PAUSE_SECONDS
                return
            self._unchecked += 1
            seconds = now - self._away_since
        raise StoreUnreachable(f"{self._name} have been away for {seconds:.0f} s; they are tried every {PAUSE_SECONDS:g} s")

    def _record_failure(self, call: Future[Any], error: StoreError) -> None:
        with self._lock:
            self._failed_call, self._next_try_at = call, self._clock() + PAUSE_SECONDS
            if self._away_since is None:
                self._away_since, self._unchecked_before = self._clock(), self._unchecked
                logger.warning("until %s are back, tasks are not %s: %s", self._name, self._purpose, error)
            self._unchecked += 1

    def _record_success(self) -> None:
        with self._lock:
            self._checked += 1
            if self._away_since is not None:
                seconds, unchecked = self._clock() - self._away_since, self._unchecked - self._unchecked_before
                self._away_since, self._failed_call = None, None
                logger.warning("%s are back after %.0f s; %d tasks were not %s", self._name, seconds, unchecked, self._purpose)


def _begin_in_child() -> None:
    for store in list(_stores):
        store.begin()


os.register_at_fork(after_in_child=_begin_in_child)


def _counters_opener(url: str, timeout_seconds: float, key: str | None) -> Callable[[], Counters]:
    """Return what opens the store at a URL, or the client of a server; raise if the URL names neither."""
    if isinstance(url, str) and url.startswith(("http://", "https://")):
        server_key = key or os.environ.get(KEY_VARIABLE, "")
        if not server_key:
            raise Mistake(f"the server at {mask_url(url)} needs a key: pass it as key=, or put it in {KEY_VARIABLE}")
        client = Client(url, server_key, timeout=max(1.0, timeout_seconds), patience=0)
        return lambda: client
    engine_opener(url)  # raises if no store has such a URL
    return lambda: _open_queue(url, timeout_seconds)


def _open_queue(url: str, timeout_seconds: float) -> Queue:
    """Open a queue whose calls end when nobody waits for them any more."""
    if url == "memory://":
        raise BadValue("url", url, "that of a store which all publishers share: in memory each process would count alone")
    if not url.startswith("sqlite:") and not re.search(r"[?&]timeout=", url):
        url = f"{url}{'&' if '?' in url else '?'}timeout={timeout_seconds:g}"
    return Queue(url)


@cache
def _outcomes() -> Any:
    from prometheus_client import Counter

    return Counter("fairlane_published_tasks", "Tasks published to another queue.", ["peer", "outcome"])


def _count(peer: str, outcome: str) -> None:
    """Count for Prometheus, in programs that have its client loaded."""
    if "prometheus_client" in sys.modules:
        _outcomes().labels(peer, outcome).inc()
