"""Claims to handlers: which document begins next and where, and what becomes of it.

Laws:
- Documents begin in the order in which they were claimed, except that one of a better priority overtakes those that wait.
- No more documents run than there are slots; children get a few more ahead.
- While the worker stops nothing begins; what has not begun is released at once.
- What is stopped because the worker gives everything back is released, so that its attempt does not count.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fairlane.core.document import Continued, Failed, Outcome, Released, Retried

from .attempts import attempt_details
from .child_pool import ChildPool
from .claims import ActiveClaim, Backlog
from .context import RunContext
from .coroutines import Coroutines
from .log_records import handle_record
from .outbox import Outbox
from .output import add_to_tail, print_unlogged
from .prefetch import Prefetch

STOPPED = "the worker stopped"

_handler_log = logging.getLogger("fairlane.handler")


class Dispatcher:
    """The slots of a worker; receives the events of their handlers."""

    def __init__(
        self,
        context: RunContext,
        outbox: Outbox,
        prefetch: Prefetch,
        wake: Callable[[], None],
        on_failure: Callable[[str], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = context
        self._outbox = outbox
        self._prefetch = prefetch
        self._wake = wake  # the run loop: there may be room, or something to begin
        self._backlog = Backlog()
        self._children = ChildPool(self._loop, context.fork_server, context.slots, self, on_failure)
        self._coroutines = Coroutines(self._loop, context, self, on_failure)
        self.is_stopping = False
        self.is_releasing = False  # the grace period is over

    # -- what the run loop calls

    def add(self, claims: Iterable[ActiveClaim]) -> None:
        """Take over new claims; `dispatch` begins them."""
        for active in claims:
            if self.is_stopping:
                self._outbox.add(active, Released())
            else:
                self._backlog.add(active)

    def dispatch(self) -> None:
        """Begin documents in their order while there are free slots, and send a few more ahead to children."""
        while True:
            if not self._backlog and not self.is_stopping and self._has_free_slot():
                self._children.rebalance()  # what waits in the inbox of a busy child comes back
            if not self._backlog:
                return
            active = self._backlog.popleft()
            handler = self._context.handlers[active.claim.kind]
            is_task = handler.is_async or self._context.executor is not None
            if is_task and self._has_free_slot():
                self._coroutines.start(active, handler)
            elif is_task or not self._children.send(active, self._has_free_slot()):
                self._backlog.appendleft(active)
                return

    def _has_free_slot(self) -> bool:
        return self._children.running + self._coroutines.running < self._context.slots

    @property
    def abandoned(self) -> int:
        """How many slots are taken by handlers that went on although their documents were given up."""
        return self._coroutines.abandoned

    def end_handler(self, active: ActiveClaim, reason: str) -> None:
        """Stop the handler of a claim that was lost."""
        if active in self._backlog:
            self._backlog.remove(active)
        elif not self._coroutines.cancel(active, reason):
            self._children.end_handler(active, reason)

    def end_overdue(self, now: float) -> None:
        """Stop handlers that took longer than they may."""
        self._children.end_overdue(now, lambda active: self._context.handlers[active.claim.kind].seconds)
        self._coroutines.cancel_overdue(now)

    def async_deadline(self) -> float | None:
        """Return the first deadline of a handler that runs on the loop."""
        return self._coroutines.deadline()

    def stop(self) -> None:
        """Begin nothing more, and release what has not begun."""
        self.is_stopping = True
        unbegun = [*self._backlog, *self._children.take_back_all()]
        self._backlog.clear()
        self.add(unbegun)

    def release_all(self) -> None:
        """Stop every handler and release its document."""
        self.is_releasing = True
        self._children.end_all(STOPPED)
        self._coroutines.cancel_all(STOPPED)

    async def close(self) -> None:
        """Let go of children and tasks."""
        self._children.close()
        await self._coroutines.close()

    # -- what handlers and children report

    def began(self, active: ActiveClaim) -> None:
        if not active.is_announced:  # it may be taken back from a child that had not read it yet, and begin elsewhere
            active.is_announced = True
            self._context.hooks.emit("began", **active.facts())

    def reported(self, active: ActiveClaim, progress: float | str | None, partial: str | None) -> None:
        if not active.is_lost:
            self._context.progress.record(active.claim, progress, partial)
            self._context.hooks.emit("reported", value=progress, **active.facts())

    def printed(self, active: ActiveClaim, line: str) -> None:
        active.printed = add_to_tail(active.printed, line)
        hooks = self._context.hooks
        hooks.emit("printed", value=line, **active.facts())
        if not hooks.has_own("printed") and not _handler_log.hasHandlers():
            print_unlogged(active, line)

    def logged(self, active: ActiveClaim, fields: Mapping[str, Any]) -> None:
        handle_record(fields, active)

    def dropped(self, active: ActiveClaim, lines: int) -> None:
        self._context.hooks.emit("dropped", number=lines, **active.facts())

    def finished(self, active: ActiveClaim, outcome: Outcome, seconds: float, traceback: str | None) -> None:
        active.seconds = seconds
        self._prefetch.record(seconds)
        if isinstance(outcome, Continued) and outcome.parts:
            self._prefetch.expect_parts()
        if traceback is not None and isinstance(outcome, Retried | Failed):
            self._context.hooks.emit("raised", reason=outcome.reason, traceback=traceback, **active.facts())
            outcome = self._with_details(active, outcome, traceback)
        self._outbox.add(active, outcome)
        self.dispatch()

    def _with_details(self, active: ActiveClaim, outcome: Retried | Failed, traceback: str | None) -> Retried | Failed:
        details = attempt_details(active, self._context.hooks.worker, outcome.reason, traceback)
        return outcome._replace(details=details)

    def died(self, active: ActiveClaim, reason: str, traceback: str | None = None) -> None:
        now = self._loop.time()
        active.seconds = now - (active.began_at or now)
        after_ms = self._context.backoff.delay_ms(active.claim.attempts, random.random())
        retried: Retried | Failed = Retried(after_ms, reason)
        if active.printed or traceback is not None:
            retried = self._with_details(active, retried, traceback)
        self._outbox.add(active, Released() if self.is_releasing else retried)

    def slot_freed(self) -> None:
        self._wake()

    def returned(self, claims: Sequence[ActiveClaim]) -> None:
        if self.is_stopping:
            self.add(claims)
        else:
            self._backlog.put_back([active for active in claims if not active.is_lost])
        self._wake()

    def child_ended(self, number: int, reason: str) -> None:
        self._context.hooks.emit("child_ended", number=number, reason=reason)
        self._wake()
