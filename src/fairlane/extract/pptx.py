"""PPTX extractor: slides in order of presentation, with titles, paragraphs, tables, diagrams and speaker notes.

The words of a diagram (SmartArt) are in a part of their own; they come after the other text of the slide, as a list.
"""

from __future__ import annotations

from .builder import ExtractionBuilder
from .markdown import MarkdownWriter
from .ooxml import main_part, read_properties, read_relationships
from .xml import Attributes, Elements, read_xml
from .zip_package import Package

TITLES = ("title", "ctrTitle")
REPEATED = ("sldNum", "dt", "ftr", "hdr", "sldImg")  # numbers, dates and footers, the same on every slide
LAYOUT_POINTS = ("pres", "parTrans", "sibTrans")  # of a diagram: how it is drawn, and the lines between its points


class _SlideHandler:
    """Handler for one slide or its notes."""

    def __init__(self, writer: MarkdownWriter) -> None:
        self._writer = writer
        self._role = ""
        self._level = 0
        self._is_text = False

    def start(self, name: str, attributes: Attributes) -> None:
        match name:
            case "sp":
                self._role = ""
            case "ph":
                self._role = attributes.get("type", "body")
            case "p":
                self._level = 0
            case "pPr":
                level = attributes.get("lvl", "")
                self._level = int(level[:1]) if level.isdecimal() else 0
            case "t":
                self._is_text = True
            case "br":
                self._writer.text("\n")
            case "tbl":
                self._writer.begin_table()

    def end(self, name: str) -> None:
        match name:
            case "t":
                self._is_text = False
            case "p":
                self._end_paragraph()
            case "sp":
                self._role = ""
            case "tc":
                self._writer.end_cell()
            case "tr":
                self._writer.end_row()
            case "tbl":
                self._writer.end_table()

    def _end_paragraph(self) -> None:
        if self._role in TITLES:
            self._writer.end_heading(2)
        elif self._level:
            self._writer.end_item(self._level)
        else:
            self._writer.end()

    def text(self, text: str) -> None:
        if self._is_text and self._role not in REPEATED:
            self._writer.text(text)


class _DiagramHandler(_SlideHandler):
    """Handler for the words of a diagram: each paragraph of a point is an item of a list."""

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "pt":
            self._role = REPEATED[0] if attributes.get("type") in LAYOUT_POINTS else ""
        else:
            super().start(name, attributes)

    def _end_paragraph(self) -> None:
        self._writer.end_item(self._level)


def read(builder: ExtractionBuilder) -> None:
    """Read every slide as a page."""
    builder.unit = "slide"
    with Package(builder, builder.limits.parts_max) as package:
        part, _ = main_part(builder, package)
        read_properties(builder, package)
        rels = read_relationships(builder, package, part)
        order: list[str] = []

        def on_element(name: str, attributes: Attributes, _: str) -> None:
            relation = rels.get(attributes.get("r:id", "")) if name == "sldId" else None
            if relation is not None and relation.kind == "slide" and not relation.is_external:
                builder.meter.check_pages(len(order) + 1)
                order.append(relation.target)

        read_xml(builder, package.iter_blocks(part), Elements(builder, on_element))
        for number, target in enumerate(order, start=1):
            builder.new_page(str(number))
            _read_slide(builder, package, target)


def _read_slide(builder: ExtractionBuilder, package: Package, target: str) -> None:
    if target not in package:
        builder.warn("damaged_parts", target)
        return
    writer = MarkdownWriter(builder)
    read_xml(builder, package.iter_blocks(target), _SlideHandler(writer))
    writer.end()
    rels = read_relationships(builder, package, target).values()
    for kind, handler in (("diagramData", _DiagramHandler), ("notesSlide", _SlideHandler)):
        for rel in rels:
            if rel.kind == kind and rel.target in package and not rel.is_external:
                read_xml(builder, package.iter_blocks(rel.target), handler(writer))
                writer.end()
