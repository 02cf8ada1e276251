"""Blocks of a PDF page: paragraphs, list items, code and tables, from its lines in reading order.

Laws:
- Lines become one paragraph where the next word would not have fitted; elsewhere the break stays.
- Markers make items only where a block may begin; numbers only in their order.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from .pdf_aligned import take_aligned
from .pdf_columns import Region, regions
from .pdf_lines import PageText
from .pdf_links import add_links
from .pdf_narrow import mark_cuts
from .pdf_pieces import HYPHENS, Piece, Row, Span, Spans, Table, join, pieces_of, rows_of, spans_of, text_of
from .pdf_rules import Rulings, read_rules
from .pdf_tables import grids, take_tables

SAME_SIZE = 1.08
MONO_SHARE_MAX = 0.6  # of a page: where more letters have one width, that is how its text is written, not code
LEADING_USUAL = 1.4  # font sizes, where a region does not show its own
LEADING_MORE = 1.2  # times the usual one: a paragraph ends
INDENT_MIN = 0.8  # font sizes
LISTS_MAX = 20  # that may go on at once
DOTS_MAX = 500  # drawn bullets on one page
DOT_REACH = 2.5  # font sizes from a drawn bullet to its line
FULL = 0.75  # of the width of a block: a line that is longer goes on in the next one if that begins with a small letter
NARROW = 0.8  # of a region's width: a block that is narrower may be lines of their own, such as an address
_BULLET = re.compile(r"(?:[•◦▪‣●○■□➢➤✓\uf0b7\uf0a7\uf076]\s*|[-–—*·]\s+)(?=\S)")
_NUMBER = re.compile(r"(?:(\d{1,3})[.)]|([a-z])\))\s+(?=\S)")
_WORDLESS = re.compile("[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")  # Chinese and Japanese
_SENTENCE_END = re.compile(r"[.!?:]['\")\]]?\s*$")
LEADERS = re.compile(r"(?:\. ?){5}|…{2}")  # as in a table of contents
Kind = Literal["text", "item", "code", "table"]


@dataclass(slots=True)
class TextLine:
    """A line of a region."""

    x0: float
    x1: float
    y: float
    size: float
    is_bold: bool
    is_mono: bool
    spans: Spans
    text: str
    number: int = 0  # that stands on its own before the text
    marker: str = ""


@dataclass(slots=True)
class Block:
    """What becomes one block of Markdown."""

    kind: Kind
    size: float = 0.0
    is_bold: bool = False
    lines: int = 0
    x0: float = 0.0
    marker: str = ""
    spans: Spans = field(default_factory=list)
    table: Table | None = None

    @property
    def text(self) -> str:
        return text_of(self.spans)


def blocks_of(text: PageText, pieces: list[Piece], rules: Rulings) -> list[Block]:
    """Return the blocks of a page in reading order."""
    pieces = take_tables(text, pieces, grids(rules))
    blocks: list[Block] = []
    for region in regions(pieces):
        for pieces_taken, table in take_aligned(rows_of(region.pieces), rules.horizontal):
            taken = {id(piece) for piece in pieces_taken}
            region.pieces = [piece for piece in region.pieces if id(piece) not in taken]
            region.pieces.append(table)
        blocks += _blocks_of_region(region, rules)
    return blocks + [block for line in text.aside for block in plain_block(line)]


def plain_block(text: str) -> list[Block]:
    """Return text as a block, if it is any."""
    return [Block("text", lines=2, spans=[Span(text.strip())])] if text.strip() else []


def read_blocks(document: Any, page: Any, text: PageText) -> list[Block]:
    """Read the lines, links and drawings of a page, and return its blocks."""
    lines = text.lines()
    mono = sum(len(line.text) for line in lines if line.font.is_mono)
    if mono > MONO_SHARE_MAX * len(text.text):
        for line in lines:
            line.font = line.font._replace(is_mono=False)
    mark_cuts(lines)
    add_links(document, page, text, lines)
    return blocks_of(text, pieces_of(text, lines), read_rules(page, text.turn))


def _ordered_rows(region: Region) -> list[Row]:
    """Return rows in reading order: from top to bottom in a column, else as in the file."""
    if region.is_column:
        return rows_of(region.pieces)
    by_order: dict[int, list[Piece]] = {}
    for piece in sorted(region.pieces, key=lambda piece: (piece.order, piece.table is None)):
        by_order.setdefault(piece.order * 2 + (piece.table is None), []).append(piece)
    return [Row(pieces[0].y, sorted(pieces, key=lambda piece: (piece.order, piece.start))) for pieces in by_order.values()]


def _text_line(row: Row) -> TextLine:
    spans: Spans = []
    longest = max(row.pieces, key=lambda piece: piece.length)
    assert longest.line is not None
    for piece in row.pieces:
        if piece.line is not None:
            join(spans, spans_of(piece.line, piece.start, piece.end))
    font = longest.line.font
    return TextLine(
        min(piece.x0 for piece in row.pieces),
        max(piece.x1 for piece in row.pieces),
        row.y,
        longest.size,
        font.is_bold,
        font.is_mono,
        spans,
        text_of(spans),
        _lone_number(row),
    )


def _lone_number(row: Row) -> int:
    """Return the number that is the first piece of a row, if it is one."""
    piece = row.pieces[0]
    text = piece.line.text[piece.start : piece.end].strip() if piece.line is not None and len(row.pieces) > 1 else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 3 else 0


def _blocks_of_region(region: Region, rules: Rulings) -> list[Block]:
    if not region.pieces:
        return []
    left, right = min(piece.x0 for piece in region.pieces), max(piece.x1 for piece in region.pieces)
    blocks: list[Block] = []
    lines: list[TextLine] = []
    for row in _ordered_rows(region):
        tables = [Block("table", size=piece.size, table=piece.table) for piece in row.pieces if piece.table is not None]
        if not tables:
            lines.append(_text_line(row))
            continue
        blocks += _blocks_of_lines(lines, left, right, rules) + tables
        lines = []
    return blocks + _blocks_of_lines(lines, left, right, rules)


def _blocks_of_lines(lines: list[TextLine], left: float, right: float, rules: Rulings) -> list[Block]:
    _mark_dots(lines, rules)
    _mark_numbers(lines)
    return [_block(group, left, right) for group in _groups(lines)]


def _mark_dots(lines: list[TextLine], rules: Rulings) -> None:
    """Give a marker to the lines that begin with a drawn bullet."""
    dots = sorted((y, x) for x, y in rules.dots) if len(rules.dots) <= DOTS_MAX else []
    for line in lines:
        low, high = line.y - 0.1 * line.size, line.y + 0.75 * line.size
        for _y, x in dots[bisect_left(dots, (low, 0.0)) : bisect_left(dots, (high, 0.0))]:
            if 0 < line.x0 - x <= DOT_REACH * line.size:
                line.marker = "-"
                break


def _mark_numbers(lines: list[TextLine]) -> None:
    """Give a marker to the lines that begin with a number on its own, where two or more of them count up from 1."""
    lists: list[list[TextLine]] = []
    for line in lines:
        if not line.number or line.is_bold:
            continue
        near = [members for members in lists[-LISTS_MAX:] if abs(members[0].x0 - line.x0) < line.size / 2]
        if near and near[-1][-1].number == line.number - 1:
            near[-1].append(line)
        elif line.number == 1:
            lists.append([line])
    for members in lists:
        for member in members if len(members) > 1 else ():
            _take_number(member)


def _take_number(line: TextLine) -> None:
    line.marker = f"{line.number}."
    line.text = line.text.lstrip()[len(str(line.number)) :].lstrip()
    line.spans[0] = Span(line.spans[0].text.lstrip()[len(str(line.number)) :].lstrip(), line.spans[0].target)


def _counting(lines: list[TextLine]) -> set[int]:
    """Return the lines, by their ids, whose number is followed by the next one at the same indent: a list may go on here."""
    found = set()
    before: dict[int, tuple[int, TextLine]] = {}
    for line in lines:
        indent, number = _indent(line), _number(line.text)
        if number:
            if indent in before and before[indent][0] == number - 1:
                found.add(id(before[indent][1]))
            before[indent] = number, line
    return found


def _indent(line: TextLine) -> int:
    """Return where a line begins, as a number that is the same for lines of one indent."""
    return round(line.x0 / line.size)


def _number(text: str) -> int:
    """Return the number that a text begins with, as an item would; 0 if there is none."""
    match = _NUMBER.match(text)
    return int(match.group(1)) if match is not None and match.group(1) is not None else 0


def _groups(lines: list[TextLine]) -> Iterator[list[TextLine]]:
    """Part lines into the groups that become a block."""
    leading = _usual_leading(lines)
    group: list[TextLine] = []
    marker_before = ""
    numbers: dict[int, int] = {}  # the last one at each indent
    counting = _counting(lines)
    for line in lines:
        begins = not group or _begins_block(group, line, leading)
        may_begin = begins or group[0].marker != "" or _is_short(group[-1], lines) or _ends_sentence(group[-1])
        indent = _indent(line)
        is_expected = id(line) in counting or numbers.get(indent, 0) + 1 == _number(line.text)
        marker = line.marker or _marker(line.text, marker_before, may_begin, is_expected)
        if begins or marker:
            if group:
                yield group
            group = []
            line.marker = marker
            if marker:
                marker_before = marker
                numbers[indent] = _number(f"{marker} x")
        group.append(line)
    if group:
        yield group


def _usual_leading(lines: list[TextLine]) -> float:
    """Return the usual distance of lines of a paragraph, in font sizes."""
    found = sorted(
        (before.y - line.y) / line.size
        for before, line in pairwise(lines)
        if before.size < line.size * SAME_SIZE
        and line.size < before.size * SAME_SIZE
        and 0.8 < (before.y - line.y) / line.size < 2.6
    )
    return min(found[len(found) // 4], 2 * LEADING_USUAL) if found else LEADING_USUAL


def _begins_block(group: list[TextLine], line: TextLine, leading: float) -> bool:
    """Whether a line cannot belong to the block of the lines before it."""
    before = group[-1]
    if before.size > line.size * SAME_SIZE or line.size > before.size * SAME_SIZE or before.is_mono != line.is_mono:
        return True
    down = (before.y - line.y) / line.size
    if down < 0.3 or down > leading * LEADING_MORE + 0.05:
        return True
    if line.is_mono:
        return False
    if before.is_bold != line.is_bold and before.x1 < max(line.x1, group[0].x1) - 2 * line.size:
        return True
    indent = (line.x0 - before.x0) / line.size
    middle = abs((line.x0 + line.x1) - (before.x0 + before.x1)) / 2
    if abs(indent) < INDENT_MIN or middle < line.size / 4:
        return False
    if indent > 0:  # a first line that is indented, or the second of a hanging paragraph
        ends_early = before.x1 < max(line.x1 for line in group) - 3 * line.size
        is_like_first = len(group) > 1 and abs(group[0].x0 - line.x0) < line.size / 4
        return group[0].marker == "" and (ends_early or is_like_first or _ends_sentence(before))
    return len(group) > 1 and line.x0 < group[0].x0 - INDENT_MIN * line.size


def _ends_sentence(line: TextLine) -> bool:
    return _SENTENCE_END.search(line.text) is not None


def _is_short(line: TextLine, lines: list[TextLine]) -> bool:
    """Whether a line ends well before others do."""
    return line.x1 < max(other.x1 for other in lines[:200]) - 3 * line.size


def _marker(text: str, marker_before: str, may_begin: bool, is_expected: bool) -> str:
    """Return the marker that a line begins with, as Markdown writes it."""
    if not may_begin:
        return ""
    match = _BULLET.match(text)
    if match is not None:
        return "-"
    match = _NUMBER.match(text)
    if match is None:
        return ""
    number, letter = match.groups()
    mark = match.group().strip()
    if number is not None:
        is_next = int(number) == 1 or is_expected or int(number) == _number(f"{marker_before} x") + 1
    else:
        is_next = letter == "a" or (len(marker_before) == 2 and ord(letter) == ord(marker_before[0]) + 1)
    return mark if is_next else ""


def _block(group: list[TextLine], left: float, right: float) -> Block:
    """Make a block of lines."""
    first = group[0]
    if first.is_mono and len(group) > 1 and not first.marker:
        return Block("code", first.size, lines=len(group), x0=first.x0, spans=[Span(_listing(group))])
    spans = list(first.spans)
    if first.marker:
        _drop_marker(spans, first.text)
    limit = _right_limit(group, left, right)
    for before, line in pairwise(group):
        join(spans, line.spans, _gap(before, line) if _goes_on(before, line, limit) else "\n")
    kind: Kind = "item" if first.marker else "text"
    return Block(kind, first.size, all(line.is_bold for line in group), len(group), first.x0, first.marker, spans)


def _drop_marker(spans: Spans, text: str) -> None:
    match = _BULLET.match(text) or _NUMBER.match(text)
    if match is not None and len(spans[0].text) > match.end():
        spans[0] = Span(spans[0].text[match.end() :], spans[0].target)


def _right_limit(group: list[TextLine], left: float, right: float) -> float | None:
    """Return where the lines of a block had to break, or nothing if they are lines of their own."""
    limit = max(line.x1 for line in group)
    if limit >= left + NARROW * (right - left):
        return limit
    full = sum(line.x1 >= limit - 0.12 * (limit - group[0].x0) for line in group[:-1])
    return limit if len(group) >= 3 and full >= 0.6 * (len(group) - 1) else None


def _gap(before: TextLine, line: TextLine) -> str:
    """Return what stands between two lines of a paragraph: nothing in scripts that part no words."""
    letters = before.text.rstrip()[-1:] + line.text.lstrip()[:1]
    return "" if len(letters) == 2 and all(map(_WORDLESS.match, letters)) else " "


def _goes_on(before: TextLine, line: TextLine, limit: float | None) -> bool:
    """Whether a line continues the sentence of the one before: its first word would not have fitted there."""
    if before.text.endswith(tuple(HYPHENS)):
        return True
    if limit is None or LEADERS.search(before.text):
        return False
    word = line.text.split(maxsplit=1)[0]
    if word[0].islower() and before.x1 - before.x0 > FULL * (limit - before.x0) and not _ends_sentence(before):
        return True
    width = (line.x1 - line.x0) / max(len(line.text), 1)
    return before.x1 + (len(word) + 1) * width > limit - 0.5 * width


def _listing(group: list[TextLine]) -> str:
    """Return lines of code with their indents."""
    left = min(line.x0 for line in group)
    widths = sorted((line.x1 - line.x0) / len(line.text.strip()) for line in group if len(line.text.strip()) > 3)
    width = widths[len(widths) // 2] if widths else group[0].size * 0.6
    return "\n".join(" " * min(round((line.x0 - left) / max(width, 0.1)), 80) + line.text.strip() for line in group)
