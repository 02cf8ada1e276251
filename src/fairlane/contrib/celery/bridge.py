"""`Bridge`: every task of a customer becomes a document, which a feeder hands over to Celery's workers when one is free.

Laws:
- A task of a customer that a program publishes is a submitted document: one check. `delay` returns when the store has it.
- What a running task publishes for the same customer, or for none, is made from that task's document: no check, its priority.
- A retry is the same document. Celery's own limits decide how many there are.
- Tasks of nobody are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

from celery.utils.imports import symbol_by_name
from kombu.common import Broadcast

from fairlane.contrib.publish_check import CustomerFunction, Mark, PublishedTask, logger
from fairlane.core.document import ATTEMPTS_DEFAULT, WAITING, validate_text
from fairlane.core.errors import BadValue, Mistake, StoreError
from fairlane.core.policy import to_milliseconds
from fairlane.queue import Queue
from fairlane.queue.validation import SubmitOptions, new_ids
from fairlane.queue.workers import Fleet

from .message import HandedOver, TaskMessage, keep_retry, kind_of
from .publish import HEADER, Fairlane, call_of
from .verify import Concurrency, SettingFinding, prefetch_findings

LEASE_SECONDS = 30.0
LEASE_MS_LEAST, LEASE_MS_MOST = 1000, 24 * 3600 * 1000
TIMEOUT_SECONDS = 10.0
ATTEMPTS_MAX = 100
FEEDER = "feeder@"  # how the names of feeders begin, in the registry of workers


class Bridge(Fairlane):
    """Fairlane holds the tasks of a Celery app; make it in the module that makes the app, in place of `Fairlane`.

    `lease` is how long a worker that died keeps its documents; `attempts` is how often a task may be lost with its worker.
    """

    _purpose = "accepted"

    def __init__(
        self,
        app: Any,
        url: str,
        customer: str | CustomerFunction,
        *,
        timeout: float | timedelta = TIMEOUT_SECONDS,
        lease: float | timedelta = LEASE_SECONDS,
        attempts: int = ATTEMPTS_DEFAULT,
        accept: Sequence[str] = (),
    ) -> None:
        if isinstance(url, str) and url.startswith(("http://", "https://")):
            raise BadValue("url", url, "the store itself, as in postgresql://… or redis://…: workers settle documents there")
        if type(attempts) is not int or not 1 <= attempts <= ATTEMPTS_MAX:
            raise BadValue("attempts", attempts, f"a whole number from 1 to {ATTEMPTS_MAX}")
        self.url = url
        self.lease_ms = to_milliseconds("lease", lease, LEASE_MS_LEAST, LEASE_MS_MOST)
        self.attempts = attempts
        super().__init__(app, url, customer, when_away="fail", timeout=timeout, accept=accept)
        base: type = symbol_by_name(app.control_cls)
        app.control_cls = type(f"Fair{base.__name__}", (_Revoking, base), {})
        app.steps["worker"].add("fairlane.contrib.celery.bridge_step:TakeDocuments")

    def settings_findings(self, concurrency: Concurrency) -> list[SettingFinding]:
        """Return what makes a worker take tasks before it can run them; priorities of the broker are not needed."""
        return self.unaccepted(prefetch_findings(self.app, concurrency))

    def advice(self) -> list[str]:
        running = self.store.call(lambda queue: [record.name for record in Fleet(queue.engine).working])
        is_fed = any(name.startswith(FEEDER) for name in running)
        return [] if is_fed else ["no feeder runs, and without one every task waits; start celery -A … fairlane feed"]

    def confirmation(self) -> str:
        return "Workers take from the broker what they can run, and the store answers."

    # -- publishing ----------------------------------------------------------------------------------------------------

    def publish(self, send: Callable[..., Any], producer: Any, name: str, message: Any, options: Mapping[str, Any]) -> Any:
        """Submit the document of a task; let Celery publish what is nobody's."""
        args, kwargs, retries = call_of(message)
        headers = {**message.headers, **(options.get("headers") or {})}
        handed, running = HandedOver.parse(headers), self._running_claim()
        if retries and handed is not None:
            return self._retry(send, producer, name, message, options, handed)
        customer = self._check.customer_of(
            PublishedTask(name, args, kwargs, headers, self.function_of(name)),
            running and Mark(running.customer, running.priority),
        )
        if customer is None:
            message.headers.pop(HEADER, None)
            own_headers = {key: value for key, value in (options.get("headers") or {}).items() if key != HEADER}
            return send(producer, name, message, **{**options, "headers": own_headers})
        if options.get("priority") not in (None, self.app.conf.task_default_priority):
            _warn_of_priority(name)

        def submit(task: TaskMessage) -> None:
            self._submit(customer, task, running)

        return send(_Recorder(producer, name, self._queue_name(name, options), submit), name, message, **options)

    def _running_claim(self) -> HandedOver | None:
        """Return the claim of the task that this thread runs."""
        parent = self.app.current_worker_task
        return None if parent is None else HandedOver.parse(parent.request.headers)

    def _queue_name(self, name: str, options: Mapping[str, Any]) -> str:
        queue = self.queue_of(options)
        if self.app.conf.task_protocol != 2:
            raise Mistake(f"task_protocol is {self.app.conf.task_protocol}; the bridge holds tasks of protocol 2 only")
        if queue is None or options.get("exchange") or isinstance(queue, Broadcast):
            raise Mistake(
                f"task {name} of a customer is published to an exchange, which decides where it goes; the bridge feeds queues: "
                "name a queue, or leave out its customer"
            )
        return str(queue.name)

    def _submit(self, customer: str, message: TaskMessage, running: HandedOver | None) -> None:
        made_from = running.id if running is not None and running.customer == customer else None
        options = SubmitOptions.validate(customer, kind_of(message.queue), 1, message.delay_seconds(), made_from)
        payload = message.payload_text()
        task_id = validate_text("task_id", message.id)

        def submit(queue: Queue) -> None:
            # The id of the task, so that it is found by that; a task that replaces another one has the id of that.
            id = task_id if queue.engine.document(task_id) is None else new_ids(1)[0]
            queue.engine.submit([options.submission(id, payload, None)])

        self.store.call(submit)

    def _retry(
        self, send: Callable[..., Any], producer: Any, name: str, message: Any, options: Mapping[str, Any], handed: HandedOver
    ) -> Any:
        """Keep the message of the next attempt. A store that is away is no error: Celery would drop the task."""

        def keep(task: TaskMessage) -> None:
            try:
                self.store.call(lambda queue: keep_retry(queue.engine, handed, task))
            except StoreError as error:
                logger.warning("task %s[%s] begins again as before, without its retry: %s", name, task.id, error)

        queue = self.queue_of(options)
        queue_name = self.app.amqp.default_queue.name if queue is None else queue.name
        return send(_Recorder(producer, name, queue_name, keep), name, message, **options)

    # -- revoking ------------------------------------------------------------------------------------------------------

    def cancel(self, ids: Sequence[str]) -> None:
        """Cancel the documents of tasks that wait; workers do the rest."""

        def cancel(queue: Queue) -> None:
            rows = [row for id in ids if (row := queue.engine.document(id)) is not None]
            if waiting := [row.id for row in rows if row.state in WAITING]:
                queue.engine.cancel(waiting)

        self.store.call(cancel)


