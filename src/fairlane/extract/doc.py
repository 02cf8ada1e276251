"""DOC extractor: documents of Word 97 to 2003.

Reads headers, body, text boxes, notes, comments and footers. The text is in one stream, in pieces; what paragraphs are is in
tables of another, at places that the first bytes of the file name.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise

from .builder import ExtractionBuilder
from .doc_body import Anchored, DocBody, DocParts
from .doc_format import FormatRuns
from .doc_styles import DocLists, DocStyles
from .doc_text import DocText
from .failure import Unreadable
from .markdown import comment_by
from .ole import OleFile
from .ole_properties import read_properties

WORD_97 = 0xC0  # the lowest version that is read
IS_ENCRYPTED, USES_TABLE_1 = 0x0100, 0x0200
PLACES_AT, PLACES_MAX = 154, 200
# Numbers of tables, in the order of their places in the file.
STYLES, NOTES, NOTES_TEXT, COMMENTS, COMMENTS_TEXT, HEADERS, LETTERS, PARAGRAPHS = 1, 2, 3, 4, 5, 11, 12, 13
PIECES, AUTHORS, DRAWINGS, ENDNOTES, ENDNOTES_TEXT, BOXES, LISTS, OVERRIDES = 33, 36, 40, 46, 47, 56, 73, 74
COMMENT, DRAWING, BOX = 30, 26, 22  # bytes of an entry
SEPARATORS = 6  # texts before the first header: the lines above notes
HEADER_KINDS = (0, 1, 4)  # of the six texts of each section; the others are footers
AUTHORS_MAX = 10_000
LENGTHS = struct.Struct("<8L")  # of main text, notes, headers, macros, comments, endnotes, text boxes, those in headers


class DocFile:
    """The streams of a document, and the tables in them."""

    def __init__(self, builder: ExtractionBuilder, ole: OleFile) -> None:
        self._builder = builder
        children = ole.children(ole.root)
        self.stream = ole.read(children["worddocument"])
        try:
            version, flags = struct.unpack_from("<H6xH", self.stream, 2)
            if version < WORD_97:
                raise Unreadable("unsupported", "a document of Word 95 or older")
            if flags & IS_ENCRYPTED:
                raise Unreadable("encrypted", "a document with a password")
            main, notes, headers, macros, comments, endnotes, boxes, _ = LENGTHS.unpack_from(self.stream, 76)
        except struct.error as error:
            raise Unreadable("corrupt", "a document without its beginning") from error
        name = "1table" if flags & USES_TABLE_1 else "0table"
        if name not in children:
            raise Unreadable("corrupt", f"a document without its stream {name}")
        self.table = ole.read(children[name])
        self.data = ole.read(children["data"]) if "data" in children else b""
        self.main_end = main
        self.notes_start = main
        self.headers_start = main + notes
        self.comments_start = self.headers_start + headers + macros
        self.endnotes_start = self.comments_start + comments
        self.boxes_start = self.endnotes_start + endnotes
        self.boxes_end = self.boxes_start + boxes

    def find_table(self, number: int, is_open: bool = False) -> bytes:
        """Return a table; an open one is followed by more that belongs to it."""
        at = PLACES_AT + number * 8
        if at + 8 > len(self.stream):
            return b""
        offset, length = struct.unpack_from("<2L", self.stream, at)
        return self.table[offset:] if is_open and length else self.table[offset : offset + length]

    def positions(self, number: int, entry: int = 0) -> tuple[tuple[int, ...], bytes]:
        """Return the positions in a table, and the entries that follow them."""
        content = self.find_table(number)
        count = max(0, len(content) - 4) // (4 + entry)
        positions = struct.unpack_from(f"<{count + 1}L", content) if len(content) >= 4 else ()
        return positions, content[(count + 1) * 4 :]

    def parts(self) -> DocParts:
        return DocParts(
            text=DocText(self._builder, self.stream, self.find_table(PIECES)),
            paragraphs=FormatRuns(self.stream, self.find_table(PARAGRAPHS), is_paragraph=True),
            letters=FormatRuns(self.stream, self.find_table(LETTERS), is_paragraph=False),
            styles=DocStyles(self.find_table(STYLES)),
            lists=DocLists(self.find_table(LISTS, is_open=True), self.find_table(OVERRIDES)),
            data=self.data,
        )

    # -- what the text refers to

    def anchored(self) -> dict[int, list[Anchored]]:
        """Return notes, comments and text boxes by the position that refers to them."""
        found: dict[int, list[Anchored]] = {}
        for position, anchored in (
            *self._notes(NOTES, NOTES_TEXT, self.notes_start, ""),
            *self._notes(ENDNOTES, ENDNOTES_TEXT, self.endnotes_start, "e"),
            *self._comments(),
            *self._boxes(),
        ):
            found.setdefault(position, []).append(anchored)
        return found

    def _notes(self, number: int, text: int, start: int, label: str) -> Iterator[tuple[int, Anchored]]:
        positions, _ = self.positions(number, entry=2)
        texts, _ = self.positions(text)
        for count, (position, (begin, end)) in enumerate(zip(positions, pairwise(texts), strict=False), start=1):
            if position < self.main_end:
                yield position, Anchored(start + begin, start + end, f"{label}{count}")

    def _comments(self) -> Iterator[tuple[int, Anchored]]:
        positions, entries = self.positions(COMMENTS, COMMENT)
        texts, _ = self.positions(COMMENTS_TEXT)
        authors = self._authors()
        for count, (position, (begin, end)) in enumerate(zip(positions, pairwise(texts), strict=False)):
            if position < self.main_end and len(entries) >= (count + 1) * COMMENT:
                (author,) = struct.unpack_from("<H", entries, count * COMMENT + 20)
                name = authors[author] if author < len(authors) else ""
                start = self.comments_start
                yield position, Anchored(start + begin, start + end, f"c{count + 1}", comment_by(name))

    def _authors(self) -> list[str]:
        content, position = self.find_table(AUTHORS), 0
        authors: list[str] = []
        while position + 2 <= len(content) and len(authors) < AUTHORS_MAX:
            end = position + 2 + struct.unpack_from("<H", content, position)[0] * 2
            authors.append(content[position + 2 : end].decode("utf-16-le", "replace").strip())
            position = end
        return authors

    def _boxes(self) -> Iterator[tuple[int, Anchored]]:
        """Yield text boxes: what they are in has the number of the drawing in the text."""
        drawings, entries = self.positions(DRAWINGS, DRAWING)
        places = {
            struct.unpack_from("<L", entries, number * DRAWING)[0]: position for number, position in enumerate(drawings[:-1])
        }
        texts, entries = self.positions(BOXES, BOX)
        for number, (begin, end) in enumerate(pairwise(texts)):
            (drawing,) = struct.unpack_from("<L", entries, number * BOX + 14)
            position = places.get(drawing, self.main_end)
            yield position, Anchored(self.boxes_start + begin, self.boxes_start + end)

    def headers(self, is_footer: bool) -> Iterator[tuple[int, int]]:
        """Yield where the texts of headers or footers begin and end."""
        positions, _ = self.positions(HEADERS)
        for number, (begin, end) in enumerate(pairwise(positions[SEPARATORS:])):
            if (number % 6 not in HEADER_KINDS) == is_footer and begin < end:
                yield self.headers_start + begin, min(self.headers_start + end, self.comments_start)


def read(builder: ExtractionBuilder) -> None:
    """Read headers, body, notes, comments and footers."""
    with OleFile(builder) as ole:
        read_properties(builder, ole)
        if "macros" in ole.children(ole.root):
            builder.warn("macros_ignored")
        document = DocFile(builder, ole)
    try:
        parts, anchored = document.parts(), document.anchored()
    except struct.error as error:
        raise Unreadable("corrupt", f"the tables of the document: {error}") from error
    body = DocBody(builder, parts, anchored)
    for start, end in document.headers(is_footer=False):
        body.write(start, end)
    body.write(0, document.main_end, is_main=True)
    body.write_unanchored()
    for start, end in document.headers(is_footer=True):
        body.write(start, end)
    body.finish()
