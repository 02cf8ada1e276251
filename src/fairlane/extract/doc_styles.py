"""Styles and lists of a Word document of before 2007: which paragraphs are headings or items."""

from __future__ import annotations

import re
import struct
from contextlib import suppress
from dataclasses import replace

from .doc_format import ParagraphFormat, apply_sprms

STYLES_MAX = 4_095
ANCESTORS_MAX = 20
TITLE = 62  # the number of a built-in style; those from 1 to 9 are headings
PARAGRAPH = 1  # the kind of a style
NONE = 0xFFF
LIST, OVERRIDE, LEVEL = 28, 16, 28  # bytes
LISTS_MAX = 10_000
BULLET, NO_NUMBER = 23, 255
_HEADING = re.compile("heading ([1-9])")


class DocStyles:
    """The styles of a document, by number."""

    def __init__(self, table: bytes) -> None:
        self._own: dict[int, tuple[int, bytes]] = {}  # the style that it is based on, and its sprms
        self._headings: dict[int, int] = {}  # levels, by names and numbers of styles
        self._known: dict[int, ParagraphFormat] = {}
        with suppress(struct.error, IndexError):  # those that were read are good
            self._read(table)

    def _read(self, table: bytes) -> None:
        (header,) = struct.unpack_from("<H", table)
        count, base = struct.unpack_from("<2H", table, 2)
        position = 2 + header
        for number in range(min(count, STYLES_MAX)):
            (length,) = struct.unpack_from("<H", table, position)
            position += 2
            if length:
                self._read_style(number, table[position : position + length], base)
            position += length

    def _read_style(self, number: int, content: bytes, base: int) -> None:
        id, kind = struct.unpack_from("<2H", content)
        length = struct.unpack_from("<H", content, base)[0] * 2
        name = content[base + 2 : base + 2 + length].decode("utf-16-le", "replace").lower()
        built_in = id & 0xFFF
        if 1 <= built_in <= 9:
            self._headings[number] = built_in
        elif built_in == TITLE or name == "title":
            self._headings[number] = 1
        elif (heading := _HEADING.fullmatch(name)) is not None:
            self._headings[number] = int(heading[1])
        if kind & 0xF == PARAGRAPH:
            start = base + 2 + length + 2
            start += start % 2
            size = struct.unpack_from("<H", content, start)[0] if start + 2 <= len(content) else 0
            self._own[number] = (kind >> 4, content[start + 4 : start + 2 + size])

    def format(self, number: int) -> ParagraphFormat:
        """Return what a style says about its paragraphs, with what it is based on."""
        if number not in self._known:
            chain = [number]
            while len(chain) < ANCESTORS_MAX and chain[-1] in self._own and self._own[chain[-1]][0] != NONE:
                chain.append(self._own[chain[-1]][0])
            result = ParagraphFormat()
            for style in reversed(chain):
                result = apply_sprms(result, self._own[style][1]) if style in self._own else result
                if style in self._headings:
                    result = replace(result, outline=self._headings[style])
            self._known[number] = result
        return self._known[number]


class DocLists:
    """The lists of a document: which of their levels have numbers."""

    def __init__(self, lists: bytes, overrides: bytes) -> None:
        self._kinds: dict[int, list[int]] = {}  # of the levels of a list, by its id
        self._ids: list[int] = []
        with suppress(struct.error, IndexError):
            self._read_lists(lists)
        starts = range(4, min(4 + LISTS_MAX * OVERRIDE, len(overrides) - 3), OVERRIDE)
        self._ids = [struct.unpack_from("<L", overrides, start)[0] for start in starts]

    def _read_lists(self, content: bytes) -> None:
        (count,) = struct.unpack_from("<H", content)
        count = min(count, LISTS_MAX)
        position = 2 + count * LIST
        for number in range(count):
            (id,) = struct.unpack_from("<L", content, 2 + number * LIST)
            is_simple = content[2 + number * LIST + 26] & 1
            levels = self._kinds.setdefault(id, [])
            for _ in range(1 if is_simple else 9):
                levels.append(content[position + 4])
                position += LEVEL + content[position + 24] + content[position + 25]
                position += 2 + struct.unpack_from("<H", content, position)[0] * 2

    def marker(self, number: int, level: int) -> str:
        """Return what stands before an item."""
        levels = self._kinds.get(self._ids[number - 1], []) if number <= len(self._ids) else []
        kind = levels[min(level, len(levels) - 1)] if levels else BULLET
        return "-" if kind in (BULLET, NO_NUMBER) else "1."
