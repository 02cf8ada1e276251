"""The first admin's key, which a server makes where there is none: shown on a terminal, else written to a file.

Laws:
- The key never reaches a log: standard output of a service is one, unless it is a terminal.
- The file is written before the key is stored: a server that is killed in between leaves no key that nobody knows.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fairlane.core.errors import StoreError
from fairlane.engine import Engine
from fairlane.queue.audit import Actor

from .auth import EXPIRES_SECONDS, Key, add, has_admin, new_key, time_ms

SUFFIX = ".admin-key"  # beside the file of the queue
ADVICE = "make one where the store can be reached: fairlane keys create --admin"


class FirstKey(NamedTuple):
    """A key that was made; `secret` is for a terminal only."""

    key: Key
    secret: str | None
    path: Path | None  # where it was written


def make_first_key(engine: Engine, url: str, *, is_terminal: bool) -> FirstKey | None:
    """Make an admin's key if there is none; None: there is one, or there is no place for another (see `ADVICE`)."""
    path = _path(url)
    if has_admin(engine) or not (is_terminal or path):
        return None
    secret, key = new_key(None, "admin", (), "first", EXPIRES_SECONDS, time_ms())
    if not is_terminal and path is not None:
        _write(path, secret)
    add(engine, key, Actor("server", "fairlane serve", socket.gethostname()))
    return FirstKey(key, secret if is_terminal else None, None if is_terminal else path)


def _path(url: str) -> Path | None:
    path = url.removeprefix("sqlite:///")
    return None if path == url else Path(f"{os.path.abspath(path)}{SUFFIX}")


def _write(path: Path, secret: str) -> None:
    """Write a file that only its owner can read; one from before is replaced."""
    draft = path.with_name(f"{path.name}.new")
    try:
        with suppress(FileNotFoundError):
            draft.unlink()
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{secret}\n")
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
    except OSError as error:
        raise StoreError(f"the first admin's key cannot be written to {path}: {error.strerror}; {ADVICE}") from None
