"""Garbage collection of files that no document owns: every worker offers to sweep, and one of them does, once a day.

Laws:
- It works in small slices of time, on a thread of its own; documents never wait for it.
- A failure is reported, and the rest is left to the next sweep.
"""

from __future__ import annotations

from fairlane.core.errors import FairlaneError
from fairlane.queue import GRACE_SECONDS
from fairlane.queue.files import QueueFiles

CHECK_SECONDS = 600.0  # between checks whether a sweep is due
SLICE_SECONDS, PAUSE_SECONDS = 0.2, 1.0


class BlobCollector:
    """A sweep in slices; its mark is None while none is under way."""

    def __init__(self, queue_files: QueueFiles) -> None:
        self._queue_files = queue_files
        self._mark: str | None = None

    @property
    def pause_seconds(self) -> float:
        """How long to wait before the next slice, or before the next check."""
        return CHECK_SECONDS if self._mark is None else PAUSE_SECONDS

    def slice(self) -> str | None:
        """Sweep for a moment, if a sweep is due; returns what failed, if anything did."""
        try:
            files = self._queue_files.open_configured()
            if files is None or (self._mark is None and not self._queue_files.begin_daily_sweep()):
                return None
            self._mark = self._queue_files.sweep(files, GRACE_SECONDS, SLICE_SECONDS, self._mark).mark
        except FairlaneError as error:
            self._mark = None
            return str(error)
        return None
