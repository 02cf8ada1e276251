"""What is in this ZIP, and how does it come out without harm?

Laws:
- The directory is measured before it is read, and entries that share bytes with each other are refused: no honest writer
  makes them, and they are how a small file unpacks to petabytes.
- Sizes that the file tells are not believed: every byte that comes out is counted.
- Names are data. Nothing is ever written under a name from the file.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO

from .draft import BLOCK, Draft
from .failure import Unreadable, foreign

END = struct.Struct("<4s4H2LH")
END64 = struct.Struct("<4sQ2H2L4Q")
LOCATOR = struct.Struct("<4sLQL")
DIRECTORY_BYTES_PER_ENTRY = 1_000  # on average; names and extra fields are short in honest files
COMMENT_MAX = 65_536


def directory_size(path: Path) -> int:
    """How long the directory says it is, by the same rules as the reader that will read it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - END.size - COMMENT_MAX - LOCATOR.size - END64.size))
        start, tail = file.tell(), file.read()
        place = tail.rfind(b"PK\x05\x06")
        if place < 0 or len(tail) - place < END.size:
            raise Unreadable("corrupt", "a ZIP without its directory: it was cut off")
        length = int(END.unpack_from(tail, place)[5])
        before = place - LOCATOR.size
        if before >= 0 and tail[before : before + 4] == b"PK\x06\x07":
            file.seek(min(size, max(0, start + before - END64.size)))
            record = file.read(END64.size)
            if len(record) == END64.size and record.startswith(b"PK\x06\x06"):
                length = max(length, int(END64.unpack(record)[8]))
    return length


class Package:
    """An open ZIP; its entries are read through the meter."""

    def __init__(self, draft: Draft, entries_max: int) -> None:
        self._draft = draft
        self._source: IO[bytes] | None = None  # the entry that is being read
        if directory_size(draft.path) > entries_max * DIRECTORY_BYTES_PER_ENTRY:
            raise Unreadable("too_large", f"the directory of the ZIP is too long for {entries_max:,} files")
        with foreign("zipfile"):
            self._zip = zipfile.ZipFile(draft.path)
        self.entries = self._zip.infolist()
        if len(self.entries) > entries_max:
            self._zip.close()
            raise Unreadable("too_large", f"holds {len(self.entries):,} files; {entries_max:,} are allowed")
        self._by_name = {entry.filename: entry for entry in self.entries}
        self._refuse_overlaps()

    def __enter__(self) -> Package:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._source is not None:  # left in the middle, by an error
            self._source.close()
        self._zip.close()

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def _refuse_overlaps(self) -> None:
        end = 0
        for entry in sorted(self.entries, key=lambda one: one.header_offset):
            if entry.header_offset < end:
                self._zip.close()
                raise Unreadable("corrupt", "entries of the ZIP overlap: it was made to do harm")
            end = entry.header_offset + 30 + entry.compress_size

    def blocks(self, name: str | zipfile.ZipInfo) -> Iterator[bytes]:
        """The content of an entry, in blocks; an encrypted one ends the extraction."""
        entry = self._by_name.get(name) if isinstance(name, str) else name
        if entry is None:
            raise Unreadable("corrupt", f"the part {name} is missing")
        if entry.flag_bits & 1:
            raise Unreadable("encrypted", "an entry of the ZIP needs a password")
        with foreign("zipfile"):
            source = self._source = self._zip.open(entry)
        with source:
            while True:
                with foreign("zipfile"):
                    block = source.read(BLOCK)
                if not block:
                    return
                self._draft.meter.unpack(len(block))
                yield block

    def small(self, name: str, size_max: int = 1_000_000) -> bytes:
        """The whole content of an entry that must be small."""
        content = b""
        for block in self.blocks(name):
            content += block
            if len(content) > size_max:
                raise Unreadable("too_large", f"the part {name} has more than {size_max:,} bytes")
        return content
