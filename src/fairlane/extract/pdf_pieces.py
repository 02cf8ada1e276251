"""Pieces of a PDF page: parts of lines and tables, with what layout asks of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from .pdf_lines import Line, PageText

HYPHENS = "\x02\ufffe"  # how PDFium marks a hyphen that ends a line
SAME_ROW = 0.4  # of the font size


class Span(NamedTuple):
    """Text that leads to an address, or nowhere."""

    text: str
    target: str = ""


Spans = list[Span]


@dataclass(slots=True)
class Table:
    """Rows of cells."""

    rows: list[list[Spans]]


@dataclass(slots=True)
class Piece:
    """A part of a line, or a table in the place of its lines."""

    x0: float
    x1: float
    y: float  # the base of a line, the top of a table
    bottom: float
    size: float
    order: int  # of its line in the file
    line: Line | None = None
    start: int = 0
    end: int = 0
    table: Table | None = None

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclass(slots=True)
class Row:
    """Pieces on the same height, from left to right."""

    y: float
    pieces: list[Piece] = field(default_factory=list)


def pieces_of(text: PageText, lines: list[Line]) -> list[Piece]:
    """Split lines at their wide gaps."""
    return [
        Piece(x0, x1, line.y, line.y, line.size, line.order, line, start, end)
        for line in lines
        for start, end, x0, x1 in text.splits(line)
    ]


def rows_of(pieces: list[Piece], same: float = SAME_ROW) -> list[Row]:
    """Put pieces on the same height together, from top to bottom."""
    rows: list[Row] = []
    for piece in sorted(pieces, key=lambda piece: -piece.y):
        if rows and rows[-1].y - piece.y <= same * piece.size and piece.table is None and rows[-1].pieces[0].table is None:
            rows[-1].pieces.append(piece)
        else:
            rows.append(Row(piece.y, [piece]))
    for row in rows:
        row.pieces.sort(key=lambda piece: piece.x0)
    return rows


def spans_of(line: Line, start: int, end: int) -> Spans:
    """Return a part of a line, with its links."""
    if not line.links:
        return [Span(line.text[start:end])]
    spans, position = [], start
    for link in line.links:
        begin, finish = max(link.start, position), min(link.end, end)
        if begin < finish:
            if begin > position:
                spans.append(Span(line.text[position:begin]))
            spans.append(Span(line.text[begin:finish], link.target))
            position = finish
    if position < end:
        spans.append(Span(line.text[position:end]))
    return spans


def join(spans: Spans, more: Spans, gap: str = " ") -> None:
    """Append spans to others, with this between them; a word that was parted by a hyphen becomes one."""
    if not spans or not more:
        spans += more
        return
    if gap == " " and len(spans) > 1 and spans[-1].text.isspace():  # what ends a line must not part a link
        spans.pop()
    text, target = spans[-1]
    if gap == " " and text.endswith(("\x02", "\ufffe")):
        text, gap = text.rstrip(HYPHENS), ""
    elif gap == " ":
        text = text.rstrip()
    if target == more[0].target:  # one link, or none, goes on
        spans[-1] = Span(text + gap + more[0].text, target)
        spans += more[1:]
        return
    spans[-1] = Span(text, target)
    if gap:
        spans.append(Span(gap))
    spans += more


def text_of(spans: Spans) -> str:
    """Return the text without its links."""
    return "".join(span.text for span in spans)
