"""Styles of an OpenDocument text: which lists are numbered, which paragraphs are headings or begin a page.

Laws:
- Styles of the content come before it in the same part. The named styles have a part of their own, which is read only if a list
  refers to one of them: it is large.
"""

from __future__ import annotations

import re

from .builder import ExtractionBuilder
from .xml import Attributes, StartHandler, read_xml
from .zip_package import Package

STYLES_MAX = 20_000
ANCESTORS_MAX = 20
TITLE = "Title"
NAMED = "styles.xml"
_HEADING = re.compile("Heading_20_([1-9])")  # the same in every language; what people see is another name


class OdfStyles:
    """The styles of a document, by name; further ones than may be kept count as plain."""

    def __init__(self, builder: ExtractionBuilder, package: Package) -> None:
        self._builder, self._package = builder, package
        self._lists: dict[str, set[int]] = {}  # the numbered levels of each list style
        self._parents: dict[str, str] = {}
        self._page_breaks: set[str] = set()  # paragraph styles that begin a page
        self._name = ""
        self._has_named = False

    def start(self, name: str, attributes: Attributes) -> None:
        """Take an element of a part that has styles."""
        if name == "style":
            self._name = attributes.get("name", "")
            if len(self._parents) < STYLES_MAX:
                self._parents[self._name] = attributes.get("parent-style-name", "")
        elif name == "list-style":
            self._name = attributes.get("name", "")
            if len(self._lists) < STYLES_MAX:
                self._lists.setdefault(self._name, set())
        elif name == "list-level-style-number" and attributes.get("num-format"):
            level = attributes.get("level", "")
            if level.isdecimal() and self._name in self._lists:
                self._lists[self._name].add(int(level[:2]))
        elif name == "paragraph-properties" and attributes.get("break-before") == "page" and self._name in self._parents:
            self._page_breaks.add(self._name)

    def is_numbered(self, list_style: str, level: int) -> bool:
        """Whether a list of this style has numbers or letters at a level from 1."""
        if list_style not in self._lists and not self._has_named and NAMED in self._package:
            self._has_named = True
            read_xml(self._builder, self._package.iter_blocks(NAMED), StartHandler(self.start))
        return level in self._lists.get(list_style, ())

    def heading_level(self, style: str) -> int:
        """Return the level of heading that a style, or one that it is made from, gives a paragraph; 0 for none."""
        for _ in range(ANCESTORS_MAX):
            if style == TITLE:
                return 1
            if (match := _HEADING.fullmatch(style)) is not None:
                return int(match[1])
            style = self._parents.get(style, "")
        return 0

    def begins_page(self, style: str) -> bool:
        """Whether a paragraph of this style begins a page."""
        return style in self._page_breaks
