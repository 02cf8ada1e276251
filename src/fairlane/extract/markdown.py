"""Markdown writer: paragraphs, headings, lists, tables, links and code.

Laws:
- The output is for people and models to read, not to be parsed back: only what would break a table or a link is escaped.
- A table inside a table becomes text in the outer cell. A row is written when it ends; no table is kept in memory.
"""

from __future__ import annotations

import io
import re

from .builder import ExtractionBuilder

_SPACES = re.compile(r"\s+")
LEVEL_MAX = 6
INDENT_MAX = 8


class MarkdownWriter:
    """Collects text in pieces and writes it in blocks."""

    def __init__(self, builder: ExtractionBuilder) -> None:
        self._builder = builder
        self._inline = io.StringIO()
        self._length = 0
        self._gap = ""  # the separator after the last block
        self._tables = 0
        self._row: list[str] = []
        self._rows = 0
        self._links: list[tuple[int, str]] = []

    @property
    def is_in_table(self) -> bool:
        return self._tables > 0

    def text(self, text: str) -> None:
        """Add text to the current block."""
        if text:
            self._length += len(text)
            self._builder.meter.check_text(self._length)
            self._inline.write(text)

    @property
    def is_blank(self) -> bool:
        """Whether the current block is still empty."""
        return self._length == 0

    def _take(self) -> str:
        taken = self._inline.getvalue()
        self._inline = io.StringIO()
        self._length = 0
        self._links.clear()
        return taken.strip("\n\t \xa0")

    # -- links

    def begin_link(self, target: str) -> None:
        self._links.append((self._length, target))

    def end_link(self) -> None:
        """Turn the text since the link began into a link, unless it is empty."""
        if not self._links:
            return
        start, target = self._links.pop()
        if not target or self._links:
            return  # of nested links the outer one counts
        self._inline.seek(start)
        text = _SPACES.sub(" ", self._inline.read()).strip()
        if text and len(target) < 2_000:
            linked = text if text == target else f"[{text.replace('[', '(').replace(']', ')')}]({_target(target)})"
            self._inline.seek(start)
            self._inline.truncate()
            self._inline.write(linked)
            self._length = start + len(linked)

    # -- blocks

    def end(self, prefix: str = "", is_one_line: bool = False) -> None:
        """End the current block: a paragraph, or what its prefix makes of it."""
        if self._tables:  # a block in a cell ends with a space; to trim it each time would take quadratic time
            self.text(" " if self._length else "")
            return
        block = self._take()
        if not block:
            return
        if is_one_line:
            block = _SPACES.sub(" ", block)
        self._put(prefix + block, "\n\n")

    def end_heading(self, level: int) -> None:
        self.end("#" * min(max(level, 1), LEVEL_MAX) + " ", is_one_line=True)

    def end_item(self, level: int, marker: str = "-") -> None:
        """End a list item; items of one list have no blank line between them."""
        if self._tables:
            self.end()
            return
        block = self._take()
        if not block:
            return
        indent = "  " * min(max(level, 0), INDENT_MAX)
        inner = "\n" + indent + " " * (len(marker) + 1)
        self._put(f"{indent}{marker} {block}".replace("\n", inner), "\n")

    def end_verbatim(self) -> None:
        """End the current block, as preformatted text."""
        block = self._inline.getvalue()
        self._take()
        if block.strip():
            self._put(code_block(block), "\n\n")

    def _put(self, block: str, gap: str) -> None:
        if self._gap and not self._builder.is_page_blank:
            self._builder.write(gap if gap == self._gap else "\n\n")
        self._builder.write(block)
        self._gap = gap

    # -- tables

    def begin_table(self) -> None:
        self.end()
        self._tables += 1
        if self._tables == 1:
            self._row, self._rows = [], 0

    def end_cell(self) -> None:
        if self._tables == 1:
            self._builder.meter.count_cells()
            self._row.append(cell(self._take()))
        else:
            self.text(" ")

    def end_row(self) -> None:
        if self._tables == 1 and any(self._row):
            line = row(self._row)
            if self._rows == 0:
                line += "\n" + row(["---"] * len(self._row))
            self._put(line, "\n" if self._rows else "\n\n")
            self._gap = "\n"
            self._rows += 1
        if self._tables == 1:
            self._row = []

    def end_table(self) -> None:
        if self._tables == 1:
            if not self.is_blank:
                self.end_cell()
            self.end_row()
            self._gap = "\n\n"
        self._tables = max(0, self._tables - 1)


def cell(text: str) -> str:
    """Make text fit into a cell."""
    if text.isalnum():  # most cells are one word or number
        return text
    return _SPACES.sub(" ", text).strip().replace("|", "\\|")


def row(cells: list[str]) -> str:
    """Return a line of a table."""
    return "| " + " | ".join(cells) + " |"


def code_block(text: str, kind: str = "") -> str:
    """Return a block of code, with a fence that its text cannot close."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{kind}\n{text.strip(chr(10))}\n{fence}"


def _target(target: str) -> str:
    return _SPACES.sub("%20", target.strip()).replace("(", "%28").replace(")", "%29")
