"""The body of a Word document of before 2007: paragraphs, headings, lists, tables, links, notes, comments and text boxes.

Laws:
- Every mark ends something, and every step moves forward: reading takes linear time.
- Notes and text boxes are read where the text refers to them; only the main text does.
- What tracked changes deleted is left out.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from .builder import ExtractionBuilder
from .doc_format import FormatRuns, LetterFormat, ParagraphFormat, letter_format, paragraph_format, with_distant
from .doc_styles import DocLists, DocStyles
from .doc_text import DocText
from .field_code import CODE_MAX, link_target
from .markdown import MarkdownWriter

CELL, PAGE_BREAK = "\x07", "\x0c"
FIELD_BEGIN, FIELD_CODE_END, FIELD_END = "\x13", "\x14", "\x15"
SIGNS = {"\t": "\t", "\x0b": "\n", "\x0e": "\n", "\x1e": "-"}  # of other letters below the space nothing is shown
FIELDS_MAX = 100  # in each other
_MARK = re.compile("[\r\x07\x0c]")
_TOKEN = re.compile("[^\x00-\x1f]+|[\x00-\x1f]")


@dataclass(frozen=True, slots=True)
class Anchored:
    """A note, a comment or a text box: where its text is, and what its label is; a text box has none."""

    start: int
    end: int
    label: str = ""
    prefix: str = ""


@dataclass(slots=True)
class _OpenField:
    """A field between its marks: its code, and whether its result is a link."""

    code: str = ""
    is_code: bool = True
    is_link: bool = False


@dataclass(slots=True)
class _Story:
    """A text of its own: the main one, that of a note, of a text box, of a header."""

    is_main: bool = False
    tables: int = 0  # that are open
    fields: list[_OpenField] = field(default_factory=list)
    fields_beyond: int = 0  # more than may be in each other


@dataclass(frozen=True, slots=True)
class DocParts:
    """What the tables of the file say about its text."""

    text: DocText
    paragraphs: FormatRuns
    letters: FormatRuns
    styles: DocStyles
    lists: DocLists
    data: bytes  # the stream with what did not fit elsewhere


class DocBody:
    """Turns text and formats into Markdown."""

    def __init__(self, builder: ExtractionBuilder, parts: DocParts, anchored: dict[int, list[Anchored]]) -> None:
        self._builder, self._parts = builder, parts
        self._writer = MarkdownWriter(builder)
        self._anchored = anchored
        self._anchors = sorted(anchored)
        self._story = _Story()

    def write(self, start: int, end: int, is_main: bool = False) -> None:
        """Write a text of its own; `end` may lie beyond the last letter."""
        outer, self._story = self._story, _Story(is_main)
        letters = self._parts.text.letters
        end = min(end, len(letters))
        while start < end:
            self._builder.meter.check_time()
            mark = _MARK.search(letters, start, end)
            stop = mark.start() if mark is not None else end
            self._paragraph(start, stop, mark.group() if mark is not None else "")
            start = stop + 1
        self._close_tables(0)
        self._writer.end()
        self._story = outer

    def finish(self) -> None:
        self._writer.write_notes()

    # -- paragraphs

    def _format(self, position: int) -> ParagraphFormat:
        parts = self._parts
        piece, offset = parts.text.locate(position)
        content = parts.paragraphs.at(offset)[1]
        return paragraph_format(with_distant(content, parts.data), piece.sprms)

    def _paragraph(self, start: int, stop: int, mark: str) -> None:
        form = self._format(stop if mark else stop - 1)
        style = self._parts.styles.format(form.style)
        depth = max(form.depth, 1) if mark == CELL else form.depth
        if not depth and (form.is_after_page_break or style.is_after_page_break):
            self._break_page()
        self._set_tables(depth)
        self._letters(start, stop)
        for opened in self._story.fields:  # a code that does not end with its paragraph would hide the rest
            opened.is_code = False
        if depth and form.is_row_end:
            self._writer.end_row()
        elif mark == CELL or (depth > 1 and form.is_cell_end):
            if not self._writer.is_blank:
                self._end_paragraph(form, style)
            self._writer.end_cell()
        else:
            self._end_paragraph(form, style)
        if mark == PAGE_BREAK and not depth:
            self._break_page()

    def _break_page(self) -> None:
        self._close_tables(0)
        if self._story.is_main and self._writer.is_blank:
            self._builder.break_page()

    def _end_paragraph(self, form: ParagraphFormat, style: ParagraphFormat) -> None:
        writer = self._writer
        number = style.list if form.list is None else form.list
        level = (style.level if form.level is None else form.level) or 0
        heading = style.outline or form.outline
        if heading:
            writer.end_heading(heading)
        elif number:
            writer.end_item(level, self._parts.lists.marker(number, level))
        else:
            writer.end()

    # -- tables

    def _set_tables(self, depth: int) -> None:
        self._close_tables(depth)
        while self._story.tables < depth:
            if not self._writer.is_blank:
                self._writer.end()
            self._writer.begin_table()
            self._story.tables += 1

    def _close_tables(self, depth: int) -> None:
        while self._story.tables > depth:
            self._writer.end_table()
            self._story.tables -= 1

    # -- letters

    def _runs(self, start: int, stop: int) -> Iterator[tuple[int, int, LetterFormat]]:
        """Yield the runs of one format, and what is anchored at a letter alone."""
        text, runs = self._parts.text, self._parts.letters
        while start < stop:
            piece, offset = text.locate(start)
            run_end, content = runs.at(offset)
            end = start + max(1, (run_end - offset) // piece.width)
            end = min(end, stop, text.piece_end(start))
            yield start, end, letter_format(content + piece.sprms if piece.sprms else content)
            start = end

    def _letters(self, start: int, stop: int) -> None:
        anchors = self._anchors if self._story.is_main else []
        letters = self._parts.text.letters
        for begin, end, form in self._runs(start, stop):
            if form.is_deleted:
                continue
            for index in range(bisect_left(anchors, begin), bisect_left(anchors, end)):
                self._tokens(letters[begin : anchors[index]])
                begin = anchors[index]
                self._anchor(begin)
            self._tokens("" if form.is_symbol else letters[begin:end])

    def _tokens(self, text: str) -> None:
        for piece in _TOKEN.findall(text):
            if piece >= " " or piece in SIGNS:
                self._text(piece if piece >= " " else SIGNS[piece])
            elif FIELD_BEGIN <= piece <= FIELD_END:
                self._field_mark(piece)

    def _text(self, text: str) -> None:
        code = self._open_code()
        if code is None:
            self._writer.text(text)
        else:
            code.code += text[: max(0, CODE_MAX - len(code.code))]

    def _open_code(self) -> _OpenField | None:
        """Return the field whose code is being read; the result of a field in it belongs to the code."""
        return next((opened for opened in reversed(self._story.fields) if opened.is_code), None)

    def _field_mark(self, mark: str) -> None:
        story = self._story
        if mark == FIELD_BEGIN:
            if len(story.fields) < FIELDS_MAX:
                story.fields.append(_OpenField())
            else:
                story.fields_beyond += 1
        elif story.fields_beyond:
            story.fields_beyond -= mark == FIELD_END
        elif story.fields and mark == FIELD_CODE_END:
            opened = story.fields[-1]
            target = link_target(opened.code) if opened.is_code else ""
            opened.is_code = False
            if target:
                opened.is_link = True
                self._writer.begin_link(target)
        elif story.fields and mark == FIELD_END and story.fields.pop().is_link:
            self._writer.end_link()

    def _anchor(self, position: int) -> None:
        """Read what the text refers to here."""
        for anchored in self._anchored.pop(position, ()):
            is_held = self._writer.begin_note() if anchored.label else self._writer.begin_aside()
            self.write(anchored.start, anchored.end)
            if not anchored.label:
                self._writer.end_aside(is_held)
            elif is_held:
                self._writer.end_note(anchored.label, anchored.prefix)

    def write_unanchored(self) -> None:
        """Write the text boxes that nothing in the text refers to."""
        for position in self._anchors:
            for anchored in self._anchored.pop(position, ()):
                if not anchored.label:
                    self.write(anchored.start, anchored.end)
