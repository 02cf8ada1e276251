"""A new file that appears under its name when it is complete, and never half.

Laws:
- It is written beside its name, as `NAME.unfinished`, readable to its owner only. What a process that was killed left there is
  overwritten by the next one.
- It is on the disk before it gets its name, and a file that has the name already is not replaced.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fairlane.core.errors import Mistake

UNFINISHED = ".unfinished"


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a file to write; it gets its name when the block ends, and is removed if that fails."""
    target = Path(path).absolute()
    draft = Path(f"{target}{UNFINISHED}")
    try:
        _refuse_existing(target)
        with open(draft, "w+b", opener=_open_private) as file:
            _lock(file, draft)
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                _publish(draft, target)
            finally:
                draft.unlink()
        _sync_folder(target.parent)
    except OSError as error:
        raise Mistake(f"{target} cannot be written: {error.strerror or error}; name another file, or make room") from error


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags & ~os.O_TRUNC | os.O_NOFOLLOW, 0o600)


def _lock(file: BinaryIO, draft: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Mistake(f"another process is writing {draft}; wait for it, or name another file") from None
    os.fchmod(file.fileno(), 0o600)
    file.truncate()


def _publish(draft: Path, target: Path) -> None:
    try:
        os.link(draft, target)
    except FileExistsError:
        _refuse_existing(target)
        raise
    except PermissionError:  # a file system without hard links: there, another file of that name could slip in between
        _refuse_existing(target)
        draft.replace(target)
        draft.touch(0o600)


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        raise Mistake(f"{target} exists; it is not overwritten: move it away, or name another file")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
