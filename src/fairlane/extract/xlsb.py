"""XLSB extractor: every sheet of a binary workbook as one table.

The package is that of an XLSX; its workbook, sheets, strings and styles are rows of binary records.

Laws:
- Records are read as a stream, and none is longer than a tag of XML may be.
- What is shown is what the same workbook shows as XLSX.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from .builder import ExtractionBuilder
from .failure import Unreadable
from .markdown import cell
from .number_format import built_in_kind, format_kind, shown_float
from .ooxml import Relationship, main_part, read_properties, read_relationships
from .sheet_table import SheetTable
from .xls import FORMATS_MAX, bool_or_error, rk_number
from .zip_package import Package

ROW, RK, ERROR, BOOL, REAL, TEXT, SHARED = 0, 2, 3, 4, 5, 6, 7
FORMULA_TEXT, FORMULA_NUMBER, FORMULA_BOOL, FORMULA_ERROR, RICH_TEXT = 8, 9, 10, 11, 62
STRING, FORMAT, XF, PROPERTIES, SHEET, BEGIN_CELL_FORMATS, END_CELL_FORMATS = 19, 44, 47, 153, 156, 617, 618
VALUE_AT = 8  # the offset of a cell's value, after its column and style
_CELL = struct.Struct("<2L")
_LONG = struct.Struct("<L")
_NUMBER = struct.Struct("<d")


def read_records(builder: ExtractionBuilder, blocks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the kind and the content of each record of a part."""
    rest = b""
    for block in blocks:
        data = rest + block if rest else block
        position = 0
        while (header := _header(data, position)) is not None:
            kind, start, end = header
            if end - start > builder.limits.token_max:
                raise Unreadable("too_large", f"a record of {end - start:,} bytes")
            if end > len(data):
                break
            yield kind, data[start:end]
            position = end
        rest = data[position:]
    if rest:
        builder.warn("damaged_parts", "a part of the workbook ends in the middle")


def _header(data: bytes, position: int) -> tuple[int, int, int] | None:
    """Return the kind of a record, and where its content begins and ends; None if the header is not there yet."""
    try:
        kind = data[position]
        position += 1
        if kind & 0x80:
            kind = kind & 0x7F | (data[position] & 0x7F) << 7
            position += 1
        length = bits = 0
        while True:
            byte = data[position]
            position += 1
            length |= (byte & 0x7F) << bits
            bits += 7
            if byte < 0x80 or bits > 21:
                return kind, position, position + length
    except IndexError:
        return None


def _string(content: bytes, start: int) -> tuple[str, int]:
    """Return the string that begins there, and where it ends."""
    (length,) = _LONG.unpack_from(content, start)
    if length == 0xFFFFFFFF:
        return "", start + 4
    end = start + 4 + length * 2
    if end > len(content):
        raise struct.error("a string beyond its record")
    return content[start + 4 : end].decode("utf-16-le", "replace"), end


class XlsbWorkbook:
    """What sheets refer to: shared strings, cell formats, the epoch."""

    def __init__(self, builder: ExtractionBuilder, package: Package, rels: dict[str, Relationship]) -> None:
        self._builder = builder
        self.strings: list[str] = []
        self.kinds: list[str] = []  # of each cell format
        self.is_1904 = False
        self.sheets: list[tuple[str, Relationship]] = []
        self._rels = rels
        self._formats: dict[int, str] = {}
        self._length = 0
        self._is_cell_format = False
        for rel in rels.values():
            if rel.kind in ("sharedStrings", "styles") and rel.target in package and not rel.is_external:
                self._read_part(package, rel.target, self._on_string if rel.kind == "sharedStrings" else self._on_style)

    def read(self, package: Package, part: str) -> None:
        """Read the list of sheets."""
        self._read_part(package, part, self._on_workbook)

    def _read_part(self, package: Package, part: str, handler: Callable[[int, bytes], None]) -> None:
        for kind, content in read_records(self._builder, package.iter_blocks(part)):
            try:
                handler(kind, content)
            except struct.error:
                self._builder.warn("damaged_parts", f"{part}: a record of kind {kind}")

    def _on_string(self, kind: int, content: bytes) -> None:
        if kind != STRING:
            return
        if len(self.strings) >= self._builder.limits.cells_max:
            raise Unreadable("too_large", f"has more than {self._builder.limits.cells_max:,} shared strings")
        self.strings.append("")  # so that a damaged one keeps its number
        self.strings[-1] = text = _string(content, 1)[0]
        self._length += len(text) + 1
        self._builder.meter.check_text(self._length)

    def _on_style(self, kind: int, content: bytes) -> None:
        if kind in (BEGIN_CELL_FORMATS, END_CELL_FORMATS):
            self._is_cell_format = kind == BEGIN_CELL_FORMATS
        elif kind == FORMAT and len(self._formats) < FORMATS_MAX:
            (number,) = struct.unpack_from("<H", content)
            self._formats[number] = format_kind(_string(content, 2)[0])
        elif kind == XF and self._is_cell_format and len(self.kinds) < FORMATS_MAX:
            (number,) = struct.unpack_from("<H", content, 2)
            self.kinds.append(self._formats[number] if number in self._formats else built_in_kind(number))

    def _on_workbook(self, kind: int, content: bytes) -> None:
        if kind == PROPERTIES:
            self.is_1904 = bool(_LONG.unpack_from(content)[0] & 1)
        elif kind == SHEET:
            id, end = _string(content, 8)
            name, _ = _string(content, end)
            relation = self._rels.get(id)
            if relation is not None and relation.kind == "worksheet" and not relation.is_external:
                self._builder.meter.check_pages(len(self.sheets) + 1)
                self.sheets.append((name, relation))


