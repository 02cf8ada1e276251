"""Running `async def` handlers: tasks on the worker's own loop, one a slot.

Laws:
- A handler that takes longer than it may, or whose lease was lost, is cancelled.
- One that does not stop when it is cancelled keeps its slot until it does, but its document does not wait for that.
- Whatever it raises, SystemExit too, costs its document an attempt and nothing else.
- What it prints and logs is known to be its own by a context variable, also in the tasks and threads that it starts.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable

from fairlane.blobs.files import Files
from fairlane.core.document import Outcome
from fairlane.core.retry import Backoff

from .async_output import HandlerOutput, outside_handler, within_handler
from .claims import ActiveClaim
from .document import ClaimedDocument, Fail, ProgressReport, Retry, outcome_of_error, outcome_of_value
from .handlers import Handler, HandlerEvents
from .output import format_traceback

CANCEL_SECONDS_MAX = 3.0  # that a cancelled handler may take to clean up
CLOSE_SECONDS_MAX = 1.0  # the same when the worker ends


class HandlerTask:
    """One handler at work."""

    def __init__(self, active: ActiveClaim, began_at: float, seconds_max: float) -> None:
        self.active = active
        self.began_at = began_at
        self.seconds_max = seconds_max
        self.task: asyncio.Task[None]
        self.cancel_reason: str | None = None
        self.cancelled_at = 0.0
        self.is_abandoned = False  # it went on although it was cancelled

    @property
    def deadline(self) -> float:
        return self.began_at + self.seconds_max


class Coroutines:
    """All handlers on the loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, backoff: Backoff, files: Callable[[], Files], events: HandlerEvents
    ) -> None:
        self._loop = loop
        self._backoff = backoff
        self._files = files
        self._events = events
        self._tasks: dict[int, HandlerTask] = {}  # by serial number of the claim

    @property
    def running(self) -> int:
        """How many slots they take."""
        return len(self._tasks)

    def start(self, active: ActiveClaim, handler: Handler) -> None:
        """Run a document's handler."""
        active.began_at = self._loop.time()
        running = HandlerTask(active, active.began_at, handler.seconds)
        self._tasks[active.serial] = running
        running.task = self._loop.create_task(self._run(running, handler), context=contextvars.copy_context())
        self._events.began(active)

    async def _run(self, running: HandlerTask, handler: Handler) -> None:
        active, output = running.active, HandlerOutput(running.active, self._events, self._loop)

        def report(report: ProgressReport) -> None:
            with outside_handler():
                self._events.reported(active, *report)

        document = ClaimedDocument(active.claim, report, self._files)
        outcome: Outcome | None = None
        traceback: str | None = None
        try:
            with within_handler(output):
                value = await handler.function(document)
            outcome = outcome_of_value(document, value)
        except BaseException as error:  # noqa: BLE001 - SystemExit too costs one attempt and nothing else
            if running.cancel_reason is None:
                outcome = outcome_of_error(document, error, self._backoff, random.random())
                traceback = None if isinstance(error, Retry | Fail) else format_traceback(error)
        document.flush_report()
        output.close()
        del self._tasks[active.serial]
        if running.is_abandoned:
            return
        if outcome is not None:
            self._events.finished(active, outcome, self._loop.time() - running.began_at, traceback)
        else:
            self._events.died(active, str(running.cancel_reason))

    def cancel(self, active: ActiveClaim, reason: str) -> bool:
        """Stop a handler; False if it does not run here."""
        running = self._tasks.get(active.serial)
        if running is not None and running.cancel_reason is None:
            running.cancel_reason, running.cancelled_at = reason, self._loop.time()
            running.task.cancel()
        return running is not None

    def cancel_all(self, reason: str) -> None:
        """Stop every handler."""
        for running in list(self._tasks.values()):
            self.cancel(running.active, reason)

    def cancel_overdue(self, now: float) -> None:
        """Stop handlers that took longer than they may; give up on those that do not stop."""
        for running in list(self._tasks.values()):
            if running.cancel_reason is None and now > running.deadline:
                self.cancel(running.active, f"it ran for more than its {running.seconds_max:g} seconds and was stopped")
            elif running.cancel_reason is not None and now > running.cancelled_at + CANCEL_SECONDS_MAX:
                self._abandon(running)

    def _abandon(self, running: HandlerTask) -> None:
        if not running.is_abandoned:
            running.is_abandoned = True
            running.task.cancel()
            self._events.died(running.active, f"{running.cancel_reason}; it went on although it was cancelled")

    def deadline(self) -> float | None:
        """Return the first deadline of a running handler; None if none runs."""
        return min((running.deadline for running in self._tasks.values() if not running.is_abandoned), default=None)

    async def close(self) -> None:
        """Cancel what still runs; after a moment the loop ends without it."""
        tasks = [running.task for running in self._tasks.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS_MAX)
