"""Scratch folders: a temporary folder for each attempt, removed when it ends.

Laws:
- The folder is locked as long as its attempt lives; the kernel releases the lock when the process dies, by kill -9 too.
- Later attempts remove the folders of dead ones: those that are old and not locked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PREFIX = "fairlane-attempt-"
SWEEP_SECONDS = 600.0  # between searches for folders of dead attempts
YOUNG_SECONDS = 60.0  # a younger folder may be about to be locked
_swept_at = -SWEEP_SECONDS


@contextlib.contextmanager
def attempt_folder() -> Iterator[Path]:
    """Create an empty folder that only this user can enter, and remove it at the end."""
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _sweep() -> None:
    """Remove, now and then, the folders of attempts that died."""
    global _swept_at
    if time.monotonic() - _swept_at < SWEEP_SECONDS:
        return
    _swept_at = time.monotonic()
    with os.scandir(tempfile.gettempdir()) as entries:
        folders = [
            Path(entry.path) for entry in entries if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False)
        ]
    for folder in folders:
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == os.geteuid() and time.time() - folder.stat().st_mtime > YOUNG_SECONDS:
                _remove_if_dead(folder)


def _remove_if_dead(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)
