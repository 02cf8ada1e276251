"""How does a waiting process notice that another one wrote? The kernel tells when the file's log is written to (inotify).

It tells when a commit begins to write, and a moment passes until its data is on disk and can be read. So after a notice the
reader looks often, and otherwise hardly ever. Where the kernel cannot tell, looking often is all there is.
"""

from __future__ import annotations

import ctypes
import os
import select
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_IN_MODIFY = 0x2
_EVENTS_BYTES = 64 * 1024


class Notice:
    """Notices of writes to a queue's log; one for each thread that waits, as every notice is given once."""

    def __init__(self, path: Path) -> None:
        self._handle = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._handle >= 0 and _libc.inotify_add_watch(self._handle, os.fsencode(f"{path}-wal"), _IN_MODIFY) < 0:
            self.close()

    @property
    def is_given(self) -> bool:
        """Whether the kernel tells; there may be too many who ask, or the disk may be of another kind."""
        return bool(self._handle >= 0)

    def take(self) -> bool:
        """Whether something was told since the last time; its commit may still be on its way."""
        is_told = False
        try:
            while self._handle >= 0 and os.read(self._handle, _EVENTS_BYTES):
                is_told = True
        except BlockingIOError:
            pass
        return is_told

    def wait(self, seconds: float) -> bool:
        """Until somebody writes; False after that time."""
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(1000 * seconds)) and self.take()

    def close(self) -> None:
        """Let go of the handle."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __del__(self) -> None:
        self.close()
