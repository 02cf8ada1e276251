"""SVG extractor: the words of a drawing, in the order of the file; its title and description.

Laws:
- Nothing is fetched or run: scripts and styles are dropped, a picture from elsewhere is a warning.
- Of the children of a `switch` the first is read: the others say the same in another way.
"""

from __future__ import annotations

import re

from .builder import ExtractionBuilder
from .markdown import MarkdownWriter
from .xml import Attributes, file_blocks, read_xml

DROPPED = {"script", "style", "metadata", "font", "font-face", "glyph"}
TEXTS = ("text", "foreignObject", "desc", "flowRoot")
LINES = ("p", "div", "li", "tr", "br", "h1", "h2", "h3", "h4", "h5", "h6", "flowPara")  # of the HTML in a drawing
REFERRING = ("image", "use", "feImage", "script")
_SPACES = re.compile(r"\s+")


class _Drawing:
    """Handler for the drawing."""

    def __init__(self, builder: ExtractionBuilder, writer: MarkdownWriter) -> None:
        self._builder, self._writer = builder, writer
        self._depth = self._dropped = 0
        self._texts = 0  # that are open
        self._is_title = False
        self._title: list[str] = []
        self._title_length = 0
        self._switches: list[tuple[int, bool]] = []  # the depth of each, and whether one of its children was read
        self._links: list[str] = []  # that are open, around texts
        self._is_line_start = False
        self._line = ""  # where the last words of this text stand

    def start(self, name: str, attributes: Attributes) -> None:
        target = attributes.get("href", "") if name in REFERRING else ""
        if target and not target.startswith(("#", "data:")):
            self._builder.warn("references_ignored", target)
        self._depth += 1
        if self._dropped or name in DROPPED or self._is_other_choice() or (name in ("title", "desc") and self._depth != 2):
            self._dropped += 1
        elif name == "switch":
            self._switches.append((self._depth, False))
        elif name == "title":
            self._is_title = True
        elif name in TEXTS:
            if not self._texts and self._links:
                self._writer.begin_link(self._links[-1])
            self._texts += 1
            self._line = attributes.get("y", "")
        elif name in ("tspan", "textPath"):
            self._start_span(attributes)
        elif name in LINES:
            self._end_line()
        elif name == "a":
            self._start_link(attributes.get("href", ""))

    def _is_other_choice(self) -> bool:
        if not self._switches or self._switches[-1][0] != self._depth - 1:
            return False
        depth, is_chosen = self._switches[-1]
        self._switches[-1] = (depth, True)
        return is_chosen

    def _start_link(self, target: str) -> None:
        if self._texts:
            self._writer.begin_link(target)
        else:
            self._links.append(target)

    def _start_span(self, attributes: Attributes) -> None:
        line = attributes.get("y", self._line)
        if line != self._line or attributes.get("dy", "0") != "0":
            self._end_line()
        elif "x" in attributes and not self._writer.is_blank:
            self._writer.text(" ")
        self._line = line

    def _end_line(self) -> None:
        if self._texts and not self._writer.is_blank and not self._is_line_start:
            self._writer.text("\n")
            self._is_line_start = True

    def end(self, name: str) -> None:
        self._depth -= 1
        if self._dropped:
            self._dropped -= 1
        elif name == "switch":
            self._switches.pop()
        elif name == "title":
            self._is_title = False
            self._end_title()
        elif name in TEXTS:
            self._texts -= 1
            if not self._texts:
                if self._links:
                    self._writer.end_link()
                self._writer.end()
        elif name in LINES:
            self._end_line()
        elif name == "a" and self._texts:
            self._writer.end_link()
        elif name == "a" and self._links:
            self._links.pop()

    def text(self, text: str) -> None:
        if self._dropped:
            return
        if self._is_title:
            self._title_length += len(text)
            self._builder.meter.check_text(self._title_length)
            self._title.append(text)
        elif self._texts:
            text = _SPACES.sub(" ", text)
            text = text.lstrip() if self._writer.is_blank or self._is_line_start else text
            self._is_line_start = self._is_line_start and not text
            self._writer.text(text)

    def _end_title(self) -> None:
        title, self._title = "".join(self._title), []
        self._builder.fact("title", title)
        self._writer.text(title.strip())
        self._writer.end_heading(1)


def read(builder: ExtractionBuilder) -> None:
    """Read the words."""
    writer = MarkdownWriter(builder)
    read_xml(builder, file_blocks(builder), _Drawing(builder, writer), is_doctype_allowed=True)
    writer.end()
