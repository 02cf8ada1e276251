"""How do paragraphs, headings, lists and tables become Markdown?

Laws:
- Written for people and models to read, not to be turned back: only what would break a table or a link is escaped.
- A table inside a table becomes text in the outer cell. A row is written when it ends; no table is held.
"""

from __future__ import annotations

import io
import re

from .draft import Draft

_SPACES = re.compile(r"\s+")
LEVEL_MAX = 6
INDENT_MAX = 8


class Flow:
    """Text comes in pieces; blocks go out."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._inline = io.StringIO()
        self._held = 0
        self._gap = ""  # what stands between the last block and the next
        self._tables = 0
        self._row: list[str] = []
        self._rows = 0
        self._links: list[tuple[int, str]] = []

    @property
    def is_in_table(self) -> bool:
        return self._tables > 0

    def text(self, text: str) -> None:
        """A piece of the current block."""
        if text:
            self._held += len(text)
            self._draft.meter.hold(self._held)
            self._inline.write(text)

    @property
    def is_blank(self) -> bool:
        """Whether the current block has nothing in it yet."""
        return self._held == 0

    def _take(self) -> str:
        taken = self._inline.getvalue()
        self._inline = io.StringIO()
        self._held = 0
        self._links.clear()
        return taken.strip("\n\t \xa0")

    # -- links

    def begin_link(self, target: str) -> None:
        self._links.append((self._held, target))

    def end_link(self) -> None:
        """Put what was written since the link began in brackets, if there is anything to click on."""
        if not self._links:
            return
        start, target = self._links.pop()
        if not target or self._links:
            return  # links in links: the outer one counts
        self._inline.seek(start)
        words = _SPACES.sub(" ", self._inline.read()).strip()
        if words and len(target) < 2_000:
            linked = words if words == target else f"[{words.replace('[', '(').replace(']', ')')}]({_target(target)})"
            self._inline.seek(start)
            self._inline.truncate()
            self._inline.write(linked)
            self._held = start + len(linked)

    # -- blocks

    def end(self, prefix: str = "", is_one_line: bool = False) -> None:
        """The current block ends: a paragraph, or whatever its prefix makes of it."""
        if self._tables:  # a block in a cell ends with a space; taking it out each time would cost the square of their number
            self.text(" " if self._held else "")
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
        """A list item ends; items of one list stand close."""
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
        """The current block ends, and is kept as it is."""
        block = self._inline.getvalue()
        self._take()
        if block.strip():
            self._put(fenced(block), "\n\n")

    def _put(self, block: str, gap: str) -> None:
        if self._gap and not self._draft.is_page_blank:
            self._draft.write(gap if gap == self._gap else "\n\n")
        self._draft.write(block)
        self._gap = gap

    # -- tables

    def begin_table(self) -> None:
        self.end()
        self._tables += 1
        if self._tables == 1:
            self._row, self._rows = [], 0

    def end_cell(self) -> None:
        if self._tables == 1:
            self._draft.meter.cell()
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
    """Text that fits into a cell."""
    if text.isalnum():  # most cells are one word or number
        return text
    return _SPACES.sub(" ", text).strip().replace("|", "\\|")


def row(cells: list[str]) -> str:
    """A line of a table."""
    return "| " + " | ".join(cells) + " |"


def fenced(text: str, kind: str = "") -> str:
    """A block of code, with a fence that its text cannot close."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{kind}\n{text.strip(chr(10))}\n{fence}"


def _target(target: str) -> str:
    return _SPACES.sub("%20", target.strip()).replace("(", "%28").replace(")", "%29")
