"""Charts of office documents: the title, and a table of categories and series as the document last saw them.

Laws:
- Series with the same categories share a table; others, such as those of a scatter chart, have their own.
- Every point is counted as a cell when it is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .builder import ExtractionBuilder
from .markdown import MarkdownWriter
from .number_format import format_kind, serial_datetime, shown_number
from .xml import Attributes, read_xml
from .zip_package import Package

AXES = {"catAx", "valAx", "dateAx", "serAx"}  # have titles of their own
ROLES = {"tx": "name", "cat": "categories", "xVal": "categories", "val": "values", "yVal": "values"}
POINTS_MAX = 1_048_576  # rows of a sheet
Points = dict[int, str]


@dataclass(slots=True)
class _Series:
    """One series of a chart."""

    name: Points = field(default_factory=dict)
    categories: Points = field(default_factory=dict)
    values: Points = field(default_factory=dict)


class _ChartHandler:
    """Handler for the part of a chart."""

    def __init__(self, builder: ExtractionBuilder) -> None:
        self._builder = builder
        self.title: list[str] = []
        self.series: list[_Series] = []
        self._is_series = self._is_title = self._is_axis = self._is_text = False
        self._points: Points | None = None  # which of the series are being read
        self._index = 0
        self._kind = ""  # of the numbers: date, time, duration
        self._text: list[str] = []
        self._length = 0

    def start(self, name: str, attributes: Attributes) -> None:
        self._is_text = name in ("v", "t", "formatCode")
        if name == "ser":
            self._is_series = True
            self.series.append(_Series())
        elif name in ROLES and self._is_series:
            points: Points = getattr(self.series[-1], ROLES[name])
            self._points = None if points else points  # the first one counts: labels of points have a `tx` too
            self._index, self._kind = 0, ""
        elif name == "pt":
            index = attributes.get("idx", "")
            self._index = int(index) if index.isdecimal() and len(index) < 8 else 0
        elif name in AXES:
            self._is_axis = True
        elif name == "title" and not self._is_axis and not self.series:
            self._is_title = True

    def text(self, text: str) -> None:
        if self._is_text:
            self._length += len(text)
            self._builder.meter.check_text(self._length)
            self._text.append(text)

    def end(self, name: str) -> None:
        if self._is_text:
            self._end_text(name, "".join(self._text))
            self._text.clear()
            self._is_text = False
        if name == "ser":
            self._is_series = False
        elif name in ROLES:
            self._points = None
        elif name in AXES:
            self._is_axis = False
        elif name == "title":
            self._is_title = False

    def _end_text(self, name: str, text: str) -> None:
        if name == "formatCode":
            self._kind = format_kind(text)
        elif self._is_title:
            self.title.append(text)
        elif name == "v" and self._points is not None and self._index < POINTS_MAX:
            self._builder.meter.count_cells()
            inner = self._points.get(self._index)  # categories may have several levels, the inner one first
            self._points[self._index] = self._shown(text) if inner is None else f"{text} {inner}"

    def _shown(self, text: str) -> str:
        if self._kind:
            try:
                return serial_datetime(float(text), self._kind, is_1904=False) or text
            except ValueError:
                return text
        return shown_number(text)


def read_chart(builder: ExtractionBuilder, package: Package, part: str, writer: MarkdownWriter) -> None:
    """Write a chart's title and its numbers, before the current block."""
    if part not in package:
        return
    chart = _ChartHandler(builder)
    read_xml(builder, package.iter_blocks(part), chart)
    is_held = writer.begin_aside()
    writer.text("".join(chart.title))
    writer.end()
    while chart.series:
        shared = chart.series[0].categories
        _write_table(writer, [series for series in chart.series if series.categories in (shared, {})])
        chart.series = [series for series in chart.series if series.categories not in (shared, {})]
    writer.end_aside(is_held)


def _write_table(writer: MarkdownWriter, group: list[_Series]) -> None:
    """Write a line for each category that has a value."""
    categories = group[0].categories
    writer.begin_table()
    for name in ("", *(" ".join(series.name.values()) for series in group)):
        writer.text(name)
        writer.end_cell()
    writer.end_row()
    for index in sorted({*categories, *(index for series in group for index in series.values)}):
        for text in (categories.get(index, str(index + 1)), *(series.values.get(index, "") for series in group)):
            writer.text(text)
            writer.end_cell()
        writer.end_row()
    writer.end_table()
