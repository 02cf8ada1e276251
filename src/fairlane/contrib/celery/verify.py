"""Verification of Celery's settings: each that would defeat priorities becomes a sentence that names it and says what to set.

Laws:
- A worker must not hold tasks that could be overtaken: it takes from the broker only what it runs.
- A queue must have a place for each of the nine priorities.
- A finding can be accepted by the name of its setting, and only by that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from fairlane.core.errors import BadValue
from fairlane.core.policy import LEVELS_MAX

from .brokers import RABBITMQ, REDIS, Broker, broker_of

NAMES_MAX = 3  # shown of a longer list
QUORUM_SINCE = (4, 3)
SETTINGS = ("autoscale", "priority_steps", "task_acks_late", "task_queue_max_priority", "worker_prefetch_multiplier",
            "x-queue-type")  # fmt: skip


class SettingFinding(NamedTuple):
    """A setting that defeats priorities: its name, and what it is, what that does and what to set, in a sentence."""

    setting: str
    sentence: str


class Concurrency(NamedTuple):
    """How many tasks a worker takes from the broker."""

    multiplier: int
    autoscale_max: int | None = None

    @classmethod
    def of_app(cls, app: Any) -> Concurrency:
        return cls(app.conf.worker_prefetch_multiplier)

    @classmethod
    def of_worker(cls, worker: Any) -> Concurrency:
        """As its command line and the app's settings say together."""
        is_scaled = worker.max_concurrency is not None and worker.max_concurrency != worker.min_concurrency
        return cls(worker.prefetch_multiplier, worker.max_concurrency if is_scaled else None)


def validate_accept(accept: Sequence[str]) -> frozenset[str]:
    """Return the names of settings that the user takes responsibility for."""
    if isinstance(accept, str) or not set(accept) <= set(SETTINGS):
        raise BadValue("accept", accept, "a tuple of names among " + ", ".join(SETTINGS))
    return frozenset(accept)


def worker_findings(app: Any, concurrency: Concurrency) -> Iterator[SettingFinding]:
    """Yield what keeps a worker of this app from serving tasks in the order of their priorities."""
    connection = app.connection_for_read()
    broker = broker_of(connection)
    if not (broker is REDIS and app.conf.get("worker_disable_prefetch")):
        yield from prefetch_findings(app, concurrency)
    if broker is REDIS:
        yield from redis_findings(connection)
    else:
        yield from queue_findings(app.amqp.queues.consume_from.values())


def worker_advice(app: Any) -> Iterator[str]:
    """Yield what is no error, and yet hardly meant."""
    if broker_of(app.connection_for_read()) is RABBITMQ and app.conf.task_default_priority is None:
        yield (
            "tasks without a customer, those of Celery itself among them, have no priority, and RabbitMQ serves them after all "
            "others; set task_default_priority, to 9 if they shall be among the first"
        )


def prefetch_findings(app: Any, concurrency: Concurrency) -> Iterator[SettingFinding]:
    """Yield what makes a worker take tasks from the broker before it can run them."""
    if concurrency.multiplier != 1:
        taken = f"{concurrency.multiplier} tasks for each process" if concurrency.multiplier else "all tasks there are"
        yield SettingFinding(
            "worker_prefetch_multiplier",
            f"worker_prefetch_multiplier is {concurrency.multiplier}: the worker takes {taken} from the broker, and no later "
            "task can overtake those; set it to 1",
        )
    early = [task.name for task in app.tasks.values() if not task.acks_late and not task.name.startswith("celery.")]
    if early:
        names = ", ".join(sorted(early)[:NAMES_MAX]) + (" …" if len(early) > NAMES_MAX else "")
        yield SettingFinding(
            "task_acks_late",
            f"task_acks_late is {app.conf.task_acks_late}, and tasks are acknowledged when they begin ({names}): the worker "
            "takes the next ones from the broker before it has a process for them; set task_acks_late to True, and acks_late "
            "of no task to False",
        )
    if concurrency.autoscale_max is not None:
        yield SettingFinding(
            "autoscale",
            f"autoscale goes up to {concurrency.autoscale_max} processes: the worker takes as many tasks from the broker also "
            "while it has fewer; use --concurrency instead",
        )


def redis_findings(connection: Any) -> Iterator[SettingFinding]:
    """Yield what is missing for priorities on Redis."""
    steps = connection.transport_options.get("priority_steps")
    if steps is None or list(steps) != sorted(steps) or not set(range(LEVELS_MAX)) <= set(steps):
        shown = "not set, so that there are four" if steps is None else list(steps)
        yield SettingFinding(
            "priority_steps",
            f"priority_steps in broker_transport_options is {shown}: each of the nine priorities needs a step of its own, in "
            "publishers and in workers; set it to list(range(9))",
        )


def queue_findings(queues: Iterable[Any]) -> Iterator[SettingFinding]:
    """Yield what is missing for priorities on queues of RabbitMQ."""
    for queue in queues:
        if is_quorum(queue):
            continue
        maximum = queue.max_priority or (queue.queue_arguments or {}).get("x-max-priority")
        if not isinstance(maximum, int) or maximum < LEVELS_MAX:
            shown = "no x-max-priority" if maximum is None else f"x-max-priority {maximum}"
            yield SettingFinding(
                "task_queue_max_priority",
                f"the queue {queue.name!r} has {shown}: RabbitMQ serves nine priorities only with 9 or more; set "
                "task_queue_max_priority to 9, or max_priority=9 in task_queues. RabbitMQ cannot change a queue that it has: "
                "delete that when it is empty, or use another name",
            )


def is_quorum(queue: Any) -> bool:
    return bool((queue.queue_arguments or {}).get("x-queue-type") == "quorum")


def quorum_findings(queues: Iterable[Any], version: str) -> Iterator[SettingFinding]:
    """Yield quorum queues on a server that has too few priorities for them."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    for queue in queues:
        if is_quorum(queue) and numbers < QUORUM_SINCE:
            yield SettingFinding(
                "x-queue-type",
                f"the queue {queue.name!r} is a quorum queue, and this RabbitMQ is {version}: quorum queues serve nine "
                "priorities since 4.3; use a classic queue with x-max-priority 9, or a newer RabbitMQ",
            )


def publish_findings(broker: Broker, connection: Any, queue: Any) -> Iterator[SettingFinding]:
    """Yield what keeps a task that is published now from being served in the order of its priority."""
    if broker is REDIS:
        yield from redis_findings(connection)
    elif broker is RABBITMQ and queue is not None:
        yield from queue_findings([queue])
        if is_quorum(queue):
            yield from quorum_findings([queue], server_version(connection))


def server_version(connection: Any) -> str:
    """Return the version of the RabbitMQ at the other end of a connection."""
    return str(connection.connect().server_properties.get("version", ""))
