"""Members: files inside a file, given to a store as they are read.

Laws:
- An archive inside an archive is a member like any other; the caller passes the depth, and it is limited.
- Every byte is counted before it is stored. A member that cannot be read is skipped with a warning; the others are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest

from .builder import ExtractionBuilder, clean
from .failure import Unreadable, one_line
from .result import Member

NAME_MAX = 255
JUNK = ("__MACOSX/", ".DS_Store", "Thumbs.db", "desktop.ini")
APPLE_DOUBLE = "._"  # beside each file that a Mac puts into a tar


def display_name(name: str) -> str:
    """Return a member's name for display: one line, cut at the front so that the suffix stays."""
    shown = one_line(clean(name), NAME_MAX * 4)
    return shown if len(shown) <= NAME_MAX else "…" + shown[-NAME_MAX + 1 :]


def is_junk(name: str) -> bool:
    """Return whether this is a file that operating systems put into archives for themselves."""
    file_name = name.rpartition("/")[2]
    return name.startswith(JUNK[0]) or file_name in JUNK or file_name.startswith(APPLE_DOUBLE)


def begin_archive(builder: ExtractionBuilder) -> None:
    """Refuse an archive that is too deep inside others."""
    if builder.depth >= builder.limits.depth_max:
        raise Unreadable("too_large", f"archives inside each other, more than {builder.limits.depth_max} deep")


def end_archive(builder: ExtractionBuilder, has_too_large: bool, details: Iterable[str] = ()) -> None:
    """Write the list of members, with what is known of each; refuse an archive of which none could be read."""
    for member, detail in zip_longest(builder.members, details):
        builder.write(f"- {member.name} ({member.size:,} bytes)" + (f": {detail}\n" if detail else "\n"))
    if builder.members or builder.member_store is None:
        return
    if has_too_large:
        raise Unreadable("too_large", f"no file in the archive has at most {builder.limits.size_max:,} bytes and can be read")
    raise Unreadable("corrupt", "no file in the archive can be read")


def save_member(builder: ExtractionBuilder, name: str, blocks: Iterable[bytes]) -> bool:
    """Store a member; return False if it could not be read."""
    if len(builder.members) >= builder.limits.members_max:
        raise Unreadable("too_large", f"holds more than {builder.limits.members_max:,} files")
    if builder.member_store is None:
        builder.warn("members_skipped", "there is no folder to put them in")
        return False
    counted = _CountedBlocks(blocks, builder.limits.size_max)
    try:
        path = builder.member_store.add(len(builder.members) + 1, counted)
    except Unreadable as error:
        if error.code not in ("corrupt", "encrypted") and not counted.is_too_large:
            raise
        builder.warn("members_skipped", f"{display_name(name)}: {error}")
        return False
    builder.members.append(Member(display_name(name), counted.size, path))
    return True


class _CountedBlocks:
    """The blocks of a member, counted before they are stored."""

    def __init__(self, blocks: Iterable[bytes], size_max: int) -> None:
        self._blocks, self._size_max = blocks, size_max
        self.size = 0

    @property
    def is_too_large(self) -> bool:
        """Whether it is too large to be a document of its own; others may not be."""
        return self.size > self._size_max

    def __iter__(self) -> Iterator[bytes]:
        for block in self._blocks:
            self.size += len(block)
            if self.is_too_large:
                raise Unreadable("too_large", f"more than {self._size_max:,} bytes")
            yield block
