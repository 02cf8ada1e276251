"""Temporary folders for the files of a test: made when they are needed, removed with the object that they belong to."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable


def temporary_folder(owner: object) -> tuple[str, Callable[[], object]]:
    """Make a folder that is removed when its owner is gone, or when the returned function is called."""
    path = tempfile.mkdtemp(prefix="fairlane-testing-")
    return path, weakref.finalize(owner, _remove, path, os.getpid())


def _remove(path: str, pid: int) -> None:
    if os.getpid() == pid:  # not in a fork of the test, which still goes on
        shutil.rmtree(path, ignore_errors=True)
