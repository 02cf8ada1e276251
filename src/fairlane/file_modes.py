"""File modes: what may hold secrets or documents is for its owner alone, or for a group that shares it on purpose.

Laws:
- The umask decides nothing: a new file has mode 600, a new folder 700.
- What its group may write is shared on purpose: that group keeps its access, everybody else loses theirs.
- What is open to others is mended when it is opened, and that is logged: on standard error, where no logging is configured.
"""

from __future__ import annotations

import logging
import os
import stat
from contextlib import suppress

from .printable import printable

FILE, FOLDER = 0o600, 0o700
SHARED_FILE, SHARED_FOLDER = 0o660, 0o2770  # what is made in a shared folder belongs to its group
GROUP_AND_OTHERS = 0o077

_log = logging.getLogger("fairlane")
_reported: set[str] = set()  # paths that cannot be mended


def is_shared(path: str) -> bool:
    """Whether a group shares a file or a folder: its group may write it."""
    try:
        return bool(os.stat(path).st_mode & stat.S_IWGRP)
    except OSError:
        return False


def create_private(path: str) -> None:
    """Make an empty file for its owner alone, unless there is one; what cannot be made is left to whoever opens it."""
    with suppress(OSError):
        os.mknod(path, stat.S_IFREG | FILE)
        _chmod(path, FILE)


def make_folder(path: str, for_group: bool) -> None:
    """Make a folder for its owner alone, or also for the group of the folder that it is in, unless there is one."""
    with suppress(FileExistsError):
        os.mkdir(path, FOLDER)
        if for_group:
            os.chmod(path, SHARED_FOLDER)


def open_new(path: str, flags: int, for_group: bool) -> int:
    """Make a file for its owner alone, or also for the group of the folder that it is in, and open it."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, FILE)
    if for_group:
        os.fchmod(descriptor, SHARED_FILE)
    return descriptor


def mend(mode: int, *paths: str) -> None:
    """Take from group and others the access to files or folders that they have beyond a mode; log that of the first one.

    A symbolic link is left alone: in a folder that others may write it could lead anywhere.
    """
    outcomes = [outcome for outcome in (_mend(path, mode) for path in paths) if outcome is not None]
    if not outcomes:
        return
    path, found, closed, is_mended = outcomes[0]
    if is_mended:
        _log.warning("%s was open to other users of this machine (mode %o); it has mode %o now", printable(path), found, closed)
    elif path not in _reported:
        _reported.add(path)
        advice = f"its owner should: chmod {closed:o}"
        _log.warning("%s is open to other users of this machine (mode %o); %s", printable(path), found, advice)


def _mend(path: str, mode: int) -> tuple[str, int, int, bool] | None:
    """Return the path, its mode before, the mode that it should have, and whether it has that now; None: it was fine."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    found = stat.S_IMODE(status.st_mode)
    if not found & ~mode & GROUP_AND_OTHERS or not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
        return None
    closed = found & (mode | ~GROUP_AND_OTHERS)
    try:
        _chmod(path, closed)
        return path, found, closed, stat.S_IMODE(os.lstat(path).st_mode) == closed  # some filesystems ignore it
    except OSError:
        return path, found, closed, False


def _chmod(path: str, mode: int) -> None:
    """Change the mode of a file that is not a symbolic link, without opening it: when a process closes a file, it loses every
    lock that it has on it, and SQLite relies on such locks."""
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.chmod(f"/proc/self/fd/{descriptor}", mode)
    finally:
        os.close(descriptor)


def warn_if_open(path: str, what: str) -> None:
    """Log, once, that a file of the user's own which holds a secret can be read by others; it is left as it is."""
    try:
        found = stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return
    if found & stat.S_IROTH and path not in _reported:
        _reported.add(path)
        _log.warning(
            "%s holds %s and can be read by every user of this machine (mode %o); chmod 600 it", printable(path), what, found
        )
