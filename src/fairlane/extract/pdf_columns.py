"""Reading order of a PDF page: where text stands in columns, one column after the other.

Laws:
- Columns are prose: several lines on both sides of a gap that no line crosses, most of them as long as their column is wide.
- What is no column keeps the order of the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .pdf_pieces import Piece, Row, rows_of

LINES_MIN = 3  # on each side
CHARACTERS_MIN = 18  # of the usual line
FILLED_MIN = 0.55  # of the width of a column, by the usual line
GAP_MIN = 0.8  # font sizes
APART_MAX = 3.5  # font sizes from line to line; more ends the columns
DEPTH_MAX = 4


@dataclass(slots=True)
class Region:
    """Pieces to be read from top to bottom; or, if it is no column, in the order of the file."""

    pieces: list[Piece]
    is_column: bool


@dataclass(slots=True)
class _Band:
    """Rows around a gap."""

    rows: list[Row] = field(default_factory=list)
    left: float = 0.0  # where the gap begins
    right: float = 0.0


def regions(pieces: list[Piece], is_column: bool = False, depth: int = 0) -> list[Region]:
    """Part pieces into regions, in reading order."""
    if depth >= DEPTH_MAX or len(pieces) < 2 * LINES_MIN:
        return [Region(pieces, is_column)]
    found: list[Region] = []
    rest: list[Piece] = []
    for band in _bands(rows_of(pieces, same=0.6)):
        members = [piece for row in band.rows for piece in row.pieces]
        if band.right > band.left and _is_prose(band):
            if rest:
                found.append(Region(rest, True))
                rest = []
            middle = (band.left + band.right) / 2
            found += regions([piece for piece in members if piece.x1 < middle], True, depth + 1)
            found += regions([piece for piece in members if piece.x1 >= middle], True, depth + 1)
        else:
            rest += members
    if not found:
        return [Region(pieces, is_column)]
    if rest:
        found.append(Region(rest, True))
    return found


def _bands(rows: list[Row]) -> list[_Band]:
    """Part rows into bands: with a gap that all their pieces respect, or without."""
    bands: list[_Band] = []
    for row in rows:
        gaps = _gaps(row)
        current = bands[-1] if bands else None
        shared = _shared_gap(current, row, gaps) if current is not None and current.right > current.left else None
        if current is not None and shared is not None:
            current.rows.append(row)
            current.left, current.right = shared
        elif gaps:
            bands.append(_Band([row], *gaps[0]))
        elif current is not None and current.right <= current.left:
            current.rows.append(row)
        else:
            bands.append(_Band([row]))
    return [part for band in _take_lines_above(bands) for part in _without_tail(band)]


def _gaps(row: Row) -> list[tuple[float, float]]:
    """Return the gaps between the pieces of a row."""
    gaps = []
    reached = row.pieces[0].x1
    for piece in row.pieces[1:]:
        if piece.x0 - reached >= GAP_MIN * piece.size:
            gaps.append((reached, piece.x0))
        reached = max(reached, piece.x1)
    return gaps


def _shared_gap(band: _Band, row: Row, gaps: list[tuple[float, float]]) -> tuple[float, float] | None:
    """Return the gap of a band once it has this row too, or nothing if they have none together."""
    size = row.pieces[0].size
    if band.rows[-1].y - row.y > APART_MAX * size:
        return None
    before, after = row.pieces[0].x0, max(piece.x1 for piece in row.pieces)
    shared = [
        (max(left, band.left), min(right, band.right)) for left, right in [(band.left, before), *gaps, (after, band.right)]
    ]
    left, right = max(shared, key=lambda gap: gap[1] - gap[0])
    return (left, right) if right - left >= GAP_MIN * size else None


def _take_lines_above(bands: list[_Band]) -> list[_Band]:
    """Let columns begin with lines above them that stand on one side of the gap, such as a heading."""
    found: list[_Band] = []
    for band in bands:
        if band.right > band.left:
            while found and found[-1].right <= found[-1].left and found[-1].rows:
                above, size = found[-1].rows[-1], band.rows[0].pieces[0].size
                middle = (band.left + band.right) / 2
                is_left, is_right = above.pieces[-1].x1 <= middle, above.pieces[0].x0 >= middle
                apart = above.y - band.rows[0].y
                if (
                    len(above.pieces) > 1
                    or not (is_left or is_right)
                    or apart > 2.2 * size
                    or above.pieces[0].table is not None
                ):
                    break
                band.rows.insert(0, found[-1].rows.pop())
                if not found[-1].rows:
                    found.pop()
        found.append(band)
    return found


def _without_tail(band: _Band) -> list[_Band]:
    """Part the rows below columns that stand on the left alone, and further down than the lines of the column are apart."""
    if band.right <= band.left:
        return [band]
    last = max((index for index, row in enumerate(band.rows) if row.pieces[-1].x0 > band.left), default=0)
    for index in range(last + 1, len(band.rows)):
        above, row = band.rows[index - 1], band.rows[index]
        if above.y - row.y > 1.7 * row.pieces[0].size:
            return [_Band(band.rows[:index], band.left, band.right), _Band(band.rows[index:])]
    return [band]


def _is_prose(band: _Band) -> bool:
    """Whether both sides of the gap are columns of prose."""
    middle = (band.left + band.right) / 2
    for is_left in (True, False):
        widths, lengths = [], []
        low, high = float("inf"), float("-inf")
        for row in band.rows:
            side = [piece for piece in row.pieces if (piece.x1 < middle) == is_left]
            if side:
                begin, end = min(piece.x0 for piece in side), max(piece.x1 for piece in side)
                low, high = min(low, begin), max(high, end)
                widths.append(end - begin)
                lengths.append(sum(piece.length for piece in side) if side[0].table is None else CHARACTERS_MIN)
        if len(widths) < LINES_MIN:
            return False
        usual = sorted(widths)[len(widths) // 2]
        if usual < FILLED_MIN * (high - low) or sorted(lengths)[len(lengths) // 2] < CHARACTERS_MIN:
            return False
    return True
