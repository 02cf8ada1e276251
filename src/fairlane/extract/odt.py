"""What does an ODT say? Its content as a stream: headings, paragraphs, lists, tables, notes; and who wrote it when."""

from __future__ import annotations

from .draft import Draft
from .failure import Unreadable
from .markdown import Flow
from .package import Package
from .xml import Attributes, Elements, read_xml

DROPPED = {"annotation", "tracked-changes", "ruby-text", "forms", "automatic-styles", "font-face-decls", "scripts"}
FACTS = {"title": "title", "initial-creator": "author", "creator": "author", "creation-date": "created", "date": "modified"}
SPACES_MAX = 1_000


class _Content:
    """A handler for the content."""

    def __init__(self, draft: Draft, flow: Flow) -> None:
        self._draft, self._flow = draft, flow
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
                self._flow.text(" " * (min(int(count[:4]), SPACES_MAX) if count.isdecimal() else 1))
            case "tab" | "line-break":
                self._flow.text("\t" if name == "tab" else "\n")
            case "table":
                self._flow.begin_table()
            case "a":
                self._flow.begin_link(attributes.get("href", ""))
            case "soft-page-break" if self._flow.is_blank and not self._flow.is_in_table:
                self._draft.break_page()

    def _start_paragraph(self, name: str, attributes: Attributes) -> None:
        if self._paragraphs:  # a note or a frame inside a paragraph
            self._flow.text(" ")
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
                self._flow.end_link()
            case "table-cell":
                self._flow.end_cell()
            case "table-row":
                self._flow.end_row()
            case "table":
                self._flow.end_table()

    def text(self, text: str) -> None:
        if self._paragraphs and not self._dropped:
            self._flow.text(text)

    def _end_paragraph(self) -> None:
        if self._heading:
            self._flow.end_heading(self._heading)
        elif self._lists:
            self._flow.end_item(self._lists - 1)
        else:
            self._flow.end()
        self._heading = 0


def read(draft: Draft) -> None:
    """The text, after a look whether it is encrypted."""
    with Package(draft, draft.limits.parts_max) as package:
        if "META-INF/manifest.xml" in package:
            read_xml(
                draft, package.blocks("META-INF/manifest.xml"), Elements(draft, _refuse_encrypted), is_doctype_allowed=True
            )
        if "meta.xml" in package:
            read_xml(draft, package.blocks("meta.xml"), Elements(draft, lambda name, _, text: _seen_fact(draft, name, text)))
        if any(entry.filename.startswith(("Basic/", "Scripts/")) for entry in package.entries):
            draft.warn("macros_ignored")
        flow = Flow(draft)
        read_xml(draft, package.blocks("content.xml"), _Content(draft, flow))
        flow.end()


def _seen_fact(draft: Draft, name: str, text: str) -> None:
    if name in FACTS:
        draft.fact(FACTS[name], text)


def _refuse_encrypted(name: str, _: Attributes, __: str) -> None:
    if name == "encryption-data":
        raise Unreadable("encrypted", "the document is protected with a password")
