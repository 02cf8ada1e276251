"""What does a DOCX say?

The document is read as a stream: paragraphs, headings (by the outline level of their style, whatever the style is called in
the language of the writer), lists, tables, links, notes, headers and footers. Deleted text of tracked changes is left out.
"""

from __future__ import annotations

from collections.abc import Callable

from .draft import Draft
from .markdown import Flow
from .ooxml import Relation, main_part, read_properties, relations
from .package import Package
from .xml import Attributes, read_xml

DROPPED = {"Fallback", "del", "moveFrom", "instrText", "delText", "delInstrText"}
ORDER = ("header", "", "footnotes", "endnotes", "footer")
BREAKS = {"tab": "\t", "cr": "\n", "noBreakHyphen": "-"}


class _Styles:
    """Which styles are headings, and which numberings are bullets."""

    def __init__(self, draft: Draft, package: Package, rels: dict[str, Relation]) -> None:
        self.levels: dict[str, int] = {}
        self._formats: dict[tuple[str, str], str] = {}  # of (abstract numbering, level)
        self._abstracts: dict[str, str] = {}
        self._style = self._abstract = self._level = self._number = ""
        for one in rels.values():
            if one.kind in ("styles", "numbering") and one.target in package and not one.is_outside:
                seen = self._seen_style if one.kind == "styles" else self._seen_numbering
                read_xml(draft, package.blocks(one.target), _Starts(seen))

    def _seen_style(self, name: str, attributes: Attributes) -> None:
        value = attributes.get("val", "")
        if name == "style":
            self._style = attributes.get("styleId", "")
        elif name == "name" and value.lower().startswith("heading ") and value[8:].isdecimal():
            self.levels[self._style] = int(value[8:10])
        elif name == "name" and value.lower() == "title":
            self.levels[self._style] = 1
        elif name == "outlineLvl" and value.isdecimal() and int(value[:2]) < 9:
            self.levels.setdefault(self._style, int(value[:2]) + 1)

    def _seen_numbering(self, name: str, attributes: Attributes) -> None:
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
        """A dash, or the number one where the list is numbered: Markdown counts by itself."""
        kind = self._formats.get((self._abstracts.get(number, ""), level), "bullet")
        return "-" if kind in ("bullet", "none") else "1."


class _Starts:
    """A handler that only wants to know what begins."""

    def __init__(self, seen: Callable[[str, Attributes], None]) -> None:
        self._seen = seen

    def start(self, name: str, attributes: Attributes) -> None:
        self._seen(name, attributes)

    def end(self, name: str) -> None:
        pass

    def text(self, text: str) -> None:
        pass


class _Story:
    """A handler for the text of one part."""

    def __init__(self, draft: Draft, flow: Flow, styles: _Styles, rels: dict[str, Relation]) -> None:
        self._draft, self._flow, self._styles, self._rels = draft, flow, styles, rels
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
                self._flow.begin_table()
            case "hyperlink":
                relation = self._rels.get(attributes.get("id", ""))
                self._flow.begin_link(relation.target if relation is not None and relation.is_outside else "")
            case _:
                self._break(name, attributes)

    def _break(self, name: str, attributes: Attributes) -> None:
        if name in BREAKS:
            self._flow.text(BREAKS[name])
        elif name == "br" and attributes.get("type") != "page":
            self._flow.text("\n")
        elif name in ("br", "lastRenderedPageBreak"):
            self._is_page_due = True
            self._turn_page()

    def _turn_page(self) -> None:
        """Pages end between paragraphs: one that goes over two pages stays on the first."""
        if self._is_page_due and self._flow.is_blank and not self._flow.is_in_table:
            self._is_page_due = False
            self._draft.break_page()

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
                self._flow.end_cell()
            case "tr":
                self._flow.end_row()
            case "tbl":
                self._flow.end_table()
            case "hyperlink":
                self._flow.end_link()

    def text(self, text: str) -> None:
        if self._is_text and not self._dropped:
            self._flow.text(text)

    def _end_paragraph(self) -> None:
        if self._heading:
            self._flow.end_heading(self._heading)
        elif self._number not in ("", "0"):
            level = int(self._level[:2]) if self._level.isdecimal() else 0
            self._flow.end_item(level, self._styles.marker(self._number, self._level))
        else:
            self._flow.end()
        self._new_paragraph()
        self._turn_page()


def read(draft: Draft) -> None:
    """Headers, the body, notes, footers."""
    with Package(draft, draft.limits.parts_max) as package:
        part, _ = main_part(draft, package)
        read_properties(draft, package)
        rels = relations(draft, package, part)
        styles = _Styles(draft, package, rels)
        flow = Flow(draft)
        parts = {kind: [one.target for one in rels.values() if one.kind == kind and not one.is_outside] for kind in ORDER}
        parts[""] = [part]
        for kind in ORDER:
            for target in dict.fromkeys(parts[kind]):
                if target in package:
                    read_xml(draft, package.blocks(target), _Story(draft, flow, styles, relations(draft, package, target)))
                    flow.end()
