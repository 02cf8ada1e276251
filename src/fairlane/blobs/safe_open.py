"""Opening and naming files that other people made.

Laws:
- Only regular files are read: a pipe or a device would block for ever.
- Any file name can be printed, whatever bytes are in it.
"""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

from fairlane.core.errors import Mistake
from fairlane.printable import printable


def open_regular_file(path: str) -> BinaryIO:
    """Open a regular file to read; refuse anything else without waiting for it."""
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0)
    except (FileNotFoundError, NotADirectoryError):
        raise Mistake(f"there is no file {display_path(path)}; it was moved, or its name is wrong") from None
    except IsADirectoryError:
        raise _not_a_file(path, "a folder") from None
    except PermissionError:
        raise Mistake(f"{display_path(path)} may not be read by this user; change its permissions or the user") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Mistake(f"{display_path(path)} cannot be opened: {reason}") from None
    mode = os.fstat(file.fileno()).st_mode
    if not stat.S_ISREG(mode):
        file.close()
        raise _not_a_file(path, "a folder" if stat.S_ISDIR(mode) else "a pipe or a device")
    return file


def display_path(path: str) -> str:
    """Return a path that can be printed, with a replacement character for what cannot."""
    return printable(path.encode(errors="surrogateescape").decode(errors="replace"))


def _not_a_file(path: str, what: str) -> Mistake:
    return Mistake(f"{display_path(path)} is {what}, not a regular file; name a file")
