"""Texts of a PowerPoint file of before 2007: paragraphs with levels, bullets and links.

Laws:
- A paragraph is an item if it says so, else if its master says so, else if it is indented.
- What is damaged in formats is left out; the text stays.
"""

from __future__ import annotations

import re
import struct
from contextlib import suppress
from dataclasses import dataclass, field

from .markdown import MarkdownWriter
from .ppt_records import PptRecord, read_records, wide_text

HEADER, REFERENCE, WIDE, BYTES, STYLES = 0x0F9F, 0x0F9E, 0x0FA0, 0x0FA8, 0x0FA1
INTERACTIVE, INTERACTIVE_ATOM, INTERACTIVE_RANGE = 0x0FF2, 0x0FF3, 0x0FDF
FIELDS = (0x0FD8, 0x0FF7, 0x0FF8, 0x0FF9, 0x0FFA, 0x1015)  # numbers, dates, footers: a letter stands for each
TITLES, BODIES, OTHER = (0, 6), (1, 5, 7, 8), 4  # kinds of texts
HALVES = (7, 8)  # bodies that inherit from the first kind
LEVELS_MAX = 5
INSTANCE_WITH_LEVELS = 5  # from this kind on a master's styles name their levels
LINKS_MAX = 10_000
BULLET_FLAGS = 0xF
# The sizes of what a format may have, in order, by the bits that say so.
PARAGRAPH_SIZES = (
    *((0x80, 2), (0x10, 2), (0x40, 2), (0x20, 4), (0x800, 2), (0x1000, 2), (0x2000, 2), (0x4000, 2), (0x100, 2), (0x400, 2)),
    (0x8000, 2),
)
TABS, TAB = 0x100000, 4
PARAGRAPH_SIZES_AFTER_TABS = ((0x10000, 2), (0xE0000, 2), (0x200000, 2))
LETTER_SIZES = (
    (0xFFFF, 2),
    (0x10000, 2),
    (0x200000, 2),
    (0x400000, 2),
    (0x800000, 2),
    (0x20000, 2),
    (0x40000, 4),
    (0x80000, 2),
)
_LINE = re.compile("[^\r]*")

Bullets = dict[tuple[int, int], bool]  # by the kind of text and the level


@dataclass(slots=True)
class PptText:
    """One text: its kind, its letters, and where its formats are."""

    kind: int = OTHER
    letters: str = ""
    styles: bytes = b""
    links: list[tuple[int, int, int]] = field(default_factory=list)  # begin, end, number of the link
    reference: int | None = None  # its number among the texts of the slide, if it is there
    _link: int = 0

    def add(self, content: bytes, record: PptRecord) -> None:
        """Take a record that belongs to the text."""
        with suppress(struct.error):
            if record.kind == WIDE:
                self.letters = wide_text(content, record)
            elif record.kind == BYTES:
                self.letters = content[record.start : record.end].decode("latin-1")
            elif record.kind == STYLES:
                self.styles = content[record.start : record.end]
            elif record.kind == HEADER:
                (self.kind,) = struct.unpack_from("<L", content, record.start)
            elif record.kind == REFERENCE:
                (self.reference,) = struct.unpack_from("<L", content, record.start)
            elif record.kind in FIELDS:
                (position,) = struct.unpack_from("<L", content, record.start)
                self.letters = self.letters[:position] + self.letters[position + 1 :]
            else:
                self._add_link(content, record)

    def _add_link(self, content: bytes, record: PptRecord) -> None:
        if record.kind == INTERACTIVE:
            self._link = link_number(content, record)
        elif record.kind == INTERACTIVE_RANGE and len(self.links) < LINKS_MAX:
            begin, end = struct.unpack_from("<2L", content, record.start)
            self.links.append((begin, end, self._link))


def link_number(content: bytes, record: PptRecord) -> int:
    """Return the number of the link that something leads to when it is clicked; 0 for none."""
    for inner in read_records(content, record):
        if inner.kind == INTERACTIVE_ATOM and inner.end - inner.start >= 8:
            return int(struct.unpack_from("<L", content, inner.start + 4)[0])
    return 0


