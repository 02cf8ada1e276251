"""The text of one slide, of its notes, or of a diagram.

Laws:
- All paragraphs of a title are one heading; without text there is none.
- Whether a paragraph is an item of a list is inherited; a paragraph about which nobody says anything is one if it is indented.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from .builder import ExtractionBuilder
from .chart import read_chart
from .markdown import MarkdownWriter
from .ooxml import Relationship
from .pptx_layout import LEVELS, MARKERS, TITLES, Layout, Markers
from .xml import Attributes
from .zip_package import Package

REPEATED = ("sldNum", "dt", "ftr", "hdr", "sldImg")  # numbers, dates and footers, the same on every slide
LAYOUT_POINTS = ("pres", "parTrans", "sibTrans")  # of a diagram: how it is drawn, and the lines between its points
SHAPE_ELEMENTS = ("sp", "pic", "graphicFrame", "grpSp", "cxnSp")
RUNS = ("r", "fld")


class SlideHandler:
    """Handler for one slide or its notes."""

    def __init__(
        self, builder: ExtractionBuilder, package: Package, writer: MarkdownWriter, rels: dict[str, Relationship]
    ) -> None:
        self._builder, self._package, self._writer, self._rels = builder, package, writer, rels
        self.layout: Callable[[], Layout | None] = lambda: None  # read when the first placeholder needs it
        self._dropped = 0
        self._is_text = self._is_run = self._is_shape_name = self._is_picture = False
        self._role = ""
        self._description = ""
        self._inherited: list[Markers] = []
        self._shape_markers: Markers = {}  # from the list style of the shape
        self._list_level: int | None = None
        self._level = 0
        self._marker: str | None = None
        self._link = self._run_target = self._shape_target = ""

    def start(self, name: str, attributes: Attributes) -> None:
        if self._dropped or name == "Fallback":
            self._dropped += 1
        elif (on_start := self._starts.get(name)) is not None:
            on_start(self, name, attributes)

    def end(self, name: str) -> None:
        if self._dropped:
            self._dropped -= 1
        elif (on_end := self._ends.get(name)) is not None:
            on_end(self)

    def text(self, text: str) -> None:
        if self._is_text and not self._dropped:
            self._writer.text(text)

    # -- shapes

    def _start_shape(self, name: str, _: Attributes) -> None:
        self._role = self._shape_target = ""
        self._is_picture = name == "pic"
        self._inherited, self._shape_markers = [], {}

    def _end_shape(self) -> None:
        if self._role in TITLES:
            self._writer.end_heading(2)
        self._role = self._shape_target = ""

    def _start_shape_name(self, _: str, attributes: Attributes) -> None:
        self._is_shape_name = True
        self._description = attributes.get("descr", "")

    def _end_shape_name(self) -> None:
        self._is_shape_name = False
        if self._description or (self._is_picture and self._shape_target):
            self._writer.picture(self._description, self._shape_target)
            self._writer.end()

    def _on_placeholder(self, _: str, attributes: Attributes) -> None:
        self._role = attributes.get("type", "obj")
        layout = self.layout() if self._role not in REPEATED else None
        if layout is not None:
            self._role, self._inherited = layout.inherited(self._role, attributes.get("idx", "0"))

    def _on_chart(self, _: str, attributes: Attributes) -> None:
        relation = self._rels.get(attributes.get("r:id", ""))
        if relation is not None and relation.kind == "chart" and not relation.is_external:
            read_chart(self._builder, self._package, relation.target, self._writer)

    # -- paragraphs

    def _start_paragraph(self, name: str, attributes: Attributes) -> None:
        if name == "p":
            self._level, self._marker = 0, None
        else:
            level = attributes.get("lvl", "")
            self._level = int(level[:1]) if level.isdecimal() else 0

    def _on_list_level(self, name: str, _: Attributes) -> None:
        self._list_level = LEVELS[name]

    def _end_list_style(self) -> None:
        self._list_level = None

    def _on_marker(self, name: str, _: Attributes) -> None:
        if self._list_level is None:
            self._marker = MARKERS[name]
        else:
            self._shape_markers[self._list_level] = MARKERS[name]

    def _find_marker(self) -> str:
        if self._marker is not None:
            return self._marker
        inherited = [] if self._writer.is_in_table else self._inherited
        for markers in (self._shape_markers, *inherited):
            if self._level in markers:
                return markers[self._level]
        return "-" if self._level else ""

    def _end_paragraph(self) -> None:
        self._end_link()
        if self._role in TITLES:
            self._writer.text("\n")  # the heading ends with its shape
        elif not self._writer.is_blank and (marker := self._find_marker()):
            self._writer.end_item(self._level, marker)
        else:
            self._writer.end()

    # -- text and links

    def _start_text(self, name: str, _: Attributes) -> None:
        if name == "br":
            self._writer.text("\n")
        elif name != "t":
            self._is_run, self._run_target = True, ""
        elif self._role not in REPEATED:
            self._is_text = True
            target = self._run_target or self._shape_target
            if target != self._link:  # a link often has several runs
                self._end_link()
                if target:
                    self._writer.begin_link(target)
                    self._link = target

    def _end_text(self) -> None:
        self._is_text = False

    def _end_run(self) -> None:
        self._is_run = False

    def _on_link(self, _: str, attributes: Attributes) -> None:
        relation = self._rels.get(attributes.get("r:id", ""))
        target = relation.target if relation is not None and relation.is_external else ""
        if self._is_run:
            self._run_target = target
        elif self._is_shape_name:
            self._shape_target = target

    def _end_link(self) -> None:
        if self._link:
            self._writer.end_link()
            self._link = ""

    # -- tables

    def _begin_table(self, _: str, __: Attributes) -> None:
        self._writer.begin_table()

    def _end_cell(self) -> None:
        self._writer.end_cell()

    def _end_row(self) -> None:
        self._writer.end_row()

    def _end_table(self) -> None:
        self._writer.end_table()

    _starts: ClassVar[dict[str, Callable[[SlideHandler, str, Attributes], None]]] = {
        **dict.fromkeys(SHAPE_ELEMENTS, _start_shape),
        "cNvPr": _start_shape_name,
        "ph": _on_placeholder,
        **dict.fromkeys(("p", "pPr"), _start_paragraph),
        **dict.fromkeys(MARKERS, _on_marker),
        **dict.fromkeys(LEVELS, _on_list_level),
        **dict.fromkeys(("t", "br", *RUNS), _start_text),
        "hlinkClick": _on_link,
        "tbl": _begin_table,
        "chart": _on_chart,
    }
    _ends: ClassVar[dict[str, Callable[[SlideHandler], None]]] = {
        **dict.fromkeys(SHAPE_ELEMENTS, _end_shape),
        "cNvPr": _end_shape_name,
        "p": lambda self: self._end_paragraph(),  # which diagrams end in their own way
        "lstStyle": _end_list_style,
        "t": _end_text,
        **dict.fromkeys(RUNS, _end_run),
        "tc": _end_cell,
        "tr": _end_row,
        "tbl": _end_table,
    }


class DiagramHandler(SlideHandler):
    """Handler for the words of a diagram: each paragraph of a point is an item of a list."""

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "pt":
            self._role = REPEATED[0] if attributes.get("type") in LAYOUT_POINTS else ""
        else:
            super().start(name, attributes)

    def _end_paragraph(self) -> None:
        self._end_link()
        self._writer.end_item(self._level)
