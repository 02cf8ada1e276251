"""Ruling lines of a PDF page: straight lines, thin boxes, the sides of filled ones, and dots that may be bullets.

Laws:
- Drawings of thousands of objects are no tables: they are not looked at.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pypdfium2.raw as pdfium  # type: ignore[import-untyped]

from .pdf_lines import turned

OBJECTS_MAX = 10_000  # on one page
STROKES_MAX = 2_000
SEGMENTS_MAX = 4_000  # of all paths of a page
THICK_MAX = 3.0  # points: a thicker box is an area, not a line
LENGTH_MIN = 4.0
DOT_MAX = 7.0
PAGE_SHARE_MAX = 0.85  # an area that fills the page is its background
WHITE_SHARE_MAX = 0.1  # a larger white area without an outline is a background too
WHITE_MIN = 250  # of 255
PATH, LINE_TO, MOVE_TO = 2, 0, 2


class Stroke(NamedTuple):
    """A straight line: at y from x to x if it is horizontal, at x from y to y if it is vertical."""

    at: float
    begin: float
    end: float


@dataclass(slots=True)
class Rulings:
    """What is drawn on a page."""

    horizontal: list[Stroke] = field(default_factory=list)
    vertical: list[Stroke] = field(default_factory=list)
    dots: list[tuple[float, float]] = field(default_factory=list)  # their middles

    def add(self, left: float, bottom: float, right: float, top: float) -> None:
        """Add a line or the sides of an area, by its box."""
        width, height = right - left, top - bottom
        if width <= THICK_MAX and height <= THICK_MAX:
            return
        if height <= THICK_MAX:
            self.horizontal.append(Stroke((bottom + top) / 2, left, right))
        elif width <= THICK_MAX:
            self.vertical.append(Stroke((left + right) / 2, bottom, top))
        elif width > LENGTH_MIN and height > LENGTH_MIN:
            self.horizontal += [Stroke(bottom, left, right), Stroke(top, left, right)]
            self.vertical += [Stroke(left, bottom, top), Stroke(right, bottom, top)]


def read_rules(page: Any, turn: int) -> Rulings:
    """Read the straight lines of a page, in the coordinates of its text."""
    rules = Rulings()
    raw = page.raw
    count = pdfium.FPDFPage_CountObjects(raw)
    if count > OBJECTS_MAX:
        return rules
    width, height = page.get_size()
    page_area = width * height
    values = [ctypes.c_float() for _ in range(4)]
    references = [ctypes.byref(value) for value in values]
    segments = 0
    for index in range(count):
        path = pdfium.FPDFPage_GetObject(raw, index)
        if pdfium.FPDFPageObj_GetType(path) != PATH or not pdfium.FPDFPageObj_GetBounds(path, *references):
            continue
        left, bottom, right, top = turned(tuple(value.value for value in values), turn)  # type: ignore[arg-type]
        area = (right - left) * (top - bottom)
        if area > page_area * PAGE_SHARE_MAX or (area > page_area * WHITE_SHARE_MAX and not _is_seen(path)):
            continue
        points = pdfium.FPDFPath_CountSegments(path)
        if max(right - left, top - bottom) <= DOT_MAX and points > 2:
            rules.dots.append(((left + right) / 2, (bottom + top) / 2))
        elif points <= 5 or min(right - left, top - bottom) <= THICK_MAX:
            rules.add(left, bottom, right, top)
        else:
            segments += points
            if segments <= SEGMENTS_MAX:
                _add_segments(rules, path, points, turn)
        if len(rules.horizontal) + len(rules.vertical) > STROKES_MAX:
            return Rulings()
    return rules


def _is_seen(path: Any) -> bool:
    """Whether the outline of a path can be seen on white paper."""
    mode, stroke = ctypes.c_int(), ctypes.c_int()
    pdfium.FPDFPath_GetDrawMode(path, ctypes.byref(mode), ctypes.byref(stroke))
    if stroke.value:
        return True
    colour = [ctypes.c_uint() for _ in range(4)]
    if not mode.value or not pdfium.FPDFPageObj_GetFillColor(path, *(ctypes.byref(value) for value in colour)):
        return bool(mode.value)
    red, green, blue, opacity = (value.value for value in colour)
    return opacity > 0 and min(red, green, blue) < WHITE_MIN


def _add_segments(rules: Rulings, path: Any, count: int, turn: int) -> None:
    """Add the straight segments of a path, such as a grid that was drawn in one go."""
    matrix = pdfium.FS_MATRIX()
    pdfium.FPDFPageObj_GetMatrix(path, ctypes.byref(matrix))
    x, y = ctypes.c_float(), ctypes.c_float()
    before: tuple[float, float] | None = None
    begin: tuple[float, float] | None = None
    for index in range(count):
        segment = pdfium.FPDFPath_GetPathSegment(path, index)
        pdfium.FPDFPathSegment_GetPoint(segment, ctypes.byref(x), ctypes.byref(y))
        point = (matrix.a * x.value + matrix.c * y.value + matrix.e, matrix.b * x.value + matrix.d * y.value + matrix.f)
        kind = pdfium.FPDFPathSegment_GetType(segment)
        if kind == MOVE_TO:
            begin = point
        elif kind == LINE_TO and before is not None:
            _add_straight(rules, before, point, turn)
        if pdfium.FPDFPathSegment_GetClose(segment) and begin is not None:
            _add_straight(rules, point, begin, turn)
        before = point


def _add_straight(rules: Rulings, first: tuple[float, float], last: tuple[float, float], turn: int) -> None:
    """Add a segment if it runs along the text or across it."""
    (x0, y0), (x1, y1) = first, last
    left, bottom, right, top = turned((min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)), turn)
    if min(right - left, top - bottom) < 0.5:
        rules.add(left, bottom, right, top)
