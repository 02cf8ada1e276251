"""What does a worker do from its first claim to its last settlement? One Shift for each `run()`, on one event loop.

Laws:
- Nothing is claimed before the keeper is up.
- It holds no more than it can start at once and the little that `pace` allows; it begins documents in the order it got them,
  but for one of a better priority, which passes those that wait.
- Every claim leaves in one way: settled, or lost. What was lost is never settled.
- The loop never waits for the store, for a child or for the keeper.
- When it stops: no more claims; what was not begun goes back at once; what runs may finish within the grace period, and goes
  back after it without its attempt being counted.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import Any, NamedTuple, TypeVar

from fairlane.core.document import Done, Failed, Outcome, Released, Retried
from fairlane.core.errors import FairlaneError
from fairlane.core.retry import Backoff

from .blob_gc import Sweeping
from .child_pool import Children
from .claims import Held, Holdings, place_among
from .coroutines import Coroutines
from .document import told_of
from .handlers import Handlers
from .heartbeat_client import Keeping
from .hooks import Hooks
from .prefetch import Pace
from .progress import REPORT_SECONDS, Reports
from .store import Exchange, Store

T = TypeVar("T")
SETTLE_AT_ONCE = 500
WAIT_SECONDS = 0.25  # that one wait for work may take
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.02, 2.0  # between tries while the store fails
EMPTY_SECONDS = 0.05  # between looks whether the queue is empty
LAST_TRIES_SECONDS = 10.0  # for giving back what was released, while the store fails
TICK_SECONDS_MAX = 0.25
RECLAIM_SECONDS_MAX = 10.0


class Means(NamedTuple):
    """What a shift works with; made by the worker, let go of by the worker."""

    store: Store
    reports: Reports
    sweeping: Sweeping
    handlers: Handlers
    hooks: Hooks
    backoff: Backoff
    slots: int
    lease_ms: int
    grace: float
    until_empty: bool


class Summary(NamedTuple):
    """What became of the documents that a worker had in one run."""

    done: int = 0
    failed: int = 0
    retried: int = 0
    released: int = 0
    lost: int = 0


class Shift:
    """One run of a worker."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._hooks = means.hooks
        self._soonest = means.handlers.loop_seconds()
        self._holdings = Holdings(means.lease_ms)
        self._pace = Pace(means.slots)
        self._next: deque[Held] = deque()  # claimed, and not begun
        self._finished: deque[Held] = deque()  # and not settled
        self._open = 0  # claimed, and not finished
        self._counts: Counter[str] = Counter()
        self._is_stopping = False
        self._is_releasing = False
        self._may_find = True  # a claim may find something
        self._is_kept = False  # leases are renewed
        self._failures = 0  # of the store, one after the other
        self._fruitless = 0  # claims that found nothing although something seemed to be there
        self._is_looking = False  # what is found meanwhile is claimed, and must be given back before we go
        self._broken: str | None = None
        self._due = asyncio.Event()  # there is something to do for `_serve`
        self._short = asyncio.Event()  # there was less to claim than wanted

    async def run(self, children: Children, coroutines: Coroutines, keeping: Keeping) -> Summary:
        """Work until stopped, or until the queue is empty."""
        self._loop = asyncio.get_running_loop()
        self._children, self._coroutines, self._keeping = children, coroutines, keeping
        self._thread = ThreadPoolExecutor(1, "fairlane-store")
        self._waiter = ThreadPoolExecutor(1, "fairlane-wait")
        self._sweeper = ThreadPoolExecutor(1, "fairlane-sweep")
        self._hooks.tell("started")
        jobs = (self._look_out(), self._watch(), self._reclaim(), self._write_reports(), self._sweep())
        background = [self._loop.create_task(job) for job in jobs]
        for task in background:
            task.add_done_callback(self._job_ended)
        try:
            await self._serve()
            await self._on_thread(lambda: self._means.reports.write(self._means.reports.take()))
        finally:
            for task in background:
                task.cancel()
            self._thread.shutdown()
            self._waiter.shutdown()
            self._sweeper.shutdown()
        summary = Summary(**self._counts)
        self._hooks.tell("stopped", value=summary, reason=self._broken)
        if self._broken is not None:
            raise FairlaneError(f"the worker stopped: {self._broken}; start it again, its documents went back to the queue")
        return summary

    def _job_ended(self, job: asyncio.Task[None]) -> None:
        """A worker whose leases nobody watches, say, must not go on as if nothing had happened."""
        if not job.cancelled() and (error := job.exception()) is not None:
            self.helper_ended(f"one of its jobs failed with {told_of(error)}")

    async def _on_thread(self, call: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._thread, call)

    # -- the store ---------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        """Settle what is finished and claim what there is room for, until it is time to go."""
        while True:
            self._due.clear()
            self._begin()
            batch = [self._finished.popleft() for _ in range(min(len(self._finished), SETTLE_AT_ONCE))]
            limit = self._room()
            if not batch and not limit:
                if self._is_stopping and not self._holdings and not self._is_looking:
                    return
                await self._due.wait()
                continue
            settlements = [(held.claim, held.outcome or Released()) for held in batch]
            visit = await self._on_thread(lambda: self._means.store.exchange(settlements, limit))  # noqa: B023 - awaited
            self._settled(batch[: visit.settled], {(one.id, one.token) for one in visit.lost})
            self._finished.extendleft(reversed(batch[visit.settled :]))
            self._take(visit, limit)
            if visit.failure is not None:
                await self._pause(visit.failure)
            else:
                self._failures = 0

    def _room(self) -> int:
        if self._is_stopping or not self._may_find or not self._is_kept:
            return 0
        return self._pace.room(self._open)

    def _take(self, visit: Exchange, limit: int) -> None:
        """New claims; if there were fewer than wanted, look out for more."""
        if limit and visit.failure is None and len(visit.claims) < limit:
            self._may_find = False
            self._fruitless = 0 if visit.claims else self._fruitless + 1
            self._short.set()
        taken = self._holdings.take(visit.claims, visit.asked)
        self._keeping.hold(taken)
        self._open += len(taken)
        if taken:
            is_old = self._loop.time() - visit.asked > self._holdings.margin / 2  # much of the lease went by on the way
            if self._soonest is not None or is_old:
                self._beat()  # before something can keep the loop from telling: a hook, a handler, a signal
            self._hooks.tell("claimed", number=len(taken))
        if self._is_stopping:
            self._release(taken)
        else:
            for held in taken:
                self._next.insert(place_among(self._next, held), held)

    def _settled(self, batch: Sequence[Held], lost: set[tuple[str, int]]) -> None:
        self._keeping.drop(batch)
        for held in batch:
            self._holdings.drop(held)
            if (held.claim.id, held.claim.token) in lost:
                self._tell_lost(held, "the store refused its outcome: the lease had been lost, or the document was cancelled")
            else:
                self._tell_settled(held)

    def _tell_settled(self, held: Held) -> None:
        claim, outcome = held.claim, held.outcome
        word, reason = _word(held)
        self._counts[word] += 1
        self._means.reports.finished(claim, isinstance(outcome, Done))
        facts = _facts(held)
        if held.printed:
            self._hooks.tell("printed", value=held.printed, **facts)
        name = "finished" if word in ("done", "released") else "unfinished"
        self._hooks.tell(name, outcome=word, reason=reason, seconds=held.seconds, **facts)

    async def _pause(self, failure: str) -> None:
        """The store failed: wait, longer each time, and at random so that workers do not come back all at once."""
        self._hooks.tell("store_failed", reason=failure)
        self._failures += 1
        longest = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * 2 ** min(self._failures, 10), self._holdings.lease / 4)
        await asyncio.sleep(longest * random.uniform(0.5, 1))

    async def _look_out(self) -> None:
        """Wait for work when there is less than wanted; and see whether the queue is empty, if that is the end."""
        while not self._is_stopping:
            await self._short.wait()
            if self._means.until_empty and not self._holdings and await self._off_loop(self._means.store.is_empty):
                self.stop("the queue is empty")
                return
            if self._fruitless > 1:  # somebody else is faster, or what is there is not for us: no reason to hurry
                await asyncio.sleep(min(0.05, 0.001 * 2 ** min(self._fruitless, 10)))
            seconds = EMPTY_SECONDS if self._means.until_empty else WAIT_SECONDS
            room = self._pace.room(self._open)  # it only grows while nobody else claims
            self._is_looking = True
            try:
                visit = await self._off_loop(
                    lambda: self._means.store.await_and_claim(seconds, lambda: 0 if self._is_stopping else room)  # noqa: B023
                )
            finally:
                self._is_looking = False
            if visit is not None:
                self._short.clear()
                self._may_find = True
                self._take(visit, room)
                self._begin()
            self._due.set()

    async def _off_loop(self, look: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._waiter, look)

    async def _reclaim(self) -> None:
        """Give back what dead workers held; every worker does, at random times."""
        every = min(RECLAIM_SECONDS_MAX, self._holdings.lease / 4)
        while True:
            await asyncio.sleep(every * random.uniform(0.5, 1.5))
            failure = await self._on_thread(self._means.store.reclaim)
            if failure is not None:
                self._hooks.tell("store_failed", reason=failure)

    async def _sweep(self) -> None:
        """Remove files that no document owns, from time to time."""
        sweeping = self._means.sweeping
        while True:
            await asyncio.sleep(sweeping.pause_seconds * random.uniform(0.5, 1.5))
            failure = await self._loop.run_in_executor(self._sweeper, sweeping.slice)
            if failure is not None:
                self._hooks.tell("store_failed", reason=failure)

    async def _write_reports(self) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            if due := self._means.reports.take():
                await self._on_thread(lambda: self._means.reports.write(due))

    # -- handlers ----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Give documents to handlers in the order they came, as long as there are slots, and a little ahead."""
        while self._next or self._share_out():
            held = self._next.popleft()
            handler = self._means.handlers[held.claim.kind]
            is_free = self._children.running + self._coroutines.running < self._means.slots
            if handler.is_async and is_free:
                self._coroutines.start(held, handler)
                self.began(held)
            elif handler.is_async or not self._children.give(held, is_free):
                self._next.appendleft(held)
                return

    def _share_out(self) -> bool:
        is_free = self._children.running + self._coroutines.running < self._means.slots
        return is_free and not self._is_stopping and self._children.share_out()

    def began(self, held: Held) -> None:
        """A handler has its document."""
        if not held.has_begun:  # it may be taken back from a child that had not looked at it yet, and begin elsewhere
            held.has_begun = True
            self._hooks.tell("began", **_facts(held))

    def answered(self, held: Held, outcome: Outcome, seconds: float) -> None:
        """A handler has finished."""
        held.seconds = seconds
        self._pace.ran(seconds)
        self._finish(held, outcome)
        self._begin()

    def died(self, held: Held, reason: str) -> None:
        """A handler was stopped, or its process died: one attempt of one document."""
        after_ms = self._means.backoff.delay_ms(held.claim.attempts, random.random())
        held.seconds = self._loop.time() - (held.began or self._loop.time())
        self._finish(held, Released() if self._is_releasing else Retried(after_ms, reason))

    def _finish(self, held: Held, outcome: Outcome) -> None:
        if not held.is_lost and held.outcome is None:
            held.outcome = outcome
            self._open -= 1
            self._finished.append(held)
        self._due.set()

    def came_back(self, held: list[Held]) -> None:
        """These were given to a child and not begun."""
        if self._is_stopping:
            self._release(held)
        else:
            for one in reversed(held):
                if not one.is_lost:
                    passing = takewhile(lambda other: other.passes(one), self._next)  # noqa: B023 - counted at once
                    self._next.insert(sum(1 for _ in passing), one)
        self._due.set()

    def reported(self, held: Held, progress: float | str | None, partial: str | None) -> None:
        """A handler told something on its way."""
        if not held.is_lost:
            self._means.reports.note(held.claim, progress, partial)
            self._hooks.tell("reported", value=progress, **_facts(held))

    def child_ended(self, number: int, reason: str) -> None:
        """A child is gone; its slot is free."""
        self._hooks.tell("child_ended", number=number, reason=reason)
        self._due.set()

    # -- leases ------------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """See to it that nothing runs longer than it may, nor beyond its lease."""
        tick = min(TICK_SECONDS_MAX, self._holdings.margin / 4)
        while True:
            now = self._loop.time()
            self._beat()
            for held in self._holdings.overdue(now):
                self._lose(held, "its lease could not be renewed in time")
            self._children.end_hung(now, lambda held: self._means.handlers[held.claim.kind].seconds)
            self._coroutines.end_hung(now)
            await asyncio.sleep(tick)

    def _beat(self) -> None:
        """Tell the keeper that the loop is well, and what is held."""
        self._keeping.beat(self._coroutines.deadline(self._soonest))

    def keeper_ready(self) -> None:
        """The keeper is up."""
        self._is_kept = True
        self._due.set()

    def renewed(self, asked: float, upto: int, lost: Sequence[int]) -> None:
        """The keeper renewed the leases, but for those that were lost."""
        self._holdings.renewed(asked, upto)
        for serial in lost:
            held = self._holdings.get(serial)
            if held is not None and held.outcome is None:  # what is being settled is for the store to decide
                self._lose(held, "its lease had been lost, or it was cancelled")

    def renewal_failed(self, reason: str) -> None:
        """The keeper could not ask the store; it tries again."""
        self._hooks.tell("store_failed", reason=reason)

    def _lose(self, held: Held, reason: str) -> None:
        """A claim is not ours any more: nothing of it is settled, and its handler is stopped."""
        if held.outcome is not None and held not in self._finished:
            return  # on its way to the store, which decides
        self._holdings.drop(held)
        self._keeping.drop([held])
        self._tell_lost(held, reason)
        if held.outcome is not None:
            self._finished.remove(held)
        else:
            self._open -= 1
            if held in self._next:
                self._next.remove(held)
            elif not self._coroutines.cancel(held, reason):
                self._children.end_handler(held, reason)
        self._due.set()

    def _tell_lost(self, held: Held, reason: str) -> None:
        held.is_lost = True
        self._counts["lost"] += 1
        self._means.reports.finished(held.claim, is_done=False)
        self._hooks.tell("lost", reason=reason, **_facts(held))

    # -- stopping ----------------------------------------------------------------------------------------------------

    def stop(self, reason: str, now: bool = False) -> None:
        """Stop claiming and finish what runs within the grace period; a second time, or with `now`, give it back at once."""
        is_second, self._is_stopping = self._is_stopping, True
        if not is_second:
            self._hooks.tell("stopping", reason=reason)
            waiting = [*self._next, *self._children.take_back_all()]
            self._next.clear()
            self._release(waiting)
            self._loop.call_later(self._means.grace, self._give_back)
        if is_second or now:
            self._give_back()
        self._due.set()

    def _give_back(self) -> None:
        """Stop every handler; its document goes back without its attempt being counted."""
        if not self._is_releasing:
            self._is_releasing = True
            self._children.end_all("the worker stopped")
            self._coroutines.cancel_all("the worker stopped")
            self._loop.call_later(LAST_TRIES_SECONDS, self._abandon)

    def _abandon(self) -> None:
        """What could not be given back until now is left to its lease."""
        for held in self._holdings:
            self._holdings.drop(held)
            self._tell_lost(held, "the worker stopped and could not give it back; its lease will run out")
        self._finished.clear()
        self._due.set()

    def _release(self, waiting: Iterable[Held]) -> None:
        for held in waiting:
            self._finish(held, Released())

    def helper_ended(self, reason: str) -> None:
        """Without its template or its keeper a worker cannot go on; it may not fork again, as it has threads by now."""
        if self._broken is None:
            self._broken = reason
            self.stop(reason, now=True)


def _facts(held: Held) -> dict[str, Any]:
    """What every event about a document says."""
    claim = held.claim
    return {
        "id": claim.id, "customer": claim.customer, "kind": claim.kind, "priority": claim.priority, "attempt": claim.attempts,
        "token": claim.token,
    }  # fmt: skip


def _word(held: Held) -> tuple[str, str | None]:
    """What the store made of an outcome, and why."""
    match held.outcome:
        case Done():
            return "done", None
        case Failed(reason=reason):
            return "failed", reason
        case Retried(reason=reason):
            return ("failed" if held.claim.attempts >= held.claim.attempts_max else "retried"), reason
        case _:
            return "released", None
