"""Handlers that the worker's loop waits for, one a slot: `async def` ones, and `def` ones that an executor runs.

Laws:
- A handler that takes longer than it may, or whose lease was lost, is cancelled.
- One that does not stop when it is cancelled keeps its slot until it does, but its document does not wait for that.
- Whatever it raises, SystemExit too, costs its document an attempt and nothing else.
- What an `async def` handler prints and logs is known to be its own by a context variable, also in tasks and threads that it
  starts.
- The time limit of a call in an executor begins when the executor begins it.
- When an executor breaks, the calls that it had each cost an attempt, as nobody knows which one broke it; the worker stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import random
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError, Future

from fairlane.core.document import Outcome

from .async_output import HandlerOutput, outside_handler, within_handler
from .claims import ActiveClaim
from .context import RunContext
from .document import ClaimedDocument, Fail, ProgressReport, Retry, describe_error, outcome_of_error, outcome_of_value
from .executor import Answer, CallLost, ExecutorUnfit
from .handlers import Handler, HandlerEvents
from .output import format_traceback

CANCEL_SECONDS_MAX = 3.0  # that a cancelled handler may take to clean up
CLOSE_SECONDS_MAX = 1.0  # the same when the worker ends


class HandlerTask:
    """One handler at work."""

    def __init__(self, active: ActiveClaim, began_at: float, handler: Handler) -> None:
        self.active = active
        self.began_at = began_at
        self.seconds_max = handler.seconds
        self.is_on_loop = handler.is_async
        self.future: Future[Answer] | None = None  # of the call in an executor
        self.task: asyncio.Task[None]
        self.cancel_reason: str | None = None
        self.cancelled_at = 0.0
        self.is_abandoned = False  # it went on although it was cancelled

    @property
    def deadline(self) -> float:
        return self.began_at + self.seconds_max

    @property
    def is_waiting(self) -> bool:
        """Whether an executor has it and has not begun it."""
        return self.future is not None and not self.future.running() and not self.future.done()


class Coroutines:
    """All handlers that the loop waits for."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: RunContext,
        events: HandlerEvents,
        on_executor_end: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._context = context
        self._events = events
        self._on_executor_end = on_executor_end
        self._is_closed = False
        self._tasks: dict[int, HandlerTask] = {}  # by serial number of the claim

    @property
    def running(self) -> int:
        """How many slots they take."""
        return len(self._tasks)

    @property
    def abandoned(self) -> int:
        """How many of these slots have no document any more."""
        return sum(running.is_abandoned for running in self._tasks.values())

    def start(self, active: ActiveClaim, handler: Handler) -> None:
        """Run a document's handler."""
        active.began_at = self._loop.time()
        running = HandlerTask(active, active.began_at, handler)
        self._tasks[active.serial] = running
        job = self._run_on_loop(running, handler) if handler.is_async else self._run_in_executor(running, handler)
        running.task = self._loop.create_task(job, context=contextvars.copy_context())
        self._events.began(active)

    async def _run_on_loop(self, running: HandlerTask, handler: Handler) -> None:
        active, output = running.active, HandlerOutput(running.active, self._events, self._loop)

        def report(report: ProgressReport) -> None:
            with outside_handler():
                self._events.reported(active, *report)

        document = ClaimedDocument(active.claim, report, self._context.files)
        outcome: Outcome | None = None
        traceback: str | None = None
        try:
            with within_handler(output):
                value = await handler.function(document)
            outcome = outcome_of_value(document, value)
        except BaseException as error:  # noqa: BLE001 - SystemExit too costs one attempt and nothing else
            if running.cancel_reason is None:
                outcome = outcome_of_error(document, error, self._context.backoff, random.random())
                traceback = None if isinstance(error, Retry | Fail) else format_traceback(error)
        document.flush_report()
        output.close()
        self._ended(running, outcome, traceback)

    def _ended(self, running: HandlerTask, outcome: Outcome | None, traceback: str | None) -> None:
        """Pass on what became of a handler; without an outcome it died."""
        del self._tasks[running.active.serial]
        if running.is_abandoned:
            self._events.slot_freed()
        elif outcome is not None:
            self._events.finished(running.active, outcome, self._loop.time() - running.began_at, traceback)
        else:
            self._events.died(running.active, str(running.cancel_reason), traceback)

    async def _run_in_executor(self, running: HandlerTask, handler: Handler) -> None:
        active, executor = running.active, self._context.executor
        assert executor is not None

        def record(report: ProgressReport) -> None:
            if active.serial in self._tasks:  # else it comes too late
                self._events.reported(active, *report)

        def report(report: ProgressReport) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(record, report)

        outcome: Outcome | None = None
        traceback: str | None = None
        try:
            running.future = executor.submit(handler.function, active.claim, report)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next document would meet it too
            self._on_executor_end(f"its executor takes no documents ({describe_error(error)})")  # so this one is released
        else:
            try:
                outcome, traceback = await self._answer(running.future)
            except Exception as error:  # noqa: BLE001 - what executors raise is theirs
                traceback = self._lost(running, error)
        self._ended(running, outcome, traceback)

    async def _answer(self, future: Future[Answer]) -> Answer:
        """Wait until a call has really ended, even if it is cancelled: until then it takes its slot."""
        ended = asyncio.Event()

        def note(_: Future[Answer]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(ended.set)

        future.add_done_callback(note)
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError:
                future.cancel()
                if self._is_closed:
                    raise
        return future.result()

    def _lost(self, running: HandlerTask, error: Exception) -> str | None:
        """Note why a call has no answer; returns the traceback if that is this document's own misfortune."""
        if isinstance(error, BrokenExecutor) and not isinstance(error, ExecutorUnfit):
            self._broke(describe_error(error))
        elif running.cancel_reason is not None:
            pass  # it was to end
        elif isinstance(error, ExecutorUnfit):
            self._on_executor_end(str(error))
        elif isinstance(error, CancelledError):  # before it began
            self._on_executor_end("its executor was shut down")
        else:
            text = str(error) if isinstance(error, CallLost) else f"its executor lost it: {type(error).__name__}"
            running.cancel_reason = text
            return format_traceback(error)
        return None

    def _broke(self, reason: str) -> None:
        """Charge every call that a broken executor had, and end the run."""
        for running in list(self._tasks.values()):
            future = running.future
            has_answer = future is not None and future.done() and not future.cancelled() and future.exception() is None
            if future is not None and not has_answer and not running.is_abandoned:
                running.is_abandoned = True
                self._events.died(running.active, "its executor broke, maybe because of another document")
        self._on_executor_end(f"its executor broke ({reason})")

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
            if running.is_waiting:
                running.began_at = now
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
        """Return the first deadline of a handler that runs on the loop itself; None if none does."""
        on_loop = (running for running in self._tasks.values() if running.is_on_loop and not running.is_abandoned)
        return min((running.deadline for running in on_loop), default=None)

    async def close(self) -> None:
        """Cancel what still runs; after a moment the loop ends without it."""
        self._is_closed = True
        tasks = [running.task for running in self._tasks.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS_MAX)
