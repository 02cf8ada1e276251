"""Waiting for work: after a claim that found too little, wait for the store's signal on a thread, and claim at once.

Laws:
- While it waits nothing else claims.
- What it claims while the worker stops must be given back before the worker ends: see `is_claiming`.
- A kind that can be started again, because what it needs is free, is claimed at once, not when the store signals new work.
- With `until_empty` an empty queue stops the worker. What waits there of kinds that no worker takes is reported: a kind may be
  misspelt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Protocol

from .hooks import Hooks
from .resources import ClaimRequest
from .store import Exchange, WorkerStore
from .threads import CallThread

WAIT_SECONDS = 0.25  # that one wait may take
EMPTY_SECONDS = 0.05  # the same with `until_empty`: between checks whether the queue is empty
PARTIAL_SECONDS = 0.02  # the same while some kinds cannot be started
PAUSE_SECONDS_MAX = 0.05  # between claims that found nothing


class Claimer(Protocol):
    """What waiting needs of the run loop."""

    @property
    def is_stopping(self) -> bool: ...

    @property
    def may_claim(self) -> bool:
        """Whether it is neither stopping nor drained."""

    @property
    def is_idle(self) -> bool:
        """Whether it has no claims."""

    def request(self) -> ClaimRequest:
        """What it could take."""

    def accept(self, exchange: Exchange, request: ClaimRequest) -> None:
        """Take over what was claimed upon that request."""

    def stop(self, reason: str) -> None: ...


class IdleWait:
    """Whether a claim could find something, and the wait until it could."""

    def __init__(
        self, store: WorkerStore, kinds: Collection[str], until_empty: bool, hooks: Hooks, wake: Callable[[], None]
    ) -> None:
        self._store = store
        self._kinds = kinds  # that the worker takes
        self._until_empty = until_empty
        self._hooks = hooks
        self._wake = wake  # the run loop: a wait has ended
        self._is_short = asyncio.Event()  # the last claim found less than there was room for ...
        self._searched: Collection[str] = ()  # ... of these kinds
        self._fruitless = 0  # claims, one after the other, that found nothing although the store signalled work
        self.is_claiming = False

    def is_needed(self, request: ClaimRequest) -> bool:
        """Whether a claim would find nothing before the store signals new work."""
        return self.is_claiming or (self._is_short.is_set() and request.kinds.keys() <= set(self._searched))

    def claimed(self, count: int, request: ClaimRequest) -> None:
        """Note how many documents a claim found."""
        if count < request.limit:
            self._fruitless = 0 if count else self._fruitless + 1
            self._searched = request.kinds.keys()
            self._is_short.set()

    async def run(self, claimer: Claimer, thread: CallThread) -> None:
        """Wait and claim whenever there is too little, until the worker stops."""
        while not claimer.is_stopping:
            await self._is_short.wait()
            if not claimer.may_claim or not claimer.request().limit:
                self._is_short.clear()  # the run loop claims when it may again
                continue
            if self._until_empty and claimer.is_idle and await thread.call(self._store.is_empty):
                await self._report_unserved(thread)
                claimer.stop("the queue is empty")
                return
            if not self.is_needed(claimer.request()):
                self._is_short.clear()
                self._wake()
                continue
            if self._fruitless > 1:  # another worker is faster, or the work is not for us: no reason to hurry
                await asyncio.sleep(min(PAUSE_SECONDS_MAX, 0.001 * 2 ** min(self._fruitless, 10)))
            await self._wait(claimer, thread)

    async def _report_unserved(self, thread: CallThread) -> None:
        taken = ", ".join(sorted(self._kinds))
        for kind in await thread.call(self._store.unserved_kinds):
            reason = f"documents of kind {kind} wait, and no worker takes them; this one takes {taken}"
            self._hooks.emit("unserved", kind=kind, reason=reason)

    async def _wait(self, claimer: Claimer, thread: CallThread) -> None:
        request = claimer.request()  # it only grows meanwhile
        seconds = EMPTY_SECONDS if self._until_empty else WAIT_SECONDS
        if len(request.kinds) < len(self._kinds):
            seconds = PARTIAL_SECONDS
        nothing = ClaimRequest(0, request.kinds)
        self.is_claiming = True
        try:
            exchange = await thread.call(
                lambda: self._store.wait_and_claim(seconds, request.kinds, lambda: request if claimer.may_claim else nothing)
            )
        finally:
            self.is_claiming = False
            self._wake()
        if exchange is not None:
            self._is_short.clear()
            claimer.accept(exchange, request)
