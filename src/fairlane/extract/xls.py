"""XLS extractor: every sheet of an Excel workbook of before 2007 as one table.

Reads the records of BIFF8 (Excel 97 to 2003) and BIFF5 (Excel 5 and 95); older ones have one sheet and no container, and are
not read.

Laws:
- Records are read one after the other, and every jump goes to a sheet: reading takes linear time for each sheet.
- Charts, macros and everything that is drawn on a sheet are left out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import count

from .builder import ExtractionBuilder
from .failure import Unreadable
from .markdown import cell
from .number_format import built_in_kind, format_kind, shown_float
from .ole import SIGNATURE, OleFile
from .ole_properties import codec_of, read_properties
from .sheet_table import SheetTable
from .xls_password import unlock
from .xls_strings import read_shared_strings, read_string

BOF, EOF, CONTINUE = 0x0809, 0x0A, 0x3C
FILEPASS, CODEPAGE, DATEMODE, BOUNDSHEET, FORMAT, XF, SST = 0x2F, 0x42, 0x22, 0x85, 0x041E, 0xE0, 0xFC
FORMULA, STRING = 0x06, 0x0207
NUMBER, RK, MULRK, LABEL, LABELSST, RSTRING, BOOLERR = 0x0203, 0x027E, 0xBD, 0x0204, 0xFD, 0xD6, 0x0205
BIFF8, BIFF5 = 0x0600, 0x0500
GLOBALS = 0x05  # the kind of the first substream
WORKSHEET = 0  # the kind of a sheet
ERRORS = {0: "#NULL!", 7: "#DIV/0!", 15: "#VALUE!", 23: "#REF!", 29: "#NAME?", 36: "#NUM!", 42: "#N/A", 43: "#GETTING_DATA"}
FORMATS_MAX = 100_000
CHECK_EVERY = 4_096  # records
_RECORD = struct.Struct("<2H")
_CELL = struct.Struct("<3H")
_NUMBER = struct.Struct("<d")
_RK_CELL = struct.Struct("<HL")

Record = tuple[int, int, int]  # kind, start and end of its content


def rk_number(stored: int) -> float:
    """Return a number that is packed into 30 bits; two more say how."""
    if stored & 2:
        value = float((stored >> 2) - (1 << 30 if stored & 0x80000000 else 0))
    else:
        (value,) = _NUMBER.unpack(struct.pack("<Q", (stored & 0xFFFFFFFC) << 32))
    return value / 100 if stored & 1 else value


class XlsWorkbook:
    """The stream of a workbook: what its sheets refer to, and where they begin."""

    def __init__(self, builder: ExtractionBuilder, content: bytes) -> None:
        self._builder = builder
        self.content = content
        self.strings: list[str] = []
        self.kinds: list[str] = []  # of each cell format
        self.is_1904 = False
        self.encoding = "cp1252"
        self.sheets: list[tuple[str, int]] = []
        self._formats: dict[int, str] = {}
        self._kind = 0
        self._is_unlocked = False
        self.is_wide = True  # whether strings are those of BIFF8
        self._read_globals()

    def records(self, start: int) -> Iterator[Record]:
        """Yield the records of one substream, without those of the substreams in it."""
        content, position, depth = self.content, start, 0
        for number in count():
            if position + _RECORD.size > len(content):
                break
            if number % CHECK_EVERY == 0:
                self._builder.meter.check_time()
            kind, length = _RECORD.unpack_from(content, position)
            position += 4
            if kind == BOF:
                depth += 1
            elif kind == EOF:
                depth -= 1
            if depth <= 1:
                yield kind, position, min(position + length, len(content))
            position += length
            if depth <= 0:
                return
        self._builder.warn("damaged_parts", "the workbook ends in the middle")

    def _read_globals(self) -> None:
        content = self.content
        if len(content) < 8 or content[:2] != b"\x09\x08":
            raise Unreadable("corrupt", "a workbook without its beginning")
        version, self._kind = struct.unpack_from("<2H", content, 4)
        if version not in (BIFF5, BIFF8):
            raise Unreadable("unsupported", f"a workbook of version {version:#x}")
        self.is_wide = version == BIFF8
        handlers: dict[int, Callable[[int, int], None]] = {
            FILEPASS: self._on_password,
            CODEPAGE: self._on_code_page,
            DATEMODE: self._on_date_mode,
            BOUNDSHEET: self._on_sheet,
            FORMAT: self._on_format,
            XF: self._on_cell_format,
            SST: self._on_strings,
        }
        for kind, start, end in self.records(0):
            if (handler := handlers.get(kind)) is not None:
                try:
                    handler(start, end)
                except (struct.error, IndexError):
                    self._builder.warn("damaged_parts", f"a record of kind {kind:#x}")
        if self._kind != GLOBALS:  # a single sheet, saved as it is
            self.sheets = [("", 0)]

    def _on_password(self, start: int, _: int) -> None:
        if not self._is_unlocked:
            self.content = unlock(self._builder, self.content, start)
            self._is_unlocked = True

    def _on_code_page(self, start: int, _: int) -> None:
        self.encoding = codec_of(struct.unpack_from("<H", self.content, start)[0])

    def _on_date_mode(self, start: int, _: int) -> None:
        self.is_1904 = self.content[start] == 1

    def _on_sheet(self, start: int, end: int) -> None:
        offset, _, kind = struct.unpack_from("<L2B", self.content, start)
        if kind == WORKSHEET:
            self._builder.meter.check_pages(len(self.sheets) + 1)
            self.sheets.append((self.string(start + 6, end, is_short=True), offset))

    def _on_format(self, start: int, end: int) -> None:
        (number,) = struct.unpack_from("<H", self.content, start)
        if len(self._formats) < FORMATS_MAX:
            self._formats[number] = format_kind(self.string(start + 2, end, is_short=not self.is_wide))

    def _on_cell_format(self, start: int, _: int) -> None:
        (number,) = struct.unpack_from("<H", self.content, start + 2)
        if len(self.kinds) < FORMATS_MAX:
            self.kinds.append(self._formats[number] if number in self._formats else built_in_kind(number))

    def _on_strings(self, start: int, end: int) -> None:
        self.strings = read_shared_strings(self._builder, self.content, self.parts(start, end))

    def parts(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return where a record and those that continue it begin and end."""
        parts = [(start, end)]
        while end + 4 <= len(self.content):
            kind, length = _RECORD.unpack_from(self.content, end)
            if kind != CONTINUE:
                break
            start, end = end + 4, min(end + 4 + length, len(self.content))
            parts.append((start, end))
        return parts

    def string(self, start: int, end: int, is_short: bool = False) -> str:
        """Return the string in a record; the length of a short one has one byte."""
        if self.is_wide:
            return read_string(self.content, self.parts(start, end), is_short)
        length = self.content[start] if is_short else struct.unpack_from("<H", self.content, start)[0]
        start += 1 if is_short else 2
        return self.content[start : min(start + length, end)].decode(self.encoding, "replace")


