"""The documents whose tasks a worker of Celery's has: taken over when a message arrives, renewed, and settled.

Laws:
- A task begins only after its document was taken over. A message whose token is gone is dropped: it was handed over again.
- The first ending of a claim counts, and is sent until the store has answered.
- Calls to the store are made in batches, on two threads: one takes over, one settles. Celery's own loop never waits for them.
- A store that is away ends no task. What could not be renewed in time may be handed over again, and is refused at its end.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from fairlane.contrib.publish_check import logger
from fairlane.core.document import ATTEMPTS_DEFAULT, Claim, Done, Failed, Outcome, Released
from fairlane.core.errors import FairlaneError, StoreError
from fairlane.encryption import load_keyring, open_store
from fairlane.engine import Engine
from fairlane.queue.models import WorkerState
from fairlane.worker.document import clean_text
from fairlane.worker.output import storable_text
from fairlane.worker.registration import LOOK_SECONDS, Registration
from fairlane.worker.resources import ClaimRequest
from fairlane.worker.store import WorkerStore

from .finish_rate import FinishRate
from .message import HandedOver, forget_retry, kind_of

SETTLE_AT_ONCE = 500
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.1, 2.0  # between tries while the store fails
STOP_SECONDS = 10.0  # for the last settlements
TRACEBACK_LENGTH_MAX = 20_000
NOTHING = ClaimRequest(0, {})


class HandedMessage(NamedTuple):
    """A message that has arrived, and what becomes of it; both functions are called on Celery's loop."""

    handed: HandedOver
    begin: Callable[[], None]
    drop: Callable[[], None]


class WorkerLoop(Protocol):
    """What is needed of Celery's worker."""

    def post(self, call: Callable[[], None]) -> None:
        """Have a function called on the worker's loop, from any thread."""

    def drain(self, drain: bool) -> None:
        """Take nothing more from the broker, or again; on the loop."""

    def prefetch(self, ahead: int) -> None:
        """Take so many tasks from the broker beyond those that run; on the loop."""


