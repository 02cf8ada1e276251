"""Formats in a Word document of before 2007: what paragraphs and letters are, by pages of runs and lists of changes (sprms)."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

PAGE = 512
PARAGRAPH_ENTRY = 13  # bytes a run on a page of paragraphs
PAGE_NUMBER = 0x3FFFFF
CACHED = 2_048
SIZES = (1, 1, 2, 4, 2, 2, 0, 3)  # of a sprm's operand, by its highest three bits; 0: it says so itself
LONG_OPERANDS = (0xD608, 0xD609)  # whose length has two bytes
TABS, TABS_LONG = 0xC615, 255
STYLE, IN_TABLE, ROW_END, DEPTH, INNER_CELL, INNER_ROW_END = 0x4600, 0x2416, 0x2417, 0x6649, 0x244B, 0x244C
LIST_LEVEL, LIST, OUTLINE, PAGE_BREAK = 0x260A, 0x460B, 0x2640, 0x2407
DISTANT = (0x6645, 0x6646)
DELETED, SYMBOL = 0x0800, 0x6A09
LISTS_MAX = 2_046  # greater numbers say that there is no list
TABLES_MAX = 20  # in each other
TEXT_LEVEL = 9  # the outline level of text


@dataclass(frozen=True, slots=True)
class ParagraphFormat:
    """What a paragraph is; None where it says nothing."""

    style: int = 0
    list: int | None = None
    level: int | None = None
    outline: int | None = None  # 0 for text, else the level of a heading
    depth: int = 0  # of the table around it
    is_cell_end: bool = False  # of a table in a table
    is_row_end: bool = False
    is_after_page_break: bool = False


@dataclass(frozen=True, slots=True)
class LetterFormat:
    """What letters are."""

    is_deleted: bool = False
    is_symbol: bool = False


Run = tuple[int, bytes]  # the offset of its end, and its format
Page = tuple[tuple[int, ...], list[bytes]]


class FormatRuns:
    """The runs of one kind, by offsets in the stream: on pages of 512 bytes, with a table of what is on which page."""

    def __init__(self, stream: bytes, table: bytes, is_paragraph: bool) -> None:
        count = max(0, len(table) - 4) // 8
        self._stream = stream
        self._offsets = struct.unpack_from(f"<{count + 1}L", table) if count else ()
        self._pages = struct.unpack_from(f"<{count}L", table, (count + 1) * 4) if count else ()
        read: Callable[[int], Page] = self._read_paragraphs if is_paragraph else self._read_letters
        self._page = lru_cache(maxsize=8)(read)

    def at(self, offset: int) -> Run:
        """Return the run at an offset; without one, an empty format. Its end may lie before the offset where the file lies."""
        index = bisect_right(self._offsets, offset) - 1
        if not 0 <= index < len(self._pages):
            later = self._offsets[0] if self._offsets and offset < self._offsets[0] else 1 << 32
            return later, b""
        offsets, formats = self._page(self._pages[index] & PAGE_NUMBER)
        run = bisect_right(offsets, offset) - 1
        if 0 <= run < len(formats):
            return offsets[run + 1], formats[run]
        later = offsets[0] if offsets and offset < offsets[0] else self._offsets[index + 1]
        return later, b""

    def _read_page(self, number: int) -> tuple[bytes, tuple[int, ...]]:
        page = self._stream[number * PAGE : (number + 1) * PAGE]
        if len(page) < PAGE or page[-1] > (PAGE - 5) // 5:
            return b"", ()
        return page, struct.unpack_from(f"<{page[-1] + 1}L", page)

    def _read_paragraphs(self, number: int) -> Page:
        page, offsets = self._read_page(number)
        formats: list[bytes] = []
        for run in range(len(offsets) - 1):
            position = len(offsets) * 4 + run * PARAGRAPH_ENTRY
            place = page[position] * 2 if position < PAGE else 0
            length = page[place] * 2 - 1 if place and page[place] else page[place + 1] * 2 if place else 0
            start = place + 1 if place and page[place] else place + 2
            formats.append(page[start : start + length])
        return offsets, formats

    def _read_letters(self, number: int) -> Page:
        page, offsets = self._read_page(number)
        formats: list[bytes] = []
        for run in range(len(offsets) - 1):
            place = page[len(offsets) * 4 + run] * 2
            formats.append(page[place + 1 : place + 1 + page[place]] if place else b"")
        return offsets, formats


def read_sprms(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield each change: what it changes, its value if that is short, and where its operand begins."""
    position = 0
    while position + 3 <= len(content):
        sprm = content[position] | content[position + 1] << 8
        position += 2
        size = SIZES[sprm >> 13]
        if not size:
            size = 1 + content[position]
            if sprm in LONG_OPERANDS:
                size = 1 + int.from_bytes(content[position : position + 2], "little")
            elif sprm == TABS and content[position] == TABS_LONG:
                return  # so many tabs that nothing follows them
        yield sprm, int.from_bytes(content[position : position + min(size, 4)], "little"), position
        position += size


def with_distant(content: bytes, data: bytes) -> bytes:
    """Return the format of a paragraph with the sprms that did not fit on its page: those of long rows."""
    for sprm, value, _ in read_sprms(content[2:]):
        if sprm in DISTANT and value + 2 <= len(data):
            (length,) = struct.unpack_from("<H", data, value)
            return content + data[value + 2 : value + 2 + length]
    return content


@lru_cache(maxsize=CACHED)
def letter_format(sprms: bytes) -> LetterFormat:
    """Return what a run of letters is."""
    is_deleted = is_symbol = False
    for sprm, value, _ in read_sprms(sprms):
        if sprm == DELETED:
            is_deleted = value == 1
        elif sprm == SYMBOL:
            is_symbol = True
    return LetterFormat(is_deleted, is_symbol)


@lru_cache(maxsize=CACHED)
def paragraph_format(content: bytes, changes: bytes) -> ParagraphFormat:
    """Return what a paragraph is, by its style and sprms, and what its piece changes."""
    style = int.from_bytes(content[:2], "little")
    return apply_sprms(apply_sprms(ParagraphFormat(style), content[2:]), changes)


def apply_sprms(start: ParagraphFormat, sprms: bytes) -> ParagraphFormat:
    """Return a format with these changes."""
    found: dict[str, int | bool | None] = {}
    is_in_table, depth = start.depth > 0, start.depth
    for sprm, value, _ in read_sprms(sprms):
        if sprm == IN_TABLE:
            is_in_table = value == 1
        elif sprm == DEPTH:
            depth = min(value, TABLES_MAX)
        elif sprm in (ROW_END, INNER_ROW_END):
            found["is_row_end"] = value == 1
        elif sprm == INNER_CELL:
            found["is_cell_end"] = value == 1
        elif sprm == PAGE_BREAK:
            found["is_after_page_break"] = value == 1
        elif sprm in NUMBERS:
            found[NUMBERS[sprm]] = value
    if (number := found.get("list")) is not None and number > LISTS_MAX:
        found["list"] = 0
    if (outline := found.get("outline")) is not None:
        found["outline"] = outline + 1 if outline < TEXT_LEVEL else 0
    return replace(start, depth=max(depth, 1) if is_in_table else 0, **found)  # type: ignore[arg-type]


NUMBERS = {STYLE: "style", LIST: "list", LIST_LEVEL: "level", OUTLINE: "outline"}
