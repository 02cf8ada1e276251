"""Markdown of a PDF: pages of blocks, with headings by the sizes of their fonts.

Laws:
- The size that most characters have is the text's; larger lines, and bold ones on their own, are headings.
- The first pages wait until they have shown the sizes of headings; later ones are written as they are read.
"""

from __future__ import annotations

import re
from collections import Counter

from .builder import ExtractionBuilder
from .markdown import MarkdownWriter
from .pdf_blocks import LEADERS, Block
from .pdf_pieces import Spans

PAGES_FIRST = 16
LARGER = 1.12  # times the size of the text
HEADING_LINES_MAX = 3
HEADING_LENGTH_MAX = 160
BOLD_LENGTH_MAX = 100
HEADING_SHARE_MAX = 0.4  # of all characters: more of them are no headings
_LETTERS = re.compile(r"[^\W\d_]{2}")
_NOT_AT_END = (",", ";", ".", ":")


class PdfWriter:
    """Collects pages, and writes them once the sizes of headings are known."""

    def __init__(self, builder: ExtractionBuilder) -> None:
        self._builder = builder
        self._waiting: list[tuple[str, list[Block]]] = []
        self._characters = 0  # of the waiting pages
        self._body = 0.0
        self._sizes: list[float] | None = None  # of headings, the largest first; nothing until they are known

    def add_page(self, label: str, blocks: list[Block]) -> None:
        """Add the next page."""
        self._waiting.append((label, blocks))
        self._characters += sum(len(block.text) + _length_of_table(block) for block in blocks)
        self._builder.meter.check_text(self._characters)
        if self._sizes is not None or len(self._waiting) >= PAGES_FIRST:
            self.flush()

    def flush(self) -> None:
        """Write the pages that wait."""
        if self._sizes is None:
            self._find_sizes()
        for label, blocks in self._waiting:
            self._builder.new_page(label)
            self._write_page(blocks)
        self._waiting.clear()
        self._characters = 0

    def _find_sizes(self) -> None:
        """Find the size of the text and those of headings."""
        blocks = [block for _, page_blocks in self._waiting for block in page_blocks]
        counts: Counter[float] = Counter()
        for block in blocks:
            if block.size:
                counts[round(block.size * 4) / 4] += len(block.text) + _length_of_table(block)
        self._body = max(counts, key=lambda size: (counts[size], -size)) if counts else 0.0
        larger = [block for block in blocks if self._is_larger(block)]
        sizes: list[float] = []
        if sum(len(block.text) for block in larger) <= HEADING_SHARE_MAX * sum(counts.values()):
            for size in sorted((block.size for block in larger), reverse=True):
                if not sizes or size < sizes[-1] * 0.96:
                    sizes.append(size)
        self._sizes = sizes

    def _is_larger(self, block: Block) -> bool:
        return (
            block.kind in ("text", "item")
            and 0 < self._body * LARGER <= block.size
            and block.lines <= HEADING_LINES_MAX
            and len(block.text) <= HEADING_LENGTH_MAX
            and _LETTERS.search(block.text) is not None
            and LEADERS.search(block.text) is None
        )

    def _level(self, block: Block, following: Block | None) -> int:
        """Return the level of a heading; 0 for other blocks."""
        sizes = self._sizes or []
        if sizes and self._is_larger(block):
            return 1 + sum(size > block.size * 1.04 for size in sizes)
        is_bold_line = (
            block.is_bold
            and block.kind in ("text", "item")
            and block.lines == 1
            and block.size >= 0.95 * self._body
            and following is not None
            and not following.is_bold
            and following.kind != "code"
            and len(block.text) <= BOLD_LENGTH_MAX
            and _LETTERS.search(block.text) is not None
            and LEADERS.search(block.text) is None
            and not block.text.rstrip().endswith(_NOT_AT_END)
        )
        return 1 + len(sizes) if is_bold_line else 0

    def _write_page(self, blocks: list[Block]) -> None:
        writer = MarkdownWriter(self._builder)
        places: list[float] = []  # where the items of the current list begin, from the outer ones to the inner
        for index, block in enumerate(blocks):
            level = self._level(block, blocks[index + 1] if index + 1 < len(blocks) else None)
            if block.kind != "item" or level:
                places.clear()
            if block.table is not None:
                _write_table(writer, block)
            elif level:
                _write_spans(writer, block.spans, "" if block.marker in ("", "-") else f"{block.marker} ")
                writer.end_heading(level)
            elif block.kind == "item":
                while places and block.x0 < places[-1] - block.size / 2:
                    places.pop()
                if not places or block.x0 > places[-1] + block.size / 2:
                    places.append(block.x0)
                _write_spans(writer, block.spans)
                writer.end_item(len(places) - 1, block.marker)
            else:
                _write_spans(writer, block.spans)
                if block.kind == "code":
                    writer.end_verbatim()
                else:
                    writer.end()


def _length_of_table(block: Block) -> int:
    if block.table is None:
        return 0
    return sum(len(span.text) for row in block.table.rows for cell in row for span in cell)


def _write_spans(writer: MarkdownWriter, spans: Spans, prefix: str = "") -> None:
    writer.text(prefix)
    for text, target in spans:
        if target:
            writer.begin_link(target)
            writer.text(text)
            writer.end_link()
        else:
            writer.text(text)


def _write_table(writer: MarkdownWriter, block: Block) -> None:
    assert block.table is not None
    writer.begin_table()
    for cells in block.table.rows:
        for cell in cells:
            _write_spans(writer, cell)
            writer.end_cell()
        writer.end_row()
    writer.end_table()
