"""What does an XLSX say? Sheet by sheet, each as one table.

Laws:
- A table has the rows and columns that hold something, and no others: one cell in the far corner is one cell.
- Text is counted when a cell refers to it: a long shared string that a million cells share is too large, not a surprise.
- Numbers are shown as stored; dates and times, where the style says that they are, as ISO 8601.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache

from .draft import Draft
from .failure import Unreadable
from .markdown import cell, row
from .ooxml import Relation, main_part, read_properties, relations
from .package import Package
from .xml import Attributes, Elements, read_xml

COLUMNS_MAX = 16_384
DATE_FORMATS = {*range(14, 18), 22, *range(27, 32), 34, 35, 36, *range(50, 59)}
TIME_FORMATS = {*range(18, 22), 32, 33, 45, 46, 47}
SERIAL_MAX = 2_958_466  # the last day of the year 9999
_LITERAL = re.compile(r'"[^"]*"|\\.|_.|\*.|\[(?!h+\]|m+\]|s+\])[^\]]*\]', re.IGNORECASE)
_COLUMN = re.compile(r"[A-Z]{1,3}")


@lru_cache(maxsize=COLUMNS_MAX)
def _column_of(letters: str) -> int | None:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - 64
    return number - 1 if number <= COLUMNS_MAX else None


def column_number(reference: str) -> int | None:
    """`B7` is in column 1, counted from 0."""
    found = _COLUMN.match(reference)
    return _column_of(found.group()) if found is not None else None


def format_kind(code: str) -> str:
    """Whether a number format shows a `date`, a `time` or just a number."""
    letters = set(_LITERAL.sub("", code[:200]).lower().split(";")[0])
    if letters & {"y", "d"}:
        return "date"
    if letters & {"h", "s"}:
        return "time"
    return "date" if "m" in letters and not letters & set("0#?") else ""


def moment(serial: float, kind: str, is_1904: bool) -> str | None:
    """A serial number as ISO 8601; none if it is no date at all."""
    if not 0 <= serial < SERIAL_MAX:
        return None
    if kind == "time":  # a time of day, or a duration of more than one
        minutes, seconds = divmod(round(serial * 86_400), 60)
        return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"
    epoch = datetime(1904, 1, 1) if is_1904 else datetime(1899, 12, 30 if serial >= 61 else 31)
    try:
        when = epoch + timedelta(seconds=round(serial * 86_400))
    except OverflowError:
        return None
    return when.date().isoformat() if when.time() == datetime.min.time() else when.isoformat()


class Book:
    """What sheets refer to: shared strings, styles, the epoch."""

    def __init__(self, draft: Draft, package: Package, rels: dict[str, Relation]) -> None:
        self.strings: list[str] = []
        self.styles: list[str] = []  # the kind of each cell format
        self.is_1904 = False
        for one in rels.values():
            if one.is_outside or one.target not in package:
                continue
            if one.kind == "sharedStrings":
                read_xml(draft, package.blocks(one.target), _Strings(draft, self.strings))
            elif one.kind == "styles":
                read_xml(draft, package.blocks(one.target), _Formats(self.styles))


class _Strings:
    """A handler for shared strings; the readings of Japanese words are left out."""

    def __init__(self, draft: Draft, strings: list[str]) -> None:
        self._draft, self._strings = draft, strings
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
            if len(self._strings) >= self._draft.limits.cells_max:
                raise Unreadable("too_large", f"has more than {self._draft.limits.cells_max:,} shared strings")
            self._strings.append("".join(self._pieces))
        self._is_text = False
        self._is_reading = self._is_reading and name != "rPh"

    def text(self, text: str) -> None:
        if self._is_text:
            self._length += len(text) + 1
            self._draft.meter.hold(self._length)
            self._pieces.append(text)


class _Formats:
    """A handler for styles: which cell formats show dates or times."""

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
        built_in = int(number[:4]) if number.isdecimal() else 0
        return "date" if built_in in DATE_FORMATS else "time" if built_in in TIME_FORMATS else ""

    def end(self, name: str) -> None:
        if name == "cellXfs":
            self._is_inside = False

    def text(self, text: str) -> None:
        pass


class Sheet:
    """A handler for one sheet: holds its rows, because the columns in use are known only at its end."""

    def __init__(self, draft: Draft, book: Book) -> None:
        self._draft, self._book = draft, book
        self.rows: list[list[tuple[int, str]]] = []
        self.columns: set[int] = set()
        self._row: list[tuple[int, str]] = []
        self._held = self._waiting = 0
        self._column = 0
        self._kind = self._style = ""
        self._pieces: list[str] = []
        self._is_value = False

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "v" or name == "t":  # by far the most frequent ones first, and fast
            self._is_value = True
        elif name == "c":
            if "r" in attributes and (column := column_number(attributes["r"])) is not None:
                self._column = column
            self._kind, self._style = attributes.get("t", "n"), attributes.get("s", "")
        elif name == "row":
            self._row, self._column = [], 0
            self._draft.meter.tick()
        elif name in ("rPh", "f"):
            self._is_value = False

    def end(self, name: str) -> None:
        if name == "v" or name == "t":
            self._is_value = False
        elif name == "c":
            self._end_cell()
        elif name == "row" and self._row:
            self.rows.append(self._row)
            self._row = []

    def text(self, text: str) -> None:
        if self._is_value:
            self._waiting += len(text)
            self._draft.meter.hold(self._held + self._waiting)
            self._pieces.append(text)

    def _end_cell(self) -> None:
        stored = self._pieces[0] if len(self._pieces) == 1 else "".join(self._pieces)
        value = cell(self._shown(stored))
        self._pieces, self._waiting = [], 0
        if value:
            self._draft.meter.cell()
            self._held += len(value)  # looked at when the next text comes
            self._row.append((self._column, value))
            self.columns.add(self._column)
        self._column += 1

    def _shown(self, stored: str) -> str:
        match self._kind:
            case "s":
                place = int(stored) if stored.isdecimal() and len(stored) < 10 else -1
                return self._book.strings[place] if 0 <= place < len(self._book.strings) else ""
            case "b":
                return {"1": "TRUE", "0": "FALSE"}.get(stored, stored)
            case "n" if self._style:
                return self._number(stored)
        return stored

    def _number(self, stored: str) -> str:
        place = int(self._style) if self._style.isdecimal() and len(self._style) < 8 else -1
        kind = self._book.styles[place] if 0 <= place < len(self._book.styles) else ""
        if not kind:
            return stored
        try:
            return moment(float(stored), kind, self._book.is_1904) or stored
        except ValueError:
            return stored

    def write(self) -> None:
        """The table, in one go: everything in it was counted."""
        columns = sorted(self.columns)
        if len(columns) * len(self.rows) > self._draft.limits.cells_max * 4:
            self._write_sparse()
            return
        places = {column: place for place, column in enumerate(columns)}
        for number, cells in enumerate(self.rows):
            line = [""] * len(columns)
            for column, value in cells:
                line[places[column]] = value
            self._draft.write(row(line) + "\n")
            if number == 0:
                self._draft.write(row(["---"] * len(columns)) + "\n")

    def _write_sparse(self) -> None:
        """Many columns with little in them: a line a row, without the empty cells."""
        for cells in self.rows:
            self._draft.write(" | ".join(value for _, value in cells) + "\n")


def read(draft: Draft) -> None:
    """Every sheet is a page with its name above."""
    draft.unit = "sheet"
    with Package(draft, draft.limits.parts_max) as package:
        part, kind = main_part(draft, package)
        if "binary" in kind:
            raise Unreadable("unsupported", "a binary workbook (XLSB)")
        read_properties(draft, package)
        rels = relations(draft, package, part)
        book = Book(draft, package, rels)
        sheets: list[tuple[str, str]] = []

        def seen(name: str, attributes: Attributes, _: str) -> None:
            if name == "workbookPr":
                book.is_1904 = attributes.get("date1904", "") in ("1", "true")
            relation = rels.get(attributes.get("id", "")) if name == "sheet" else None
            if relation is not None and relation.kind == "worksheet" and not relation.is_outside:
                draft.meter.pages(len(sheets) + 1)
                sheets.append((attributes.get("name", ""), relation.target))

        read_xml(draft, package.blocks(part), Elements(draft, seen))
        for name, target in sheets:
            draft.new_page(name)
            draft.write(f"## {cell(name)}\n\n")
            if target not in package:
                draft.warn("damaged_parts", target)
                continue
            sheet = Sheet(draft, book)
            read_xml(draft, package.blocks(target), sheet)
            sheet.write()