class ClaimedTask:
    """A document that was taken over, and its task."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.began_at = time.monotonic()
        self.stop: Callable[[], None] | None = None  # ends the task's process
        self.has_begun: Callable[[], bool] | None = None  # whether a process of the pool has the task; None: not received yet
        self.is_retry = False  # its retry's message is kept beside the document


class TaskClaims:
    """What one worker holds; made and used in the worker's main process."""

    def __init__(self, url: str, name: str, queues: Sequence[str], slots: int, lease_ms: int, loop: WorkerLoop) -> None:
        self._name = name
        self._lease_ms = lease_ms
        self._engine: Engine = open_store(url, keyring=load_keyring())
        kinds = {kind_of(queue): ATTEMPTS_DEFAULT for queue in queues}
        self._store = WorkerStore(self._engine, name, lease_ms, kinds)
        self._registration = Registration(self._engine, name, dict.fromkeys(kinds, slots), slots)
        self._loop = loop
        self._is_drained = False
        self._ahead = 0
        self._condition = threading.Condition()
        self._finish_rate = FinishRate()
        self._messages: deque[HandedMessage] = deque()
        self._endings: deque[tuple[ClaimedTask, Outcome | None]] = deque()  # None: it is to be cancelled
        self._tasks: dict[str, ClaimedTask] = {}
        self._renew_at = self._beat_at = 0.0
        self._is_stopping = False
        self._is_away = False
        self._threads = [
            threading.Thread(target=self._repeat, args=(step,), name=f"fairlane-{name}", daemon=True)
            for name, step in (("take-over", self._take_over_step), ("settle", self._settle_step))
        ]
        self._pid = os.getpid()

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    # -- for Celery's loop ---------------------------------------------------------------------------------------------

    def take_over(self, message: HandedMessage) -> None:
        """Take a document over, and then begin its task, or drop the message."""
        with self._condition:
            self._messages.append(message)
            self._condition.notify_all()

    def find(self, handed: HandedOver | None) -> ClaimedTask | None:
        """Return the task of a document that this worker has, under whatever token."""
        return None if handed is None else self._tasks.get(handed.id)

    def end(self, task: ClaimedTask, outcome: Outcome | None) -> None:
        """Settle a document, unless it has an ending; None cancels it."""
        with self._condition:
            if self._tasks.get(task.claim.id) is task:
                del self._tasks[task.claim.id]
                self._endings.append((task, outcome))
                self._condition.notify_all()

    def release_dropped(self) -> None:
        """Give back what Celery dropped with a lost connection: tasks that it had received, and that no process had begun.

        The broker delivers their messages again, but with the old token; so they must be handed over anew.
        """
        for task in list(self._tasks.values()):
            if task.has_begun is not None and not task.has_begun():
                self.end(task, Released())

    def stop(self) -> None:
        """Settle what has ended, give everything else back, and close the store. Called in a fork of the worker, do nothing."""
        if os.getpid() != self._pid or self._is_stopping:
            return
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()
        deadline = time.monotonic() + STOP_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    # -- the threads ---------------------------------------------------------------------------------------------------

    def _repeat(self, step: Callable[[], bool]) -> None:
        """Do steps until one is the last; after one that failed, pause and do it again."""
        pause = PAUSE_SECONDS
        while True:
            try:
                is_last = step()
            except FairlaneError as error:
                if not self._is_away:
                    self._is_away = True
                    logger.warning("the store is away; tasks go on, and are settled when it is back: %s", error)
                time.sleep(pause)
                pause = min(PAUSE_SECONDS_MAX, 2 * pause)
                continue
            pause, self._is_away = PAUSE_SECONDS, False
            if is_last:
                return

    def _take_over_step(self) -> bool:
        with self._condition:
            self._condition.wait_for(lambda: self._messages or self._is_stopping)
            messages = list(self._messages)
        if self._is_stopping:
            return True
        handed = [(message.handed.id, message.handed.token) for message in messages]
        claims = self._engine.take_over(handed, self._name, self._lease_ms)
        with self._condition:
            self._tasks |= {claim.id: ClaimedTask(claim) for claim in claims if claim is not None}
            for _ in messages:
                self._messages.popleft()
        for message, claim in zip(messages, claims, strict=True):
            self._loop.post(message.drop if claim is None else message.begin)
        return False

    def _settle_step(self) -> bool:
        with self._condition:
            seconds = min(self._renew_at, self._beat_at) - time.monotonic()
            self._condition.wait_for(lambda: self._endings or self._is_stopping, max(0.0, seconds))
            if self._is_stopping and not self._threads[0].is_alive():
                self._endings.extend((task, Released()) for task in self._tasks.values())
                self._tasks.clear()
        self._settle()
        if self._ahead != (ahead := self._finish_rate.ahead()):
            self._ahead = ahead
            self._loop.post(partial(self._loop.prefetch, ahead))
        now = time.monotonic()
        if now >= self._renew_at:
            self._renew()
            self._renew_at = now + self._lease_ms / 1000 / 4
        if now >= self._beat_at:
            self._beat(now)
            self._beat_at = now + LOOK_SECONDS
        if not self._is_stopping:
            return False
        self._threads[0].join()  # nothing is taken over any more
        with self._condition:
            if self._endings or self._tasks:
                return False
        self._registration.remove()
        self._engine.close()
        return True

    def _settle(self) -> None:
        while self._endings:
            batch = [self._endings[index] for index in range(min(len(self._endings), SETTLE_AT_ONCE))]
            settlements = [(task.claim, outcome) for task, outcome in batch if outcome is not None]
            if cancelled := [task.claim.id for task, outcome in batch if outcome is None]:
                self._engine.cancel(cancelled)
            exchange = self._store.exchange(settlements, NOTHING)
            if exchange.failure is not None:
                raise StoreError(exchange.failure)
            for claim in exchange.lost:
                logger.warning("document %s was handed over again, as its lease had run out; this ending is refused", claim.id)
            for _ in batch:
                self._endings.popleft()
            for task, outcome in batch:
                if task.is_retry and isinstance(outcome, Done | Failed):
                    forget_retry(self._engine, task.claim.id)
            self._finish_rate.finished(len(batch), time.monotonic())

    def _renew(self) -> None:
        with self._condition:
            tasks = {task.claim.id: task for task in self._tasks.values()}
        for claim in self._engine.extend([task.claim for task in tasks.values()], self._lease_ms) if tasks else ():
            task, row = tasks[claim.id], self._engine.document(claim.id)
            if row is not None and row.state == "cancelled" and task.stop is not None:
                self._loop.post(task.stop)
            with self._condition:
                self._tasks.pop(claim.id, None)

    def _beat(self, now: float) -> None:
        running = {id: now - task.began_at for id, task in list(self._tasks.items())}
        state: WorkerState = "working" if not self._is_drained else "draining" if running else "drained"
        if (failure := self._registration.beat(state, running)) is not None:
            raise StoreError(failure)
        if self._registration.is_drain_wanted != self._is_drained:
            self._is_drained = self._registration.is_drain_wanted
            self._loop.post(partial(self._loop.drain, self._is_drained))


def attempt_text(task: ClaimedTask, worker: str, reason: str, traceback: object) -> str:
    """Return the details of an attempt, in the form in which Fairlane's own workers keep them."""
    details = {
        "attempt": task.claim.attempts, "token": task.claim.token, "at": time.time_ns() // 1_000_000, "worker": worker,
        "seconds": round(time.monotonic() - task.began_at, 3), "reason": reason,
        "traceback": storable_text(str(traceback)[-TRACEBACK_LENGTH_MAX:]) if traceback else None, "output": None,
    }  # fmt: skip
    return json.dumps(details, ensure_ascii=False)


def failed(task: ClaimedTask, worker: str, error: BaseException | str, traceback: object = None) -> Failed:
    """Return the outcome of a task that has failed for good."""
    reason = clean_text(error if isinstance(error, str) else f"{type(error).__name__}: {error}")
    return Failed(reason, details=attempt_text(task, worker, reason, traceback))
