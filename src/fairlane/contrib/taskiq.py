"""Fair priorities for Taskiq on RabbitMQ: each task is checked when it is sent, and its message has the priority.

from fairlane.contrib.taskiq import Fairlane

Fairlane(broker, "postgresql://fairlane@db/fairlane", customer="customer")

Laws:
- A task is decided in a middleware's `pre_send`, through which `kiq`, schedules and pipelines all go; errors reach the caller.
- The mark is a label. What has one was sent before: a retry is no check.
- RabbitMQ must have a place for nine priorities, and a worker must not hold tasks that could be overtaken.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

from fairlane.contrib.publish_check import (
    TIMEOUT_SECONDS,
    CustomerFunction,
    FairPublisher,
    Mark,
    PublishCheck,
    PublishedTask,
    WhenAway,
)
from fairlane.core.errors import BadValue, Mistake
from fairlane.core.policy import LEVELS_MAX

try:
    from taskiq import AsyncBroker, InMemoryBroker, TaskiqMessage, TaskiqMiddleware
    from taskiq.labels import prepare_label
    from taskiq_aio_pika import AioPikaBroker
    from taskiq_aio_pika.queue import Queue, QueueType
except ImportError as error:
    raise ImportError(
        "fairlane.contrib.taskiq needs Taskiq and its broker for RabbitMQ, which are not installed here: "
        "pip install taskiq taskiq-aio-pika"
    ) from error

LABEL = "fairlane"
SETTINGS = ("max_priority", "qos", "type")
TASKS_MAX = 100  # that a worker process of Taskiq runs at once, unless --max-async-tasks says otherwise

logger = logging.getLogger(__name__)


class SentTask(NamedTuple):
    """What a running task hands on to those that it sends."""

    mark: Mark | None
    number: object


NOTHING = SentTask(None, None)
_running: ContextVar[SentTask | None] = ContextVar("fairlane_taskiq_running", default=None)


def number_of(priority: int) -> int:
    """Return RabbitMQ's number for one of our priorities: it serves 9 first, then 8 …"""
    return LEVELS_MAX + 1 - priority


class Fairlane(FairPublisher):
    """Fair priorities for the tasks of a Taskiq broker; make it where the broker is made, so that senders and workers have it.

    The counters are in the store at the URL, which all senders share. `customer` says whose a task is: the name of an argument,
    `header:` and the name of a label, or a function of name, args, kwargs and labels. If the store is away, tasks are sent
    unchecked, at a neutral priority, or with `when_away="fail"` not at all.
    """

    def __init__(
        self,
        broker: AsyncBroker,
        url: str,
        customer: str | CustomerFunction,
        *,
        when_away: WhenAway = "publish",
        timeout: float | timedelta = TIMEOUT_SECONDS,
        accept: Sequence[str] = (),
        key: str | None = None,
    ) -> None:
        if any(isinstance(middleware, FairMiddleware) for middleware in broker.middlewares):
            raise Mistake("this Taskiq broker has a Fairlane already; make one for each broker")
        if isinstance(accept, str) or not set(accept) <= set(SETTINGS):
            raise BadValue("accept", accept, "a tuple of names among " + ", ".join(SETTINGS))
        super().__init__(PublishCheck(url, customer, when_away=when_away, timeout=timeout, key=key, peer="taskiq"))
        self.broker = broker
        self._accept = frozenset(accept)
        self._is_verified = False
        if isinstance(broker, InMemoryBroker):  # tests of tasks: it has no queue
            return
        if not isinstance(broker, AioPikaBroker):
            raise Mistake(
                f"the broker of this program is a {type(broker).__name__}, which has no priorities that Fairlane knows: "
                "of Taskiq's brokers the AioPikaBroker of taskiq-aio-pika has them"
            )
        self._rabbitmq = broker
        self._priority_label = BrokerSettings.of(broker).priority_label
        broker.add_middlewares(FairMiddleware(self))

    async def send_fairly(self, message: TaskiqMessage) -> TaskiqMessage:
        """Return a message as it is to be sent, with its priority and its mark."""
        labels, priority_label = message.labels, self._priority_label
        if "_retries" in labels or parse_label(labels) is not None:
            return message
        running = _running.get() or NOTHING
        task = PublishedTask(message.task_name, message.args, message.kwargs, labels, self._function(message.task_name))
        customer = self._check.customer_of(task, running.mark)
        if customer is None:
            return message
        self._verify_queues()
        number: Any = labels.get(priority_label)
        is_by_hand = number is not None
        mark = await self._check.mark_async(customer, running.mark, is_by_hand)
        if not is_by_hand:
            number = running.number if mark.priority is None else number_of(mark.priority)
        return _labelled(message, {priority_label: number, LABEL: json.dumps(mark._asdict())})

    def begin(self, message: TaskiqMessage) -> None:
        """Know which task runs, for those that it sends."""
        _running.set(SentTask(parse_label(message.labels), message.labels.get(self._priority_label)))

    def verify_worker(self) -> None:
        """End a worker that would not serve tasks in the order of their priorities."""
        settings = BrokerSettings.of(self._rabbitmq)
        findings = self._unaccepted({**settings.queue_findings(), **settings.worker_findings()})
        for sentence in settings.advice(self._rabbitmq):
            logger.warning("Fairlane: %s", sentence)
        if findings:
            lines = "".join(f"\n- {sentence}" for sentence in findings.values())
            names = "".join(f'"{name}", ' for name in findings).rstrip()
            logger.critical(
                "Fairlane: this worker would not serve tasks in the order of their priorities:%s\n"
                "To use it as it is all the same: Fairlane(…, accept=(%s))", lines, names,
            )  # fmt: skip
            raise SystemExit(1)

    def _verify_queues(self) -> None:
        if not self._is_verified:
            for sentence in self._unaccepted(BrokerSettings.of(self._rabbitmq).queue_findings()).values():
                raise Mistake(f"{sentence}; the task was not sent")
            self._is_verified = True

    def _unaccepted(self, findings: Mapping[str, str]) -> dict[str, str]:
        return {name: sentence for name, sentence in findings.items() if name not in self._accept}

    def _function(self, name: str) -> Callable[..., Any] | None:
        task = self.broker.find_task(name)
        return None if task is None else task.original_func


