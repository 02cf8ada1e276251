"""The text of one part of a DOCX: the document itself, a header, notes or comments.

Laws:
- Paragraphs in text boxes have a state of their own: what is inside changes nothing outside.
- What tracked changes deleted, and what a paragraph was before a change, is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .builder import ExtractionBuilder
from .chart import read_chart
from .docx_styles import DocxStyles, outline_level
from .field_code import CODE_MAX, link_target
from .markdown import MarkdownWriter, comment_by
from .ooxml import Relationship
from .xml import Attributes
from .zip_package import Package

DROPPED = {"Fallback", "del", "moveFrom", "delText", "delInstrText", "pPrChange", "tabs"}
SIGNS = {"tab": "\t", "ptab": "\t", "cr": "\n", "noBreakHyphen": "-"}
NOTES = {"footnote": "", "endnote": "e", "comment": "c"}  # what the labels of these begin with
REFERENCES = {f"{name}Reference": kind for name, kind in NOTES.items()}
FIELDS_MAX = 100  # in each other
LABEL_MAX = 12  # characters of a note's number


@dataclass(slots=True)
class _Paragraph:
    """What the open paragraph is."""

    style: str = ""
    heading: int = 0
    number: str | None = None
    level: str | None = None


@dataclass(slots=True)
class _Field:
    """A field between its marks: its code, and whether its result is a link."""

    code: list[str] = field(default_factory=list)
    length: int = 0
    is_link: bool = False


class PartHandler:
    """Handler for the text of one part."""

    def __init__(self, builder: ExtractionBuilder, package: Package, writer: MarkdownWriter, styles: DocxStyles) -> None:
        self._builder, self._package, self._writer, self._styles = builder, package, writer, styles
        self.rels: dict[str, Relationship] = {}
        self._dropped = 0
        self._is_text = self._is_code = self._is_page_due = False
        self._paragraph = _Paragraph()
        self._boxes: list[tuple[_Paragraph, bool]] = []  # the paragraph around each text box, and whether it is held back
        self._fields: list[_Field] = []
        self._fields_beyond = 0  # more than may be in each other
        self._columns: list[int] = []  # that each open cell spans
        self._picture = ("", "")  # description and link of the open drawing
        self._prefix = ""  # of the next paragraph, where a note begins
        self._starts: dict[str, Callable[[str, Attributes], None]] = {
            "t": self._start_text,
            "p": self._start_paragraph,
            **dict.fromkeys(("pStyle", "outlineLvl", "numId", "ilvl"), self._on_property),
            **dict.fromkeys(("tbl", "tc", "gridSpan", "gridBefore"), self._start_in_table),
            **dict.fromkeys(("hyperlink", "fldSimple"), self._start_link),
            **dict.fromkeys(("fldChar", "instrText"), self._on_field),
            "txbxContent": self._start_box,
            **dict.fromkeys(("docPr", "hlinkClick", "shape", "chart"), self._on_drawing),
            **dict.fromkeys((*SIGNS, "br", "lastRenderedPageBreak"), self._on_sign),
            **dict.fromkeys((*NOTES, *REFERENCES), self._on_note),
        }
        self._ends: dict[str, Callable[[], None]] = {
            "t": self._end_text,
            "instrText": self._end_text,
            "p": self._end_paragraph,
            "tc": lambda: writer.end_cell(self._columns.pop() if self._columns else 1),
            "tr": writer.end_row,
            "tbl": writer.end_table,
            "hyperlink": writer.end_link,
            "fldSimple": writer.end_link,
            "txbxContent": self._end_box,
            "docPr": lambda: writer.picture(*self._picture),
            **dict.fromkeys(NOTES, self._end_note),
        }

    def start(self, name: str, attributes: Attributes) -> None:
        if self._dropped or name in DROPPED:
            self._dropped += 1
        elif (on_start := self._starts.get(name)) is not None:
            on_start(name, attributes)

    def end(self, name: str) -> None:
        if self._dropped:
            self._dropped -= 1
        elif (on_end := self._ends.get(name)) is not None:
            on_end()

    # -- text

    def text(self, text: str) -> None:
        if self._dropped:
            return
        if self._is_text:
            self._writer.text(text)
        elif self._is_code and self._fields and self._fields[-1].length < CODE_MAX:
            self._fields[-1].code.append(text[:CODE_MAX])
            self._fields[-1].length += len(text)

    def _start_text(self, _: str, __: Attributes) -> None:
        self._is_text = True

    def _end_text(self) -> None:
        self._is_text = self._is_code = False

    def _on_sign(self, name: str, attributes: Attributes) -> None:
        if name in SIGNS:
            self._writer.text(SIGNS[name])
        elif name == "br" and attributes.get("type") != "page":
            self._writer.text("\n")
        else:
            self._is_page_due = True
            self._turn_page()

    def _turn_page(self) -> None:
        """Begin a new page between paragraphs; a paragraph that spans two pages stays on the first."""
        if self._is_page_due and self._writer.is_blank and not self._writer.is_in_table and not self._boxes:
            self._is_page_due = False
            self._builder.break_page()

    # -- paragraphs

    def _start_paragraph(self, _: str, __: Attributes) -> None:
        if not self._writer.is_blank:
            self._end_paragraph()

    def _on_property(self, name: str, attributes: Attributes) -> None:
        value = attributes.get("val", "")
        if name == "pStyle":
            self._paragraph.style = value
        elif name == "outlineLvl":
            self._paragraph.heading = outline_level(value) or 0
        elif name == "numId":
            self._paragraph.number = value
        else:
            self._paragraph.level = value

    def _end_paragraph(self) -> None:
        paragraph, writer = self._paragraph, self._writer
        number, level, heading, depth = paragraph.number, paragraph.level, paragraph.heading, 0
        if paragraph.style:
            style = self._styles.resolve(paragraph.style)
            number, level = style.number if number is None else number, style.level if level is None else level
            heading, depth = style.heading or heading, style.depth
        if self._prefix and not writer.is_blank and not writer.is_in_table:
            writer.end(self._prefix)
            self._prefix = ""
        elif heading:
            writer.end_heading(heading)
        elif number not in (None, "", "0"):
            level = level if level is not None and level.isdecimal() else "0"
            writer.end_item(int(level[:2]) or depth, self._styles.marker(number or "", level))
        else:
            writer.end()
        self._paragraph = _Paragraph()
        self._turn_page()

    # -- tables

    def _start_in_table(self, name: str, attributes: Attributes) -> None:
        if name == "tbl":
            self._writer.begin_table()
        elif name == "tc":
            self._columns.append(1)
        else:
            value = attributes.get("val", "")
            columns = int(value[:4]) if value.isdecimal() else 0
            if name == "gridBefore":
                self._writer.skip_cells(columns)
            elif self._columns:
                self._columns[-1] = max(columns, 1)

    # -- links

    def _start_link(self, name: str, attributes: Attributes) -> None:
        if name == "fldSimple":
            self._writer.begin_link(link_target(attributes.get("instr", "")[:CODE_MAX]))
            return
        anchor = attributes.get("anchor", "")
        self._writer.begin_link(self._target(attributes) + (f"#{anchor}" if anchor else ""))

    def _target(self, attributes: Attributes) -> str:
        relation = self.rels.get(attributes.get("r:id", ""))
        return relation.target if relation is not None and relation.is_external else ""

    def _on_field(self, name: str, attributes: Attributes) -> None:
        """Follow the marks of a field: its begin, the end of its code, its end."""
        if name == "instrText":
            self._is_code = True
            return
        kind = attributes.get("fldCharType", "")
        if kind == "begin":
            if len(self._fields) < FIELDS_MAX:
                self._fields.append(_Field())
            else:
                self._fields_beyond += 1
        elif kind == "separate" and self._fields and not self._fields_beyond:
            opened = self._fields[-1]
            target = link_target("".join(opened.code))
            if target and not opened.is_link:
                opened.is_link = True
                self._writer.begin_link(target)
        elif kind == "end":
            if self._fields_beyond:
                self._fields_beyond -= 1
            elif self._fields and self._fields.pop().is_link:
                self._writer.end_link()

    # -- drawings

    def _start_box(self, _: str, __: Attributes) -> None:
        self._boxes.append((self._paragraph, self._writer.begin_aside()))
        self._paragraph = _Paragraph()

    def _end_box(self) -> None:
        self._end_paragraph()
        self._paragraph, is_held = self._boxes.pop()
        self._writer.end_aside(is_held)

    def _on_drawing(self, name: str, attributes: Attributes) -> None:
        if name == "docPr":
            self._picture = (attributes.get("descr", ""), "")
        elif name == "hlinkClick":
            self._picture = (self._picture[0], self._target(attributes))
        elif name == "shape":
            self._writer.picture(attributes.get("alt", ""))
        else:
            relation = self.rels.get(attributes.get("r:id", ""))
            if relation is not None and relation.kind == "chart" and not relation.is_external:
                read_chart(self._builder, self._package, relation.target, self._writer)

    # -- notes and comments

    def _on_note(self, name: str, attributes: Attributes) -> None:
        label = f"[^{(REFERENCES.get(name) or NOTES.get(name, ''))}{attributes.get('id', '')[:LABEL_MAX]}]"
        if name in REFERENCES:
            self._writer.text(label)
            return
        author = comment_by(attributes.get("author", "").strip()) if name == "comment" else ""
        self._prefix = f"{label}: {author}"

    def _end_note(self) -> None:
        self._end_paragraph()
        self._prefix = ""
