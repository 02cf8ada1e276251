"""Stores for members, the files inside a file: a folder with a file for each, or one open file with all of them in a row.

Laws:
- Members are stored under numbers; the name in the archive is data, never a path.
- A member that cannot be read to its end leaves nothing behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from .failure import Unreadable
from .result import Member


def member_name(number: int) -> str:
    """Return the name that a member is stored under; numbers begin with 1."""
    return f"member-{number:05d}"


class MemberStore(Protocol):
    """Where members go."""

    def add(self, number: int, blocks: Iterable[bytes]) -> Path:
        """Store a member; nothing of it stays if a block raises an `Unreadable`."""


class MemberFolder:
    """A folder, with a file for each member."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, number: int, blocks: Iterable[bytes]) -> Path:
        path = self._folder / member_name(number)
        try:
            with path.open("xb") as file:
                for block in blocks:
                    file.write(block)
        except Unreadable:
            path.unlink(missing_ok=True)
            raise
        return path


class MemberRow:
    """One open file, with all members in a row: the output file of the sandbox, which allows no other."""

    def __init__(self, file: BinaryIO) -> None:
        """`file` is unbuffered, empty and open for writing."""
        self._file = file
        self._end = 0

    def add(self, number: int, blocks: Iterable[bytes]) -> Path:
        position = self._end
        try:
            for block in blocks:
                position += self._write(position, block)
        except Unreadable:
            self._file.truncate(self._end)
            raise
        self._end = position
        return Path(member_name(number))

    def _write(self, position: int, block: bytes) -> int:
        rest = memoryview(block)
        while rest:
            count = os.pwrite(self._file.fileno(), rest, position)
            rest, position = rest[count:], position + count
        return len(block)


def cut_row(row: int, members: Sequence[Member]) -> None:
    """Make a file of each member out of an open file that has them in a row; their sizes must add up to its own."""
    position = 0
    for member in members:
        file = os.open(member.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            end = position + member.size
            while position < end:
                position += os.sendfile(file, row, position, end - position)
        finally:
            os.close(file)
