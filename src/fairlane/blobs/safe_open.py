"""How is a file of somebody else opened and named without harm?

Laws:
- Only ordinary files are read: a pipe or a device would make us wait for ever.
- A name is shown, never trusted: whatever bytes are in it, it can be printed.
"""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

from fairlane.core.errors import Mistake


def open_ordinary(path: str) -> BinaryIO:
    """Open a file to read; anything that is not an ordinary file is refused without waiting for it."""
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0)
    except (FileNotFoundError, NotADirectoryError):
        raise Mistake(f"there is no file {shown_path(path)}; it was moved, or its name is wrong") from None
    except IsADirectoryError:
        raise _not_a_file(path, "a folder") from None
    except PermissionError:
        raise Mistake(f"{shown_path(path)} may not be read by this user; change its permissions or the user") from None
    except (OSError, ValueError) as error:
        told = error.strerror if isinstance(error, OSError) else str(error)
        raise Mistake(f"{shown_path(path)} cannot be opened: {told}") from None
    mode = os.fstat(file.fileno()).st_mode
    if not stat.S_ISREG(mode):
        file.close()
        raise _not_a_file(path, "a folder" if stat.S_ISDIR(mode) else "a pipe or a device")
    return file


def shown_path(path: str) -> str:
    """A path as it can be printed, whatever bytes are in it."""
    told = path.encode(errors="surrogateescape").decode(errors="replace")
    return "".join(letter if letter.isprintable() else "�" for letter in told)


def _not_a_file(path: str, what: str) -> Mistake:
    return Mistake(f"{shown_path(path)} is {what}, not an ordinary file; name a file")
