"""A step of Celery's worker: documents are taken over before their tasks begin, and settled when they end."""

from __future__ import annotations

import atexit
import contextlib
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

from celery import bootsteps, signals
from celery.utils.imports import instantiate, symbol_by_name

from fairlane.contrib.publish_check import logger

from .bridge import bridge_of
from .message import HandedOver
from .requests import SettledRequest
from .task_claims import HandedMessage, TaskClaims, failed


class CeleryLoop:
    """The loop of a worker, and what other threads want of it: it watches a socket for functions to be called."""

    def __init__(self, worker: Any, queues: list[str]) -> None:
        self._worker = worker
        self._queues = queues
        self._ahead = 0
        self._calls: deque[Callable[[], None]] = deque()
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.setblocking(False)

    def watch(self, hub: Any) -> None:
        """Begin to watch; after a lost connection the loop begins anew, with Celery's own prefetch count."""
        self._ahead = 0
        hub.add_reader(self._reader, self._run)

    def post(self, call: Callable[[], None]) -> None:
        if not self._worker.use_eventloop:  # as with gevent
            call()
            return
        self._calls.append(call)
        with contextlib.suppress(BlockingIOError):  # it is full, so the loop will come
            self._writer.send(b"x")

    def _run(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._reader.recv(65536)
        for _ in range(len(self._calls)):
            try:
                self._calls.popleft()()
            except Exception:  # noqa: BLE001 - one task must not end the worker
                logger.exception("a call on the worker's loop failed")

    def drain(self, drain: bool) -> None:
        consumer = self._worker.consumer
        for queue in self._queues:
            (consumer.cancel_task_queue if drain else consumer.add_task_queue)(queue)

    def prefetch(self, ahead: int) -> None:
        qos = self._worker.consumer.qos
        if ahead > self._ahead:
            qos.increment_eventually(ahead - self._ahead)
        elif ahead < self._ahead:
            qos.decrement_eventually(self._ahead - ahead)
        self._ahead = ahead


class TakeDocuments(bootsteps.StartStopStep):  # type: ignore[misc]
    """Gives every task a request that settles its document, and a strategy that takes the document over first."""

    requires = ("celery.worker.components:Pool",)
    _worker: Any
    _loop: CeleryLoop
    claims: TaskClaims

    def include_if(self, parent: Any) -> bool:
        return bridge_of(parent.app) is not None

    def start(self, parent: Any) -> None:
        bridge = bridge_of(parent.app)
        assert bridge is not None
        queues = list(parent.app.amqp.queues.consume_from)
        self._worker, self._loop = parent, CeleryLoop(parent, queues)
        self.claims = TaskClaims(bridge.url, parent.hostname, queues, parent.concurrency, bridge.lease_ms, self._loop)
        for task in parent.app.tasks.values():
            self._wrap(task)
        signals.task_revoked.connect(self._revoked, weak=False)
        signals.task_unknown.connect(self._unknown, weak=False)
        signals.worker_shutdown.connect(self._shut_down, weak=False)
        atexit.register(self.claims.stop)  # after a cold shutdown there is no signal
        self.claims.start()

    def register_with_event_loop(self, parent: Any, hub: Any) -> None:
        """Called when the loop begins, and again after each lost connection."""
        self._loop.watch(hub)
        self.claims.release_dropped()

    def _wrap(self, task: Any) -> None:
        base: type = symbol_by_name(task.Request)
        task.Request = type(f"Settled{base.__name__}", (SettledRequest, base), {"claims": self.claims, "worker": self._worker})
        task.Strategy = partial(self._strategy, task.Strategy)

    def _strategy(self, base: Any, task: Any, app: Any, consumer: Any, **options: Any) -> Any:
        """Return what handles a message of a task: Celery's own strategy, once the document was taken over."""
        handle, claims = instantiate(base, task, app, consumer, **options), self.claims

        def receive(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any, **more: Any) -> Any:
            handed = HandedOver.parse(message.headers)
            if handed is None:
                return handle(message, body, ack, reject, callbacks, **more)

            drop = partial(ack, logger, consumer.connection_errors)

            def begin() -> None:
                try:
                    handle(message, body, ack, reject, callbacks, **more)
                except Exception as error:  # noqa: BLE001 - whatever is wrong with a message belongs to its document
                    consumer.on_invalid_task(body, message, error)
                    if (claimed_task := claims.find(handed)) is not None:
                        claims.end(claimed_task, failed(claimed_task, consumer.hostname, error))

            if self._worker.use_eventloop:
                claims.take_over(HandedMessage(handed, begin, drop))
            else:
                call: SimpleQueue[Callable[[], None]] = SimpleQueue()
                claims.take_over(HandedMessage(handed, partial(call.put, begin), partial(call.put, drop)))
                call.get()()
            return None

        return receive

    # -- signals -------------------------------------------------------------------------------------------------------

    def _revoked(self, request: Any, expired: bool = False, **_: object) -> None:
        """Cancel the document of a task that was revoked; one that has expired fails."""
        if (claimed_task := self.claims.find(HandedOver.parse(request.headers))) is not None:
            reason = "it expired before a worker began it: its expires= has passed"
            self.claims.end(claimed_task, failed(claimed_task, self._worker.hostname, reason) if expired else None)

    def _unknown(self, message: Any, exc: Any, name: str, **_: object) -> None:
        """Fail the document of a task that this worker does not know, as Celery does."""
        handed = HandedOver.parse(message.headers)
        claims = self.claims
        if handed is not None:

            def refuse() -> None:
                if (claimed_task := claims.find(handed)) is not None:
                    claims.end(
                        claimed_task,
                        failed(claimed_task, self._worker.hostname, f"worker {self._worker.hostname} knows no task {name}"),
                    )

            claims.take_over(HandedMessage(handed, refuse, lambda: None))

    def _shut_down(self, **_: object) -> None:
        self.claims.stop()
