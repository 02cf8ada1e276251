"""One slide of a PowerPoint file of before 2007, or its notes: shapes, groups, tables, and comments.

Laws:
- What is the same on every slide (numbers, dates, footers) is left out.
- A table is a group of shapes: rows and columns are where their sides are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from .builder import ExtractionBuilder
from .markdown import MarkdownWriter, comment_by
from .ppt_records import PptRecord, read_records, wide_text
from .ppt_text import INTERACTIVE, OTHER, PptText, PptTextWriter, link_number

DRAWING, DRAWING_CONTAINER, GROUP, SHAPE = 0x040C, 0xF002, 0xF003, 0xF004
SHAPE_ATOM, OPTIONS, MORE_OPTIONS, TEXT_BOX, CHILD_ANCHOR, CLIENT_DATA = 0xF00A, 0xF00B, 0xF122, 0xF00D, 0xF00F, 0xF011
PLACEHOLDER, TAGS, TAG, TAG_DATA, COMMENT, STRING = 0x0BC3, 0x1388, 0x138A, 0x138B, 0x2EE0, 0x0FBA
IS_DELETED = 0x08
REPEATED = (*range(7, 11), 5, 11)  # kinds of placeholders: date, number, footer, header; pictures of slides
DESCRIPTION, TABLE = 0x0381, 0x039F  # options
OPTION = 6  # bytes
IS_LONG = 0x8000
CELLS_MAX = 10_000  # of one table
TEXT_MAX = 100_000  # characters of a comment


@dataclass(slots=True)
class _Shape:
    """What is known of a shape."""

    text: PptText | None = None
    box: tuple[int, int] = (0, 0)  # top and left
    placeholder: int = 0
    link: int = 0
    is_deleted: bool = False
    description: str = ""
    is_table: bool = False


class PptSlide:
    """Reads the shapes of slides and writes their text."""

    def __init__(self, builder: ExtractionBuilder, content: bytes, writer: MarkdownWriter, targets: dict[int, str]) -> None:
        self._builder, self._content, self._writer, self._targets = builder, content, writer, targets
        self.text_writer = PptTextWriter(writer, targets)
        self._outline: list[PptText] = []  # texts of the slide that are not in its shapes

    def read(self, slide: PptRecord, outline: list[PptText]) -> None:
        """Write the shapes of a slide or of its notes."""
        self._outline = list(outline)
        written = set[int]()
        for record in read_records(self._content, slide):
            if record.kind == DRAWING:
                self._each(record, DRAWING_CONTAINER, lambda drawing: self._read_shapes(drawing, 1, written))
        for number, text in enumerate(self._outline):
            if number not in written:
                self._write_text(text)

    def _each(self, parent: PptRecord, kind: int, use: Callable[[PptRecord], None]) -> None:
        for record in read_records(self._content, parent):
            if record.kind == kind:
                use(record)

    # -- shapes

    def _read_shapes(self, parent: PptRecord, depth: int, written: set[int]) -> None:
        self._builder.meter.check_nesting(depth)
        self._builder.meter.check_time()
        records = [record for record in read_records(self._content, parent) if record.kind in (GROUP, SHAPE)]
        if records and records[0].kind == SHAPE and self._read_shape(records[0]).is_table:
            self._write_table(records[1:])
            return
        for record in records:
            if record.kind == GROUP:
                self._read_shapes(record, depth + 1, written)
            else:
                self._write_shape(self._read_shape(record), written)

    def _read_shape(self, record: PptRecord) -> _Shape:
        shape, content = _Shape(), self._content
        for inner in read_records(content, record):
            if inner.kind == TEXT_BOX:
                shape.text = PptText()
                for part in read_records(content, inner):
                    shape.text.add(content, part)
            elif inner.kind == CLIENT_DATA:
                self._read_client_data(inner, shape)
            elif inner.kind == SHAPE_ATOM and inner.end - inner.start >= 8:
                shape.is_deleted = bool(content[inner.start + 4] & IS_DELETED)
            elif inner.kind == CHILD_ANCHOR and inner.end - inner.start >= 8:
                left, top = struct.unpack_from("<2l", content, inner.start)
                shape.box = (top, left)
            elif inner.kind in (OPTIONS, MORE_OPTIONS):
                self._read_options(inner, shape)
        return shape

    def _read_client_data(self, record: PptRecord, shape: _Shape) -> None:
        for inner in read_records(self._content, record):
            if inner.kind == PLACEHOLDER and inner.end - inner.start >= 5:
                shape.placeholder = self._content[inner.start + 4]
            elif inner.kind == INTERACTIVE:
                shape.link = shape.link or link_number(self._content, inner)

    def _read_options(self, record: PptRecord, shape: _Shape) -> None:
        """Read the list of options; what is long follows the list, in its order."""
        start = min(record.start + record.instance * OPTION, record.end)
        for position in range(record.start, start - OPTION + 1, OPTION):
            id, value = struct.unpack_from("<HL", self._content, position)
            number = id & 0x3FFF
            if number == TABLE and not id & IS_LONG:
                shape.is_table = bool(value & 1)
            if id & IS_LONG:
                if number == DESCRIPTION:
                    text = self._content[start : min(start + value, record.end)].decode("utf-16-le", "replace")
                    shape.description = text.rstrip("\0")
                start += value

    def _write_shape(self, shape: _Shape, written: set[int]) -> None:
        if shape.is_deleted or shape.placeholder in REPEATED:
            return
        target = self._targets.get(shape.link, "")
        if shape.description:
            self._writer.picture(shape.description, target)
            self._writer.end()
        text = shape.text
        if text is not None and text.reference is not None:
            if text.reference in written or text.reference >= len(self._outline):
                return
            written.add(text.reference)
            text = self._outline[text.reference]
        if text is not None:
            self._write_text(text, target)

    def _write_text(self, text: PptText, target: str = "") -> None:
        self.text_writer.write(text, target)

    # -- tables

    def _write_table(self, records: list[PptRecord]) -> None:
        cell_shapes = [self._read_shape(record) for record in records[:CELLS_MAX] if record.kind == SHAPE]
        cells = {shape.box: shape for shape in cell_shapes if shape.text is not None}
        columns = sorted({left for _, left in cells})
        rows: dict[int, dict[int, _Shape]] = {}
        for (top, left), shape in cells.items():
            rows.setdefault(top, {})[left] = shape
        self._builder.meter.count_cells(len(rows) * len(columns))
        self._writer.begin_table()
        for top in sorted(rows):
            for left in columns:
                text = rows[top][left].text if left in rows[top] else None
                if text is not None:
                    text.kind = OTHER
                    self._write_text(text)
                self._writer.end_cell()
            self._writer.end_row()
        self._writer.end_table()

    # -- comments

    def read_comments(self, slide: PptRecord) -> None:
        """Write the comments on a slide."""
        parents = [slide]
        for kind in (TAGS, TAG, TAG_DATA):
            parents = [record for parent in parents for record in read_records(self._content, parent) if record.kind == kind]
        for parent in parents:
            self._each(parent, COMMENT, self._write_comment)

    def _write_comment(self, comment: PptRecord) -> None:
        texts: dict[int, str] = {}
        for record in read_records(self._content, comment):
            if record.kind == STRING:
                texts[record.instance] = wide_text(self._content, record)[:TEXT_MAX]
        self._writer.text(texts.get(1, "").replace("\r", "\n"))
        self._writer.end(comment_by(texts.get(0, "").strip()))
