"""What does a PPTX say? Slide by slide, in the order of the show: titles, paragraphs, tables, and the speaker's notes."""

from __future__ import annotations

from .draft import Draft
from .markdown import Flow
from .ooxml import main_part, read_properties, relations
from .package import Package
from .xml import Attributes, Elements, read_xml

TITLES = ("title", "ctrTitle")
FURNITURE = ("sldNum", "dt", "ftr", "hdr", "sldImg")  # numbers, dates and footers repeat on every slide


class _Slide:
    """A handler for one slide or its notes."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
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
                self._flow.text("\n")
            case "tbl":
                self._flow.begin_table()

    def end(self, name: str) -> None:
        match name:
            case "t":
                self._is_text = False
            case "p":
                self._end_paragraph()
            case "sp":
                self._role = ""
            case "tc":
                self._flow.end_cell()
            case "tr":
                self._flow.end_row()
            case "tbl":
                self._flow.end_table()

    def _end_paragraph(self) -> None:
        if self._role in TITLES:
            self._flow.end_heading(2)
        elif self._level:
            self._flow.end_item(self._level)
        else:
            self._flow.end()

    def text(self, text: str) -> None:
        if self._is_text and self._role not in FURNITURE:
            self._flow.text(text)


def read(draft: Draft) -> None:
    """Every slide is a page."""
    draft.unit = "slide"
    with Package(draft, draft.limits.parts_max) as package:
        part, _ = main_part(draft, package)
        read_properties(draft, package)
        rels = relations(draft, package, part)
        order: list[str] = []

        def seen(name: str, attributes: Attributes, _: str) -> None:
            relation = rels.get(attributes.get("id", "")) if name == "sldId" else None
            if relation is not None and relation.kind == "slide" and not relation.is_outside:
                draft.meter.pages(len(order) + 1)
                order.append(relation.target)

        read_xml(draft, package.blocks(part), Elements(draft, seen))
        for number, target in enumerate(order, start=1):
            draft.new_page(str(number))
            _read_slide(draft, package, target)


def _read_slide(draft: Draft, package: Package, target: str) -> None:
    if target not in package:
        draft.warn("damaged_parts", target)
        return
    flow = Flow(draft)
    read_xml(draft, package.blocks(target), _Slide(flow))
    flow.end()
    for one in relations(draft, package, target).values():
        if one.kind == "notesSlide" and one.target in package and not one.is_outside:
            read_xml(draft, package.blocks(one.target), _Slide(flow))
            flow.end()
