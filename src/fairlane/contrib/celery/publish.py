"""`Fairlane`: checks every task of a Celery app when it is published, in whatever way, and gives the message its priority.

Laws:
- A message is decided where Celery hands it to the broker, so `delay`, `apply_async`, `send_task`, canvas and beat are all the
  same; errors reach the caller, which those of a signal's receiver would not.
- A retry is published as Celery makes it: with the priority and the mark of the attempt before. It can raise nothing here, as
  Celery would drop the task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from celery.app.amqp import AMQP
from celery.utils.imports import symbol_by_name

from fairlane.contrib.publish_check import (
    TIMEOUT_SECONDS,
    CustomerFunction,
    FairPublisher,
    Mark,
    PublishCheck,
    PublishedTask,
    WhenAway,
)
from fairlane.core.errors import Mistake

from .brokers import Broker, broker_of
from .verify import Concurrency, SettingFinding, publish_findings, validate_accept, worker_advice, worker_findings

HEADER = "fairlane"


class Fairlane(FairPublisher):
    """Fair priorities for the tasks of a Celery app; make it in the module that makes the app, so that publishers and workers
    both have it.

    The counters are in the store at the URL, which all publishers share. `customer` says whose a task is: the name of an
    argument, `header:` and the name of one, or a function of name, args, kwargs and headers. If the store is away, tasks are
    published unchecked, at a neutral priority, or with `when_away="fail"` not at all.
    """

    _purpose = "checked"  # what happens to a task at the store, in messages of the log

    def __init__(
        self,
        app: Any,
        url: str,
        customer: str | CustomerFunction,
        *,
        when_away: WhenAway = "publish",
        timeout: float | timedelta = TIMEOUT_SECONDS,
        accept: Sequence[str] = (),
        key: str | None = None,
    ) -> None:
        if fairlane_of(app) is not None:
            raise Mistake(f"the Celery app {app.main!r} has a Fairlane already; make one for each app")
        if "amqp" in vars(app):
            raise Mistake(f"app.amqp of the Celery app {app.main!r} was used before; make Fairlane directly after the app")
        self.app = app
        self.accept = validate_accept(accept)
        super().__init__(
            PublishCheck(url, customer, when_away=when_away, timeout=timeout, key=key, peer="celery", purpose=self._purpose)
        )
        self._verified: set[str] = set()
        base: type = symbol_by_name(app.amqp_cls)
        app.amqp_cls = FairAMQP if base is AMQP else type(f"Fair{base.__name__}", (FairSending, base), {})
        app.steps["worker"].add("fairlane.contrib.celery.worker_step:VerifySettings")
        app.fairlane = self

    def unaccepted(self, findings: Iterator[SettingFinding]) -> list[SettingFinding]:
        """Return the findings that the user has not accepted."""
        return [finding for finding in findings if finding.setting not in self.accept]

    def settings_findings(self, concurrency: Concurrency) -> list[SettingFinding]:
        """Return what keeps a worker from serving tasks in the order of their priorities, unless the user has accepted it."""
        return self.unaccepted(worker_findings(self.app, concurrency))

    def advice(self) -> list[str]:
        """Return what is no error, and yet hardly meant."""
        return list(worker_advice(self.app))

    def confirmation(self) -> str:
        """Return what holds when nothing was found."""
        return "Workers serve tasks in the order of their priorities, and the counters answer."

    # -- publishing ----------------------------------------------------------------------------------------------------

    def publish(self, send: Callable[..., Any], producer: Any, name: str, message: Any, options: Mapping[str, Any]) -> Any:
        """Publish a message by Celery's own function, with its priority."""
        return send(producer, name, message, **self.fair_options(producer, name, message, options))

    def fair_options(self, producer: Any, name: str, message: Any, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options with which a message is published, with its priority and its mark."""
        args, kwargs, retries = call_of(message)
        if retries:
            return options
        headers = {**message.headers, **(options.get("headers") or {})}
        task = PublishedTask(name, args, kwargs, headers, self.function_of(name))
        running, parent_number = self._running()
        priority = options.get("priority")
        is_by_hand = priority is not None and priority != self.app.conf.task_default_priority
        customer = self._check.customer_of(task, running)
        if customer is None:
            return options
        broker = self._verified_broker(producer.connection, options)
        mark = self._check.mark(customer, running, is_by_hand)
        if not is_by_hand:
            priority = parent_number if mark.priority is None else broker.number(mark.priority)
        marked = {**(options.get("headers") or {}), HEADER: mark._asdict()}
        return {**options, "priority": priority, "headers": marked}

    def function_of(self, name: str) -> Callable[..., Any] | None:
        """Return what a task of this name calls; None: this program does not know it."""
        if not (self.app.finalized or self.app.autofinalize):
            return None
        task = self.app.tasks.get(name)
        return None if task is None else task.run

    def _running(self) -> tuple[Mark | None, int | None]:
        """Return the mark of the task that this thread runs, and its priority in the broker's numbers."""
        parent = self.app.current_worker_task
        if parent is None:
            return None, None
        request = parent.request
        return Mark.parse((request.headers or {}).get(HEADER)), (request.delivery_info or {}).get("priority")

    def _verified_broker(self, connection: Any, options: Mapping[str, Any]) -> Broker:
        """Return the broker that a message goes to; raise Mistake if its queue there has no place for our priorities."""
        broker = broker_of(connection)
        queue = self.queue_of(options)
        queue_name = "" if queue is None else queue.name
        if queue_name not in self._verified:
            findings = self.unaccepted(publish_findings(broker, connection, queue))
            if findings:
                raise Mistake(f"{findings[0].sentence}; the task was not published")
            self._verified.add(queue_name)
        return broker

    def queue_of(self, options: Mapping[str, Any]) -> Any:
        """Return the queue that a message goes to; None if an exchange decides that."""
        queue = options.get("queue")
        if queue is None:
            return self.app.amqp.default_queue if options.get("exchange") is None else None
        return self.app.amqp.queues[queue] if isinstance(queue, str) else queue


def call_of(message: Any) -> tuple[Sequence[Any], Mapping[str, Any], int]:
    """Return the arguments of a message, and which retry it is; both task protocols have them, in different places."""
    if isinstance(message.body, tuple):
        return message.body[0], message.body[1], message.headers["retries"] or 0
    return message.body["args"], message.body["kwargs"], message.body["retries"] or 0


def fairlane_of(app: Any) -> Fairlane | None:
    """Return the Fairlane of an app."""
    found = vars(app).get("fairlane")
    return found if isinstance(found, Fairlane) else None


class FairSending:
    """What is added to Celery's AMQP class: messages are sent with the options that the app's Fairlane gives them."""

    app: Any

    @property
    def send_task_message(self) -> Callable[..., Any]:
        """What Celery calls to publish a message."""
        send, fairlane = super().send_task_message, fairlane_of(self.app)  # type: ignore[misc]
        if fairlane is None:  # a copy of the app, made without it
            return send  # type: ignore[no-any-return]

        def send_fairly(producer: Any, name: str, message: Any, **options: Any) -> Any:
            return fairlane.publish(send, producer, name, message, options)

        return send_fairly


class FairAMQP(FairSending, AMQP):  # type: ignore[misc]
    """Celery's own AMQP class, with fair priorities."""
