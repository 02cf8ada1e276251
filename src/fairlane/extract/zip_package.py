"""ZIP reader for archives and office documents, hardened against ZIP bombs.

Laws:
- The size of the directory is checked before it is parsed, and overlapping entries are refused: no honest program writes
  them, and with them a small file unpacks to petabytes.
- Declared sizes are not trusted: every unpacked byte is counted.
- Names are data. Nothing is ever written under a name from the file.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO

from .builder import BLOCK, ExtractionBuilder
from .failure import Unreadable, corrupt_on_error

END = struct.Struct("<4s4H2LH")
END64 = struct.Struct("<4sQ2H2L4Q")
LOCATOR = struct.Struct("<4sLQL")
DIRECTORY_BYTES_PER_ENTRY = 1_000  # on average; honest files have short names and extra fields
COMMENT_MAX = 65_536


def directory_size(path: Path) -> int:
    """Return the declared size of the directory, located by the same rules as in `zipfile`."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - END.size - COMMENT_MAX - LOCATOR.size - END64.size))
        start, tail = file.tell(), file.read()
        position = tail.rfind(b"PK\x05\x06")
        if position < 0 or len(tail) - position < END.size:
            raise Unreadable("corrupt", "a ZIP without its directory: it was cut off")
        length = int(END.unpack_from(tail, position)[5])
        before = position - LOCATOR.size
        if before >= 0 and tail[before : before + 4] == b"PK\x06\x07":
            file.seek(min(size, max(0, start + before - END64.size)))
            record = file.read(END64.size)
            if len(record) == END64.size and record.startswith(b"PK\x06\x06"):
                length = max(length, int(END64.unpack(record)[8]))
    return length


class Package:
    """An open ZIP file; the meter counts what is read from it."""

    def __init__(self, builder: ExtractionBuilder, entries_max: int) -> None:
        self._builder = builder
        self._sources: list[IO[bytes]] = []  # the entries being read: a chart is read within its document
        if directory_size(builder.path) > entries_max * DIRECTORY_BYTES_PER_ENTRY:
            raise Unreadable("too_large", f"the directory of the ZIP is too long for {entries_max:,} files")
        with corrupt_on_error("zipfile"):
            self._zip = zipfile.ZipFile(builder.path)
        self.entries = self._zip.infolist()
        if len(self.entries) > entries_max:
            self._zip.close()
            raise Unreadable("too_large", f"holds {len(self.entries):,} files; {entries_max:,} are allowed")
        self._by_name = {entry.filename.replace("\\", "/"): entry for entry in self.entries}  # some programs write `xl\\a.xml`
        self._refuse_overlaps()

    def __enter__(self) -> Package:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for source in self._sources:  # an error ended their reading
            source.close()
        self._zip.close()

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def is_small(self, name: str, size_max: int) -> bool:
        """Return whether an entry is there, says that it is small, and needs no password."""
        entry = self._by_name.get(name)
        return entry is not None and entry.file_size <= size_max and not entry.flag_bits & 1

    def _refuse_overlaps(self) -> None:
        end = 0
        for entry in sorted(self.entries, key=lambda entry: entry.header_offset):
            if entry.header_offset < end:
                self._zip.close()
                raise Unreadable("corrupt", "entries of the ZIP overlap: it was made to do harm")
            end = entry.header_offset + 30 + entry.compress_size

    def iter_blocks(self, name: str | zipfile.ZipInfo) -> Iterator[bytes]:
        """Yield the content of an entry in blocks; an encrypted entry ends the extraction."""
        entry = self._by_name.get(name) if isinstance(name, str) else name
        if entry is None:
            raise Unreadable("corrupt", f"the part {name} is missing")
        if entry.flag_bits & 1:
            raise Unreadable("encrypted", "an entry of the ZIP needs a password")
        with corrupt_on_error("zipfile"):
            source = self._zip.open(entry)
        self._sources.append(source)
        with source:
            while True:
                with corrupt_on_error("zipfile"):
                    block = source.read(BLOCK)
                if not block:
                    self._sources.remove(source)
                    return
                self._builder.meter.count_unpacked(len(block))
                yield block

    def read_small(self, name: str, size_max: int = 1_000_000) -> bytes:
        """Return the whole content of an entry that must be small."""
        content = b""
        for block in self.iter_blocks(name):
            content += block
            if len(content) > size_max:
                raise Unreadable("too_large", f"the part {name} has more than {size_max:,} bytes")
        return content
