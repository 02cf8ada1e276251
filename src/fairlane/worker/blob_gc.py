"""Garbage collection of files that no document owns: every worker offers to sweep, and one of them does, once a day.

Laws:
- What a handler wrote for a document that was forgotten or purged meanwhile is removed as soon as that handler has stopped.
- It works in small slices of time, on a thread of its own; documents never wait for it.
- A failure is reported, and the rest is left to the next sweep.
"""

from __future__ import annotations

import time
from collections import deque

from fairlane.blobs.gc import Sweep
from fairlane.core.document import Claim
from fairlane.core.errors import FairlaneError
from fairlane.engine.protocol import Removed
from fairlane.queue.files import QueueFiles

CHECK_SECONDS = 600.0  # between checks whether a sweep is due
SLICE_SECONDS, PAUSE_SECONDS = 0.05, 1.0  # a twentieth of a core while a sweep is under way
LOST_SECONDS = 10.0  # after which the handler of a claim that was lost has stopped


class BlobCollector:
    """A sweep in slices, whenever one is due."""

    def __init__(self, queue_files: QueueFiles) -> None:
        self._queue_files = queue_files
        self._sweep: Sweep | None = None  # the one under way
        self._lost: deque[tuple[float, Removed]] = deque()

    def lost(self, claim: Claim) -> None:
        """Remember a claim that was lost: its document may be gone."""
        self._lost.append((time.monotonic(), Removed(claim.id, claim.customer, claim.token)))

    def remove_lost(self, seconds: float = LOST_SECONDS) -> str | None:
        """Remove files of documents that are gone, whose claims were lost that long ago; returns what failed."""
        documents = []
        while self._lost and self._lost[0][0] <= time.monotonic() - seconds:
            documents.append(self._lost.popleft()[1])
        try:
            self._queue_files.remove_if_gone(documents)
        except FairlaneError as error:  # the sweep will
            return str(error)
        return None

    @property
    def pause_seconds(self) -> float:
        """How long to wait before the next slice, or before the next check."""
        return CHECK_SECONDS if self._sweep is None else PAUSE_SECONDS

    def slice(self) -> str | None:
        """Sweep for a moment, if a sweep is due; returns what failed, if anything did."""
        try:
            if self._sweep is None:
                self._sweep = self._begin()
            if self._sweep is not None and self._queue_files.run_sweep(self._sweep, SLICE_SECONDS).mark is None:
                self._sweep = None
        except FairlaneError as error:
            self._sweep = None
            return str(error)
        return None

    def _begin(self) -> Sweep | None:
        files = self._queue_files.open_configured()
        if files is None or self._queue_files.are_held() or not self._queue_files.begin_daily_sweep():
            return None
        return self._queue_files.begin_sweep(files)
