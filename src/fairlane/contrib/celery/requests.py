"""Celery's request for a task, with what the bridge adds: however the task ends, its document is settled so.

Celery decides: what it would let run again comes back to the queue, everything else ends the document.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from billiard.einfo import ExceptionWithTraceback
from celery.exceptions import Ignore, Reject, WorkerLostError
from celery.worker import state

from fairlane.core.document import Done, Outcome, Released, Retried
from fairlane.core.retry import DELAY_MAX_MS
from fairlane.worker.document import clean_text

from .message import HandedOver, seconds_until
from .task_claims import ClaimedTask, TaskClaims, attempt_text, failed

AGAIN_MS = 1000  # until a task that rejected its message, to have it delivered again, begins again


class SettledRequest:
    """A mixin for request classes of Celery's; a task without a document is left alone."""

    claims: TaskClaims
    worker: Any
    task: Any
    worker_pid: int | None
    hostname: str
    on_success: Callable[..., Any]

    def __init__(self, message: Any, *args: Any, **options: Any) -> None:
        super().__init__(message, *args, **options)  # type: ignore[call-arg]
        self.claimed_task: ClaimedTask | None = self.claims.find(HandedOver.parse(message.headers))
        self._is_to_run_again = False
        if self.claimed_task is not None:
            self.claimed_task.is_retry = bool(message.headers.get("retries"))
            self.claimed_task.stop = lambda: self.terminate(self.worker.pool)  # type: ignore[attr-defined]
            self.claimed_task.has_begun = lambda: self.worker_pid is not None
            # Celery makes a subclass for each task, with an on_success of its own that calls none of ours.
            self.on_success = partial(self._succeed, self.on_success)

    def _end(self, outcome: Outcome) -> None:
        if self.claimed_task is not None:
            self.claims.end(self.claimed_task, outcome)

    def _succeed(self, on_success: Callable[..., Any], failed__retval__runtime: tuple[Any, Any, Any], **options: Any) -> Any:
        on_success(failed__retval__runtime, **options)
        has_failed, shown, _ = failed__retval__runtime
        if not has_failed:
            self._end(Done(json.dumps(clean_text(str(shown)))))

    def on_retry(self, exc_info: Any) -> Any:
        """Handler called if the task should be retried."""
        returned = super().on_retry(exc_info)  # type: ignore[misc]
        retry = _exception_of(exc_info)
        self._end(self._again(seconds_until(getattr(retry, "when", None)) * 1000, retry, exc_info.traceback))
        return returned

    def on_failure(self, exc_info: Any, *args: Any, **options: Any) -> Any:
        """Handler called if the task raised an exception, or its process was lost."""
        if self.claimed_task is None:
            return super().on_failure(exc_info, *args, **options)  # type: ignore[misc]
        try:
            return super().on_failure(exc_info, *args, **options)  # type: ignore[misc]
        finally:
            self._end(self._outcome_of(_exception_of(exc_info), exc_info.traceback))

    def _outcome_of(self, error: BaseException, traceback: object) -> Outcome:
        assert self.claimed_task is not None
        if isinstance(error, Ignore):
            return Done()
        if isinstance(error, Reject) and error.requeue:
            return self._again(AGAIN_MS, error, traceback)
        if isinstance(error, WorkerLostError | SystemExit | KeyboardInterrupt) and state.should_terminate:
            return Released()
        if self._is_to_run_again:
            reason = clean_text(f"{type(error).__name__}: {error}")
            return Retried(0, reason, details=attempt_text(self.claimed_task, self.hostname, reason, traceback))
        return failed(self.claimed_task, self.hostname, error, traceback)

    def _again(self, milliseconds: float, error: BaseException, traceback: object) -> Outcome:
        """Return the outcome of a task that wants to begin again: Celery counts how often it may."""
        reason = clean_text(str(error))
        details = None if self.claimed_task is None else attempt_text(self.claimed_task, self.hostname, reason, traceback)
        return Retried(min(DELAY_MAX_MS, max(1, round(milliseconds))), reason, counted=False, details=details)

    def on_timeout(self, soft: bool, timeout: float) -> Any:
        """Handler called if the task times out."""
        returned = super().on_timeout(soft, timeout)  # type: ignore[misc]
        if not soft and self.claimed_task is not None and not state.should_terminate:
            reason = f"its time limit of {timeout:g} s was exceeded"
            if self._is_to_run_again:
                self._end(Retried(0, reason, details=attempt_text(self.claimed_task, self.hostname, reason, None)))
            else:
                self._end(failed(self.claimed_task, self.hostname, reason))
        return returned

    def cancel(self, *args: Any, **options: Any) -> Any:
        """Stop the task because the worker stops, or has lost its broker: the document goes back."""
        returned = super().cancel(*args, **options)  # type: ignore[misc]
        self._end(Released())
        return returned

    def reject(self, requeue: bool = False) -> Any:
        """Reject the message. One that is to run again is fed again, so this delivery of it is done with."""
        if self.claimed_task is None or not requeue:
            return super().reject(requeue=requeue)  # type: ignore[misc]
        self._is_to_run_again = True
        return self.acknowledge()  # type: ignore[attr-defined]


def _exception_of(exc_info: Any) -> BaseException:
    error = exc_info.exception
    return error.exc if isinstance(error, ExceptionWithTraceback) else error  # type: ignore[no-any-return]
