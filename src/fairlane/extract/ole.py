"""OLE2 compound files, which hold office documents of before 2007 and Outlook messages: storages and streams in sectors.

Laws:
- Nothing that the file says about its size is trusted: a chain has at most as many sectors as the file, and every byte of a
  stream is counted before it is read.
- A directory may be made to run in circles: no entry is visited twice.
- A stream that ends early is read as far as it goes, with a warning.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType

from .builder import ExtractionBuilder
from .failure import Unreadable

SIGNATURE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
HEADER = struct.Struct("<8s16s2H2s2H6x9L")
HEADER_SIZE = 512
ENTRY = struct.Struct("<64sHBB3L16s20xLQ")
STORAGE, STREAM, ROOT = 1, 2, 5
LAST_SECTOR = 0xFFFFFFFA  # greater numbers are marks
NO_ENTRY = 0xFFFFFFFF
ENTRIES_MAX = 100_000
SECTOR_SHIFTS = (9, 12)
MINI_SHIFT = 6
MINI_CUTOFF = 4096


@dataclass(frozen=True, slots=True)
class OleEntry:
    """A storage or a stream."""

    name: str
    kind: int
    left: int
    right: int
    child: int
    class_id: bytes
    start: int
    size: int


Tree = dict[str, "bytes | Tree"]


class OleFile:
    """An open compound file."""

    def __init__(self, builder: ExtractionBuilder) -> None:
        self._builder = builder
        self._file = builder.path.open("rb")
        try:
            self._read_header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> OleFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    # -- tables

    def _read_header(self) -> None:
        header = self._file.read(HEADER_SIZE)
        if len(header) < HEADER_SIZE or not header.startswith(SIGNATURE):
            raise Unreadable("corrupt", "an OLE file without its header")
        fields = HEADER.unpack_from(header)
        self._is_wide = fields[3] >= 4  # whether sizes have 64 bits
        sector_shift, first_entry, first_mini, first_fat_list = fields[5], fields[9], fields[12], fields[14]
        if sector_shift not in SECTOR_SHIFTS:
            raise Unreadable("corrupt", f"an OLE file with sectors of 2^{sector_shift} bytes")
        self._sector_size = 1 << sector_shift
        self._file_size = self._file.seek(0, 2)
        self._sectors = max(0, -(-self._file_size // self._sector_size) - 1)
        self._fat = _numbers(self._sectors_at(self._fat_sectors(header, first_fat_list), NO_ENTRY))
        directory = self._sectors_at(self._chain(self._fat, first_entry), ENTRIES_MAX * ENTRY.size)
        if len(directory) >= ENTRIES_MAX * ENTRY.size:
            raise Unreadable("too_large", f"an OLE file with {ENTRIES_MAX:,} streams or more")
        self._entries = [
            directory[start : start + ENTRY.size] for start in range(0, len(directory) - ENTRY.size + 1, ENTRY.size)
        ]
        if not self._entries:
            raise Unreadable("corrupt", "an OLE file without its directory: it was cut off")
        self.root = self._entry(0)
        self._first_mini = first_mini
        self._mini_fat: array[int] | None = None
        self._mini_stream = b""

    def _fat_sectors(self, header: bytes, following: int) -> Iterator[int]:
        """Yield the sectors of the allocation table, as many as the file can need."""
        needed = -(-self._sectors * 4 // self._sector_size)
        numbers = _numbers(header[HEADER.size : HEADER_SIZE])
        for _ in range(needed + 1):
            for number in numbers:
                if number < LAST_SECTOR and needed:
                    needed -= 1
                    yield number
            if following >= self._sectors or not needed:
                return
            numbers = _numbers(self._sectors_at([following], self._sector_size))
            following = numbers.pop() if numbers else NO_ENTRY

    def _chain(self, table: array[int], number: int) -> Iterator[int]:
        """Yield the sectors from this one on; a chain that runs in a circle ends when it is as long as the table."""
        for _ in range(len(table)):
            if number >= len(table):
                return
            yield number
            number = table[number]

    def _sectors_at(self, numbers: Iterable[int], size_max: int) -> bytes:
        """Return what is in these sectors; those that follow each other in the file are read at once."""
        pieces: list[bytes] = []
        first = count = 0
        for number in numbers:
            if number >= self._sectors:
                break
            if count and number == first + count:
                count += 1
            else:
                pieces.append(self._read_run(first, count))
                first, count = number, 1
            size_max -= self._sector_size
            if size_max <= 0:
                break
        pieces.append(self._read_run(first, count))
        return b"".join(pieces)

    def _read_run(self, first: int, count: int) -> bytes:
        if not count:
            return b""
        self._builder.meter.count_unpacked(count * self._sector_size)
        self._file.seek((first + 1) * self._sector_size)
        return self._file.read(count * self._sector_size)

    # -- directory

    def _entry(self, number: int) -> OleEntry:
        name, length, kind, _, left, right, child, class_id, start, size = ENTRY.unpack(self._entries[number])
        shown = name[: max(0, min(length, 64) - 2)].decode("utf-16-le", "replace")
        return OleEntry(shown, kind, left, right, child, class_id, start, size if self._is_wide else size & 0xFFFFFFFF)

    def children(self, storage: OleEntry) -> dict[str, OleEntry]:
        """Return what a storage holds, by name in lower case."""
        return {entry.name.lower(): entry for _, entry in self._children(storage, set())}

    def _children(self, storage: OleEntry, seen: set[int]) -> Iterator[tuple[int, OleEntry]]:
        pending = [storage.child]
        while pending:
            number = pending.pop()
            if number >= len(self._entries) or number in seen:
                continue
            seen.add(number)
            entry = self._entry(number)
            pending += (entry.right, entry.left)
            if entry.kind in (STORAGE, STREAM):
                yield number, entry

    def tree(self, storage: OleEntry) -> Tree:
        """Return the content of a storage."""
        return self._tree(storage, set(), 1)

    def _tree(self, storage: OleEntry, seen: set[int], depth: int) -> Tree:
        self._builder.meter.check_nesting(depth)
        tree: Tree = {}
        for _, entry in list(self._children(storage, seen)):
            tree[entry.name] = self._tree(entry, seen, depth + 1) if entry.kind == STORAGE else self.read(entry)
        return tree

    # -- streams

    def read(self, entry: OleEntry) -> bytes:
        """Return the content of a stream."""
        is_mini = entry.size < MINI_CUTOFF
        if entry.size > self._file_size:
            self._builder.warn("damaged_parts", f"{entry.name}: longer than the file")
        size = min(entry.size, self._file_size)
        content = self._read_mini(entry.start, size) if is_mini else self._read_sectors(entry.start, size)
        if len(content) < size:
            self._builder.warn("damaged_parts", f"{entry.name}: {len(content):,} of {size:,} bytes are there")
        return content

    def _read_sectors(self, start: int, size: int) -> bytes:
        return self._sectors_at(self._chain(self._fat, start), size)[:size] if size else b""

    def _read_mini(self, start: int, size: int) -> bytes:
        """Return a small stream; these share one stream, in sectors of 64 bytes with a table of their own."""
        if self._mini_fat is None:
            self._mini_fat = _numbers(self._sectors_at(self._chain(self._fat, self._first_mini), self._file_size))
            self._mini_stream = self._read_sectors(self.root.start, min(self.root.size, self._file_size))
        needed = -(-size >> MINI_SHIFT) if size else 0
        numbers = [number for number, _ in zip(self._chain(self._mini_fat, start), range(needed), strict=False)]
        self._builder.meter.count_unpacked(size)
        starts = (number << MINI_SHIFT for number in numbers)
        return b"".join(self._mini_stream[start : start + (1 << MINI_SHIFT)] for start in starts)[:size]


def _numbers(content: bytes) -> array[int]:
    numbers = array("I", content[: len(content) // 4 * 4])
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
