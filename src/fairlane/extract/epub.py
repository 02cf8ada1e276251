"""EPUB extractor: the chapters in reading order, each as a page; title, authors, dates; the cover as the thumbnail.

Laws:
- A chapter is read once, however often the reading order names it; nothing outside of the book is fetched.
- A book is refused as encrypted if one of its chapters is; fonts may be.
"""

from __future__ import annotations

import posixpath
from urllib.parse import unquote

from .builder import ExtractionBuilder
from .encoding import decode
from .failure import Unreadable
from .html import HtmlReader, declared_charset
from .markdown import MarkdownWriter
from .preview import read_preview
from .xml import Attributes, Elements, read_xml
from .zip_package import Package

CONTAINER, ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
CHAPTER_MAX = 20_000_000  # bytes: it is in memory
ITEMS_MAX = 100_000
CHAPTERS = ("application/xhtml+xml", "text/html", "application/html", "text/x-oeb1-document", "")
AUTHORS_MAX = 10


class _Book:
    """What the package document says."""

    def __init__(self, builder: ExtractionBuilder, part: str) -> None:
        self._builder, self._folder = builder, posixpath.dirname(part)
        self._items: dict[str, tuple[str, str]] = {}  # the path and type of each, by id
        self._order: list[str] = []
        self._cover = ""
        self.authors: list[str] = []

    def on_element(self, name: str, attributes: Attributes, text: str) -> None:
        if name == "item" and len(self._items) < ITEMS_MAX:
            self._add_item(attributes)
        elif name == "itemref" and len(self._order) < ITEMS_MAX:
            self._order.append(attributes.get("idref", ""))
        elif name == "title":
            self._builder.fact("title", text)
        elif name == "creator" and len(self.authors) < AUTHORS_MAX and text.strip():
            self.authors.append(text.strip())
        elif name == "date":
            self._builder.fact("modified" if attributes.get("event") == "modification" else "created", text)
        elif name == "meta" and attributes.get("property") == "dcterms:modified":
            self._builder.fact("modified", text)
        elif name == "meta" and attributes.get("name") == "cover":
            self._cover = attributes.get("content", "")

    def _add_item(self, attributes: Attributes) -> None:
        id, target = attributes.get("id", ""), attributes.get("href", "")
        if "://" in target:
            self._builder.warn("references_ignored", target)
            return
        self._items[id] = (path_in(self._folder, target), attributes.get("media-type", ""))
        if "cover-image" in attributes.get("properties", "").split():
            self._cover = id

    def chapters(self) -> list[str]:
        """Return the paths of the chapters, in reading order."""
        found = (self._items[id] for id in dict.fromkeys(self._order) if id in self._items)
        return [*dict.fromkeys(path for path, kind in found if kind in CHAPTERS)]

    def cover(self) -> str:
        """Return the path of the cover, or nothing."""
        return self._items.get(self._cover, ("", ""))[0]


def path_in(folder: str, target: str) -> str:
    """Return the path of a part that another one, in this folder, refers to."""
    return posixpath.normpath(posixpath.join(folder, unquote(target.partition("#")[0])))


def read(builder: ExtractionBuilder) -> None:
    """Read every chapter as a page."""
    with Package(builder, builder.limits.parts_max) as package:
        part = _package_document(builder, package)
        book = _Book(builder, part)
        read_xml(builder, package.iter_blocks(part), Elements(builder, book.on_element), is_doctype_allowed=True)
        builder.fact("author", ", ".join(book.authors))
        chapters = book.chapters()
        builder.meter.check_pages(len(chapters))
        _refuse_encrypted(builder, package, chapters)
        read_preview(builder, package, book.cover())
        for number, path in enumerate(chapters, start=1):
            builder.new_page(str(number))
            _read_chapter(builder, package, path)


def _package_document(builder: ExtractionBuilder, package: Package) -> str:
    parts: list[str] = []

    def on_element(name: str, attributes: Attributes, _: str) -> None:
        if name == "rootfile" and not parts:
            parts.append(path_in("", attributes.get("full-path", "")))

    read_xml(builder, package.iter_blocks(CONTAINER), Elements(builder, on_element), is_doctype_allowed=True)
    if not parts:
        raise Unreadable("corrupt", "a book without its package document")
    return parts[0]


def _refuse_encrypted(builder: ExtractionBuilder, package: Package, chapters: list[str]) -> None:
    if ENCRYPTION not in package:
        return

    def on_element(name: str, attributes: Attributes, _: str) -> None:
        if name == "CipherReference" and path_in("", attributes.get("URI", "")) in chapters:
            raise Unreadable("encrypted", "the book is protected")

    read_xml(builder, package.iter_blocks(ENCRYPTION), Elements(builder, on_element), is_doctype_allowed=True)


def _read_chapter(builder: ExtractionBuilder, package: Package, path: str) -> None:
    if path not in package:
        builder.warn("damaged_parts", path)
        return
    content = package.read_small(path, CHAPTER_MAX)
    page = decode(content, declared_charset(content))
    HtmlReader(builder, MarkdownWriter(builder)).read(page, is_xml=True)