class XlsSheet:
    """One sheet: its records of cells."""

    def __init__(self, builder: ExtractionBuilder, workbook: XlsWorkbook) -> None:
        self._builder, self._workbook = builder, workbook
        self._content = workbook.content
        self._table = SheetTable(builder)
        self._row = -1
        self._formula: tuple[int, int] | None = None  # the cell whose text comes in a record of its own
        self._handlers: dict[int, Callable[[int, int], None]] = {
            NUMBER: self._on_number,
            RK: self._on_rk,
            MULRK: self._on_rk_cells,
            LABELSST: self._on_shared,
            LABEL: self._on_label,
            RSTRING: self._on_label,
            BOOLERR: self._on_bool_or_error,
            FORMULA: self._on_formula,
            STRING: self._on_string,
        }

    def read(self, offset: int) -> None:
        """Read the sheet that begins there, and write its table."""
        handlers = self._handlers
        for number, (kind, start, end) in enumerate(self._workbook.records(offset)):
            if number == 0 and kind != BOF:
                self._builder.warn("damaged_parts", "a sheet without its beginning")
                return
            if kind in handlers:
                try:
                    handlers[kind](start, end)
                except (struct.error, IndexError):
                    self._builder.warn("damaged_parts", f"a record of kind {kind:#x}")
        self._table.write()

    def _add(self, row: int, column: int, text: str) -> None:
        if row != self._row:
            self._table.end_row()
            self._row = row
        if value := cell(text):
            self._table.add(column, value)
            self._builder.meter.check_text(self._table.length)

    def _add_number(self, row: int, column: int, style: int, value: float) -> None:
        workbook = self._workbook
        kind = workbook.kinds[style] if style < len(workbook.kinds) else ""
        self._add(row, column, shown_float(value, kind, workbook.is_1904))

    def _on_number(self, start: int, _: int) -> None:
        self._add_number(*_CELL.unpack_from(self._content, start), *_NUMBER.unpack_from(self._content, start + 6))

    def _on_rk(self, start: int, _: int) -> None:
        row, column = struct.unpack_from("<2H", self._content, start)
        style, packed = _RK_CELL.unpack_from(self._content, start + 4)
        self._add_number(row, column, style, rk_number(packed))

    def _on_rk_cells(self, start: int, end: int) -> None:
        row, column = struct.unpack_from("<2H", self._content, start)
        cells = self._content[start + 4 : end - 2]
        for style, packed in _RK_CELL.iter_unpack(cells[: len(cells) // 6 * 6]):
            self._add_number(row, column, style, rk_number(packed))
            column += 1

    def _on_shared(self, start: int, _: int) -> None:
        row, column, _style, index = struct.unpack_from("<3HL", self._content, start)
        strings = self._workbook.strings
        if index < len(strings):
            self._add(row, column, strings[index])

    def _on_label(self, start: int, end: int) -> None:
        row, column, _ = _CELL.unpack_from(self._content, start)
        self._add(row, column, self._workbook.string(start + 6, end))

    def _on_bool_or_error(self, start: int, _: int) -> None:
        row, column, _style, value, is_error = struct.unpack_from("<3H2B", self._content, start)
        self._add(row, column, bool_or_error(value, bool(is_error)))

    def _on_formula(self, start: int, _: int) -> None:
        row, column, style = _CELL.unpack_from(self._content, start)
        result = self._content[start + 6 : start + 14]
        self._formula = None
        if result[6:] != b"\xff\xff":
            self._add_number(row, column, style, *_NUMBER.unpack(result))
        elif result[0] == 0:
            self._formula = (row, column)
        elif result[0] in (1, 2):
            self._add(row, column, bool_or_error(result[2], result[0] == 2))

    def _on_string(self, start: int, end: int) -> None:
        if self._formula is not None:
            self._add(*self._formula, self._workbook.string(start, end))
            self._formula = None


def bool_or_error(value: int, is_error: bool) -> str:
    """Return what a cell shows that is a truth or an error."""
    return ERRORS.get(value, "#N/A") if is_error else "TRUE" if value else "FALSE"


def _content(builder: ExtractionBuilder) -> bytes:
    """Return the stream of the workbook, which in some files stands alone."""
    with builder.path.open("rb") as file:
        if file.read(len(SIGNATURE)) != SIGNATURE:
            file.seek(0)
            return file.read()
    with OleFile(builder) as ole:
        children = ole.children(ole.root)
        read_properties(builder, ole)
        if "_vba_project_cur" in children:
            builder.warn("macros_ignored")
        return ole.read(children["workbook" if "workbook" in children else "book"])


def read(builder: ExtractionBuilder) -> None:
    """Read every sheet as a page, headed by its name."""
    builder.unit = "sheet"
    workbook = XlsWorkbook(builder, _content(builder))
    for name, offset in workbook.sheets:
        builder.new_page(name)
        builder.write(f"## {cell(name)}\n\n")
        XlsSheet(builder, workbook).read(offset)
