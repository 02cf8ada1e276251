"""Who removes the files that no document owns? Every worker offers to, and one of them does, once a day.

Laws:
- It takes small slices of time, on a thread of its own; documents never wait for it.
- What fails is told and left to the next sweep.
"""

from __future__ import annotations

from fairlane.core.errors import FairlaneError
from fairlane.queue import GRACE_SECONDS
from fairlane.queue.files import QueueFiles

ASK_SECONDS = 600.0  # between looks whether it is time
SLICE_SECONDS, PAUSE_SECONDS = 0.2, 1.0


class Sweeping:
    """A sweep in slices: None is the mark of one that is not under way."""

    def __init__(self, queue_files: QueueFiles) -> None:
        self._queue_files = queue_files
        self._mark: str | None = None

    @property
    def pause_seconds(self) -> float:
        """How long to wait before the next slice, or before asking again."""
        return ASK_SECONDS if self._mark is None else PAUSE_SECONDS

    def slice(self) -> str | None:
        """Do a little, if there is something to do; says what failed, if it did."""
        try:
            files = self._queue_files.open_configured()
            if files is None or (self._mark is None and not self._queue_files.begin_daily_sweep()):
                return None
            self._mark = self._queue_files.sweep(files, GRACE_SECONDS, SLICE_SECONDS, self._mark).mark
        except FairlaneError as error:
            self._mark = None
            return str(error)
        return None
