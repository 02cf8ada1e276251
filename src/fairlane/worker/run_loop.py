"""One run of a worker, from its first claim to its last settlement. Its parts, in the order in which a document meets them:

`idle_wait` waits for work, `claims` knows the leases, `dispatcher` begins documents in `child_pool` or `coroutines`, `outbox`
settles them; meanwhile `lease_monitor` beats, and `background` tidies up.

Laws:
- Nothing is claimed before the heartbeat is up.
- The worker claims no more than it can start at once and the little that `prefetch` allows.
- The loop never waits for the store, for a child or for the heartbeat.
- When it stops: no more claims; what has not begun goes back at once; what runs may finish within the grace period, and goes
  back after it without its attempt being counted.
- It ends after the grace period and the time of one call to the store, even if the store never answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from contextlib import ExitStack

from fairlane.core.errors import FairlaneError
from fairlane.queue.models import WorkerState

from . import background
from .claims import Claims
from .context import RunContext
from .dispatcher import Dispatcher
from .document import describe_error
from .idle_wait import IdleWait
from .lease_monitor import LeaseMonitor
from .outbox import Outbox, Summary
from .prefetch import Prefetch
from .resources import ClaimRequest
from .store import Exchange
from .threads import CLOSE_SECONDS, CallThread

PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.02, 2.0  # between tries while the store fails
LAST_TRIES_SECONDS = 10.0  # for giving back what was released, while the store fails
LAST_CALL_SECONDS = 30.0  # for the answer to the last try; the same as one call of an engine may take


class RunLoop:
    """Settles what is finished and claims what there is room for, until it is stopped; made on a running event loop."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._wakeup = asyncio.Event()  # there is something to settle, to begin or to claim, or it is time to end
        wake = self._wakeup.set
        self._claims = Claims(context.lease_ms)
        self._prefetch = Prefetch(context.slots)
        self._outbox = Outbox(self._claims, context.progress, context.hooks, wake, context.blobs.lost)
        self._dispatcher = Dispatcher(context, self._outbox, self._prefetch, wake, self._fail)
        self._leases = LeaseMonitor(context, self._claims, self._outbox, self._dispatcher, wake, self._fail)
        self._idle = IdleWait(context.store, context.handlers.attempts(), context.until_empty, context.hooks, wake)
        self._failure: str | None = None  # why it cannot go on
        self._is_draining = False  # an operator wants no more claims
        self._is_abandoning = False  # what cannot be given back now is left to its lease
        self._is_cut_off = asyncio.Event()  # the store has had its time to answer

    async def run(self) -> Summary:
        """Work until stopped, or until the queue is empty."""
        hooks = self._context.hooks
        with ExitStack() as stack:
            store_thread, wait_thread, blob_thread = (CallThread(f"fairlane-{name}") for name in ("store", "wait", "sweep"))
            for thread in (store_thread, wait_thread, blob_thread):
                stack.callback(lambda thread: thread.close(0 if self._is_abandoning else CLOSE_SECONDS), thread)
            await background.report(self._context, self, store_thread)  # so that nothing runs on a worker that nobody sees
            hooks.emit("started")
            for job in (
                self._idle.run(self, wait_thread),
                self._leases.watch(),
                background.reclaim(self._context, store_thread),
                background.write_progress(self._context, store_thread),
                background.stay_registered(self._context, self, store_thread),
                background.sample_starts(self._context, blob_thread),
                background.collect_blobs(self._context, blob_thread),
                background.remove_lost_files(self._context, blob_thread),
            ):
                task = asyncio.create_task(job)
                task.add_done_callback(self._job_ended)
                stack.callback(task.cancel)
            await self._serve_until_cut_off(store_thread)
            if not self._is_abandoning:  # else the store is away
                await self._leave(store_thread)
        summary = self._outbox.summary()
        hooks.emit("stopped", value=summary, reason=self._failure)
        if self._failure is not None:
            raise FairlaneError(f"the worker stopped: {self._failure}; start it again, its documents went back to the queue")
        return summary

    async def _leave(self, store_thread: CallThread) -> None:
        """Write the last reports and strike the worker off; a store that does not answer soon finds out by itself."""
        progress = self._context.progress
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await store_thread.call(lambda: progress.write(progress.take_unwritten()))
                await store_thread.call(lambda: self._context.blobs.remove_lost(0))
                await store_thread.call(self._context.registration.remove)

    def _job_ended(self, job: asyncio.Task[None]) -> None:
        """Stop if a job failed: without one that watches the leases, say, the worker must not go on."""
        if not job.cancelled() and (error := job.exception()) is not None:
            self._fail(f"one of its jobs failed with {describe_error(error)}")

    async def close(self) -> None:
        """Let go of the fork server, the heartbeat and every handler."""
        self._leases.close()
        await self._dispatcher.close()

    async def _serve_until_cut_off(self, store_thread: CallThread) -> None:
        """Serve, but do not wait for ever for a store that does not answer while the worker stops."""
        serving, cut_off = (asyncio.create_task(job) for job in (self._serve(store_thread), self._is_cut_off.wait()))
        await asyncio.wait([serving, cut_off], return_when=asyncio.FIRST_COMPLETED)
        cut_off.cancel()
        if serving.done():
            serving.result()
        else:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            self._outbox.give_up_batch()
            self._abandon()

    async def _serve(self, store_thread: CallThread) -> None:
        """Settle and claim until the worker has stopped and has no claims any more."""
        failures = 0
        while True:
            self._wakeup.clear()
            self._dispatcher.dispatch()
            settlements, request = self._outbox.next_batch(), self._next_request()
            if not settlements and not request.limit:
                if self.is_stopping and self.is_idle and not self._idle.is_claiming:
                    return
                await self._wakeup.wait()
                continue
            exchange = await store_thread.call(lambda: self._context.store.exchange(settlements, request))  # noqa: B023 - awaited
            self._outbox.confirm(exchange)
            self.accept(exchange, request)
            if self._is_abandoning:
                self._abandon()
            failures = 0 if exchange.failure is None else failures + 1
            if exchange.failure is not None:
                self._context.hooks.emit("store_failed", reason=exchange.failure)
                await asyncio.sleep(self._pause_seconds(failures))

    def _pause_seconds(self, failures: int) -> float:
        """Return a pause that grows with the failures; random, so that workers do not come back all at once."""
        longest = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * 2.0 ** min(failures, 10), self._claims.lease / 4)
        return longest * random.uniform(0.5, 1)

    # -- claiming

    @property
    def is_stopping(self) -> bool:
        return self._dispatcher.is_stopping

    @property
    def is_idle(self) -> bool:
        """Whether there are no claims."""
        return not self._claims

    @property
    def may_claim(self) -> bool:
        """Whether it is neither stopping nor drained by an operator."""
        return not (self.is_stopping or self._is_draining)

    def request(self) -> ClaimRequest:
        """Return what there is room for: how many more documents, and of which kinds."""
        taken = len(self._claims) - len(self._outbox) + self._dispatcher.abandoned
        room = self._prefetch.room(taken) if self.may_claim else 0
        resources = self._context.resources
        unfinished = (active.claim.kind for active in self._claims if active.outcome is None) if resources.are_used else ()
        return resources.request(room, unfinished)

    def _next_request(self) -> ClaimRequest:
        request = self.request()
        return request._replace(limit=0) if self._idle.is_needed(request) or not self._leases.is_ready else request

    def accept(self, exchange: Exchange, request: ClaimRequest) -> None:
        """Take over new claims that were made upon that request."""
        if exchange.failure is None:
            self._idle.claimed(len(exchange.claims), request)
            self._context.resources.claimed(request, len(exchange.claims))
        if exchange.claims:
            added = self._claims.add(exchange.claims, exchange.requested_at)
            self._leases.claimed(exchange.requested_at)
            self._context.hooks.emit("claimed", number=len(added))
            self._dispatcher.add(added)
            self._dispatcher.dispatch()

    # -- the registry

    @property
    def state(self) -> WorkerState:
        """Its state as the registry shows it."""
        if self.may_claim:
            return "working"
        return "drained" if self._is_draining and self.is_idle and not self._idle.is_claiming else "draining"

    def running(self) -> dict[str, float]:
        """Return the documents whose handlers run, by id, each with the seconds since it began."""
        now = asyncio.get_running_loop().time()
        return {
            active.claim.id: now - active.began_at
            for active in self._claims
            if active.began_at is not None and active.outcome is None
        }

    def drain(self, is_draining: bool) -> None:
        """Claim no more and finish what there is, or claim again."""
        if is_draining != self._is_draining:
            self._is_draining = is_draining
            reason = "an operator drains it, and it finishes what it has" if is_draining else "an operator has undrained it"
            self._context.hooks.emit("draining" if is_draining else "undrained", reason=reason)
            self._wakeup.set()
        if self._context.until_empty and self.state == "drained" and not self.is_stopping:
            self.stop("it is drained, and was to run until there is nothing to do")

    # -- stopping

    def stop(self, reason: str) -> None:
        """Stop claiming, and let what runs finish within the grace period; called again, give it back at once."""
        if self.is_stopping:
            self._release_all()
        else:
            self._context.hooks.emit("stopping", reason=reason)
            self._dispatcher.stop()
            asyncio.get_running_loop().call_later(self._context.grace, self._release_all)
        self._wakeup.set()

    def _release_all(self) -> None:
        """Stop every handler; its document goes back without its attempt being counted."""
        if not self._dispatcher.is_releasing:
            self._dispatcher.release_all()
            loop = asyncio.get_running_loop()
            loop.call_later(LAST_TRIES_SECONDS, self._abandon)
            loop.call_later(LAST_CALL_SECONDS, self._is_cut_off.set)

    def _abandon(self) -> None:
        """Leave to its lease what could not be given back until now, except what is on its way to the store."""
        self._is_abandoning = True
        for active in self._claims:
            self._outbox.lose(
                active, "the worker stopped before the store answered; unless it is settled there, its lease will run out"
            )
        self._wakeup.set()

    def _fail(self, reason: str) -> None:
        """Give everything back: without its fork server or heartbeat a worker cannot go on, nor fork, as it has threads."""
        if self._failure is None:
            self._failure = reason
            if not self.is_stopping:
                self.stop(reason)
            self._release_all()
