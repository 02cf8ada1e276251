"""Markdown writer: paragraphs, headings, lists, tables, links, notes and code.

Laws:
- The output is for people and models to read, not to be parsed back: only what would break a table or a link is escaped.
- A row is written when it ends; no table is kept in memory.
- A row that holds another table is layout: its cells become blocks. The rows before and after it stay tables.
- Text boxes and charts come before the block that they are in, notes at the end. What waits counts as text.
- A link that would run a script is only its text.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field

from .builder import ExtractionBuilder

_SPACES = re.compile(r"\s+")
LEVEL_MAX = 6
INDENT_MAX = 8
TARGET_MAX = 2_000  # characters of a link's target
COLUMNS_MAX = 1_000  # that one cell may span
SCRIPTS = ("javascript:", "vbscript:", "data:")


@dataclass(slots=True)
class _Table:
    """An open table."""

    row: list[str] = field(default_factory=list)
    rows: int = 0  # written since the table began, or since a row that is layout
    is_layout: bool = False  # of the current row


class MarkdownWriter:
    """Collects text in pieces and writes it in blocks."""

    def __init__(self, builder: ExtractionBuilder) -> None:
        self._builder = builder
        self._inline = io.StringIO()
        self._length = 0
        self._start = 0  # of the last block in a cell or a note
        self._links: list[tuple[int, str]] = []
        self._last_link = (-1, "", 0)  # where the last link of the block ended, its target, and where it began
        # Blocks that wait for the end of a text box or a note: what the four above were.
        self._waiting_blocks: list[tuple[io.StringIO, int, int, list[tuple[int, str]]]] = []
        self._waiting_length = 0  # characters of held blocks and notes
        self._gap = ""  # the separator after the last block
        self._tables: list[_Table] = []
        self._is_note = False
        self.is_in_table = False  # whether blocks become text because they are in a cell or in a note
        self._notes = io.BytesIO()  # a line each, as UTF-8

    def _look_around(self) -> None:
        self.is_in_table = self._is_note or (bool(self._tables) and not self._tables[-1].is_layout)

    def text(self, text: str) -> None:
        """Add text to the current block."""
        if text:
            self._length += len(text)
            self._builder.meter.check_text(self._length + self._waiting_length)
            self._inline.write(text)

    @property
    def is_blank(self) -> bool:
        """Whether the current block is still empty."""
        return self._length == 0

    def _take(self) -> str:
        taken = self._inline.getvalue()
        self._inline = io.StringIO()
        self._length = self._start = 0
        self._links.clear()
        self._last_link = (-1, "", 0)
        return taken.strip("\n\t \xa0")

    def _text_from(self, start: int) -> str:
        """Remove and return the text of the block from `start` on."""
        self._inline.seek(start)
        text = self._inline.read()
        self._inline.seek(start)
        self._inline.truncate()
        self._length = start
        return text

    # -- links and pictures

    def begin_link(self, target: str) -> None:
        """Begin a link; right after one to the same target, go on with that: programs part a link where its font changes."""
        is_script = target.strip().lower().startswith(SCRIPTS)
        target = "" if is_script or len(target) > TARGET_MAX else target
        end, last_target, start = self._last_link
        if target and not self._links and (self._length, target) == (end, last_target):
            self.text(self._text_from(start)[1:].replace(f"]({_target(target)})", "", 1))
            self._links.append((start, target))
        else:
            self._links.append((self._length, target))

    def end_link(self) -> None:
        """Turn the text since the link began into a link, unless it is empty."""
        if not self._links:
            return
        start, target = self._links.pop()
        if not target or any(outer for _, outer in self._links):
            return  # of nested links the outer one counts
        text = self._text_from(start)
        shown = _SPACES.sub(" ", text).strip()
        if shown:
            before, after = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
            text = f"{before}[{_label(shown)}]({_target(target)}){after}"
            self._last_link = (start + len(text), target, start + len(before))
        self.text(text)

    def picture(self, description: str, target: str = "") -> None:
        """Add what a picture shows, in the author's words; with a target, as a link."""
        shown = _label(_SPACES.sub(" ", description).strip())
        if not target:
            self.text(f"![{shown}]()" if shown else "")
            return
        self.begin_link(target)
        self.text(shown or "picture")
        self.end_link()

    # -- text boxes and notes

    def _hold(self) -> None:
        self._waiting_blocks.append((self._inline, self._length, self._start, self._links))
        self._waiting_length += self._length
        self._inline, self._length, self._start, self._links = io.StringIO(), 0, 0, []
        self._last_link = (-1, "", 0)

    def _resume(self) -> None:
        self._inline, self._length, self._start, self._links = self._waiting_blocks.pop()
        self._waiting_length -= self._length
        self._last_link = (-1, "", 0)

    def begin_aside(self) -> bool:
        """Hold the current block back, so that what follows comes before it; return False in a cell, where it cannot."""
        if self.is_in_table:
            self.end()
            return False
        self._hold()
        return True

    def end_aside(self, is_held: bool) -> None:
        """Go on with the block that was held back; `is_held` is what `begin_aside` returned."""
        self.end()
        if is_held:
            self._resume()

    def begin_note(self) -> bool:
        """Begin a note; return False inside another note, whose text it becomes."""
        if self._is_note:
            self.end()
            return False
        self._hold()
        self._is_note = self.is_in_table = True
        return True

    def end_note(self, label: str, prefix: str = "") -> None:
        """End a note: its label stays here, its text is written at the end."""
        text = _SPACES.sub(" ", self._take()).strip()
        self._is_note = False
        self._look_around()
        self._resume()
        if text:
            note = f"[^{label}]: {prefix}{text}\n"
            self._waiting_length += len(note)
            self._builder.meter.check_text(self._waiting_length)
            self._notes.write(note.encode("utf-8", "surrogatepass"))
            self.text(f"[^{label}]")

    def write_notes(self) -> None:
        """Write the notes, each as a block."""
        self.end()
        self._notes.seek(0)
        for note in self._notes:
            self._put(note.decode("utf-8", "surrogatepass").rstrip("\n"), "\n\n")
        self._notes, self._waiting_length = io.BytesIO(), 0

    # -- blocks

    def end(self, prefix: str = "", is_one_line: bool = False) -> None:
        """End the current block: a paragraph, or what its prefix makes of it."""
        if self.is_in_table:  # a block in a cell ends with a space; to trim it each time would take quadratic time
            self.text(" " if self._length else "")
            self._start = self._length
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
        if self.is_in_table:
            item = self._text_from(self._start)
            self.text(f"{marker} {item.lstrip()}" if item.strip() else "")
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
        if self._tables and self.is_in_table and not self._is_note:
            self._make_layout(self._tables[-1])
        self._tables.append(_Table())
        self.is_in_table = True

    def _make_layout(self, table: _Table) -> None:
        """Write the cells of the current row, as far as they were read, as blocks."""
        for text in (*table.row, self._take()):
            if text:
                self._put(text, "\n\n")
        table.row, table.rows, table.is_layout = [], 0, True

    def end_cell(self, columns: int = 1) -> None:
        """End a cell that spans this many columns."""
        if self._is_note or not self._tables or self._tables[-1].is_layout:
            self.end()
            return
        self._builder.meter.count_cells()
        self._tables[-1].row.append(cell(self._take()))
        if columns > 1:
            self.skip_cells(columns - 1)

    def skip_cells(self, columns: int) -> None:
        """Add empty cells to the row."""
        columns = min(max(columns, 0), COLUMNS_MAX)
        if self._tables and self.is_in_table and not self._is_note:
            self._builder.meter.count_cells(columns)
            self._tables[-1].row += [""] * columns

    def end_row(self) -> None:
        if self._is_note or not self._tables:
            return
        table = self._tables[-1]
        if any(table.row):
            line = row(table.row)
            if table.rows == 0:
                line += "\n" + row(["---"] * len(table.row))
            self._put(line, "\n" if table.rows else "\n\n")
            self._gap = "\n"
            table.rows += 1
        table.row, table.is_layout, self.is_in_table = [], False, True

    def end_table(self) -> None:
        if not self._tables:
            return
        if not self._is_note:
            if not self.is_blank:
                self.end_cell()
            self.end_row()
            self._gap = "\n\n"
        self._tables.pop()
        self._look_around()


def comment_by(author: str) -> str:
    """Return what a comment begins with."""
    return f"**Comment by {author}:** " if author else "**Comment:** "


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


def _label(text: str) -> str:
    return text.replace("[", "(").replace("]", ")")


def _target(target: str) -> str:
    return _SPACES.sub("%20", target.strip()).replace("(", "%28").replace(")", "%29")
