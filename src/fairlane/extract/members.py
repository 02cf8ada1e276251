"""How do the files inside a file come out?

Laws:
- They are written into the scratch folder under numbers; the name that the archive has for them is data.
- Every byte counts before it is written. A member that cannot be read is left out with a warning; the others are not.
"""

from __future__ import annotations

from collections.abc import Iterable

from .draft import Draft, clean
from .failure import Unreadable, one_line
from .result import Member

NAME_MAX = 255
JUNK = ("__MACOSX/", ".DS_Store", "Thumbs.db", "desktop.ini")


def shown_name(name: str) -> str:
    """A member's name as it may be shown: one line, of a bearable length, its end kept because of the suffix."""
    shown = one_line(clean(name), NAME_MAX * 4)
    return shown if len(shown) <= NAME_MAX else "…" + shown[-NAME_MAX + 1 :]


def is_junk(name: str) -> bool:
    """What systems put into archives for themselves."""
    return name.startswith(JUNK[0]) or name.rpartition("/")[2] in JUNK


def keep(draft: Draft, name: str, blocks: Iterable[bytes]) -> bool:
    """Write a member to the scratch folder; false if it could not be read."""
    if len(draft.members) >= draft.limits.members_max:
        raise Unreadable("too_large", f"holds more than {draft.limits.members_max:,} files")
    if draft.scratch is None:
        draft.warn("members_skipped", "there is no folder to put them in")
        return False
    path = draft.scratch / f"member-{len(draft.members) + 1:05d}"
    size = 0
    try:
        with path.open("xb") as file:
            for block in blocks:
                size += len(block)
                if size > draft.limits.size_max:  # it could not be a document either; the others can
                    raise Unreadable("too_large", f"more than {draft.limits.size_max:,} bytes")
                file.write(block)
    except Unreadable as error:
        path.unlink(missing_ok=True)
        if error.code not in ("corrupt", "encrypted") and size <= draft.limits.size_max:
            raise
        draft.warn("members_skipped", f"{shown_name(name)}: {error}")
        return False
    draft.members.append(Member(shown_name(name), size, path))
    return True
