"""Fixtures of pytest, which finds them wherever Fairlane is installed; nothing is imported before a test uses one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .memory_queue import MemoryAsyncQueue, MemoryQueue


@pytest.fixture
def fairlane_queue() -> Iterator[MemoryQueue]:
    """A queue in memory with virtual time: a `fairlane.testing.MemoryQueue`."""
    from .memory_queue import MemoryQueue

    with MemoryQueue() as queue:
        yield queue


@pytest.fixture
def fairlane_async_queue(fairlane_queue: MemoryQueue) -> Iterator[MemoryAsyncQueue]:
    """The queue of `fairlane_queue` with awaited verbs."""
    queue = fairlane_queue.as_async()
    yield queue
    queue.close_threads()
