"""Ruled tables of a PDF page: cells between horizontal and vertical lines.

Laws:
- Lines that touch make a grid; a grid of two columns and rows or more that hold words is a table, and takes them.
- An outer row that nothing parts, with many lines, is text in a box, not a row of the table.
- A cell that runs over several columns keeps its words together, in the first of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from .pdf_lines import PageText
from .pdf_pieces import Piece, Spans, Table, join, rows_of, spans_of
from .pdf_rules import LENGTH_MIN, Rulings, Stroke

TOUCH = 3.0  # points: lines so near meet
SAME = 3.0  # points: lines so near are one
PAIRS_MAX = 60_000  # of lines across and along
GRIDS_MAX = 50  # on one page
CELLS_MAX = 20_000  # of one grid
OVERHANG = 8.0  # points that lines across may stand out before the table has a column there
FILLED_MIN = 0.25  # of the cells
BOXED_LINES_MIN = 6
LINES_APART_MIN = 3  # rows that nothing but their baselines parts


@dataclass(slots=True)
class Grid:
    """The lines of a table, from left to right and from top to bottom."""

    xs: list[float]
    ys: list[float]
    sides: list[list[Stroke]]  # those that run down at each x
    floors: list[list[Stroke]]  # those that run across at each y

    @property
    def left(self) -> float:
        return self.xs[0]

    @property
    def right(self) -> float:
        return self.xs[-1]

    def has_side(self, index: int, y: float) -> bool:
        """Whether a line runs down at an x beside y."""
        return any(stroke.begin - TOUCH <= y <= stroke.end + TOUCH for stroke in self.sides[index])

    def has_floor(self, index: int, x: float) -> bool:
        """Whether a line runs across at a y below x."""
        return any(stroke.begin - TOUCH <= x <= stroke.end + TOUCH for stroke in self.floors[index])

    def is_parted(self, band: int) -> bool:
        """Whether a line runs down inside a row."""
        y = (self.ys[band] + self.ys[band + 1]) / 2
        return any(self.has_side(index, y) for index in range(1, len(self.xs) - 1))

    def without(self, band: int) -> Grid:
        """Return the grid without its first row, or without its last."""
        kept = slice(1, None) if band == 0 else slice(0, -1)
        return Grid(self.xs, self.ys[kept], self.sides, self.floors[kept])

    def middle(self, column: int) -> float:
        return (self.xs[column] + self.xs[column + 1]) / 2


def merged(strokes: list[Stroke]) -> list[Stroke]:
    """Merge pieces of the same line."""
    levels: list[list[Stroke]] = []
    for stroke in sorted(strokes):
        if levels and stroke.at - levels[-1][0].at <= 1.5:
            levels[-1].append(stroke)
        else:
            levels.append([stroke])
    found = []
    for level in levels:
        level.sort(key=lambda stroke: stroke.begin)
        current = level[0]
        for stroke in level[1:]:
            if stroke.begin <= current.end + TOUCH:
                current = Stroke(current.at, current.begin, max(current.end, stroke.end))
            else:
                found.append(current)
                current = stroke
        found.append(current)
    return found


def _positions(values: list[float]) -> list[float]:
    """Return where lines are, with those that are nearly one as one."""
    groups: list[list[float]] = []
    for value in sorted(values):
        if groups and value - groups[-1][0] <= SAME:
            groups[-1].append(value)
        else:
            groups.append([value])
    return [sum(group) / len(group) for group in groups]


def grids(rules: Rulings) -> list[Grid]:
    """Find the grids: lines that meet, with two columns or more."""
    across, down = merged(rules.horizontal), merged(rules.vertical)
    if len(across) * len(down) > PAIRS_MAX:
        return []
    groups: list[tuple[set[int], set[int]]] = []
    for number, stroke in enumerate(down):
        meets = {
            index
            for index, other in enumerate(across)
            if other.begin - TOUCH <= stroke.at <= other.end + TOUCH and stroke.begin - TOUCH <= other.at <= stroke.end + TOUCH
        }
        group = ({number}, meets)
        apart = []
        for known in groups:
            if known[1] & group[1]:
                group = (known[0] | group[0], known[1] | group[1])
            else:
                apart.append(known)
        groups = [*apart, group]
    found = []
    for verticals, horizontals in groups:
        grid = _grid([across[index] for index in horizontals], [down[index] for index in verticals])
        if grid is not None:
            found.append(grid)
    return found if len(found) <= GRIDS_MAX else []


def _grid(across: list[Stroke], down: list[Stroke]) -> Grid | None:
    if len(across) < 2 or not down:
        return None
    xs, ys = _positions([stroke.at for stroke in down]), _positions([stroke.at for stroke in across])
    left, right = min(stroke.begin for stroke in across), max(stroke.end for stroke in across)
    if left < xs[0] - OVERHANG:
        xs.insert(0, left)
    if right > xs[-1] + OVERHANG:
        xs.append(right)
    bottom, top = min(stroke.begin for stroke in down), max(stroke.end for stroke in down)
    if bottom < ys[0] - OVERHANG:
        ys.insert(0, bottom)
    if top > ys[-1] + OVERHANG:
        ys.append(top)
    if len(xs) < 3 or len(ys) < 2 or len(xs) * len(ys) > CELLS_MAX:
        return None
    ys.reverse()
    return Grid(xs, ys, _at(xs, down), _at(ys, across))


def _at(positions: list[float], strokes: list[Stroke]) -> list[list[Stroke]]:
    """Return for each position the lines that are there."""
    return [[stroke for stroke in strokes if abs(stroke.at - position) <= SAME] for position in positions]


def take_tables(text: PageText, pieces: list[Piece], found: Sequence[Grid]) -> list[Piece]:
    """Put a table in the place of the pieces within each grid; return all pieces."""
    for whole in found:
        grid = _without_boxes(whole, pieces)
        inside: list[Piece] = []
        outside: list[Piece] = []
        for piece in pieces:
            middle = piece.y + piece.size * 0.3
            is_inside = (
                piece.table is None and grid.ys[-1] <= middle <= grid.ys[0] and piece.x1 > grid.left and piece.x0 < grid.right
            )
            if is_inside and piece.x0 >= grid.left - TOUCH and piece.x1 <= grid.right + TOUCH:
                inside.append(piece)
            elif is_inside:
                for part in _cut(text, piece, [grid.left, grid.right]):
                    (inside if grid.left < (part.x0 + part.x1) / 2 < grid.right else outside).append(part)
            else:
                outside.append(piece)
        table = _fill(text, grid, inside)
        if table is not None:
            first = min(inside, key=lambda piece: piece.order)
            outside.append(Piece(grid.left, grid.right, grid.ys[0], grid.ys[-1], first.size, first.order, table=table))
            pieces = outside
    return pieces


def _without_boxes(grid: Grid, pieces: list[Piece]) -> Grid:
    """Return the grid without outer rows that are boxes around text."""
    for band in (0, -1):
        while len(grid.ys) > 2:
            top, bottom = (grid.ys[0], grid.ys[1]) if band == 0 else (grid.ys[-2], grid.ys[-1])
            if top - bottom < BOXED_LINES_MIN * LENGTH_MIN or grid.is_parted(0 if band == 0 else len(grid.ys) - 2):
                break
            lines = [piece for piece in pieces if bottom <= piece.y <= top and grid.left <= piece.x0 <= grid.right]
            if len(rows_of(lines)) < BOXED_LINES_MIN:
                break
            grid = grid.without(band)
    return grid


def _cut(text: PageText, piece: Piece, xs: list[float]) -> list[Piece]:
    """Cut a piece between the words on both sides of lines."""
    if piece.line is None:
        return [piece]
    parts: list[Piece] = []
    column_before = -1
    for word in text.words(piece.line):
        if word.start < piece.start or word.end > piece.end:
            continue
        column = bisect_right(xs, (word.x0 + word.x1) / 2)
        if column == column_before:
            parts[-1].end, parts[-1].x1 = word.end, max(parts[-1].x1, word.x1)
        else:
            parts.append(
                Piece(word.x0, word.x1, piece.y, piece.bottom, piece.size, piece.order, piece.line, word.start, word.end)
            )
        column_before = column
    return parts


def _fill(text: PageText, grid: Grid, pieces: list[Piece]) -> Table | None:
    """Put pieces into the cells of a grid; return nothing if too few of them hold words."""
    columns, bands = len(grid.xs) - 1, len(grid.ys) - 1
    cells: list[list[list[Piece]]] = [[[] for _ in range(columns)] for _ in range(bands)]
    downwards = [-y for y in grid.ys]
    for piece in pieces:
        middle = piece.y + piece.size * 0.3
        band = min(max(bisect_right(downwards, -middle) - 1, 0), bands - 1)
        for part in _parts(text, grid, piece, middle):
            column = min(max(bisect_right(grid.xs, part.x0 + 1) - 1, 0), columns - 1)
            cells[band][column].append(part)
    filled = sum(bool(cell) for row in cells for cell in row)
    if filled < 2 or filled < FILLED_MIN * columns * bands or sum(any(column) for column in zip(*cells, strict=True)) < 2:
        return None
    _join_tall_cells(grid, cells)
    rows = [row for band in cells for row in _rows_of_band(band)]
    kept = [index for index in range(columns) if any(row[index] for row in rows)]
    rows = [[row[index] for index in kept] for row in rows if any(row)]
    return Table([[cell_spans(cell) for cell in row] for row in rows]) if len(rows) >= 2 and len(kept) >= 2 else None


def _parts(text: PageText, grid: Grid, piece: Piece, y: float) -> list[Piece]:
    """Cut a piece at the lines that run down through it."""
    inside = range(bisect_right(grid.xs, piece.x0 + 1), bisect_left(grid.xs, piece.x1 - 1))
    crossed = [grid.xs[index] for index in inside if grid.has_side(index, y)]
    return _cut(text, piece, crossed) if crossed else [piece]


def _join_tall_cells(grid: Grid, cells: list[list[list[Piece]]]) -> None:
    """Move the words of a cell that runs over several rows to the first of them."""
    for band in range(len(cells) - 1):
        for column in range(len(grid.xs) - 1):
            if cells[band][column] and cells[band + 1][column] and not grid.has_floor(band + 1, grid.middle(column)):
                cells[band + 1][column] = cells[band][column] + cells[band + 1][column]
                cells[band][column] = []
    # From the last row to the first, so that what was collected on the way down ends where the cell begins.
    for band in range(len(cells) - 2, -1, -1):
        for column in range(len(grid.xs) - 1):
            if cells[band + 1][column] and not cells[band][column] and not grid.has_floor(band + 1, grid.middle(column)):
                cells[band][column], cells[band + 1][column] = cells[band + 1][column], []


def _rows_of_band(band: list[list[Piece]]) -> list[list[list[Piece]]]:
    """Part a band without lines across where every column has words on every baseline."""
    lines = rows_of([piece for cell in band for piece in cell])
    if len(lines) < LINES_APART_MIN or any(not cell for cell in band):
        return [band]
    where = {id(piece): column for column, cell in enumerate(band) for piece in cell}
    rows: list[list[list[Piece]]] = []
    for line in lines:
        row: list[list[Piece]] = [[] for _ in band]
        for piece in line.pieces:
            row[where[id(piece)]].append(piece)
        rows.append(row)
    full = sum(all(row) for row in rows)
    return rows if full >= 0.9 * len(rows) else [band]


def cell_spans(pieces: list[Piece]) -> Spans:
    """Return the text of a cell, in its lines' order."""
    spans: Spans = []
    for row in rows_of(pieces):
        for piece in row.pieces:
            if piece.line is not None:
                join(spans, spans_of(piece.line, piece.start, piece.end))
    return spans
