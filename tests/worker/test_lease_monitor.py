"""LeaseMonitor alone: the test is the heartbeat, at the other end of the socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fairlane import Queue
from fairlane.core.document import Done
from fairlane.procs.ipc import FrameDecoder, encode_frame
from fairlane.worker import Event
from fairlane.worker.claims import ActiveClaim, Claims
from fairlane.worker.dispatcher import Dispatcher
from fairlane.worker.handlers import Handlers, make_handler
from fairlane.worker.hooks import Hooks
from fairlane.worker.lease_monitor import LeaseMonitor
from fairlane.worker.outbox import Outbox
from fairlane.worker.prefetch import Prefetch

from .conftest import CLAIM, make_context, until_async, yield_loop

LEASE_SECONDS = 60.0


async def wait_for_ever(document: object) -> None:
    await asyncio.Event().wait()


class Watched:
    """LeaseMonitor with claims, and the other end of their socket."""

    def __init__(self, queue: Queue, ours: socket.socket, theirs: socket.socket, is_async: bool) -> None:
        self.events: list[Event] = []
        self.failures: list[str] = []
        handlers, hooks = Handlers(), Hooks("worker")
        handlers.add(make_handler("default", wait_for_ever if is_async else lambda document: None, 3, 5.0))
        hooks.add("*", self.events.append)
        context = make_context(queue, ours, handlers, hooks)
        self.claims = Claims(context.lease_ms)
        self.outbox = Outbox(self.claims, context.progress, hooks, lambda: None)
        self.dispatcher = Dispatcher(context, self.outbox, Prefetch(2), lambda: None, self.failures.append)
        self.leases = LeaseMonitor(context, self.claims, self.outbox, self.dispatcher, lambda: None, self.failures.append)
        self.heartbeat = theirs
        self._decoder = FrameDecoder()
        theirs.setblocking(False)

    def add(self, *ids: str, age: float = 0.0) -> list[ActiveClaim]:
        now = asyncio.get_running_loop().time()
        return self.claims.add([CLAIM._replace(id=id, payload='"secret"') for id in ids], now - age)

    def send(self, *message: Any) -> None:
        self.heartbeat.send(encode_frame(list(message)))

    def beats(self) -> list[list[Any]]:
        """The beats that have arrived since the last call."""
        try:
            return list(self._decoder.feed(self.heartbeat.recv(65_536)))
        except BlockingIOError:
            return []

    def lost(self) -> list[str | None]:
        return [event.id for event in self.events if event.name == "lost"]


@asynccontextmanager
async def watched(is_async: bool = False) -> AsyncIterator[Watched]:
    ours, theirs = socket.socketpair()
    with Queue("memory://") as queue, theirs:
        made = Watched(queue, ours, theirs, is_async)
        yield made
        made.leases.close()
        await made.dispatcher.close()


def test_a_beat_carries_new_claims_without_their_payload() -> None:
    async def scenario() -> None:
        async with watched() as worker:
            first, second = worker.add("a", "b")
            task = asyncio.create_task(worker.leases.watch())
            await yield_loop()
            ((word, deadline, added, dropped),) = worker.beats()
            assert (word, deadline, dropped) == ("beat", None, [])
            assert [[serial, claim[0]] for serial, claim in added] == [[first.serial, "a"], [second.serial, "b"]]
            assert "secret" not in str(added)
            task.cancel()

    asyncio.run(scenario())


def test_nothing_is_ready_before_the_heartbeat_says_so() -> None:
    async def scenario() -> None:
        async with watched() as worker:
            assert not worker.leases.is_ready
            worker.send("ready")
            await until_async(lambda: worker.leases.is_ready)

    asyncio.run(scenario())


def test_a_claim_is_reported_at_once_only_if_the_loop_could_be_blocked_or_it_is_old() -> None:
    async def beats_at_once(is_async: bool, age: float) -> int:
        async with watched(is_async) as worker:
            (active,) = worker.add("a", age=age)
            worker.leases.claimed(active.requested_at)
            return len(worker.beats())

    assert asyncio.run(beats_at_once(is_async=False, age=0.0)) == 0
    assert asyncio.run(beats_at_once(is_async=False, age=LEASE_SECONDS / 10)) == 1
    assert asyncio.run(beats_at_once(is_async=True, age=0.0)) == 1


def test_a_beat_says_when_a_silent_loop_means_a_hung_handler() -> None:
    async def scenario() -> None:
        async with watched(is_async=True) as worker:
            now = asyncio.get_running_loop().time()
            worker.dispatcher.add(worker.add("a"))
            worker.dispatcher.dispatch()
            worker.leases.claimed(now)
            ((_, deadline, _, _),) = worker.beats()
            assert now < deadline <= now + 5.0 + 1.0

    asyncio.run(scenario())


def test_what_was_renewed_lives_on_and_what_was_refused_is_lost() -> None:
    async def scenario() -> None:
        async with watched(is_async=True) as worker:
            running, refused, settling = worker.add("running", "refused", "settling", age=LEASE_SECONDS)
            worker.dispatcher.add([running, refused])
            worker.dispatcher.dispatch()
            worker.outbox.add(settling, Done(None))
            now = asyncio.get_running_loop().time()
            worker.send("renewed", now, settling.serial, [refused.serial, settling.serial])
            await until_async(lambda: worker.lost() == ["refused"])
            assert worker.claims.overdue(now) == []
            assert settling.outcome == Done(None)  # the store decides
            assert list(worker.claims) == [running, settling]

    asyncio.run(scenario())


def test_a_claim_that_was_not_renewed_in_time_is_lost_before_its_lease_ends() -> None:
    async def scenario() -> None:
        async with watched() as worker:
            worker.add("old", age=LEASE_SECONDS - worker.claims.margin)
            worker.add("new")
            task = asyncio.create_task(worker.leases.watch())
            await until_async(lambda: worker.lost() == ["old"])
            task.cancel()

    asyncio.run(scenario())


def test_failures_of_the_store_and_the_end_of_the_heartbeat_are_reported() -> None:
    async def scenario() -> None:
        async with watched() as worker:
            worker.send("failed", "StoreBusy: busy")
            await until_async(lambda: [event.reason for event in worker.events] == ["StoreBusy: busy"])
            worker.heartbeat.close()
            await until_async(lambda: worker.failures)
            assert "the heartbeat process ended" in worker.failures[0]

    asyncio.run(scenario())
