"""XLSX extractor: every sheet as one table.

Laws:
- A table has only the rows and columns that are not empty: one cell in the far corner is one cell.
- Text is counted for every cell that refers to it, so a long string shared by a million cells is too large.
- Numbers are shown as stored, except for digits that a spreadsheet never shows: it counts with 15, and stores 17. Dates and
  times, where the style says so, as ISO 8601.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .builder import ExtractionBuilder
from .failure import Unreadable
from .markdown import cell
from .number_format import built_in_kind, format_kind, serial_datetime, shown_number
from .ooxml import Relationship, main_part, read_properties, read_relationships
from .sheet_table import SheetTable
from .xml import Attributes, Elements, read_xml
from .zip_package import Package

COLUMNS_MAX = 16_384
_COLUMN = re.compile(r"[A-Z]{1,3}")


@lru_cache(maxsize=COLUMNS_MAX)
def _column_of(letters: str) -> int | None:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - 64
    return number - 1 if number <= COLUMNS_MAX else None


def column_number(reference: str) -> int | None:
    """Return the column of a reference, from 0: `B7` is in column 1."""
    match = _COLUMN.match(reference)
    return _column_of(match.group()) if match is not None else None


class Workbook:
    """What sheets refer to: shared strings, cell formats, the epoch."""

    def __init__(self, builder: ExtractionBuilder, package: Package, rels: dict[str, Relationship]) -> None:
        self.strings: list[str] = []
        self.styles: list[str] = []  # the kind of each cell format
        self.is_1904 = False
        for rel in rels.values():
            if rel.is_external or rel.target not in package:
                continue
            if rel.kind == "sharedStrings":
                read_xml(builder, package.iter_blocks(rel.target), _StringsHandler(builder, self.strings))
            elif rel.kind == "styles":
                read_xml(builder, package.iter_blocks(rel.target), _StylesHandler(self.styles))


class _StringsHandler:
    """Handler for shared strings, without the phonetic readings of Japanese words."""

    def __init__(self, builder: ExtractionBuilder, strings: list[str]) -> None:
        self._builder, self._strings = builder, strings
        self._pieces: list[str] = []
        self._length = 0
        self._is_text = self._is_reading = False

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "si":
            self._pieces = []
        self._is_text = name == "t" and not self._is_reading
        self._is_reading = self._is_reading or name == "rPh"

    def end(self, name: str) -> None:
        if name == "si":
            if len(self._strings) >= self._builder.limits.cells_max:
                raise Unreadable("too_large", f"has more than {self._builder.limits.cells_max:,} shared strings")
            self._strings.append("".join(self._pieces))
        self._is_text = False
        self._is_reading = self._is_reading and name != "rPh"

    def text(self, text: str) -> None:
        if self._is_text:
            self._length += len(text) + 1
            self._builder.meter.check_text(self._length)
            self._pieces.append(text)


class _StylesHandler:
    """Handler for styles: which cell formats show dates or times."""

    def __init__(self, styles: list[str]) -> None:
        self._styles = styles
        self._custom: dict[str, str] = {}
        self._is_inside = False

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "cellXfs":
            self._is_inside = True
        elif name == "numFmt":
            self._custom[attributes.get("numFmtId", "")] = format_kind(attributes.get("formatCode", ""))
        elif name == "xf" and self._is_inside:
            self._styles.append(self._kind(attributes.get("numFmtId", "0")))

    def _kind(self, number: str) -> str:
        if number in self._custom:
            return self._custom[number]
        return built_in_kind(int(number[:4]) if number.isdecimal() else 0)

    def end(self, name: str) -> None:
        if name == "cellXfs":
            self._is_inside = False

    def text(self, text: str) -> None:
        pass


class SheetHandler:
    """Handler for one sheet."""

    def __init__(self, builder: ExtractionBuilder, workbook: Workbook) -> None:
        self._builder, self._workbook = builder, workbook
        self.table = SheetTable(builder)
        self._pending_length = 0
        self._column = 0
        self._kind = self._style = ""
        self._pieces: list[str] = []
        self._is_value = False

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "v" or name == "t":  # first, because by far the most frequent
            self._is_value = True
        elif name == "c":
            if "r" in attributes and (column := column_number(attributes["r"])) is not None:
                self._column = column
            self._kind, self._style = attributes.get("t", "n"), attributes.get("s", "")
        elif name == "row":
            self._column = 0
            self._builder.meter.check_time()
        elif name in ("rPh", "f"):
            self._is_value = False

    def end(self, name: str) -> None:
        if name == "v" or name == "t":
            self._is_value = False
        elif name == "c":
            self._end_cell()
        elif name == "row":
            self.table.end_row()

    def text(self, text: str) -> None:
        if self._is_value:
            self._pending_length += len(text)
            self._builder.meter.check_text(self.table.length + self._pending_length)
            self._pieces.append(text)

    def _end_cell(self) -> None:
        stored = self._pieces[0] if len(self._pieces) == 1 else "".join(self._pieces)
        value = cell(self._display_value(stored))
        self._pieces, self._pending_length = [], 0
        if value:
            self.table.add(self._column, value)
        self._column += 1

    def _display_value(self, stored: str) -> str:
        match self._kind:
            case "s":
                index = int(stored) if stored.isdecimal() and len(stored) < 10 else -1
                return self._workbook.strings[index] if 0 <= index < len(self._workbook.strings) else ""
            case "b":
                return {"1": "TRUE", "0": "FALSE"}.get(stored, stored)
            case "n":
                return self._number(stored) if self._style else shown_number(stored)
        return stored

    def _number(self, stored: str) -> str:
        index = int(self._style) if self._style.isdecimal() and len(self._style) < 8 else -1
        kind = self._workbook.styles[index] if 0 <= index < len(self._workbook.styles) else ""
        if not kind:
            return shown_number(stored)
        try:
            return serial_datetime(float(stored), kind, self._workbook.is_1904) or shown_number(stored)
        except ValueError:
            return stored


def read(builder: ExtractionBuilder) -> None:
    """Read every sheet as a page, headed by its name."""
    builder.unit = "sheet"
    with Package(builder, builder.limits.parts_max) as package:
        part, _ = main_part(builder, package)
        read_properties(builder, package)
        rels = read_relationships(builder, package, part)
        workbook = Workbook(builder, package, rels)
        sheets: list[tuple[str, str]] = []

        def on_element(name: str, attributes: Attributes, _: str) -> None:
            if name == "workbookPr":
                workbook.is_1904 = attributes.get("date1904", "") in ("1", "true")
            relation = rels.get(attributes.get("r:id", "")) if name == "sheet" else None
            if relation is not None and relation.kind == "worksheet" and not relation.is_external:
                builder.meter.check_pages(len(sheets) + 1)
                sheets.append((attributes.get("name", ""), relation.target))

        read_xml(builder, package.iter_blocks(part), Elements(builder, on_element))
        for name, target in sheets:
            builder.new_page(name)
            builder.write(f"## {cell(name)}\n\n")
            if target not in package:
                builder.warn("damaged_parts", target)
                continue
            sheet = SheetHandler(builder, workbook)
            read_xml(builder, package.iter_blocks(target), sheet)
            sheet.table.write()
