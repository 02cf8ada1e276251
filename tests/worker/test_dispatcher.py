"""The dispatcher alone, with `async def` handlers: order, slots, time limits and stopping."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fairlane import Queue
from fairlane.core.document import Done, Outcome, Released, Retried
from fairlane.worker import Document, Event
from fairlane.worker.claims import ActiveClaim, Claims
from fairlane.worker.dispatcher import Dispatcher
from fairlane.worker.handlers import Handlers, make_handler
from fairlane.worker.hooks import Hooks
from fairlane.worker.outbox import Outbox
from fairlane.worker.prefetch import Prefetch

from .conftest import CLAIM, make_context, until_async, yield_loop


class Slots:
    """A dispatcher with two slots, whose handlers wait until they are allowed to end."""

    def __init__(self, queue: Queue, heartbeat: socket.socket) -> None:
        self.begun: list[str] = []
        self.may_end: set[str] = set()
        self.events: list[Event] = []
        handlers, hooks = Handlers(), Hooks("worker")
        handlers.add(make_handler("default", self.wait, 3, 5.0))
        handlers.add(make_handler("stubborn", self.ignore_cancel, 3, 5.0))
        hooks.add("*", self.events.append)
        context = make_context(queue, heartbeat, handlers, hooks)
        self.claims = Claims(60_000)
        self.outbox = Outbox(self.claims, context.progress, hooks, lambda: None)
        self.prefetch = Prefetch(2)
        self.dispatcher = Dispatcher(context, self.outbox, self.prefetch, lambda: None, self.fail)

    def fail(self, reason: str) -> None:
        raise AssertionError(reason)

    async def wait(self, document: Document) -> str:
        self.begun.append(document.id)
        while document.id not in self.may_end:
            await yield_loop()
        return document.id

    async def ignore_cancel(self, document: Document) -> None:
        self.begun.append(document.id)
        while document.id not in self.may_end:
            try:
                await yield_loop()
            except asyncio.CancelledError:
                continue

    def add(self, *ids: str, priority: int = 9, kind: str = "default") -> list[ActiveClaim]:
        claims = [CLAIM._replace(id=id, priority=priority, kind=kind) for id in ids]
        added = self.claims.add(claims, requested_at=100.0)
        self.dispatcher.add(added)
        self.dispatcher.dispatch()
        return added

    async def until_begun(self, *ids: str) -> None:
        await until_async(lambda: self.begun == list(ids), f"the begin of {ids}")

    async def outcomes(self, count: int) -> dict[str, Outcome]:
        """Wait for so many outcomes."""
        await until_async(lambda: len(self.outbox) == count, f"{count} outcomes")
        return {claim.id: outcome for claim, outcome in self.outbox.next_batch()}


@asynccontextmanager
async def slots() -> AsyncIterator[Slots]:
    ours, theirs = socket.socketpair()
    with Queue("memory://") as queue, ours, theirs:
        made = Slots(queue, ours)
        yield made
        made.may_end.update(made.begun)
        await made.dispatcher.close()


def test_documents_begin_in_order_as_slots_become_free() -> None:
    async def scenario() -> None:
        async with slots() as two:
            two.add("a", "b", "c", "d")
            await two.until_begun("a", "b")
            two.add("better", priority=1)
            two.may_end.add("a")
            await two.until_begun("a", "b", "better")
            two.may_end |= {"b", "better", "c", "d"}
            outcomes = await two.outcomes(5)
            assert outcomes == {id: Done(f'"{id}"') for id in ("a", "b", "better", "c", "d")}
            assert two.begun == ["a", "b", "better", "c", "d"]
            assert [event.id for event in two.events if event.name == "began"] == two.begun
            assert two.prefetch.ahead() > 0

    asyncio.run(scenario())


def test_a_handler_that_takes_too_long_is_cancelled_and_costs_an_attempt() -> None:
    async def scenario() -> None:
        async with slots() as two:
            two.add("a")
            await two.until_begun("a")
            now = asyncio.get_running_loop().time()
            deadline = two.dispatcher.async_deadline()
            assert deadline is not None
            assert now < deadline <= now + 5
            two.dispatcher.end_overdue(deadline + 1)
            assert await two.outcomes(1) == {"a": Retried(0, "it ran for more than its 5 seconds and was stopped")}

    asyncio.run(scenario())


def test_a_handler_that_does_not_stop_keeps_its_slot_but_not_its_document() -> None:
    async def scenario() -> None:
        async with slots() as two:
            two.add("a", kind="stubborn")
            await two.until_begun("a")
            later = asyncio.get_running_loop().time() + 1000
            two.dispatcher.end_overdue(later)
            await yield_loop()
            assert len(two.outbox) == 0
            two.dispatcher.end_overdue(later)
            (outcome,) = (await two.outcomes(1)).values()
            assert isinstance(outcome, Retried)
            assert outcome.reason.endswith("; it went on although it was cancelled")
            assert two.dispatcher.async_deadline() is None
            two.add("b", "c")
            await two.until_begun("a", "b")

    asyncio.run(scenario())


def test_the_handler_of_a_lost_claim_is_cancelled_or_never_begins() -> None:
    async def scenario() -> None:
        async with slots() as two:
            first, _, third = two.add("a", "b", "c")
            await two.until_begun("a", "b")
            for active in (third, first):
                two.outbox.lose(active, "its lease ran out")
                two.dispatcher.end_handler(active, "its lease ran out")
            two.may_end.add("b")
            assert await two.outcomes(1) == {"b": Done('"b"')}
            two.add("d")
            await two.until_begun("a", "b", "d")
            assert (first.outcome, third.outcome) == (None, None)

    asyncio.run(scenario())


def test_a_stop_releases_what_has_not_begun_and_a_second_step_what_runs() -> None:
    async def scenario() -> None:
        async with slots() as two:
            two.add("a", "b", "c")
            await two.until_begun("a", "b")
            two.dispatcher.stop()
            two.add("d")
            assert await two.outcomes(2) == {"c": Released(), "d": Released()}
            two.may_end.add("a")
            await until_async(lambda: len(two.outbox) == 3)
            two.dispatcher.release_all()
            await until_async(lambda: len(two.outbox) == 4)
            assert {claim.id: outcome for claim, outcome in two.outbox.next_batch()} == {"a": Done('"a"'), "b": Released()}

    asyncio.run(scenario())
