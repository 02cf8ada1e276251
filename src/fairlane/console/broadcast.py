"""Frames of the live view for all viewers: one a second, encoded once.

Laws:
- Without viewers no frames are made.
- A slow viewer skips frames and gets the newest; nothing is queued for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fairlane.api.problems import Problem
from fairlane.api.shares import HOLDER, SERVICE
from fairlane.console.read_model.loader import ReadModelLoader
from fairlane.console.read_model.model import ReadModel, encode_frame
from fairlane.core.errors import FairlaneError

FRAME_SECONDS = 1.0


class Viewer:
    """One stream."""

    def __init__(self, caller_id: str) -> None:
        self.caller_id = caller_id
        self.tick = asyncio.Event()  # set every second
        self.is_ended = False  # the client should reconnect


class Broadcast:
    """Makes frames while there are viewers."""

    def __init__(self, loader: ReadModelLoader, unserved: Callable[[], list[tuple[str, bool]]]) -> None:
        self._loader = loader
        self._unserved = unserved  # returns the kinds that wait although no worker takes them
        self._viewers: set[Viewer] = set()
        self._task: asyncio.Task[None] | None = None
        self._model: ReadModel | None = None
        self.number = 0  # rises with every frame
        self.newest = b""
        self._is_stopping = False

    def __len__(self) -> int:
        return len(self._viewers)

    def viewers_of(self, caller_id: str) -> int:
        """Return how many streams a caller has open."""
        return sum(viewer.caller_id == caller_id for viewer in self._viewers)

    def add(self, viewer: Viewer) -> None:
        """Add a viewer; the first one starts the frames."""
        self._viewers.add(viewer)
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def remove(self, viewer: Viewer) -> None:
        self._viewers.discard(viewer)

    def stop(self) -> None:
        """End all streams: the server stops."""
        self._is_stopping = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        HOLDER.set(SERVICE)  # for all viewers, not only for the one that came first
        last_change = -1
        try:
            while self._viewers and not self._is_stopping:
                last_change = await self._make_frame(last_change)
                for viewer in self._viewers:
                    viewer.tick.set()
                await asyncio.sleep(FRAME_SECONDS)
        finally:
            self._task = None
            if self._model is not None:
                self._model.count_moves(False)
            for viewer in self._viewers:  # this failed, or the server stops; a viewer that reconnects starts it again
                viewer.is_ended = True
                viewer.tick.set()

    async def _make_frame(self, last_change: int) -> int:
        """Encode a frame if something changed; return the last change that is in the newest frame."""
        try:
            model = await self._loader.model()
        except (FairlaneError, Problem):  # tried again in a second
            return last_change
        self._model = model
        model.count_moves(True)
        unserved = self._unserved()
        if model.change == last_change and model.unserved == unserved:
            return last_change
        model.unserved = unserved
        self.newest = encode_frame(model, model.take_moves())
        self.number += 1
        return model.change
