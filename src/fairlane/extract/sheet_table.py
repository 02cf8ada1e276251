"""The table of one sheet: its cells, kept until the end, because only then the columns in use are known.

Laws:
- A table has only the rows and columns that are not empty: one cell in the far corner is one cell.
- Cells and their text are counted when they are added.
"""

from __future__ import annotations

from .builder import ExtractionBuilder
from .markdown import row


class SheetTable:
    """The cells of one sheet, row by row."""

    def __init__(self, builder: ExtractionBuilder) -> None:
        self._builder = builder
        self._rows: list[list[tuple[int, str]]] = []
        self._row: list[tuple[int, str]] = []
        self._columns: set[int] = set()
        self.length = 0  # characters that are not written yet

    def add(self, column: int, value: str) -> None:
        """Add a cell to the row; `value` is what `cell` returned, and not empty. The text is checked by the caller."""
        self._builder.meter.count_cells()
        self.length += len(value)
        self._row.append((column, value))
        self._columns.add(column)

    def end_row(self, times: int = 1) -> None:
        """End the row, which is there so many times; without cells there is none."""
        if self._row:
            self._builder.meter.count_cells(len(self._row) * (times - 1))
            self.length += sum(len(value) for _, value in self._row) * (times - 1)
            self._builder.meter.check_text(self.length)
            self._rows += [self._row] * times
            self._row = []

    def write(self) -> None:
        """Write the table; nothing may be added afterwards."""
        self.end_row()
        columns = sorted(self._columns)
        if len(columns) * len(self._rows) > self._builder.limits.cells_max * 4:
            self._write_sparse()
            return
        indexes = {column: index for index, column in enumerate(columns)}
        for number, cells in enumerate(self._rows):
            line = [""] * len(columns)
            for column, value in cells:
                line[indexes[column]] = value
            self._builder.write(row(line) + "\n")
            if number == 0:
                self._builder.write(row(["---"] * len(columns)) + "\n")

    def _write_sparse(self) -> None:
        """Write a sheet of many, mostly empty columns: a line for each row, without the empty cells."""
        for cells in self._rows:
            self._builder.write(" | ".join(value for _, value in cells) + "\n")
