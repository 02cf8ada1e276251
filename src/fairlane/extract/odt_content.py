"""The text of an ODT or ODP, or of an object in it: paragraphs, lists, tables, links, charts, pictures, notes and comments.

Laws:
- A note, a comment or a text box has paragraphs and lists of its own: what is inside changes nothing outside.
- Of the paragraphs of an item the first has the marker.
- A chart is the table that it was drawn from.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import dataclass, field

from .builder import ExtractionBuilder
from .markdown import MarkdownWriter, comment_by
from .odf_styles import OdfStyles
from .xml import Attributes, read_xml
from .zip_package import Package

DROPPED = {
    *("tracked-changes", "ruby-text", "forms", "font-face-decls", "scripts", "note-citation"),
}
DRAWINGS = ("frame", "g", "custom-shape", "rect", "ellipse", "line", "connector", "path", "polygon", "polyline")
NOT_OF_CHARTS = {"axis", "legend", "math"}  # labels that repeat what the table has; formulas have no text
REMARK = "remark"  # a comment on no text in particular: on a slide
SPACES_MAX = 1_000
OBJECTS_DEPTH_MAX = 2  # charts and documents in each other
NESTING_MAX = 100  # notes and text boxes in each other; deeper ones are read as part of what is around them


@dataclass(slots=True)
class _Flow:
    """Where the text is: in the body, a note, a comment or a text box."""

    kind: str = ""
    paragraphs: int = 0
    heading: int = 0
    lists: list[str] = field(default_factory=list)  # the style of each open list
    is_item_due: bool = False  # the next paragraph is the first of an item
    is_header: bool = False  # in a list, but no item: what slides have for plain text
    author: str = ""  # of the comment
    drawings: int = 0  # that are open
    shown: str = ""  # what the outermost of them shows
    is_held: bool = True  # what the writer answered when it began


class OdtContent:
    """Handler for the content."""

    def __init__(
        self, builder: ExtractionBuilder, package: Package, writer: MarkdownWriter, styles: OdfStyles, depth: int = 0
    ) -> None:
        self._builder, self._package, self._writer, self._styles = builder, package, writer, styles
        self._depth = depth  # of objects in objects
        self._dropped = 0
        self._is_in_styles = False
        self._flow = _Flow()
        self._flows: list[_Flow] = []  # those around it
        self._columns: list[int] = []  # that each open cell spans
        self._labels = {"footnote": 0, "endnote": 0, "annotation": 0}
        self._collected: list[str] | None = None  # text that is not the document's: an author, what a picture shows
        self._collected_length = 0
        self._starts: dict[str, Callable[[str, Attributes], None]] = {
            "h": self._start_paragraph,
            "p": self._start_paragraph,
            "list": self._start_list,
            **dict.fromkeys(("list-item", "list-header"), self._start_item),
            "table": lambda _, __: writer.begin_table(),
            "table-cell": self._start_cell,
            "covered-table-cell": self._skip_cells,
            "a": lambda _, attributes: writer.begin_link(attributes.get("href", "")),
            **dict.fromkeys(("note", "annotation", "text-box"), self._start_flow),
            **dict.fromkeys(DRAWINGS, self._start_drawing),
            "object": self._on_object,
            **dict.fromkeys(("creator", "title", "desc"), self._start_collected),
            **dict.fromkeys(("s", "tab", "line-break", "soft-page-break"), self._on_sign),
        }
        self._ends: dict[str, Callable[[], None]] = {
            "h": self._end_paragraph,
            "p": self._end_paragraph,
            "list": self._end_list,
            "table-cell": self._end_cell,
            "table-row": writer.end_row,
            "table": writer.end_table,
            "a": writer.end_link,
            "note": self._end_flow,
            "annotation": self._end_flow,
            "text-box": self._end_flow,
            **dict.fromkeys(DRAWINGS, self._end_drawing),
            "creator": self._end_author,
            "title": lambda: self._end_description(is_better=False),
            "desc": lambda: self._end_description(is_better=True),
        }

    def start(self, name: str, attributes: Attributes) -> None:
        if self._dropped or name in DROPPED:
            self._dropped += 1
        elif self._is_in_styles:
            self._styles.start(name, attributes)
        elif name == "automatic-styles":
            self._is_in_styles = True
        elif (on_start := self._starts.get(name)) is not None:
            on_start(name, attributes)

    def end(self, name: str) -> None:
        if self._dropped:
            self._dropped -= 1
        elif self._is_in_styles:
            self._is_in_styles = name != "automatic-styles"
        elif (on_end := self._ends.get(name)) is not None:
            on_end()

    def text(self, text: str) -> None:
        if self._dropped:
            return
        if self._collected is not None:
            self._collected_length += len(text)
            self._builder.meter.check_text(self._collected_length)
            self._collected.append(text)
        elif self._flow.paragraphs:
            self._writer.text(text)

    def _on_sign(self, name: str, attributes: Attributes) -> None:
        if name == "s":
            count = attributes.get("c", "1")
            self._writer.text(" " * (min(int(count[:4]), SPACES_MAX) if count.isdecimal() else 1))
        elif name == "soft-page-break":
            self._turn_page()
        else:
            self._writer.text("\t" if name == "tab" else "\n")

    def _turn_page(self) -> None:
        if self._writer.is_blank and not self._writer.is_in_table and not self._flows:
            self._builder.break_page()

    # -- paragraphs and lists

    def _start_paragraph(self, name: str, attributes: Attributes) -> None:
        style = attributes.get("style-name", "")
        if self._flow.paragraphs:  # a frame inside a paragraph
            self._writer.text(" ")
        elif self._styles.begins_page(style):
            self._turn_page()
        self._flow.paragraphs += 1
        if name == "h":
            level = attributes.get("outline-level", "1")
            self._flow.heading = int(level[:2]) if level.isdecimal() else 1
        elif self._flow.paragraphs == 1:
            self._flow.heading = self._styles.heading_level(style)

    def _end_paragraph(self) -> None:
        flow, writer = self._flow, self._writer
        flow.paragraphs -= 1
        if flow.paragraphs > 0:
            return
        is_blank = writer.is_blank
        if flow.kind == REMARK:
            writer.text(" ")
        elif flow.heading:
            writer.end_heading(flow.heading)
        elif flow.lists and flow.is_item_due:
            level = len(flow.lists)
            writer.end_item(level - 1, "1." if self._styles.is_numbered(flow.lists[-1], level) else "-")
        else:
            writer.end("" if flow.is_header else "  " * len(flow.lists))
        flow.heading, flow.is_item_due = 0, flow.is_item_due and is_blank

    def _start_list(self, _: str, attributes: Attributes) -> None:
        lists = self._flow.lists
        lists.append(attributes.get("style-name", "") or (lists[-1] if lists else ""))

    def _end_list(self) -> None:
        if self._flow.lists:
            self._flow.lists.pop()
        self._flow.is_item_due = False

    def _start_item(self, name: str, _: Attributes) -> None:
        self._flow.is_item_due = name == "list-item"
        self._flow.is_header = name == "list-header"

    # -- tables

    def _start_cell(self, _: str, attributes: Attributes) -> None:
        self._columns.append(_count(attributes, "number-columns-repeated"))

    def _end_cell(self) -> None:
        self._writer.end_cell(self._columns.pop() if self._columns else 1)

    def _skip_cells(self, _: str, attributes: Attributes) -> None:
        self._dropped += 1
        self._writer.skip_cells(_count(attributes, "number-columns-repeated"))

    # -- notes, comments, text boxes and pictures

    def _start_flow(self, name: str, attributes: Attributes) -> None:
        if len(self._flows) >= NESTING_MAX:
            self._dropped += 1
            return
        kind = attributes.get("note-class", "footnote") if name == "note" else name
        if name == "annotation" and not self._flow.paragraphs:
            kind, is_held = REMARK, False
        else:
            is_held = self._writer.begin_aside() if name == "text-box" else self._writer.begin_note()
        self._flows.append(self._flow)
        self._flow = _Flow(kind if kind in self._labels or kind == REMARK else name, is_held=is_held)

    def _end_flow(self) -> None:
        ended, self._flow = self._flow, self._flows.pop()
        if ended.kind == "text-box":
            self._writer.end_aside(ended.is_held)
        elif ended.kind == REMARK:
            self._writer.end(comment_by(ended.author))
        elif ended.is_held:
            kind = ended.kind if ended.kind in self._labels else "footnote"
            self._labels[kind] += 1
            label = {"footnote": "", "endnote": "e", "annotation": "c"}[kind]
            author = comment_by(ended.author) if kind == "annotation" else ""
            self._writer.end_note(f"{label}{self._labels[kind]}", author)

    def _start_collected(self, _: str, __: Attributes) -> None:
        self._collected, self._collected_length = [], 0

    def _take_collected(self) -> str:
        text, self._collected = "".join(self._collected or ()), None
        return " ".join(text.split())

    def _end_author(self) -> None:
        author = self._take_collected()
        if self._flow.kind in ("annotation", REMARK):
            self._flow.author = author
        else:  # a field that shows the author
            self.text(author)

    def _start_drawing(self, _: str, __: Attributes) -> None:
        self._flow.drawings += 1

    def _end_description(self, is_better: bool) -> None:
        """Take a drawing's description, or its title if it has none; elsewhere the element is a field that shows the title."""
        text, flow = self._take_collected(), self._flow
        if not flow.drawings:
            self.text(text)
        elif is_better or not flow.shown:
            flow.shown = text or flow.shown

    def _end_drawing(self) -> None:
        flow = self._flow
        flow.drawings -= 1
        if not flow.drawings:
            self._writer.picture(flow.shown)
            flow.shown = ""
            if not flow.paragraphs:
                self._writer.end()

    def _on_object(self, _: str, attributes: Attributes) -> None:
        is_held = self._writer.begin_aside()
        read_object(self._builder, self._package, self._writer, attributes.get("href", ""), self._depth + 1)
        self._writer.end_aside(is_held)


class _ObjectContent(OdtContent):
    """Handler for the content of a chart, or of another document that is part of this one."""

    def start(self, name: str, attributes: Attributes) -> None:
        if self._dropped or name in NOT_OF_CHARTS:
            self._dropped += 1
        elif name != "title":  # of a chart, which has paragraphs
            super().start(name, attributes)

    def end(self, name: str) -> None:
        if self._dropped or name != "title":
            super().end(name)


def read_object(builder: ExtractionBuilder, package: Package, writer: MarkdownWriter, target: str, depth: int = 1) -> None:
    """Read a chart, or another document that is part of this one."""
    part = posixpath.normpath(posixpath.join(target, "content.xml"))
    if depth <= OBJECTS_DEPTH_MAX and part in package and part != "content.xml":
        styles = OdfStyles(builder, package)
        read_xml(builder, package.iter_blocks(part), _ObjectContent(builder, package, writer, styles, depth))


def _count(attributes: Attributes, name: str) -> int:
    value = attributes.get(name, "")
    return max(1, int(value[:4])) if value.isdecimal() else 1