def _skip(content: bytes, position: int, mask: int, sizes: tuple[tuple[int, int], ...]) -> int:
    return position + sum(size for bits, size in sizes if mask & bits)


def _read_paragraph(content: bytes, position: int) -> tuple[bool | None, int]:
    """Return whether the format of a paragraph has a bullet, None if it says nothing, and where the format ends."""
    (mask,) = struct.unpack_from("<L", content, position)
    position += 4
    bullet = None
    if mask & BULLET_FLAGS:
        (flags,) = struct.unpack_from("<H", content, position)
        position += 2
        bullet = bool(flags & 1) if mask & 1 else None
    position = _skip(content, position, mask, PARAGRAPH_SIZES)
    if mask & TABS:
        position += 2 + struct.unpack_from("<H", content, position)[0] * TAB
    return bullet, _skip(content, position, mask, PARAGRAPH_SIZES_AFTER_TABS)


def read_master_styles(content: bytes, record: PptRecord, bullets: Bullets) -> None:
    """Read which levels of a kind of texts have bullets."""
    kind, styles = record.instance, content[record.start : record.end]
    with suppress(struct.error):
        (count,) = struct.unpack_from("<H", styles)
        position = 2
        for level in range(min(count, LEVELS_MAX)):
            if kind >= INSTANCE_WITH_LEVELS:
                (level,) = struct.unpack_from("<H", styles, position)
                position += 2
            bullet, position = _read_paragraph(styles, position)
            if bullet is not None:
                bullets[kind, level] = bullet
            (mask,) = struct.unpack_from("<L", styles, position)
            position = _skip(styles, position + 4, mask, LETTER_SIZES)


def _paragraphs(text: PptText) -> list[tuple[int, int, bool | None]]:
    """Return where runs of paragraphs end, their level, and whether they have bullets."""
    runs: list[tuple[int, int, bool | None]] = []
    position = end = 0
    with suppress(struct.error):
        while end <= len(text.letters):
            count, level = struct.unpack_from("<LH", text.styles, position)
            bullet, position = _read_paragraph(text.styles, position + 6)
            end += max(count, 1)
            runs.append((end, level, bullet))
    return runs


class PptTextWriter:
    """Writes texts as Markdown."""

    def __init__(self, writer: MarkdownWriter, targets: dict[int, str]) -> None:
        self._writer, self._targets = writer, targets
        self.bullets: Bullets = {}  # of the slide's master

    def write(self, text: PptText, target: str = "") -> None:
        """Write a text; `target` is where all of it leads."""
        runs = _paragraphs(text)
        links = sorted((begin, end, self._targets.get(number, "")) for begin, end, number in text.links)
        run = link = start = 0
        while start <= len(text.letters):
            match = _LINE.match(text.letters, start)
            end = match.end() if match is not None else len(text.letters)
            while run < len(runs) - 1 and runs[run][0] <= start:
                run += 1
            while link < len(links) and links[link][1] <= start:
                link += 1
            self._line(text.letters, start, end, [(start, end, target)] if target else links[link:])
            _, level, bullet = runs[run] if runs else (0, 0, None)
            self._end(text.kind, min(level, LEVELS_MAX), bullet)
            start = end + 1
        if text.kind in TITLES:
            self._writer.end_heading(2)

    def _line(self, letters: str, start: int, end: int, links: list[tuple[int, int, str]]) -> None:
        for link_start, link_end, target in links:
            if link_start >= end:
                break
            begin = max(link_start, start)
            if target and begin < min(link_end, end):
                self._text(letters[start:begin])
                self._writer.begin_link(target)
                start = min(link_end, end)
                self._text(letters[begin:start])
                self._writer.end_link()
        self._text(letters[start:end])

    def _text(self, text: str) -> None:
        self._writer.text(text.replace("\x0b", "\n"))

    def _end(self, kind: int, level: int, bullet: bool | None) -> None:
        if kind in TITLES:
            self._writer.text("\n")  # the heading ends with the text
            return
        if bullet is None and kind in BODIES:
            bullet = self.bullets.get((kind, level))
            if bullet is None and kind in HALVES:
                bullet = self.bullets.get((BODIES[0], level))
        if bullet or (bullet is None and level):
            self._writer.end_item(level)
        else:
            self._writer.end()
