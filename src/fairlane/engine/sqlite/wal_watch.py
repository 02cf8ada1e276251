"""WAL watch: the kernel's notification (inotify) that another process writes the file's write-ahead log.

The notification comes when a commit begins to write; its data can be read a moment later, when it is on disk. So a reader
polls often for a moment after a notification, and rarely otherwise. Without notifications it must always poll often.
"""

from __future__ import annotations

import ctypes
import os
import select
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_IN_MODIFY = 0x2
_EVENTS_BYTES = 64 * 1024


class WalWatch:
    """An inotify watch on a queue's log; one for each waiting thread, because each event is delivered once."""

    def __init__(self, path: Path) -> None:
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor >= 0 and _libc.inotify_add_watch(self._descriptor, os.fsencode(f"{path}-wal"), _IN_MODIFY) < 0:
            self.close()

    @property
    def is_active(self) -> bool:
        """Whether the kernel notifies: there may be too many watches, or a filesystem that does not support them."""
        return bool(self._descriptor >= 0)

    def drain(self) -> bool:
        """Read all pending events; return whether there was one, whose commit may not be readable yet."""
        has_events = False
        try:
            while self._descriptor >= 0 and os.read(self._descriptor, _EVENTS_BYTES):
                has_events = True
        except BlockingIOError:
            pass
        return has_events

    def wait(self, seconds: float) -> bool:
        """Wait until a process writes; return False after that time."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(1000 * seconds)) and self.drain()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()
