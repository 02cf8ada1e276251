"""Narrow columns of a PDF page: gaps hardly wider than a space, at the same place in row after row.

Laws:
- Only gaps between runs of letters that were drawn apart count, and all of them: prose whose words were drawn apart has others.
- The columns that they part are flush on one side.
"""

from __future__ import annotations

from .pdf_lines import Line

ROWS_MIN = 3
RUNS_MAX = 40  # of a row
ROWS_MAX = 5_000  # looked at on one page, some of them again and again
OVERLAP_MIN = 0.25  # font sizes that the gaps of all rows share
SAME_SIZE = 1.08
PITCH_MAX = 3.0  # font sizes from row to row
FLUSH = 1.5  # points
FLUSH_SHARE = 0.7  # of the rows
Gap = tuple[float, float]


def mark_cuts(lines: list[Line]) -> None:
    """Tell the rows of narrow columns where they are to be cut."""
    rows = sorted((line for line in lines if 1 < len(line.runs) <= RUNS_MAX), key=lambda line: -line.y)
    first = looked_at = 0
    while first < len(rows) and looked_at <= ROWS_MAX:
        last, gaps = _extend(rows, first)
        looked_at += last - first
        run = rows[first:last]
        if len(run) >= ROWS_MIN and _are_flush(run[len(run) > ROWS_MIN :], gaps):  # headers may be centred
            for line in run:
                line.cuts = [(left + right) / 2 for left, right in gaps]
                line.has_gaps = True
            first = last
        else:
            first += 1


def _gaps(line: Line) -> list[Gap]:
    return [(before[1], after[0]) for before, after in zip(line.runs, line.runs[1:], strict=False)]


def _extend(rows: list[Line], first: int) -> tuple[int, list[Gap]]:
    """Return where a run of rows with the same gaps ends, and the gaps that they share."""
    gaps = _gaps(rows[first])
    last = first + 1
    while last < len(rows):
        above, row = rows[last - 1], rows[last]
        if above.size > row.size * SAME_SIZE or row.size > above.size * SAME_SIZE or above.y - row.y > PITCH_MAX * row.size:
            break
        shared = _shared(gaps, _gaps(row), OVERLAP_MIN * row.size)
        if shared is None:
            break
        gaps, last = shared, last + 1
    return last, gaps


def _shared(gaps: list[Gap], others: list[Gap], least: float) -> list[Gap] | None:
    """Return what each gap shares with one of the others; nothing if one has no part in it, or is left over."""
    found = []
    used = set()
    for left, right in gaps:
        for index, (begin, end) in enumerate(others):
            if min(right, end) - max(left, begin) >= least:
                found.append((max(left, begin), min(right, end)))
                used.add(index)
                break
        else:
            return None
    return found if len(used) == len(others) else None


def _are_flush(rows: list[Line], gaps: list[Gap]) -> bool:
    """Whether the runs after each gap begin, or end, at the same place."""
    for left, right in gaps:
        middle = (left + right) / 2
        after = [min((run for run in line.runs if run[1] > middle), default=None) for line in rows]
        runs = [run for run in after if run is not None]
        if not any(_is_flush([left * share + right * (1 - share) for left, right in runs]) for share in (1, 0, 0.5)):
            return False
    return True


def _is_flush(places: list[float]) -> bool:
    middle = sorted(places)[len(places) // 2]
    return sum(abs(place - middle) <= FLUSH for place in places) >= FLUSH_SHARE * len(places)
