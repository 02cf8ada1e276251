"""Where does an attempt have its files while it lasts? In a folder of its own, which is gone afterwards.

Laws:
- The folder is locked as long as its attempt lives; the kernel lets go of the lock when the process dies, by kill -9 too.
- What dead attempts left is removed by later ones: what is old and not locked.
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
LOOK_SECONDS = 600.0  # between looks for what the dead left
YOUNG_SECONDS = 60.0  # it may just be about to be locked
_looked = -LOOK_SECONDS


@contextlib.contextmanager
def attempt_folder() -> Iterator[Path]:
    """An empty folder that only this user can enter."""
    _remove_left()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield folder
    finally:
        try:
            os.rmdir(folder)
        except OSError:  # something is in it
            shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _remove_left() -> None:
    """Now and then: folders of attempts that ended without clearing up."""
    global _looked
    if time.monotonic() - _looked < LOOK_SECONDS:
        return
    _looked = time.monotonic()
    with os.scandir(tempfile.gettempdir()) as entries:
        found = [Path(entry.path) for entry in entries if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False)]
    for folder in found:
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
