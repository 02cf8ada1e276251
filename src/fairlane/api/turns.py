"""Turns: so many calls or uploads run at once, so many of one holder, and holders that wait take turns.

Without it, one customer whose calls are slow would occupy every thread, and the calls of all others would wait behind.
"""

from __future__ import annotations

import asyncio
from collections import deque

from .shares import SERVICE


class Turns:
    """Lets things run; used on the event loop only."""

    def __init__(self, at_once: int, a_holder: int) -> None:
        self._at_once = at_once
        self._a_holder = a_holder
        self._running: dict[str, int] = {}
        self._running_total = 0
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by holder, the one whose turn is next first

    @property
    def is_full(self) -> bool:
        return self._running_total >= self._at_once

    async def take(self, holder: str) -> None:
        """Wait for a turn."""
        if self._may_run(holder) and holder not in self._waiting:
            self._run(holder)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(holder, deque()).append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:  # its turn had come
                self.give_back(holder)
            self._forget(holder, turn)
            raise

    def give_back(self, holder: str) -> None:
        """End a turn, and begin others."""
        self._running_total -= 1
        self._running[holder] -= 1
        if not self._running[holder]:
            del self._running[holder]
        self._begin_others()

    def fail(self, error: Exception) -> None:
        """Let everybody who waits for a turn fail."""
        for turns in self._waiting.values():
            for turn in turns:
                if not turn.done():
                    turn.set_exception(error)
        self._waiting.clear()

    def _begin_others(self) -> None:
        for holder in list(self._waiting):
            if self.is_full:
                return
            turns = self._waiting[holder]
            while turns and turns[0].done():  # cancelled just now: it does not use up a turn
                turns.popleft()
            if turns and not self._may_run(holder):
                continue
            del self._waiting[holder]
            if turns:
                self._run(holder)
                turns.popleft().set_result(None)
            if turns:
                self._waiting[holder] = turns  # behind the others

    def _may_run(self, holder: str) -> bool:
        is_below = holder == SERVICE or self._running.get(holder, 0) < self._a_holder
        return is_below and not self.is_full

    def _run(self, holder: str) -> None:
        self._running[holder] = self._running.get(holder, 0) + 1
        self._running_total += 1

    def _forget(self, holder: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(holder)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[holder]
