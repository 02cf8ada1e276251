"""A thread of its own for blocking calls, so that the worker's loop never waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from fairlane.procs.threads import DaemonThreads

T = TypeVar("T")
CLOSE_SECONDS = 5.0


class CallThread:
    """Makes one call after the other on its thread."""

    def __init__(self, name: str) -> None:
        self._executor = DaemonThreads(1, name)

    async def call(self, function: Callable[[], T]) -> T:
        """Call a function on the thread and wait for its value."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """End the thread; wait for its last call, but no longer than so long, as the store may never answer."""
        self._executor.close(seconds)
