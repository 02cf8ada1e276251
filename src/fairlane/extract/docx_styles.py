"""Styles and numberings of a DOCX: which paragraphs are headings or list items.

Laws:
- A style has what it says itself, else what the style says that it is based on.
- What a document can make grow here is limited; further styles and levels count as plain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .builder import ExtractionBuilder
from .ooxml import Relationship
from .xml import Attributes, StartHandler, read_xml
from .zip_package import Package

STYLES_MAX = 20_000
LEVELS_MAX = 100_000
ANCESTORS_MAX = 20
_DEEPER_LIST = re.compile("list (?:bullet|number) ([2-5])")
PLAIN = 9  # the outline level of text


def outline_level(value: str) -> int | None:
    """Return the level of a heading from 1, 0 for text, None for nonsense."""
    if not value.isdecimal():
        return None
    level = int(value[:2])
    return 0 if level >= PLAIN else level + 1


@dataclass(slots=True)
class Style:
    """What a style says about its paragraphs; None where it says nothing."""

    based_on: str = ""
    heading: int | None = None
    number: str | None = None  # the numbering; 0 takes an inherited one away
    level: str | None = None
    depth: int = 0  # of the lists that Word brings along: `List Bullet 2` is a list of its own, and stands further right


class DocxStyles:
    """The styles and numberings of a document."""

    def __init__(self, builder: ExtractionBuilder, package: Package, rels: dict[str, Relationship]) -> None:
        self._styles: dict[str, Style] = {}
        self._formats: dict[tuple[str, str], str] = {}  # of (abstract numbering or numbering, level)
        self._style_levels: dict[tuple[str, str], str] = {}  # of (abstract numbering, style)
        self._abstracts: dict[str, str] = {}  # of a numbering
        self._style_links: dict[str, str] = {}  # from an abstract numbering to the style that has the true one
        self._known: dict[str, Style] = {}
        self._style = Style()
        self._abstract = self._level = ""
        self._number = ""
        for rel in rels.values():
            if rel.kind in ("styles", "numbering") and rel.target in package and not rel.is_external:
                on_start = self._on_style if rel.kind == "styles" else self._on_numbering
                read_xml(builder, package.iter_blocks(rel.target), StartHandler(on_start))

    def _on_style(self, name: str, attributes: Attributes) -> None:
        if name == "style":
            self._style = Style()
            if len(self._styles) < STYLES_MAX:
                self._styles[attributes.get("styleId", "")] = self._style
        elif name == "basedOn":
            self._style.based_on = attributes.get("val", "")
        elif name == "name":
            self._on_name(attributes.get("val", "").lower())
        elif name == "outlineLvl" and not self._style.heading:
            self._style.heading = outline_level(attributes.get("val", ""))
        elif name == "numId":
            self._style.number = attributes.get("val", "")
        elif name == "ilvl":
            self._style.level = attributes.get("val", "")

    def _on_name(self, name: str) -> None:
        """Take what the name of a style that Word brings along says, which is English in every language."""
        if name == "title":
            self._style.heading = 1
        elif name.startswith("heading ") and name[8:].isdecimal():
            self._style.heading = int(name[8:10])
        elif (match := _DEEPER_LIST.fullmatch(name)) is not None:
            self._style.depth = int(match.group(1)) - 1

    def _on_numbering(self, name: str, attributes: Attributes) -> None:
        value = attributes.get("val", "")
        if name == "abstractNum":
            self._abstract, self._number = attributes.get("abstractNumId", ""), ""
        elif name == "num":
            self._number, self._abstract = attributes.get("numId", ""), ""
        elif len(self._formats) + len(self._abstracts) + len(self._style_levels) + len(self._style_links) >= LEVELS_MAX:
            return
        elif name == "lvl":
            self._level = attributes.get("ilvl", "")
        elif name == "numFmt":
            # A numbering may replace levels of its abstract one.
            self._formats[f"num {self._number}" if self._number else self._abstract, self._level] = value
        elif name == "pStyle" and self._abstract:
            self._style_levels[self._abstract, value] = self._level
        elif name == "numStyleLink":
            self._style_links[self._abstract] = value
        elif name == "abstractNumId":
            self._abstracts[self._number] = value

    def _ancestors(self, style_id: str) -> Iterator[tuple[str, Style]]:
        for _ in range(ANCESTORS_MAX):
            style = self._styles.get(style_id)
            if style is None:
                return
            yield style_id, style
            style_id = style.based_on

    def resolve(self, style_id: str) -> Style:
        """Return a style with all that it inherits."""
        known = self._known.get(style_id)
        if known is None:
            known = Style()
            for _, style in self._ancestors(style_id):
                known.heading = style.heading if known.heading is None else known.heading
                known.number = style.number if known.number is None else known.number
                known.level = style.level if known.level is None else known.level
                known.depth = known.depth or style.depth
            if known.number and known.level is None:
                known.level = self._level_of(known.number, style_id)
            if len(self._known) < STYLES_MAX:
                self._known[style_id] = known
        return known

    def _level_of(self, number: str, style_id: str) -> str | None:
        """Return the level of a numbering that names this style, or one that it is based on."""
        abstract = self._abstract_of(number)
        for ancestor, _ in self._ancestors(style_id):
            if (abstract, ancestor) in self._style_levels:
                return self._style_levels[abstract, ancestor]
        return None

    def _abstract_of(self, number: str) -> str:
        abstract = self._abstracts.get(number, "")
        if abstract in self._style_links:
            linked = self._styles.get(self._style_links[abstract])
            if linked is not None and linked.number:
                return self._abstracts.get(linked.number, abstract)
        return abstract

    def marker(self, number: str, level: str) -> str:
        """Return the list marker: a dash, or `1.` for a numbered list, which Markdown renumbers itself."""
        kind = self._formats.get((f"num {number}", level)) or self._formats.get((self._abstract_of(number), level), "bullet")
        return "-" if kind in ("bullet", "none") else "1."