class FairMiddleware(TaskiqMiddleware):
    """Taskiq's way to a Fairlane: before a task is sent, before it runs, and before a worker begins."""

    def __init__(self, fairlane: Fairlane) -> None:
        super().__init__()
        self._fairlane = fairlane

    def startup(self) -> None:
        if self.broker.is_worker_process:
            self._fairlane.verify_worker()

    async def pre_send(self, message: TaskiqMessage) -> TaskiqMessage:
        return await self._fairlane.send_fairly(message)

    def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        self._fairlane.begin(message)
        return message


def parse_label(labels: Mapping[str, Any]) -> Mark | None:
    """Return the mark in a message's labels."""
    try:
        return Mark.parse(json.loads(labels[LABEL]))
    except (KeyError, TypeError, ValueError):
        return None


def _labelled(message: TaskiqMessage, labels: Mapping[str, Any]) -> TaskiqMessage:
    prepared = {name: prepare_label(value) for name, value in labels.items()}
    values = {name: value for name, (value, _) in prepared.items()}
    types = {name: label_type for name, (_, label_type) in prepared.items()}
    return message.model_copy(update={"labels": message.labels | values, "labels_types": (message.labels_types or {}) | types})


# -- settings --------------------------------------------------------------------------------------------------------------


class BrokerSettings(NamedTuple):
    """What a broker was made with. It keeps that in private attributes; a test pins the version in which they are found."""

    queues: Sequence[Queue]
    qos: int
    priority_label: str

    @classmethod
    def of(cls, broker: AioPikaBroker) -> BrokerSettings:
        try:
            return cls(broker._task_queues, broker._qos, broker._label_for_priority)
        except AttributeError as error:
            raise Mistake(
                f"Fairlane does not know this version of taskiq-aio-pika ({error}); use 0.6, which it is tested with"
            ) from None

    def queue_findings(self) -> dict[str, str]:
        """Return what keeps the queues from having nine priorities, by the name of the setting."""
        return dict(finding for queue in self.queues or [Queue()] for finding in _queue_findings(queue))

    def worker_findings(self) -> dict[str, str]:
        """Return what keeps a worker from leaving tasks in the queue, by the name of the setting."""
        if 1 <= self.qos <= TASKS_MAX:
            return {}
        taken = f"{self.qos} tasks" if self.qos else "all tasks there are"
        return {
            "qos": f"qos is {self.qos}: the worker takes {taken} from RabbitMQ and runs {TASKS_MAX} at once "
            "(--max-async-tasks), and no later task overtakes those that wait there; set it to the number of tasks that a "
            "worker process shall run at once"
        }

    def advice(self, broker: AioPikaBroker) -> Iterator[str]:
        """Yield what a worker should know: only Taskiq learns how many threads it has."""
        threads = min(32, (os.cpu_count() or 1) + 4)
        names = sorted(name for name, task in broker.get_all_tasks().items() if not iscoroutinefunction(task.original_func))
        if names and self.qos > threads:
            yield (
                f"qos is {self.qos}, and tasks that are no coroutines ({names[0]}) have {threads} threads here unless "
                "--max-threadpool-threads says otherwise: what the worker takes beyond its threads cannot be overtaken"
            )


def _queue_findings(queue: Queue) -> Iterator[tuple[str, str]]:
    arguments = queue.arguments or {}
    if arguments.get("x-queue-type", queue.type.value) != QueueType.CLASSIC.value:
        yield (
            "type",
            (
                f"the queue {queue.name!r} is a {queue.type.value} queue, taskiq-aio-pika's default, which does not have nine "
                "priorities: make it with Queue(type=QueueType.CLASSIC, max_priority=9)"
            ),
        )
        return
    number = arguments.get("x-max-priority", queue.max_priority)
    if not isinstance(number, int) or number < LEVELS_MAX:
        yield (
            "max_priority",
            (
                f"max_priority of the queue {queue.name!r} is {number!r}: RabbitMQ serves nine priorities only with "
                f"{LEVELS_MAX} or more. It cannot change a queue that it has: delete it when it is empty, or use a new name"
            ),
        )
