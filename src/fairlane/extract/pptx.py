"""PPTX extractor: slides in order of presentation, with titles, lists, tables, links, charts, diagrams, notes and comments.

The words of a diagram (SmartArt) are in a part of their own; they come after the other text of the slide, as a list. Speaker
notes and comments follow them.
"""

from __future__ import annotations

from functools import partial

from .builder import ExtractionBuilder
from .markdown import MarkdownWriter, comment_by
from .ooxml import Relationship, main_part, read_properties, read_relationships
from .pptx_layout import Layouts
from .pptx_slide import DiagramHandler, SlideHandler
from .xml import Attributes, Elements, StartHandler, read_xml
from .zip_package import Package

AUTHORS_MAX = 10_000
PIECE_COST = 100  # characters that a reply counts as, beside its own: so many fit in memory


class _CommentHandler:
    """Handler for the comments on a slide; the replies to one stand before its own text, and are written after it."""

    def __init__(self, builder: ExtractionBuilder, writer: MarkdownWriter, authors: dict[str, str]) -> None:
        self._builder, self._writer, self._authors = builder, writer, authors
        self._open: list[tuple[str, list[str]]] = []  # author and text of a comment, and of the reply in it
        self._replies: list[tuple[str, str]] = []
        self._length = 0
        self._is_text = False

    def start(self, name: str, attributes: Attributes) -> None:
        if name in ("cm", "reply"):
            self._open.append((self._authors.get(attributes.get("authorId", ""), ""), []))
        self._is_text = name in ("text", "t")

    def text(self, text: str) -> None:
        if self._is_text and self._open:
            self._length += len(text)
            self._builder.meter.check_text(self._length)
            self._open[-1][1].append(text)

    def end(self, name: str) -> None:
        self._is_text = False
        if name == "p" and self._open:
            self._open[-1][1].append("\n")
        elif name in ("cm", "reply"):
            author, pieces = self._open.pop()
            self._replies.append((author, "".join(pieces)))
            self._length += PIECE_COST
            if name == "cm":
                for author, text in (self._replies[-1], *self._replies[:-1]):
                    self._writer.text(text)
                    self._writer.end(comment_by(author))
                self._replies, self._length = [], 0


class _Presentation:
    """The slides of one file."""

    def __init__(self, builder: ExtractionBuilder, package: Package, rels: dict[str, Relationship]) -> None:
        self._builder, self._package = builder, package
        self._layouts = Layouts(builder, package)
        self._authors: dict[str, str] = {}
        for rel in rels.values():
            if rel.kind in ("commentAuthors", "authors") and rel.target in package and not rel.is_external:
                read_xml(builder, package.iter_blocks(rel.target), StartHandler(self._on_author))

    def _on_author(self, name: str, attributes: Attributes) -> None:
        if name in ("cmAuthor", "author") and len(self._authors) < AUTHORS_MAX:
            self._authors[attributes.get("id", "")] = attributes.get("name", "").strip()

    def read_slide(self, target: str) -> None:
        builder, package = self._builder, self._package
        if target not in package:
            builder.warn("damaged_parts", target)
            return
        writer = MarkdownWriter(builder)
        rels = read_relationships(builder, package, target)
        slide = SlideHandler(builder, package, writer, rels)
        slide.layout = partial(self._layouts.of, rels)
        read_xml(builder, package.iter_blocks(target), slide)
        writer.end()
        for kind in ("diagramData", "notesSlide", "comments"):
            for rel in rels.values():
                if rel.kind == kind and rel.target in package and not rel.is_external:
                    self._read_part(kind, rel.target, writer)
                    writer.end()

    def _read_part(self, kind: str, part: str, writer: MarkdownWriter) -> None:
        blocks = self._package.iter_blocks(part)
        if kind == "comments":
            read_xml(self._builder, blocks, _CommentHandler(self._builder, writer, self._authors))
            return
        rels = read_relationships(self._builder, self._package, part)
        handler = DiagramHandler if kind == "diagramData" else SlideHandler
        read_xml(self._builder, blocks, handler(self._builder, self._package, writer, rels))


def read(builder: ExtractionBuilder) -> None:
    """Read every slide as a page."""
    builder.unit = "slide"
    with Package(builder, builder.limits.parts_max) as package:
        part, _ = main_part(builder, package)
        read_properties(builder, package)
        rels = read_relationships(builder, package, part)
        order: list[str] = []

        def on_element(name: str, attributes: Attributes, _: str) -> None:
            relation = rels.get(attributes.get("r:id", "")) if name == "sldId" else None
            if relation is not None and relation.kind == "slide" and not relation.is_external:
                builder.meter.check_pages(len(order) + 1)
                order.append(relation.target)

        read_xml(builder, package.iter_blocks(part), Elements(builder, on_element))
        presentation = _Presentation(builder, package, rels)
        for number, target in enumerate(order, start=1):
            builder.new_page(str(number))
            presentation.read_slide(target)
