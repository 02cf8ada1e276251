"""Who watches, and what is sent to them? One frame a second, made once for everybody.

Laws:
- Nobody watches: nothing is made.
- A viewer that is slow misses frames and gets the newest; nothing is kept for it.
"""

from __future__ import annotations

import asyncio

from fairlane.api.auth import time_ms
from fairlane.api.problems import Problem
from fairlane.console.read_model.loader import Follower
from fairlane.console.read_model.model import Live, written
from fairlane.core.errors import FairlaneError

FRAME_SECONDS = 1.0


class Viewer:
    """One stream; it is woken every second."""

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        self.woken = asyncio.Event()
        self.is_ended = False  # it is to come back


class Frames:
    """Makes frames while somebody watches."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._viewers: set[Viewer] = set()
        self._task: asyncio.Task[None] | None = None
        self._live: Live | None = None
        self.number = 0  # rises with every frame
        self.newest = b""
        self._is_stopping = False

    def __len__(self) -> int:
        return len(self._viewers)

    def of_key(self, key_id: str) -> int:
        """How many streams a key has open."""
        return sum(one.key_id == key_id for one in self._viewers)

    def add(self, viewer: Viewer) -> None:
        """Somebody watches."""
        self._viewers.add(viewer)
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def remove(self, viewer: Viewer) -> None:
        """Somebody has gone."""
        self._viewers.discard(viewer)

    def stop(self) -> None:
        """The server stops."""
        self._is_stopping = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        last = -1
        try:
            while self._viewers and not self._is_stopping:
                last = await self._tick(last)
                for viewer in self._viewers:
                    viewer.woken.set()
                await asyncio.sleep(FRAME_SECONDS)
        finally:
            self._task = None
            if self._live is not None:
                self._live.watch(False)
            for viewer in self._viewers:  # it failed, or the server stops; whoever comes back begins it again
                viewer.is_ended = True
                viewer.woken.set()

    async def _tick(self, last: int) -> int:
        """A frame, if something changed."""
        try:
            live = await self._follower.live()
        except (FairlaneError, Problem):  # the next second may be better
            return last
        self._live = live
        live.watch(True)
        live.pass_time(time_ms())
        if live.change == last:
            return last
        self.newest = written(live, live.moves())
        self.number += 1
        return live.change
