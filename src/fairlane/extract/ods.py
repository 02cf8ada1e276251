"""ODS extractor: every sheet as one table, with its comments and charts.

Laws:
- Values are shown by their type: dates and times as ISO 8601, numbers without the noise of binary fractions, shares as
  per cent, money with its currency; everything else as it was shown.
- A cell or row that is repeated counts as often as it is repeated; empty ones cost nothing.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from .builder import ExtractionBuilder
from .markdown import MarkdownWriter, cell, comment_by
from .number_format import shown_number
from .odf import read_facts
from .odt_content import read_object
from .sheet_table import SheetTable
from .xml import Attributes, read_xml
from .zip_package import Package

DROPPED = {"tracked-changes", "dde-links", "content-validations", "forms", "automatic-styles", "scripts"}
CELLS = ("table-cell", "covered-table-cell")
COLUMNS_MAX, ROWS_MAX = 16_384, 1_048_576
_TIME = re.compile(r"PT(\d{1,6})H(\d{1,2})M(\d{1,2})(?:[.,]\d+)?S")


def _times(attributes: Attributes, name: str, most: int) -> int:
    """Return how often something is repeated."""
    count = attributes.get(name, "1")
    return min(max(int(count), 1), most) if count.isdecimal() and len(count) < 10 else 1


def shown_value(attributes: Attributes, text: str) -> str:
    """Return a cell's value by its type, or the text that was shown."""
    value = attributes.get("value", "")
    match attributes.get("value-type", ""):
        case "float" if value:
            return text if text.isalpha() else shown_number(value)  # a truth may be a number that is shown as a word
        case "percentage" if value:
            return _per_cent(value) or text
        case "currency" if value:
            return f"{shown_number(value)} {attributes.get('currency', '')}".strip()
        case "date":
            return _shown_date(attributes.get("date-value", "")) or text
        case "time" if (time := _TIME.fullmatch(attributes.get("time-value", ""))) is not None:
            return ":".join(part.rjust(2, "0") for part in time.groups())
        case "boolean":
            return {"true": "TRUE", "false": "FALSE"}.get(attributes.get("boolean-value", ""), text)
        case "string":
            return text or attributes.get("string-value", "")
    return text


def _shown_date(value: str) -> str:
    """Return a date, or a time to the nearest second: programs calculate with fractions of days."""
    try:
        when = datetime.fromisoformat(value)
        when = when.replace(microsecond=0) + timedelta(seconds=round(when.microsecond / 1_000_000))
    except (ValueError, OverflowError):
        return value
    return when.isoformat().removesuffix("T00:00:00")


def _per_cent(value: str) -> str:
    try:
        return f"{float(value) * 100:.15g}%"
    except ValueError:
        return ""


class _Sheets:
    """Handler for the content of a spreadsheet."""

    def __init__(self, builder: ExtractionBuilder, package: Package) -> None:
        self._builder, self._package = builder, package
        self._dropped = self._tables = self._paragraphs = 0
        self._name = ""
        self._is_foreign = False  # a copy of a sheet of another file
        self._table = SheetTable(builder)
        self._row_times, self._column = 1, 0
        self._cell: Attributes | None = None
        self._pieces: list[str] = []  # of the cell's text
        self._pending_length = 0  # characters of the cell, and of the comments on the sheet
        self._comment: list[str] | None = None  # while one is read
        self._author: list[str] = []
        self._is_author = False
        self._comments: list[tuple[str, str]] = []  # author and text
        self._objects: list[str] = []

    # -- elements

    def start(self, name: str, attributes: Attributes) -> None:
        if self._dropped or name in DROPPED:
            self._dropped += 1
        elif name in CELLS:
            self._cell, self._pieces = attributes, []
        elif name in ("p", "s", "tab", "line-break"):
            self._paragraphs += name == "p"
            self._add(" ")
        elif name == "table-row":
            self._row_times, self._column = _times(attributes, "number-rows-repeated", ROWS_MAX), 0
            self._builder.meter.check_time()
        else:
            self._start_other(name, attributes)

    def _start_other(self, name: str, attributes: Attributes) -> None:
        self._is_author = name == "creator" and self._comment is not None
        if name == "table":
            self._tables += 1
            if self._tables == 1:
                self._name, self._is_foreign = attributes.get("name", ""), False
        elif name == "table-source":
            self._is_foreign = True
            self._builder.warn("references_ignored", attributes.get("href", ""))
        elif name == "annotation":
            self._comment, self._author = [], []
        elif name == "object" and self._tables:
            self._builder.meter.count_cells()
            self._objects.append(attributes.get("href", ""))

    def end(self, name: str) -> None:
        if self._dropped:
            self._dropped -= 1
        elif name in CELLS:
            self._end_cell()
        elif name == "p":
            self._paragraphs -= 1
        elif name == "table-row":
            self._table.end_row(self._row_times)
        elif name == "annotation":
            self._end_comment()
        elif name == "table":
            self._tables -= 1
            if not self._tables:
                self._end_sheet()

    def text(self, text: str) -> None:
        if self._dropped:
            return
        if self._paragraphs:
            self._add(text)
        elif self._is_author:
            self._author.append(text)

    def _add(self, text: str) -> None:
        if self._cell is not None:
            self._pending_length += len(text)
            self._builder.meter.check_text(self._table.length + self._pending_length)
            (self._pieces if self._comment is None else self._comment).append(text)

    # -- cells, comments and sheets

    def _end_comment(self) -> None:
        text = cell("".join(self._comment or ()))
        if text:
            self._comments.append(("".join(self._author).strip(), text))
            self._pieces.append(f" [^c{len(self._comments)}]")
        self._comment = None

    def _end_cell(self) -> None:
        attributes = self._cell or {}
        self._cell = None
        times = _times(attributes, "number-columns-repeated", COLUMNS_MAX)
        labels = " ".join(piece.strip() for piece in self._pieces if piece.startswith(" [^c"))
        shown = "".join(piece for piece in self._pieces if not piece.startswith(" [^c"))
        value = cell(f"{shown_value(attributes, shown.strip())} {labels}")
        if value and not self._is_foreign:
            for column in range(self._column, self._column + times):
                self._table.add(column, value)
            self._builder.meter.check_text(self._table.length)
        self._column += times

    def _end_sheet(self) -> None:
        table, comments, objects = self._table, self._comments, self._objects
        self._table, self._comments, self._objects, self._pending_length = SheetTable(self._builder), [], [], 0
        if self._is_foreign:
            return
        self._builder.new_page(self._name)
        self._builder.write(f"## {cell(self._name)}\n\n")
        table.write()
        writer = MarkdownWriter(self._builder)
        for target in objects:
            self._builder.write("\n")
            read_object(self._builder, self._package, writer, target)
        for number, (author, text) in enumerate(comments, start=1):
            self._builder.write(f"\n[^c{number}]: {comment_by(author)}{text}\n")


def read(builder: ExtractionBuilder) -> None:
    """Read every sheet as a page, headed by its name."""
    builder.unit = "sheet"
    with Package(builder, builder.limits.parts_max) as package:
        read_facts(builder, package)
        read_xml(builder, package.iter_blocks("content.xml"), _Sheets(builder, package))
