"""ODT extractor: headings, paragraphs, lists, tables and notes, read as a stream; author and dates."""

from __future__ import annotations

from .builder import ExtractionBuilder
from .failure import Unreadable
from .markdown import MarkdownWriter
from .xml import Attributes, Elements, read_xml
from .zip_package import Package

DROPPED = {"annotation", "tracked-changes", "ruby-text", "forms", "automatic-styles", "font-face-decls", "scripts"}
FACTS = {"title": "title", "initial-creator": "author", "creator": "author", "creation-date": "created", "date": "modified"}
SPACES_MAX = 1_000


class _Content:
    """Handler for the content."""

    def __init__(self, builder: ExtractionBuilder, writer: MarkdownWriter) -> None:
        self._builder, self._writer = builder, writer
        self._dropped = 0
        self._paragraphs = 0
        self._heading = 0
        self._lists = 0

    def start(self, name: str, attributes: Attributes) -> None:
        if self._dropped or name in DROPPED:
            self._dropped += 1
            return
        match name:
            case "h" | "p":
                self._start_paragraph(name, attributes)
            case "list":
                self._lists += 1
            case "s":
                count = attributes.get("c", "1")
                self._writer.text(" " * (min(int(count[:4]), SPACES_MAX) if count.isdecimal() else 1))
            case "tab" | "line-break":
                self._writer.text("\t" if name == "tab" else "\n")
            case "table":
                self._writer.begin_table()
            case "a":
                self._writer.begin_link(attributes.get("href", ""))
            case "soft-page-break" if self._writer.is_blank and not self._writer.is_in_table:
                self._builder.break_page()

    def _start_paragraph(self, name: str, attributes: Attributes) -> None:
        if self._paragraphs:  # a note or a frame inside a paragraph
            self._writer.text(" ")
        self._paragraphs += 1
        if name == "h":
            level = attributes.get("outline-level", "1")
            self._heading = int(level[:2]) if level.isdecimal() else 1

    def end(self, name: str) -> None:
        if self._dropped:
            self._dropped -= 1
            return
        match name:
            case "h" | "p":
                self._paragraphs -= 1
                if not self._paragraphs:
                    self._end_paragraph()
            case "list":
                self._lists -= 1
            case "a":
                self._writer.end_link()
            case "table-cell":
                self._writer.end_cell()
            case "table-row":
                self._writer.end_row()
            case "table":
                self._writer.end_table()

    def text(self, text: str) -> None:
        if self._paragraphs and not self._dropped:
            self._writer.text(text)

    def _end_paragraph(self) -> None:
        if self._heading:
            self._writer.end_heading(self._heading)
        elif self._lists:
            self._writer.end_item(self._lists - 1)
        else:
            self._writer.end()
        self._heading = 0


def read(builder: ExtractionBuilder) -> None:
    """Read the text; refuse an encrypted document first."""
    with Package(builder, builder.limits.parts_max) as package:
        if "META-INF/manifest.xml" in package:
            read_xml(
                builder,
                package.iter_blocks("META-INF/manifest.xml"),
                Elements(builder, _refuse_encrypted),
                is_doctype_allowed=True,
            )
        if "meta.xml" in package:
            read_xml(
                builder,
                package.iter_blocks("meta.xml"),
                Elements(builder, lambda name, _, text: _on_meta_element(builder, name, text)),
            )
        if any(entry.filename.startswith(("Basic/", "Scripts/")) for entry in package.entries):
            builder.warn("macros_ignored")
        writer = MarkdownWriter(builder)
        read_xml(builder, package.iter_blocks("content.xml"), _Content(builder, writer))
        writer.end()


def _on_meta_element(builder: ExtractionBuilder, name: str, text: str) -> None:
    if name in FACTS:
        builder.fact(FACTS[name], text)


def _refuse_encrypted(name: str, _: Attributes, __: str) -> None:
    if name == "encryption-data":
        raise Unreadable("encrypted", "the document is protected with a password")
