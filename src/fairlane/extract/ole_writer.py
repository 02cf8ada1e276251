"""OLE2 compound files, written: a message or an object inside another file becomes a file of its own."""

from __future__ import annotations

import struct

from .ole import ENTRY, HEADER, MINI_CUTOFF, MINI_SHIFT, NO_ENTRY, ROOT, SIGNATURE, STORAGE, STREAM, Tree

SECTOR_SHIFT = 9
SECTOR = 1 << SECTOR_SHIFT
MINI_SECTOR = 1 << MINI_SHIFT
FREE, END, TABLE, LIST = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD, 0xFFFFFFFC  # instead of the number of a sector
LISTED = 109  # sectors of the table that the header lists
IN_LIST = 127  # that a sector lists which follows
NAME_MAX = 31
LEFT, CHILD, START = 4, 6, 8  # fields of an entry


class _OleWriter:
    """Collects streams and entries, then puts them into sectors."""

    def __init__(self) -> None:
        self._entries: list[list[object]] = []
        self._sectors: list[bytes] = []
        self._table: list[int] = []
        self._mini = bytearray()
        self._mini_table: list[int] = []

    def file(self, tree: Tree) -> bytes:
        """Return the file with this content."""
        root = self._entry("Root Entry", ROOT)
        self._entries[root][CHILD] = self._children(tree)
        self._entries[root][START:] = [self._chain(bytes(self._mini)), len(self._mini)]
        mini_table = struct.pack(f"<{len(self._mini_table)}L", *self._mini_table)
        mini_sectors = -(-len(mini_table) // SECTOR)
        first_mini = self._chain(mini_table, FREE)
        directory = b"".join(ENTRY.pack(*entry) for entry in self._entries)
        first_entry = self._chain(directory)
        tables, lists = self._count_tables()
        first = len(self._table)
        numbers = [*range(first, first + tables)]
        table = [*self._table, *[TABLE] * tables, *[LIST] * lists]
        packed = struct.pack(f"<{len(table)}L", *table)
        header = HEADER.pack(
            *(SIGNATURE, b"", 0x3E, 3, b"\xfe\xff", SECTOR_SHIFT, MINI_SHIFT),
            *(0, tables, first_entry, 0, MINI_CUTOFF, first_mini, mini_sectors, first + tables if lists else END, lists),
        )
        listed = _pack_list(numbers[:LISTED], LISTED)
        for start in range(LISTED, tables, IN_LIST):
            following = first + tables + (start - LISTED) // IN_LIST + 1
            is_last = start + IN_LIST >= tables
            listed += _pack_list(numbers[start : start + IN_LIST], IN_LIST) + struct.pack("<L", END if is_last else following)
        in_header, rest = listed[: LISTED * 4], listed[LISTED * 4 :]
        return b"".join((header, in_header, *self._sectors, packed.ljust(tables * SECTOR, b"\xff"), rest))

    def _count_tables(self) -> tuple[int, int]:
        """Return how many sectors the table needs, which has numbers for those too, and how many list them."""
        tables = lists = 0
        while True:
            needed = -(-(len(self._table) + tables + lists) * 4 // SECTOR)
            listing = max(0, -(-(needed - LISTED) // IN_LIST))
            if (needed, listing) == (tables, lists):
                return tables, lists
            tables, lists = needed, listing

    def _entry(self, name: str, kind: int) -> int:
        stored = name.encode("utf-16-le")[: NAME_MAX * 2] + b"\0\0"
        self._entries.append([stored, len(stored), kind, 1, NO_ENTRY, NO_ENTRY, NO_ENTRY, b"", 0, 0])
        return len(self._entries) - 1

    def _children(self, tree: Tree) -> int:
        """Add what a storage holds, as a sorted tree; return the number of its top."""
        numbers: list[int] = []
        for name in sorted(tree, key=lambda name: (len(name), name.upper())):
            content = tree[name]
            number = self._entry(name, STREAM if isinstance(content, bytes) else STORAGE)
            numbers.append(number)
            if isinstance(content, bytes):
                self._entries[number][START:] = [self._stream(content), len(content)]
            else:
                self._entries[number][CHILD] = self._children(content)
        return self._top(numbers)

    def _top(self, numbers: list[int]) -> int:
        if not numbers:
            return NO_ENTRY
        middle = len(numbers) // 2
        self._entries[numbers[middle]][LEFT:CHILD] = [self._top(numbers[:middle]), self._top(numbers[middle + 1 :])]
        return numbers[middle]

    def _stream(self, content: bytes) -> int:
        if len(content) >= MINI_CUTOFF:
            return self._chain(content)
        if not content:
            return END
        first, count = len(self._mini_table), -(-len(content) // MINI_SECTOR)
        self._mini_table += [*range(first + 1, first + count), END]
        self._mini += content.ljust(count * MINI_SECTOR, b"\0")
        return first

    def _chain(self, content: bytes, filling: int = 0) -> int:
        """Put something into sectors of its own; return the first."""
        if not content:
            return END
        first, count = len(self._table), -(-len(content) // SECTOR)
        self._table += [*range(first + 1, first + count), END]
        self._sectors.append(content.ljust(count * SECTOR, bytes([filling & 0xFF])))
        return first


def _pack_list(numbers: list[int], count: int) -> bytes:
    return struct.pack(f"<{count}L", *numbers, *[FREE] * (count - len(numbers)))


def write_ole(tree: Tree) -> bytes:
    """Return an OLE file with this content."""
    return _OleWriter().file(tree)
