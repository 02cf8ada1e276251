"""How are `async def` handlers run? As tasks on the worker's own loop, one a slot.

Laws:
- A handler that takes longer than it may, or whose lease was lost, is cancelled.
- One that does not stop when it is cancelled keeps its slot until it does, but its document does not wait for that.
- Whatever it raises, SystemExit too, costs its document an attempt and nothing else.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable
from typing import Any, Protocol

from fairlane.blobs.files import Files
from fairlane.core.document import Outcome
from fairlane.core.retry import Backoff

from .claims import Held
from .document import Document, Report, raised, returned
from .handlers import Handler

STUBBORN_SECONDS = 3.0  # that a cancelled handler may take to clean up


class Listener(Protocol):
    """What the worker wants to hear about them."""

    def answered(self, held: Held, outcome: Outcome, seconds: float) -> None:
        """A handler has finished."""

    def reported(self, held: Held, progress: float | str | None, partial: str | None) -> None:
        """A handler told something on its way."""

    def died(self, held: Held, reason: str) -> None:
        """A handler was stopped, and this is why."""


class Running:
    """One handler at work."""

    def __init__(self, held: Held, deadline: float) -> None:
        self.held = held
        self.deadline = deadline
        self.task: asyncio.Task[None]
        self.why: str | None = None  # it was cancelled
        self.cancelled = 0.0
        self.is_given_up = False


class Coroutines:
    """All handlers on the loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, backoff: Backoff, files: Callable[[], Files], listener: Listener
    ) -> None:
        self._loop = loop
        self._backoff = backoff
        self._files = files
        self._listener = listener
        self._all: dict[int, Running] = {}

    @property
    def running(self) -> int:
        """How many slots they take."""
        return len(self._all)

    def start(self, held: Held, handler: Handler) -> None:
        """Run a document's handler."""
        held.began = self._loop.time()
        running = Running(held, held.began + handler.seconds)
        self._all[held.serial] = running
        running.task = self._loop.create_task(self._run(running, handler), context=contextvars.copy_context())

    async def _run(self, running: Running, handler: Handler) -> None:
        held = running.held
        document = Document(held.claim, lambda told: self._report(held, told), self._files)
        outcome: Outcome | None = None
        try:
            outcome = returned(document, await handler.function(document))
        except BaseException as error:  # noqa: BLE001 - SystemExit too costs one attempt and nothing else
            if running.why is None:
                outcome = raised(document, error, self._backoff, random.random())
        document.tell_last()
        del self._all[held.serial]
        began = held.began or 0.0
        if outcome is not None and not running.is_given_up:
            self._listener.answered(held, outcome, self._loop.time() - began)
        elif not running.is_given_up:
            self._listener.died(held, str(running.why))

    def _report(self, held: Held, told: Report) -> None:
        self._listener.reported(held, *told)

    def cancel(self, held: Held, why: str) -> bool:
        """Stop a handler; False if it does not run here."""
        running = self._all.get(held.serial)
        if running is not None and running.why is None:
            running.why, running.cancelled = why, self._loop.time()
            running.task.cancel()
        return running is not None

    def cancel_all(self, why: str) -> None:
        """Stop every handler."""
        for running in list(self._all.values()):
            self.cancel(running.held, why)

    def end_hung(self, now: float) -> None:
        """Stop handlers that took longer than they may; give up on those that do not stop."""
        for running in list(self._all.values()):
            if running.why is None and now > running.deadline:
                allowed = running.deadline - (running.held.began or 0.0)
                self.cancel(running.held, f"it ran for more than its {allowed:g} seconds and was stopped")
            elif running.why is not None and now > running.cancelled + STUBBORN_SECONDS and not running.is_given_up:
                running.is_given_up = True
                running.task.cancel()
                self._listener.died(running.held, f"{running.why}; it went on although it was cancelled")

    def deadline(self, soonest: float | None) -> float | None:
        """When a silent loop means that a handler hangs on it; None where no handler runs on the loop."""
        if soonest is None:
            return None
        deadlines = (running.deadline for running in self._all.values() if not running.is_given_up)
        return min((self._loop.time() + soonest, *deadlines))

    def tasks(self) -> list[asyncio.Task[Any]]:
        """What still runs."""
        return [running.task for running in self._all.values()]
