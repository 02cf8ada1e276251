"""Tables of a PDF page that no lines rule: words that stand in columns, row after row.

Laws:
- Three rows of two columns, or two of three, that no word runs across; each column flush left, flush right or centred.
- Columns of prose and lists are no tables.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from .pdf_pieces import Piece, Row, Spans, Table
from .pdf_rules import Stroke
from .pdf_tables import cell_spans

PITCH_MAX = 4.0  # font sizes from row to row
ROWS_MAX = 5_000  # looked at on one page, some of them again and again
COLUMNS_MAX = 40
ROWS_JOINED_MAX = 10  # after so many rows columns are what they are
SINGLE_ROWS_MAX = 3  # rows with one cell that may follow each other inside a table
ALIGNED = 2.5  # points
ALIGNED_MIN = 0.6  # of the cells of a column
APART_MIN = 0.2  # font sizes between columns
PROSE = 45  # characters: the usual cell of a column of prose is longer
OVERLAP = 0.75  # font sizes
TIGHT = 1.45  # font sizes: a line so near continues the cells above it
MARKER = re.compile(r"(?:[•◦▪‣●○■□–—*·\uf0b7\uf0a7-]|\(?(?:\d{1,3}|[a-zA-Z])[.)])$")
Column = tuple[float, float]


def take_aligned(rows: list[Row], rulers: Sequence[Stroke]) -> list[tuple[list[Piece], Piece]]:
    """Find the tables in rows from top to bottom; return the pieces of each, and what stands in their place."""
    found = []
    first = looked_at = 0
    while first < len(rows) and looked_at <= ROWS_MAX:
        last, columns = _extend(rows, first)
        looked_at += last - first
        run = rows[first:last]
        if len(run) > 1 and _count_up(run):  # a list
            first = last
            continue
        columns = _with_headers(run, columns)
        if len(run) >= 2 and _is_table(run, columns):
            pieces = [piece for row in run for piece in row.pieces]
            table = Table(_cells(run, columns, rulers))
            if len(table.rows) >= 2:
                top = run[0].y + run[0].pieces[0].size
                left, right = columns[0][0], columns[-1][1]
                order = min(piece.order for piece in pieces)
                found.append((pieces, Piece(left, right, top, run[-1].y, run[0].pieces[0].size, order, table=table)))
                first = last
                continue
        first += 1
    return found


def _extend(rows: list[Row], first: int) -> tuple[int, list[Column]]:
    """Return where a run of rows in columns ends, and the columns."""
    start = rows[first]
    columns: list[Column] = [(piece.x0, piece.x1) for piece in start.pieces]
    if not 2 <= len(columns) <= COLUMNS_MAX or any(piece.table is not None for piece in start.pieces) or _is_item(start):
        return first, []
    last, end = first + 1, first + 1  # `last` is where the table would end now, `end` what was looked at
    while end < len(rows) and end - last <= SINGLE_ROWS_MAX:
        row, before = rows[end], rows[end - 1]
        size = row.pieces[0].size
        if len(row.pieces) > COLUMNS_MAX or any(piece.table is not None for piece in row.pieces):
            break
        if before.y - row.y > PITCH_MAX * size or _is_item(row):
            break
        grown = _grow(columns, row, rows[first:end])
        if grown is None:
            break
        is_continued = row.pieces[0].x0 > columns[0][1] and before.y - row.y <= TIGHT * size
        columns, end = grown, end + 1
        if len(row.pieces) > 1 or (is_continued and end - last == 1):
            last = end
    if last < end:  # rows after the last whole one may have widened columns
        columns = [(piece.x0, piece.x1) for piece in start.pieces]
        run = rows[first:last]
        for row in run[1:]:
            columns = _grow(columns, row, run) or columns
    if last < len(rows) and last > first + 1 and _is_tail(rows[last - 1], rows[last], columns):
        last += 1
    return last, columns


def _is_tail(before: Row, row: Row, columns: list[Column]) -> bool:
    """Whether a row is the rest of the first cell of the last row."""
    piece, above = row.pieces[0], before.pieces[0]
    return (
        len(row.pieces) == 1
        and len(before.pieces) > 1
        and piece.line is not None
        and piece.x0 >= columns[0][0] - ALIGNED
        and piece.x1 <= columns[1][0] - APART_MIN * piece.size
        and before.y - row.y <= TIGHT * piece.size
        and above.x0 < columns[0][1]
        and not _has_place(above, piece, columns, 0)
    )


def _grow(columns: list[Column], row: Row, run: list[Row]) -> list[Column] | None:
    """Return the columns with a row more, or nothing if it does not fit into them; `run` are the rows before it."""
    grown = list(columns)
    taken: set[int] = set()
    for piece in row.pieces:
        meets = [index for index, (left, right) in enumerate(grown) if piece.x0 < right and piece.x1 > left]
        if len(meets) > 1 and not _are_one(grown, meets, run):
            return None
        if len(meets) > 1:  # the cells above were short, and flush on different sides
            grown[meets[0] : meets[-1] + 1] = [(grown[meets[0]][0], grown[meets[-1]][1])]
            taken = {number if number < meets[0] else number - len(meets) + 1 for number in taken}
            meets = meets[:1]
        if meets:
            index = meets[0]
            left, right = grown[index]
            grown[index] = (min(left, piece.x0), max(right, piece.x1))
        else:
            index = sum(right <= piece.x0 for _, right in grown)
            grown.insert(index, (piece.x0, piece.x1))
            taken = {number + (number >= index) for number in taken}
        if index in taken:
            return None
        taken.add(index)
    return grown


def _with_headers(run: list[Row], columns: list[Column]) -> list[Column]:
    """Return the columns with each header in the column of its cells, which may be flush on another side than the header."""
    filled = [
        {index for index, row in enumerate(run) if any(_is_in(piece, column) for piece in row.pieces)} for column in columns
    ]
    found: list[Column] = []
    index = 0
    while index < len(columns):
        pair = filled[index : index + 2]
        if len(pair) == 2 and not pair[0] & pair[1] and {0} in pair and len(pair[0] | pair[1]) > 2:
            found.append((columns[index][0], columns[index + 1][1]))
            index += 2
        else:
            found.append(columns[index])
            index += 1
    return found


def _is_in(piece: Piece, column: Column) -> bool:
    return piece.x0 < column[1] and piece.x1 > column[0]


def _are_one(columns: list[Column], indexes: list[int], run: list[Row]) -> bool:
    """Whether no row has words in more than one of these columns."""
    whole = (columns[indexes[0]][0], columns[indexes[-1]][1])
    return len(run) <= ROWS_JOINED_MAX and all(sum(_is_in(piece, whole) for piece in row.pieces) <= 1 for row in run)


def _is_table(run: list[Row], columns: list[Column]) -> bool:
    several = [row for row in run if len(row.pieces) > 1]
    if len(columns) < 2 or len(several) < (3 if len(columns) == 2 else 2) or 2 * len(several) < len(run):
        return False
    size = run[0].pieces[0].size
    if any(after[0] - before[1] < APART_MIN * size for before, after in pairwise(columns)):
        return False
    members = [
        [piece for row in run for piece in row.pieces if _column_of(piece, columns) == index] for index in range(len(columns))
    ]
    lengths = [median(piece.length for piece in column) for column in members if column]
    if sum(length > PROSE for length in lengths) >= 2:
        return False
    return all(_is_aligned(column) for column in members)


def _is_item(row: Row) -> bool:
    """Whether a row is an item of a list, its marker on its own."""
    return len(row.pieces) == 2 and MARKER.match(_text(row.pieces[0])) is not None


def _text(piece: Piece) -> str:
    return piece.line.text[piece.start : piece.end].strip() if piece.line is not None else ""


def _count_up(run: list[Row]) -> bool:
    """Whether rows are items of a list, or of lists in each other, each with its number on its own."""
    numbers: dict[int, int] = {}  # the last one at each indent
    items = 0
    for row in run:
        piece = row.pieces[0]
        text, indent = _text(piece), round(piece.x0 / (2 * ALIGNED))
        if len(row.pieces) != 2:
            continue
        number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 3 else 0
        if number == 0 or (number != numbers.get(indent, number - 1) + 1) or (numbers and indent not in numbers and number > 1):
            return False
        numbers[indent] = number
        items += 1
    return items > 1 and 2 * items > len(run)


def _is_aligned(pieces: list[Piece]) -> bool:
    """Whether most pieces of a column share a side or the middle."""
    for places in (
        [piece.x0 for piece in pieces],
        [piece.x1 for piece in pieces],
        [(piece.x0 + piece.x1) / 2 for piece in pieces],
    ):
        middle = median(places)
        if sum(abs(place - middle) <= ALIGNED for place in places) >= ALIGNED_MIN * len(places):
            return True
    return False


def _column_of(piece: Piece, columns: list[Column]) -> int:
    middle = (piece.x0 + piece.x1) / 2
    return min(range(len(columns)), key=lambda index: max(columns[index][0] - middle, middle - columns[index][1]))


def _cells(run: list[Row], columns: list[Column], rulers: Sequence[Stroke]) -> list[list[Spans]]:
    """Return the rows, with the lines of one cell put together."""
    left, right = columns[0][0], columns[-1][1]
    levels = sorted(stroke.at for stroke in rulers if stroke.begin <= left + ALIGNED and stroke.end >= right - ALIGNED)
    inner = [level for level in levels if run[-1].y < level < run[0].y]
    is_ruled = len(inner) >= 2 and 3 * (len(inner) + 1) >= len(run)
    rows: list[list[list[Piece]]] = []
    for index, row in enumerate(run):
        cells: list[list[Piece]] = [[] for _ in columns]
        for piece in row.pieces:
            cells[_column_of(piece, columns)].append(piece)
        if rows and _continues(run, index, cells, rows[-1], columns, inner if is_ruled else None):
            for cell, more in zip(rows[-1], cells, strict=True):
                cell += more
        else:
            rows.append(cells)
    return [[cell_spans(cell) for cell in cells] for cells in rows]


def _continues(
    run: list[Row],
    index: int,
    cells: list[list[Piece]],
    above: list[list[Piece]],
    columns: list[Column],
    levels: list[float] | None,
) -> bool:
    """Whether a row continues the cells of the row above."""
    row, before = run[index], run[index - 1]
    if levels is not None:
        return not any(row.y < level < before.y for level in levels)
    distance = before.y - row.y
    size = row.pieces[0].size
    if distance < OVERLAP * size:  # lines of one column cannot be so near: these are the middle lines of other cells
        return True
    is_above_next = index + 1 < len(run) and row.y - run[index + 1].y < OVERLAP * size
    if distance > TIGHT * size or is_above_next:
        return False
    pitches = [
        b.y - r.y for b, r in pairwise(run) if len(b.pieces) > 1 and len(r.pieces) > 1 and _column_of(r.pieces[0], columns) == 0
    ]
    is_near = bool(pitches) and distance < 0.9 * min(pitches)
    if is_near and (not cells[0] or len(row.pieces) < len(before.pieces)):
        return True
    # As tight as the rows themselves: then only a cell goes on whose next word had no place.
    if cells[0]:
        return len(row.pieces) < sum(map(bool, above)) and all(
            not cell or (len(up) > 0 and not _has_place(up[-1], cell[0], columns, index))
            for index, (cell, up) in enumerate(zip(cells, above, strict=True))
        )
    return all(
        not cell or (len(up) > 0 and up[-1].x1 - column[0] >= 0.8 * (column[1] - column[0]))
        for cell, up, column in zip(cells, above, columns, strict=True)
    )


def _has_place(above: Piece, piece: Piece, columns: list[Column], index: int) -> bool:
    """Whether the first word of a piece would have fitted at the end of the line above."""
    assert piece.line is not None
    text = piece.line.text[piece.start : piece.end]
    width = (piece.x1 - piece.x0) * (len(text.split(maxsplit=1)[0]) + 1) / len(text)
    limit = columns[index + 1][0] - APART_MIN * piece.size if index + 1 < len(columns) else columns[index][1]
    return above.x1 + width <= limit