class _Recorder:
    """A producer that gives what Celery publishes with it to a function; later publications, events, go to the broker."""

    def __init__(self, producer: Any, name: str, queue: str, record: Callable[[TaskMessage], None]) -> None:
        self._producer = producer
        self._name = name
        self._queue = queue
        self._record: Callable[[TaskMessage], None] | None = record

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def publish(
        self, body: Any, *args: Any, serializer: str | None = None, headers: Mapping[str, Any] | None = None, **options: Any
    ) -> Any:
        record, self._record = self._record, None
        if record is None:
            return self._producer.publish(body, *args, serializer=serializer, headers=headers, **options)
        for name in ("exchange", "routing_key", "retry", "retry_policy", "delivery_mode", "declare"):
            options.pop(name, None)
        record(TaskMessage.encode(self._name, self._queue, body, serializer, headers or {}, options))
        return None


class _Revoking:
    """What is added to Celery's control class: a revoked task that waits here is cancelled."""

    app: Any

    def revoke(self, task_id: str | Sequence[str], *args: Any, **options: Any) -> Any:
        self.app.fairlane.cancel([task_id] if isinstance(task_id, str) else list(task_id))
        return super().revoke(task_id, *args, **options)  # type: ignore[misc]


def bridge_of(app: Any) -> Bridge | None:
    """Return the Bridge of an app."""
    found = vars(app).get("fairlane")
    return found if isinstance(found, Bridge) else None


@lru_cache(1024)  # once for each task
def _warn_of_priority(task: str) -> None:
    logger.warning("task %s is published with a priority; a document has the one that its check gives", task)