class XlsbSheet:
    """One sheet: its records of cells."""

    def __init__(self, builder: ExtractionBuilder, workbook: XlsbWorkbook) -> None:
        self._builder, self._workbook = builder, workbook
        self.table = SheetTable(builder)
        self._values: dict[int, Callable[[bytes, int], str]] = {
            RK: self._packed,
            SHARED: self._shared,
            **dict.fromkeys((REAL, FORMULA_NUMBER), self._real),
            **dict.fromkeys((TEXT, FORMULA_TEXT), lambda content, _: _string(content, VALUE_AT)[0]),
            RICH_TEXT: lambda content, _: _string(content, VALUE_AT + 1)[0],
            **dict.fromkeys((BOOL, FORMULA_BOOL), lambda content, _: bool_or_error(content[VALUE_AT], False)),
            **dict.fromkeys((ERROR, FORMULA_ERROR), lambda content, _: bool_or_error(content[VALUE_AT], True)),
        }

    def read(self, records: Iterator[tuple[int, bytes]]) -> None:
        values, table, meter = self._values, self.table, self._builder.meter
        for kind, content in records:
            if kind == ROW:
                table.end_row()
                meter.check_time()
            elif kind in values:
                try:
                    column, style = _CELL.unpack_from(content)
                    value = cell(values[kind](content, style & 0xFFFFFF))
                except (struct.error, IndexError):
                    self._builder.warn("damaged_parts", f"a cell of kind {kind}")
                    continue
                if value:
                    table.add(column, value)
                    meter.check_text(table.length)
        table.write()

    def _packed(self, content: bytes, style: int) -> str:
        (packed,) = _LONG.unpack_from(content, VALUE_AT)
        return self._number(rk_number(packed), style)

    def _real(self, content: bytes, style: int) -> str:
        (value,) = _NUMBER.unpack_from(content, VALUE_AT)
        return self._number(value, style)

    def _number(self, value: float, style: int) -> str:
        workbook = self._workbook
        return shown_float(value, workbook.kinds[style] if style < len(workbook.kinds) else "", workbook.is_1904)

    def _shared(self, content: bytes, _: int) -> str:
        (index,) = _LONG.unpack_from(content, VALUE_AT)
        return self._workbook.strings[index] if index < len(self._workbook.strings) else ""


def read(builder: ExtractionBuilder) -> None:
    """Read every sheet as a page, headed by its name."""
    builder.unit = "sheet"
    with Package(builder, builder.limits.parts_max) as package:
        part, _ = main_part(builder, package)
        read_properties(builder, package)
        workbook = XlsbWorkbook(builder, package, read_relationships(builder, package, part))
        workbook.read(package, part)
        for name, relation in workbook.sheets:
            builder.new_page(name)
            builder.write(f"## {cell(name)}\n\n")
            if relation.target not in package:
                builder.warn("damaged_parts", relation.target)
                continue
            XlsbSheet(builder, workbook).read(read_records(builder, package.iter_blocks(relation.target)))
