"""Members: files inside a file, written to the scratch folder.

Laws:
- Members are written under numbers; the name in the archive is data, never a path.
- Every byte is counted before it is written. A member that cannot be read is skipped with a warning; the others are kept.
"""

from __future__ import annotations

from collections.abc import Iterable

from .builder import ExtractionBuilder, clean
from .failure import Unreadable, one_line
from .result import Member

NAME_MAX = 255
JUNK = ("__MACOSX/", ".DS_Store", "Thumbs.db", "desktop.ini")


def display_name(name: str) -> str:
    """Return a member's name for display: one line, cut at the front so that the suffix stays."""
    shown = one_line(clean(name), NAME_MAX * 4)
    return shown if len(shown) <= NAME_MAX else "…" + shown[-NAME_MAX + 1 :]


def is_junk(name: str) -> bool:
    """Return whether this is a file that operating systems put into archives for themselves."""
    return name.startswith(JUNK[0]) or name.rpartition("/")[2] in JUNK


def save_member(builder: ExtractionBuilder, name: str, blocks: Iterable[bytes]) -> bool:
    """Write a member to the scratch folder; return False if it could not be read."""
    if len(builder.members) >= builder.limits.members_max:
        raise Unreadable("too_large", f"holds more than {builder.limits.members_max:,} files")
    if builder.scratch is None:
        builder.warn("members_skipped", "there is no folder to put them in")
        return False
    path = builder.scratch / f"member-{len(builder.members) + 1:05d}"
    size = 0
    try:
        with path.open("xb") as file:
            for block in blocks:
                size += len(block)
                if size > builder.limits.size_max:  # too large to be a document of its own; the others may not be
                    raise Unreadable("too_large", f"more than {builder.limits.size_max:,} bytes")
                file.write(block)
    except Unreadable as error:
        path.unlink(missing_ok=True)
        if error.code not in ("corrupt", "encrypted") and size <= builder.limits.size_max:
            raise
        builder.warn("members_skipped", f"{display_name(name)}: {error}")
        return False
    builder.members.append(Member(display_name(name), size, path))
    return True
