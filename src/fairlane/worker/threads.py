"""A thread of its own for blocking calls, so that the worker's loop never waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class CallThread:
    """Makes one call after the other on its thread."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)

    async def call(self, function: Callable[[], T]) -> T:
        """Call a function on the thread and wait for its value."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)

    def close(self) -> None:
        """Wait for the last call, and end the thread."""
        self._executor.shutdown()
