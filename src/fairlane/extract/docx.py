"""DOCX extractor.

Reads the document as a stream: paragraphs, headings (by the outline level of their style, whatever its name in the author's
language), lists, tables, links, notes, headers and footers. Leaves out text deleted by tracked changes.
"""

from __future__ import annotations

from collections.abc import Callable

from .builder import ExtractionBuilder
from .markdown import MarkdownWriter
from .ooxml import Relationship, main_part, read_properties, read_relationships
from .xml import Attributes, read_xml
from .zip_package import Package

DROPPED = {"Fallback", "del", "moveFrom", "instrText", "delText", "delInstrText"}
ORDER = ("header", "", "footnotes", "endnotes", "footer")
BREAKS = {"tab": "\t", "cr": "\n", "noBreakHyphen": "-"}


class _Styles:
    """The styles that are headings, and the numberings that are bullets."""

    def __init__(self, builder: ExtractionBuilder, package: Package, rels: dict[str, Relationship]) -> None:
        self.levels: dict[str, int] = {}
        self._formats: dict[tuple[str, str], str] = {}  # of (abstract numbering, level)
        self._abstracts: dict[str, str] = {}
        self._style = self._abstract = self._level = self._number = ""
        for rel in rels.values():
            if rel.kind in ("styles", "numbering") and rel.target in package and not rel.is_external:
                on_start = self._on_style if rel.kind == "styles" else self._on_numbering
                read_xml(builder, package.iter_blocks(rel.target), _StartHandler(on_start))

    def _on_style(self, name: str, attributes: Attributes) -> None:
        value = attributes.get("val", "")
        if name == "style":
            self._style = attributes.get("styleId", "")
        elif name == "name" and value.lower().startswith("heading ") and value[8:].isdecimal():
            self.levels[self._style] = int(value[8:10])
        elif name == "name" and value.lower() == "title":
            self.levels[self._style] = 1
        elif name == "outlineLvl" and value.isdecimal() and int(value[:2]) < 9:
            self.levels.setdefault(self._style, int(value[:2]) + 1)

    def _on_numbering(self, name: str, attributes: Attributes) -> None:
        if name == "abstractNum":
            self._abstract = attributes.get("abstractNumId", "")
        elif name == "lvl":
            self._level = attributes.get("ilvl", "")
        elif name == "numFmt":
            self._formats[self._abstract, self._level] = attributes.get("val", "")
        elif name == "num":
            self._number = attributes.get("numId", "")
        elif name == "abstractNumId":
            self._abstracts[self._number] = attributes.get("val", "")

    def marker(self, number: str, level: str) -> str:
        """Return the list marker: a dash, or `1.` for a numbered list, which Markdown renumbers itself."""
        kind = self._formats.get((self._abstracts.get(number, ""), level), "bullet")
        return "-" if kind in ("bullet", "none") else "1."


class _StartHandler:
    """Handler that only receives start tags."""

    def __init__(self, on_start: Callable[[str, Attributes], None]) -> None:
        self._on_start = on_start

    def start(self, name: str, attributes: Attributes) -> None:
        self._on_start(name, attributes)

    def end(self, name: str) -> None:
        pass

    def text(self, text: str) -> None:
        pass


class _PartHandler:
    """Handler for the text of one part."""

    def __init__(
        self, builder: ExtractionBuilder, writer: MarkdownWriter, styles: _Styles, rels: dict[str, Relationship]
    ) -> None:
        self._builder, self._writer, self._styles, self._rels = builder, writer, styles, rels
        self._dropped = 0
        self._is_text = self._is_page_due = False
        self._new_paragraph()

    def _new_paragraph(self) -> None:
        self._heading = 0
        self._number = ""
        self._level = "0"

    def start(self, name: str, attributes: Attributes) -> None:
        if self._dropped or name in DROPPED:
            self._dropped += 1
            return
        match name:
            case "t":
                self._is_text = True
            case "p":
                self._end_paragraph()
            case "pStyle":
                self._heading = self._styles.levels.get(attributes.get("val", ""), 0)
            case "outlineLvl" if attributes.get("val", "").isdecimal() and int(attributes["val"][:2]) < 9:
                self._heading = self._heading or int(attributes["val"][:2]) + 1
            case "numId":
                self._number = attributes.get("val", "")
            case "ilvl":
                self._level = attributes.get("val", "0")
            case "tbl":
                self._writer.begin_table()
            case "hyperlink":
                relation = self._rels.get(attributes.get("r:id", ""))
                self._writer.begin_link(relation.target if relation is not None and relation.is_external else "")
            case _:
                self._break(name, attributes)

    def _break(self, name: str, attributes: Attributes) -> None:
        if name in BREAKS:
            self._writer.text(BREAKS[name])
        elif name == "br" and attributes.get("type") != "page":
            self._writer.text("\n")
        elif name in ("br", "lastRenderedPageBreak"):
            self._is_page_due = True
            self._turn_page()

    def _turn_page(self) -> None:
        """Begin a new page between paragraphs; a paragraph that spans two pages stays on the first."""
        if self._is_page_due and self._writer.is_blank and not self._writer.is_in_table:
            self._is_page_due = False
            self._builder.break_page()

    def end(self, name: str) -> None:
        if self._dropped:
            self._dropped -= 1
            return
        match name:
            case "t":
                self._is_text = False
            case "p":
                self._end_paragraph()
            case "tc":
                self._writer.end_cell()
            case "tr":
                self._writer.end_row()
            case "tbl":
                self._writer.end_table()
            case "hyperlink":
                self._writer.end_link()

    def text(self, text: str) -> None:
        if self._is_text and not self._dropped:
            self._writer.text(text)

    def _end_paragraph(self) -> None:
        if self._heading:
            self._writer.end_heading(self._heading)
        elif self._number not in ("", "0"):
            level = int(self._level[:2]) if self._level.isdecimal() else 0
            self._writer.end_item(level, self._styles.marker(self._number, self._level))
        else:
            self._writer.end()
        self._new_paragraph()
        self._turn_page()


def read(builder: ExtractionBuilder) -> None:
    """Read headers, body, notes and footers."""
    with Package(builder, builder.limits.parts_max) as package:
        part, _ = main_part(builder, package)
        read_properties(builder, package)
        rels = read_relationships(builder, package, part)
        styles = _Styles(builder, package, rels)
        writer = MarkdownWriter(builder)
        parts = {kind: [rel.target for rel in rels.values() if rel.kind == kind and not rel.is_external] for kind in ORDER}
        parts[""] = [part]
        for kind in ORDER:
            for target in dict.fromkeys(parts[kind]):
                if target in package:
                    read_xml(
                        builder,
                        package.iter_blocks(target),
                        _PartHandler(builder, writer, styles, read_relationships(builder, package, target)),
                    )
                    writer.end()
