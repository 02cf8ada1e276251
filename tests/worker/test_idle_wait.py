"""Waiting for work alone, on a real queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fairlane import Queue
from fairlane.worker.hooks import Hooks
from fairlane.worker.idle_wait import IdleWait
from fairlane.worker.resources import ClaimRequest
from fairlane.worker.store import Exchange, WorkerStore
from fairlane.worker.threads import CallThread

from .conftest import until_async


def request(limit: int, *kinds: str) -> ClaimRequest:
    return ClaimRequest(limit, dict.fromkeys(kinds or ("default",), 3))


class Claims:
    """What a run loop is to an idle wait: takes what comes, and can be stopped."""

    def __init__(self, capacity: int = 2) -> None:
        self.accepted: list[tuple[Exchange, ClaimRequest]] = []
        self.reasons: list[str] = []
        self.wanted = request(capacity)
        self.is_draining = False

    @property
    def is_stopping(self) -> bool:
        return bool(self.reasons)

    @property
    def may_claim(self) -> bool:
        return not (self.is_stopping or self.is_draining)

    @property
    def is_idle(self) -> bool:
        return not self.accepted

    def request(self) -> ClaimRequest:
        return self.wanted

    def accept(self, exchange: Exchange, request: ClaimRequest) -> None:
        self.accepted.append((exchange, request))

    def stop(self, reason: str) -> None:
        self.reasons.append(reason)


@asynccontextmanager
async def waiting(queue: Queue, claimer: Claims, until_empty: bool = False) -> AsyncIterator[IdleWait]:
    kinds = {"default": 3, "ocr": 3}
    idle = IdleWait(WorkerStore(queue.engine, "worker", 10_000, kinds), kinds, until_empty, Hooks("worker"), lambda: None)
    thread = CallThread("wait")
    task = asyncio.create_task(idle.run(claimer, thread))
    yield idle
    task.cancel()
    thread.close()


def test_it_claims_as_soon_as_there_is_work_and_then_lets_others_claim() -> None:
    async def scenario() -> None:
        claimer = Claims()
        with Queue("memory://") as queue:
            async with waiting(queue, claimer) as idle:
                idle.claimed(0, request(2))
                await until_async(lambda: idle.is_claiming)
                assert idle.is_needed(request(2)), "others must not claim meanwhile"
                id = queue.submit("acme").id
                await until_async(lambda: claimer.accepted)
                ((exchange, accepted),) = claimer.accepted
                assert ([claim.id for claim in exchange.claims], accepted) == ([id], request(2))
                await until_async(lambda: not idle.is_needed(request(2)))

    asyncio.run(scenario())


def test_a_full_claim_needs_no_wait() -> None:
    async def scenario() -> None:
        with Queue("memory://") as queue:
            async with waiting(queue, Claims()) as idle:
                idle.claimed(2, request(2))
                idle.claimed(0, request(0))
                assert not idle.is_needed(request(2))

    asyncio.run(scenario())


def test_nothing_is_claimed_once_the_worker_stops() -> None:
    async def scenario() -> None:
        claimer = Claims()
        with Queue("memory://") as queue:
            async with waiting(queue, claimer) as idle:
                idle.claimed(0, request(2))
                await until_async(lambda: idle.is_claiming)
                claimer.stop("a signal")
                id = queue.submit("acme").id
                await until_async(lambda: not idle.is_claiming)
                assert all(exchange.claims == [] for exchange, _ in claimer.accepted)
                assert queue.document(id).state == "ready"

    asyncio.run(scenario())


def test_until_empty_stops_at_an_empty_queue_and_not_before() -> None:
    async def scenario() -> None:
        claimer = Claims()
        with Queue("memory://") as queue:
            queue.submit("acme", delay=1000)
            async with waiting(queue, claimer, until_empty=True) as idle:
                idle.claimed(0, request(2))
                await until_async(lambda: idle.is_claiming)
                await until_async(lambda: not idle.is_claiming)
                assert claimer.reasons == []
                queue.cancel(next(iter(queue.documents())).id)
                await until_async(lambda: claimer.reasons == ["the queue is empty"])

    asyncio.run(scenario())


def test_while_the_worker_is_drained_it_neither_waits_nor_claims() -> None:
    async def scenario() -> None:
        claimer = Claims()
        claimer.is_draining = True
        with Queue("memory://") as queue:
            queue.submit("acme", 1)
            async with waiting(queue, claimer) as idle:
                idle.claimed(0, request(2))
                await until_async(lambda: not idle.is_needed(request(2)))
                assert not idle.is_claiming
                assert claimer.accepted == []

    asyncio.run(scenario())


def test_a_kind_that_can_be_started_again_is_claimed_without_a_signal() -> None:
    async def scenario() -> None:
        claimer = Claims()
        with Queue("memory://") as queue:
            async with waiting(queue, claimer) as idle:
                idle.claimed(0, request(2))
                await until_async(lambda: idle.is_claiming)
                claimer.wanted = request(2, "default", "ocr")
                await until_async(lambda: not idle.is_needed(claimer.wanted))
                assert claimer.accepted == []

    asyncio.run(scenario())


def test_while_nothing_can_be_started_it_does_not_wait() -> None:
    async def scenario() -> None:
        claimer = Claims()
        claimer.wanted = ClaimRequest(0, {})
        with Queue("memory://") as queue:
            async with waiting(queue, claimer) as idle:
                idle.claimed(0, request(2))
                await until_async(lambda: not idle.is_needed(request(2)))
                assert not idle.is_claiming

    asyncio.run(scenario())
