"""The body of an RTF file: paragraphs, headings, lists, tables, links, text boxes, notes and comments.

Laws:
- What stands before an item, a bullet or a number, says that it is one; the list table is not needed. Some programs type it,
  with a tab after it, into a paragraph whose first line hangs out.
- A footnote, a comment or a text box has paragraphs and tables of its own; what is inside changes nothing outside.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from .builder import ExtractionBuilder
from .markdown import MarkdownWriter, comment_by

SIGNS = {
    "tab": "\t",
    "line": "\n",
    "emdash": "—",
    "endash": "–",
    "lquote": "‘",
    "rquote": "’",
    "ldblquote": "“",
    "rdblquote": "”",
    "bullet": "•",
    "emspace": " ",
    "enspace": " ",
    "qmspace": " ",
}
PROPERTIES = {"pard", "outlinelevel", "s", "ls", "ilvl", "li", "fi"}
TEXT_LEVEL = 9  # the outline level of paragraphs that are no headings
TABLES_MAX = 20  # in each other
MARKER_MAX = 8  # characters of a bullet or number that was typed
_TYPED_MARKER = re.compile(r"\s*(?:[•◦▪‣·*–—-]|\(?\d{1,3}[.)]|\(?[a-zA-Z][.)]|[ivxIVX]{1,6}[.)])\s*")
_NUMBERING = re.compile(r".*\d|\W*[a-zA-Z]{1,5}[.)]")
Scope = Literal["box", "link", "footnote", "annotation"]


@dataclass(slots=True)
class _Context:
    """Where the text is: the paragraph and the tables of the body, a text box or a note."""

    heading: int = 0  # by an outline level
    style: int = 0
    list_number: int = 0
    level: int = 0
    marker: str = ""  # what stands before the text of the item
    left: int = 0  # the indent of the paragraph
    is_hanging: bool = False  # its first line begins further left
    opening: str | None = None  # its first characters, while they may be a typed marker
    places: list[int] = field(default_factory=list)  # the indents of the items above with a typed marker, outer ones first
    tables: int = 0  # that are open
    depth: int = 1  # of the table that the paragraph is in, if it is in one
    is_row_over: bool = False


class RtfBody:
    """Turns text and control words of the body into Markdown."""

    def __init__(self, builder: ExtractionBuilder, style_headings: dict[int, int]) -> None:
        self._builder, self._writer, self._style_headings = builder, MarkdownWriter(builder), style_headings
        self._context = _Context()
        self._scopes: list[tuple[Scope, _Context, bool]] = []  # with the context around each, and what the writer said
        self._notes = {"footnote": 0, "endnote": 0, "annotation": 0}
        self._is_endnote = False
        self._author = ""

    @property
    def scopes(self) -> int:
        """How many links, notes and text boxes are open."""
        return len(self._scopes)

    def text(self, text: str) -> None:
        context = self._context
        if context.tables > context.depth or context.is_row_over:
            self._close_tables(0 if context.is_row_over else context.depth)
        if context.is_hanging and self._writer.is_blank:
            context.opening = (context.opening or "") + text
            if len(context.opening) <= MARKER_MAX and "\t" not in text:
                return
            text = self._take_opening()
        self._writer.text(text)

    def _take_opening(self) -> str:
        """Return the held first characters of the paragraph, without a marker that was typed there."""
        context = self._context
        opening, context.opening = context.opening or "", None
        marker, tab, rest = opening.partition("\t")
        if not tab or _TYPED_MARKER.fullmatch(marker) is None:
            return opening
        context.is_hanging, context.marker = False, marker.strip()
        while context.places and context.left < context.places[-1]:
            context.places.pop()
        if not context.places or context.left > context.places[-1]:
            context.places.append(context.left)
        context.level = len(context.places) - 1
        return rest

    def picture(self, description: str) -> None:
        self._write_opening()
        self._writer.picture(description)

    def _write_opening(self) -> None:
        if self._context.opening is not None:
            self._writer.text(self._take_opening())

    def word(self, word: str, number: int | None) -> None:
        """Apply a control word for paragraphs, tables and pages."""
        context = self._context
        if word in SIGNS:
            self.text(SIGNS[word])
        elif word in ("par", "sect"):
            if context.is_row_over:
                self._close_tables(0)
            self.end_paragraph()
        elif word == "page":
            self.end_paragraph()
            if not self._scopes:
                self._builder.break_page()
        elif word == "ftnalt":
            self._is_endnote = True
        elif word in PROPERTIES:
            self._property(word, number or 0)
        else:
            self._table_word(word, number)

    # -- paragraphs

    def _property(self, word: str, number: int) -> None:
        context = self._context
        if word == "pard":
            context.heading = context.style = context.list_number = context.level = context.left = 0
            context.depth, context.is_hanging = 1, False
        elif word == "outlinelevel":
            context.heading = number + 1 if number < TEXT_LEVEL else 0
        elif word == "s":
            context.style = number
        elif word == "ls":
            context.list_number = number
        elif word == "li":
            context.left = number
        elif word == "fi":
            context.is_hanging = number < 0
        else:
            context.level = number

    def set_marker(self, marker: str) -> None:
        """Take what stands before the text of an item."""
        self._context.marker = marker.strip() or " "

    def end_paragraph(self) -> None:
        self._write_opening()
        context, writer = self._context, self._writer
        heading = context.heading or self._style_headings.get(context.style, 0)
        if heading:
            writer.end_heading(heading)
        elif context.marker or context.list_number:
            writer.end_item(context.level, "1." if _NUMBERING.match(context.marker) else "-")
        else:
            writer.end()
            context.places.clear()
        context.marker = ""

    # -- tables

    def _table_word(self, word: str, number: int | None) -> None:
        context = self._context
        if word in ("trowd", "intbl"):
            context.is_row_over = False
            self._open_tables(1)
        elif word == "itap" and number:
            context.depth = min(max(number, 1), TABLES_MAX)
            self._open_tables(context.depth)
        elif word == "nestcell":
            self._end_cell(is_nested=True)
        elif word == "cell" and context.tables:
            self._close_tables(1)
            self._end_cell(is_nested=False)
        elif word == "nestrow" and context.tables > 1:
            self._writer.end_row()
        elif word == "row" and context.tables:
            self._close_tables(1)
            self._writer.end_row()
            context.is_row_over = True

    def _end_cell(self, is_nested: bool) -> None:
        if is_nested and self._context.tables < 2:
            self._writer.text(" ")
            return
        if not self._writer.is_blank or self._context.opening is not None:
            self.end_paragraph()
        self._writer.end_cell()
        self._context.marker = ""

    def _open_tables(self, count: int) -> None:
        while self._context.tables < count:
            if not self._writer.is_blank or self._context.opening is not None:
                self.end_paragraph()
            self._writer.begin_table()
            self._context.tables += 1

    def _close_tables(self, count: int) -> None:
        while self._context.tables > count:
            self._writer.end_table()
            self._context.tables -= 1
        self._context.is_row_over = self._context.is_row_over and count > 0

    # -- links, text boxes, notes

    def begin(self, scope: Scope, value: str = "") -> None:
        """Begin a link to `value`, a text box, a footnote or a comment of the author `value`."""
        self._write_opening()
        if self._context.is_row_over:
            self._close_tables(0)
        is_held = True
        if scope == "link":
            self._writer.begin_link(value)
        elif scope == "box":
            is_held = self._writer.begin_aside()
        else:
            is_held = self._writer.begin_note()
            self._is_endnote, self._author = False, value
        self._scopes.append((scope, self._context, is_held))
        if scope != "link":
            self._context = _Context()

    def end(self) -> None:
        """End what was begun last."""
        self._write_opening()
        scope, context, is_held = self._scopes.pop()
        if scope == "link":
            self._writer.end_link()
            return
        self.end_paragraph()
        self._close_tables(0)
        self._context = context
        if scope == "box":
            self._writer.end_aside(is_held)
        elif is_held:
            kind = "endnote" if self._is_endnote and scope == "footnote" else scope
            self._notes[kind] += 1
            label = {"footnote": "", "endnote": "e", "annotation": "c"}[kind]
            self._writer.end_note(f"{label}{self._notes[kind]}", comment_by(self._author) if scope == "annotation" else "")

    def finish(self) -> None:
        """End everything, and write the notes."""
        while self._scopes:
            self.end()
        self.end_paragraph()
        self._close_tables(0)
        self._writer.write_notes()
