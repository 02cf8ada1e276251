"""PPT extractor: presentations of PowerPoint 97 to 2003, slide by slide, with titles, lists, tables, links, notes and comments.

The file is a row of edits. The last one names the document, and where each of its parts is; parts of earlier edits that nobody
replaced are still good.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from .builder import ExtractionBuilder
from .failure import Unreadable
from .markdown import MarkdownWriter
from .ole import OleFile
from .ole_properties import read_properties
from .ppt_records import PptRecord, read_record, read_records, wide_text
from .ppt_slide import STRING, PptSlide
from .ppt_text import HEADER, Bullets, PptText, read_master_styles

DOCUMENT, SLIDE, SLIDE_ATOM, MASTER = 0x03E8, 0x03EE, 0x03EF, 0x03F8
SLIDE_LIST, SLIDE_PLACE, EDIT, PARTS = 0x0FF0, 0x03F3, 0x0FF5, 0x1772
EXTERNAL, LINK, LINK_ATOM = 0x0409, 0x0FD7, 0x0FD3
MASTER_STYLES = 0x0FA3
SLIDES_LIST, MASTERS_LIST, NOTES_LIST = 0, 1, 2  # which list of slides
ENCRYPTED_TOKEN = 0xF3D1C4DF
ENCRYPTED_EDIT = 32  # bytes of an edit that names a key
PARTS_MAX = 200_000
LINKS_MAX = 100_000


class _ListedSlide(NamedTuple):
    """A slide, its notes or a master in a list: the number of its part, its id, and its texts."""

    part: int
    id: int
    texts: list[PptText]


class Presentation:
    """The parts of one file."""

    def __init__(self, builder: ExtractionBuilder, current: bytes, content: bytes) -> None:
        self._builder, self._content = builder, content
        self._parts: dict[int, int] = {}  # offsets
        try:
            token, offset = struct.unpack_from("<2L", current, 12)
            if token == ENCRYPTED_TOKEN:
                raise Unreadable("encrypted", "a presentation with a password")
            document = self._read_edits(offset)
        except struct.error as error:
            raise Unreadable("corrupt", "a presentation without its list of parts") from error
        found = self._part(document)
        if found is None or found.kind != DOCUMENT:
            raise Unreadable("corrupt", "a presentation without its document")
        self.lists: dict[int, list[_ListedSlide]] = {SLIDES_LIST: [], MASTERS_LIST: [], NOTES_LIST: []}
        self.targets: dict[int, str] = {}
        for record in read_records(content, found):
            if record.kind == SLIDE_LIST and record.instance in self.lists:
                self._read_list(record, self.lists[record.instance])
            elif record.kind == EXTERNAL:
                self._read_links(record)

    def _read_edits(self, offset: int) -> int:
        """Read where parts are, from the last edit back to the first; return the number of the document."""
        document: int | None = None
        seen: set[int] = set()
        while offset not in seen and (edit := read_record(self._content, offset, len(self._content))) is not None:
            seen.add(offset)
            self._builder.meter.check_time()
            if edit.kind != EDIT:
                break
            if edit.end - edit.start >= ENCRYPTED_EDIT and struct.unpack_from("<L", self._content, edit.start + 28)[0]:
                raise Unreadable("encrypted", "a presentation with a password")
            previous, parts, number = struct.unpack_from("<3L", self._content, edit.start + 8)
            document = number if document is None else document
            self._read_parts(parts)
            if not previous:
                break
            offset = previous
        if document is None:
            raise Unreadable("corrupt", "a presentation without its last edit")
        return document

    def _read_parts(self, offset: int) -> None:
        record = read_record(self._content, offset, len(self._content))
        if record is None or record.kind != PARTS:
            return
        position = record.start
        while position + 4 <= record.end and len(self._parts) < PARTS_MAX:
            (packed,) = struct.unpack_from("<L", self._content, position)
            first, count = packed & 0xFFFFF, min(packed >> 20, (record.end - position - 4) // 4)
            for number, part in enumerate(struct.unpack_from(f"<{count}L", self._content, position + 4), start=first):
                self._parts.setdefault(number, part)
            position += 4 + count * 4

    def _part(self, number: int) -> PptRecord | None:
        offset = self._parts.get(number)
        return None if offset is None else read_record(self._content, offset, len(self._content))

    def _read_list(self, record: PptRecord, listed: list[_ListedSlide]) -> None:
        for inner in read_records(self._content, record):
            if inner.kind == SLIDE_PLACE and inner.end - inner.start >= 16:
                part, id = struct.unpack_from("<L8xL", self._content, inner.start)
                if record.instance == SLIDES_LIST:
                    self._builder.meter.check_pages(len(listed) + 1)
                listed.append(_ListedSlide(part, id, []))
            elif listed:
                if inner.kind == HEADER:
                    listed[-1].texts.append(PptText())
                if listed[-1].texts:
                    listed[-1].texts[-1].add(self._content, inner)

    def _read_links(self, record: PptRecord) -> None:
        for link in read_records(self._content, record):
            if link.kind != LINK or len(self.targets) >= LINKS_MAX:
                continue
            number, target, anchor = 0, "", ""
            for inner in read_records(self._content, link):
                if inner.kind == LINK_ATOM and inner.end - inner.start >= 4:
                    (number,) = struct.unpack_from("<L", self._content, inner.start)
                elif inner.kind == STRING and inner.instance == 1:
                    target = wide_text(self._content, inner)
                elif inner.kind == STRING and inner.instance == 3:
                    anchor = wide_text(self._content, inner)
            if target:  # an anchor alone is another slide
                self.targets[number] = f"{target}#{anchor}" if anchor else target

    # -- slides

    def read_slides(self) -> None:
        builder = self._builder
        notes = {listed_slide.id: listed_slide for listed_slide in self.lists[NOTES_LIST]}
        masters = {listed_slide.id: listed_slide for listed_slide in self.lists[MASTERS_LIST]}
        known: dict[int, Bullets] = {}
        for number, listed_slide in enumerate(self.lists[SLIDES_LIST], start=1):
            builder.new_page(str(number))
            record = self._part(listed_slide.part)
            if record is None or record.kind != SLIDE:
                builder.warn("damaged_parts", f"slide {number}")
                continue
            writer = MarkdownWriter(builder)
            slide = PptSlide(builder, self._content, writer, self.targets)
            master, note = self._references(record)
            if master not in known:
                known[master] = self._bullets(masters[master]) if master in masters else {}
            slide.text_writer.bullets = known[master]
            slide.read(record, listed_slide.texts)
            if note in notes and (record_of_notes := self._part(notes[note].part)) is not None:
                slide.read(record_of_notes, notes[note].texts)
            slide.read_comments(record)
            writer.end()

    def _references(self, slide: PptRecord) -> tuple[int, int]:
        """Return the ids of a slide's master and of its notes."""
        for record in read_records(self._content, slide):
            if record.kind == SLIDE_ATOM and record.end - record.start >= 20:
                master, notes = struct.unpack_from("<2L", self._content, record.start + 12)
                return master, notes
        return 0, 0

    def _bullets(self, listed_slide: _ListedSlide) -> Bullets:
        bullets: Bullets = {}
        master = self._part(listed_slide.part)
        if master is not None and master.kind == MASTER:
            for record in read_records(self._content, master):
                if record.kind == MASTER_STYLES:
                    read_master_styles(self._content, record, bullets)
        return bullets


def read(builder: ExtractionBuilder) -> None:
    """Read every slide as a page."""
    builder.unit = "slide"
    with OleFile(builder) as ole:
        children = ole.children(ole.root)
        read_properties(builder, ole)
        if "current user" not in children:
            raise Unreadable("corrupt", "a presentation without its list of edits")
        current, content = ole.read(children["current user"]), ole.read(children["powerpoint document"])
    Presentation(builder, current, content).read_slides()
