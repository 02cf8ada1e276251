"""Turns of calls of the store: nobody's calls wait behind all calls of somebody else."""

from __future__ import annotations

import asyncio
import io
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.api.limits import ServiceLimits
from fairlane.api.logging import Log
from fairlane.api.shares import HOLDER, SERVICE
from fairlane.api.store_calls import SEARCH_THREADS, THREADS, StoreCalls
from fairlane.api.turns import Turns
from fairlane.core.errors import StoreUnreachable

from .running import SECONDS_MAX


def test_holders_take_turns_and_nobody_has_more_than_its_share() -> None:
    async def use() -> list[str]:
        turns, order = Turns(3, 2), []

        async def call(holder: str) -> None:
            await turns.take(holder)
            order.append(holder)

        tasks = [asyncio.create_task(call(holder)) for holder in ("a", "a", "a", "a", "b", "b", "c")]
        await _settled()
        assert order == ["a", "a", "b"]  # the third of a waits for its share, and b for a place
        turns.give_back("a")
        await _settled()
        assert order[3:] == ["a"]
        turns.give_back("b")
        await _settled()
        assert order[4:] == ["b"]
        turns.give_back("b")
        await _settled()
        assert order[5:] == ["c"]
        turns.give_back("a")
        await _settled()
        assert order[6:] == ["a"]
        await asyncio.gather(*tasks)
        return order

    assert Counter(asyncio.run(use())) == {"a": 4, "b": 2, "c": 1}


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _settled() -> None:
    for _ in range(5):
        await _turn_of_the_loop()


async def _turn_of_the_loop() -> None:
    is_over = asyncio.Event()
    asyncio.get_running_loop().call_soon(is_over.set)
    await is_over.wait()


@given(st.lists(st.tuples(st.sampled_from(["take", "give back", "cancel"]), st.sampled_from(["a", "b", "c", SERVICE]))))
def test_a_turn_that_is_free_is_used_whatever_happens(steps: list[tuple[str, str]]) -> None:
    async def use() -> None:
        turns = Turns(3, 2)
        running: Counter[str] = Counter()
        waiting: dict[str, list[asyncio.Task[None]]] = {}

        async def call(holder: str) -> None:
            await turns.take(holder)
            running[holder] += 1

        for step, holder in steps:
            if step == "take":
                waiting.setdefault(holder, []).append(asyncio.create_task(call(holder)))
            elif step == "give back" and running[holder]:
                running[holder] -= 1
                turns.give_back(holder)
            elif step == "cancel":
                await _cancelled(waiting.get(holder, []))
            await _settled()
            waiting = {name: [task for task in tasks if not task.done()] for name, tasks in waiting.items()}
            assert running.total() <= 3
            assert all(count <= 2 for name, count in running.items() if name != SERVICE)
            assert running.total() == 3 or all(not tasks or running[name] == 2 for name, tasks in waiting.items())
        await _cancelled([task for tasks in waiting.values() for task in tasks])

    asyncio.run(use())


def test_who_waits_for_a_turn_fails_with_the_store() -> None:
    async def use() -> None:
        turns = Turns(1, 1)
        await turns.take("a")
        waiting = asyncio.create_task(turns.take("b"))
        await _settled()
        turns.fail(StoreUnreachable("away"))
        with pytest.raises(StoreUnreachable):
            await waiting
        turns.give_back("a")
        await turns.take("b")

    asyncio.run(use())


def test_a_turn_that_nobody_wants_any_more_goes_to_the_next_in_line() -> None:
    async def use() -> None:
        turns = Turns(1, 1)
        await turns.take("a")
        gone, next_in_line = asyncio.create_task(turns.take("b")), asyncio.create_task(turns.take("b"))
        await _settled()
        gone.cancel()
        turns.give_back("a")  # before the task that was cancelled has run again
        async with asyncio.timeout(SECONDS_MAX):
            await next_in_line

    asyncio.run(use())


def run_with_store(use: Callable[[StoreCalls], Awaitable[None]]) -> None:
    async def run() -> None:
        calls = StoreCalls(lambda: None, Log(io.StringIO()), ServiceLimits())
        try:
            async with asyncio.timeout(SECONDS_MAX):
                await use(calls)
        finally:
            calls.close()

    asyncio.run(run())


def begun_for(holder: str, call: Callable[[], Coroutine[Any, Any, Any]]) -> asyncio.Task[Any]:
    """Begin a call as the request of a holder does."""

    async def run() -> Any:
        HOLDER.set(holder)
        return await call()

    return asyncio.create_task(run())


@pytest.mark.parametrize(("verb", "threads"), [("call", THREADS), ("search", SEARCH_THREADS)])
def test_slow_calls_of_one_customer_leave_threads_to_others(verb: str, threads: int) -> None:
    release, entered = threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        entered.release()
        release.wait(SECONDS_MAX)

    async def use(calls: StoreCalls) -> None:
        call = getattr(calls, verb)
        slow = [begun_for("customer slow", lambda: call(hang)) for _ in range(50)]
        try:
            while not entered.acquire(blocking=False):
                await _turn_of_the_loop()
            for number in range(threads):  # one after the other, and each at once
                assert await begun_for(f"customer {number}", lambda: call(lambda: "answered")) == "answered"
        finally:
            release.set()
        await asyncio.gather(*slow)

    run_with_store(use)


def test_searches_of_everybody_leave_the_other_calls_alone() -> None:
    release = threading.Event()

    async def use(calls: StoreCalls) -> None:
        slow = [begun_for(f"customer {number}", lambda: calls.search(release.wait, SECONDS_MAX)) for number in range(20)]
        try:
            await _settled()
            assert await begun_for("customer 1", lambda: calls.call(lambda: "answered")) == "answered"
        finally:
            release.set()
        await asyncio.gather(*slow)

    run_with_store(use)
