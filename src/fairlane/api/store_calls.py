"""Calls of the store: made on threads, and refused at once while the store is away.

Laws:
- The store is suspected when a call could not reach it, or when calls wait and none is answered for some ticks of a clock that
  stands still with this process. Then a small read is sent: if it fails, or is not answered within a second, the store is away.
- While it is away calls fail at once: those that wait, whose outcome is not known, and new ones, which change nothing.
- Calls take turns between those for whom they are made, and searches, which may take a second each, have threads of their own:
  nobody's calls wait behind all calls of somebody else.
- A thread whose call hangs is given up and replaced, so that none is missing when the store is back. A small read, sent again
  and again, finds out when that is.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeVar

from fairlane.core.errors import (
    StoreBusy,
    StoreError,
    StoreFrozen,
    StoreFull,
    StoreUnfit,
    StoreUnreachable,
)
from fairlane.procs.threads import DaemonThreads

from .limits import ServiceLimits
from .logging import Log
from .shares import HOLDER
from .turns import Turns

THREADS, SEARCH_THREADS = 9, 3  # fewer than an engine has connections, so that one is left for the probe when they all hang
UNLIMITED = 2**30
TICK_SECONDS, SILENT_TICKS = 0.25, 4  # without an answer
PROBE_SECONDS = 1.0  # that the first small read may take
PROBE_EVERY_SECONDS = 2.0  # another one while the store is away: the connection of the first may be dead for good
PROBES_MAX = 4  # at once
PAUSE_SECONDS = 0.25  # after a small read that failed
CLOSE_SECONDS = 2.0
ANSWERS = (StoreBusy, StoreFull, StoreFrozen, StoreUnfit)  # errors that a store gives which is there
REFUSED = "the store is away; nothing was changed"
UNANSWERED = "the store has not answered and counts as away; whether the call took effect is not known"

P = ParamSpec("P")
T = TypeVar("T")


class _Pool(NamedTuple):
    """Threads, and the order in which calls get one."""

    threads: DaemonThreads
    turns: Turns


class StoreCalls:
    """Makes calls of the store, and watches whether it answers."""

    def __init__(self, probe: Callable[[], object], log: Log, limits: ServiceLimits) -> None:
        self._probe = probe  # a small read
        self._log = log
        self._limits = limits
        self._waiting: dict[asyncio.Future[Any], Future[Any]] = {}  # what the loop waits for, and the call on its thread
        self._answers = 0
        self._suspicion = asyncio.Event()
        self._reason = ""
        self._back = asyncio.Event()
        self._back.set()
        self._away_at = float("-inf")  # when it was last seen to be away, on the monotonic clock
        self._probe_threads = DaemonThreads(PROBES_MAX, "fairlane-probe")
        self._probes: set[asyncio.Future[bool]] = set()
        self._open_threads()

    def _open_threads(self) -> None:
        limits = self._limits
        self._ordered = _Pool(DaemonThreads(1, "fairlane-submit"), Turns(UNLIMITED, UNLIMITED))
        self._general = _Pool(DaemonThreads(THREADS, "fairlane-http"), Turns(THREADS, limits.store_calls_a_customer))
        search_turns = Turns(SEARCH_THREADS, limits.searches_a_customer)
        self._searching = _Pool(DaemonThreads(SEARCH_THREADS, "fairlane-search"), search_turns)
        self._pools = (self._ordered, self._general, self._searching)

    @property
    def is_away(self) -> bool:
        return not self._back.is_set()

    def was_away_since(self, moment: float) -> bool:
        """Whether the store was away at any time since a moment of the monotonic clock."""
        return self.is_away or self._away_at > moment

    async def until_back(self) -> None:
        """Wait while the store is away."""
        await self._back.wait()

    def refuse_if_away(self) -> None:
        """Raise StoreUnreachable if the store is away."""
        if self.is_away:
            raise StoreUnreachable(REFUSED)

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that uses the store, on a thread, when it is the turn of the current holder."""
        return await self._call(self._general, partial(function, *args, **kwargs))

    async def search(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that reads much, on one of the few threads for it."""
        return await self._call(self._searching, partial(function, *args, **kwargs))

    async def call_in_order(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function on the thread whose calls follow each other."""
        return await self._call(self._ordered, partial(function, *args, **kwargs))

    async def _call(self, pool: _Pool, function: Callable[[], T]) -> T:
        self.refuse_if_away()
        holder = HOLDER.get()
        await pool.turns.take(holder)
        if pool not in self._pools:  # the store went away between the turn and now
            raise StoreUnreachable(REFUSED)
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()
        call = pool.threads.submit(function)
        self._waiting[outcome] = call
        call.add_done_callback(partial(_pass_on, loop, outcome, partial(pool.turns.give_back, holder)))
        try:
            value = await outcome
        except asyncio.CancelledError:
            call.cancel()  # if it has not begun
            raise
        except StoreError as error:  # no sign of life
            if isinstance(error, StoreUnreachable):
                self._reason = str(error)
                self._suspicion.set()
            raise
        except Exception:
            self._answers += 1
            raise
        finally:
            self._waiting.pop(outcome, None)
        self._answers += 1
        return value

    # -- watching ------------------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Find out when the store goes away and when it is back; until cancelled."""
        while True:
            if not self.is_away:
                await self._until_suspected()
                if await self._is_answering(PROBE_SECONDS):
                    continue
                self._set_away()
            while not await self._is_answering(PROBE_EVERY_SECONDS):
                await asyncio.sleep(PAUSE_SECONDS)
            self._away_at = time.monotonic()
            self._back.set()
            self._log.event("store back")

    async def _until_suspected(self) -> None:
        self._suspicion.clear()
        self._reason = "it has not answered"
        answers, silent_ticks = self._answers, 0
        while silent_ticks < SILENT_TICKS:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await self._suspicion.wait()
                return
            is_silent = self._waiting and self._answers == answers
            answers, silent_ticks = self._answers, silent_ticks + 1 if is_silent else 0

    async def _is_answering(self, seconds: float) -> bool:
        """Send a small read, unless too many are under way; whether one of them is answered within that time."""
        self._probes = {probe for probe in self._probes if not probe.done()}  # an old answer says nothing of now
        if len(self._probes) < PROBES_MAX:
            self._probes.add(asyncio.wrap_future(self._probe_threads.submit(self._is_probe_answered)))
        done, self._probes = await asyncio.wait(self._probes, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return any(probe.result() for probe in done)

    def _is_probe_answered(self) -> bool:
        try:
            self._probe()
        except StoreError as error:
            self._reason = str(error)
            return isinstance(error, ANSWERS)
        except Exception:  # noqa: BLE001 - it is not away; calls will show what is wrong
            return True
        return True

    def _set_away(self) -> None:
        """Fail every call that waits, and leave the threads that hang."""
        self._back.clear()
        self._log.event("store away", told=self._reason[:500])
        for outcome, call in self._waiting.items():
            error = StoreUnreachable(REFUSED) if call.cancel() else StoreError(UNANSWERED)
            if not outcome.done():
                outcome.set_exception(error)
        self._waiting.clear()
        for pool in self._pools:
            pool.turns.fail(StoreUnreachable(REFUSED))
            pool.threads.close()
        self._open_threads()

    def close(self) -> None:
        """End the threads; those whose calls hang are left."""
        self._probe_threads.close()
        seconds = 0.0 if self.is_away else CLOSE_SECONDS
        for pool in self._pools:
            pool.threads.close(seconds)


def _pass_on(
    loop: asyncio.AbstractEventLoop, outcome: asyncio.Future[T], give_back: Callable[[], None], call: Future[T]
) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(_settle, outcome, give_back, call)


def _settle(outcome: asyncio.Future[T], give_back: Callable[[], None], call: Future[T]) -> None:
    give_back()  # also if nobody waits for the outcome any more: until now the thread was occupied
    if outcome.done():
        return
    if call.cancelled():
        outcome.cancel()
    elif (error := call.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(call.result())
