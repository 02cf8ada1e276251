"""ODP extractor: slides in order, with titles, lists, tables, links, charts, what pictures show, notes and comments."""

from __future__ import annotations

from .builder import ExtractionBuilder
from .markdown import MarkdownWriter
from .odf import read_facts
from .odf_styles import OdfStyles
from .odt_content import OdtContent
from .xml import Attributes, read_xml
from .zip_package import Package

REPEATED = ("header", "footer", "date-time", "page-number")  # the same on every slide


class _Slides(OdtContent):
    """Handler for the content of a presentation."""

    _slides = 0
    _is_title = False

    def start(self, name: str, attributes: Attributes) -> None:
        role = attributes.get("class", "") if name == "frame" else ""
        if self._dropped or role in REPEATED:
            self._dropped += 1
        elif name == "page":
            self._slides += 1
            self._builder.new_page(str(self._slides))
        else:
            self._is_title = self._is_title or role == "title"
            super().start(name, attributes)

    def end(self, name: str) -> None:
        super().end(name)
        if name == "page" and not self._dropped:
            self._writer.write_notes()

    def _end_paragraph(self) -> None:
        if self._is_title and self._flow.paragraphs == 1:  # all paragraphs of a title are one heading
            self._flow.paragraphs = 0
            self._writer.text(" ")
        else:
            super()._end_paragraph()

    def _end_flow(self) -> None:
        if self._is_title:
            self._is_title = False
            self._writer.end_heading(2)
        super()._end_flow()


def read(builder: ExtractionBuilder) -> None:
    """Read every slide as a page."""
    builder.unit = "slide"
    with Package(builder, builder.limits.parts_max) as package:
        read_facts(builder, package)
        writer = MarkdownWriter(builder)
        read_xml(builder, package.iter_blocks("content.xml"), _Slides(builder, package, writer, OdfStyles(builder, package)))
        writer.write_notes()
