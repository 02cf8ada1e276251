"""`Fairlane`: checks every message of a Dramatiq broker when it is enqueued, in whatever way, and gives it its priority.

Laws:
- A message is decided in `broker.enqueue`, which actors, groups, pipelines and retries all call: errors reach the caller, as
  those of a middleware's `before_enqueue` would not.
- What is enqueued is a copy: the caller's own message has no mark, so enqueueing it once more is one more check.
- A message that was enqueued before keeps what it has: a retry, and a delayed one that is due.
- When an actor is done, Dramatiq drops what cannot be enqueued. So the next message of a pipeline is enqueued in any case.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, NamedTuple

from dramatiq import Broker, GenericActor, Message, Middleware
from dramatiq.brokers.stub import StubBroker

from fairlane.contrib.publish_check import (
    NEUTRAL,
    TIMEOUT_SECONDS,
    CustomerFunction,
    FairPublisher,
    Mark,
    PublishCheck,
    PublishedTask,
    WhenAway,
)
from fairlane.core.errors import Mistake

from .verify import VerifyWorker, broker_name, number_of, validate_accept, verify_broker

MARK = "fairlane"  # the option of a message with its mark
PRIORITY = "broker_priority"  # Dramatiq's own option: RabbitMQ serves the highest number first

logger = logging.getLogger("fairlane.contrib")


class Running(NamedTuple):
    """The message that this thread or coroutine processes."""

    options: Mapping[str, Any]
    is_done: bool = False  # its actor has returned, and what follows is enqueued


_running: ContextVar[Running | None] = ContextVar("fairlane_running", default=None)


class Fairlane(FairPublisher):
    """Fair priorities for the messages of a Dramatiq broker; make it where the broker is made, so that publishers and workers
    both have it.

    The counters are in the store at the URL, which all publishers share. `customer` says whose a message is: the name of an
    argument, `header:` and the name of an option, or a function of name, args, kwargs and options. If the store is away,
    messages are enqueued unchecked, at a neutral priority, or with `when_away="fail"` not at all.
    """

    def __init__(
        self,
        broker: Broker,
        url: str,
        customer: str | CustomerFunction,
        *,
        when_away: WhenAway = "publish",
        timeout: float | timedelta = TIMEOUT_SECONDS,
        accept: Sequence[str] = (),
        key: str | None = None,
    ) -> None:
        if any(isinstance(middleware, RunningMessage) for middleware in broker.middleware):
            raise Mistake("this Dramatiq broker has a Fairlane already; make one for each broker")
        accepted = validate_accept(accept)
        super().__init__(PublishCheck(url, customer, when_away=when_away, timeout=timeout, key=key, peer="dramatiq"))
        self.broker = broker
        if isinstance(broker, StubBroker):  # tests of actors: it has no priorities
            return
        verify_broker(broker)
        # First in, first to see a message and last to leave it: retries and pipelines enqueue in between.
        first = type(broker.middleware[0]) if broker.middleware else None
        broker.add_middleware(RunningMessage(), before=first)
        broker.add_middleware(ActorDone())
        broker.add_middleware(VerifyWorker(accepted))
        if broker_name(broker) == "Redis":
            from .redis_lists import OrderedLists

            OrderedLists.install(broker)
        self._enqueue: Callable[..., Message[Any]] = broker.enqueue
        broker.enqueue = self.enqueue  # type: ignore[method-assign]

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        """Enqueue a message with its priority and its mark: what `broker.enqueue` does now."""
        if Mark.parse(message.options.get(MARK)) is not None or "retries" in message.options:
            return self._enqueue(message, delay=delay)
        running = _running.get()
        try:
            options = self._fair_options(message, running)
        except Exception as error:
            if running is None or not running.is_done:
                raise
            logger.error("message %s is enqueued without a check, at priority %d: %s", message, NEUTRAL, error)
            options = {PRIORITY: number_of(NEUTRAL)}
        return self._enqueue(message.copy(options=options), delay=delay)

    def _fair_options(self, message: Message[Any], running: Running | None) -> dict[str, Any]:
        """Return the options that a message gets."""
        task = PublishedTask(
            message.actor_name, message.args, message.kwargs, message.options, self._function(message.actor_name)
        )
        running_options: Mapping[str, Any] = running.options if running else {}
        running_mark = Mark.parse(running_options.get(MARK))
        customer = self._check.customer_of(task, running_mark)
        if customer is None:
            return {}
        priority = message.options.get(PRIORITY)
        is_by_hand = priority is not None
        mark = self._check.mark(customer, running_mark, is_by_hand)
        if not is_by_hand:
            priority = running_options.get(PRIORITY) if mark.priority is None else number_of(mark.priority)
        return {PRIORITY: priority, MARK: mark._asdict()}

    def _function(self, name: str) -> Callable[..., Any] | None:
        actor = self.broker.actors.get(name)
        if actor is None:
            return None
        return actor.fn.perform if isinstance(actor.fn, GenericActor) else actor.fn


class RunningMessage(Middleware):
    """Remembers which message is processed, until all other middleware has left it."""

    def before_process_message(self, broker: Any, message: Any) -> None:
        _running.set(Running(message.options))

    def after_process_message(self, broker: Any, message: Any, *, result: Any = None, exception: Any = None) -> None:
        _running.set(None)

    def after_skip_message(self, broker: Any, message: Any) -> None:
        _running.set(None)


class ActorDone(Middleware):
    """Remembers that the actor has returned; being the last middleware it is the first to know."""

    def after_process_message(self, broker: Any, message: Any, *, result: Any = None, exception: Any = None) -> None:
        _running.set(Running(message.options, is_done=True))
