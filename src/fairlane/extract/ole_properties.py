"""Properties of OLE documents: title, author and dates in the stream `SummaryInformation`."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta

from .builder import ExtractionBuilder
from .encoding import codec_name
from .ole import OleFile

STREAM = "\x05summaryinformation"
NAMES = {2: "title", 4: "author", 12: "created", 13: "modified"}
CODE_PAGE = 1
SECTION_AT = 44  # where the offset of the first section stands
PROPERTIES_MAX = 1_000
BYTES, WIDE, FILETIME = 30, 31, 64  # types of values
VALUE_MAX = 4_000
FILETIME_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)
CODECS = {
    1200: "utf-16-le",
    10000: "mac_roman",
    10007: "mac_cyrillic",
    10029: "mac_latin2",
    32768: "mac_roman",
    65001: "utf-8",
}


def filetime(ticks: int) -> str | None:
    """Return a time of Windows, counted in tenths of a microsecond, as ISO 8601; None for none."""
    try:
        return (FILETIME_EPOCH + timedelta(microseconds=ticks // 10)).replace(microsecond=0).isoformat() if ticks > 0 else None
    except OverflowError:
        return None


def codec_of(code_page: int) -> str:
    """Return the encoding with this number; Windows-1252 where it is unknown."""
    return CODECS.get(code_page) or codec_name(f"cp{code_page}") or "cp1252"


def read_properties(builder: ExtractionBuilder, ole: OleFile) -> None:
    """Set the facts that the document says about itself."""
    children = ole.children(ole.root)
    if STREAM not in children:
        return
    content = ole.read(children[STREAM])
    try:
        _read_section(builder, content)
    except struct.error:
        builder.warn("damaged_parts", "the properties of the document")


def _read_section(builder: ExtractionBuilder, content: bytes) -> None:
    (section,) = struct.unpack_from("<L", content, SECTION_AT)
    (count,) = struct.unpack_from("<L", content, section + 4)
    places = struct.iter_unpack("<2L", content[section + 8 : section + 8 + min(count, PROPERTIES_MAX) * 8 // 8 * 8])
    offsets = dict(places)
    encoding = "cp1252"
    if CODE_PAGE in offsets:
        encoding = codec_of(struct.unpack_from("<H", content, section + offsets[CODE_PAGE] + 4)[0])
    for number, name in NAMES.items():
        if number in offsets:
            builder.fact(name, _value(content, section + offsets[number], encoding))


def _value(content: bytes, start: int, encoding: str) -> str | None:
    kind, length = struct.unpack_from("<2L", content, start)
    if kind == FILETIME:
        return filetime(struct.unpack_from("<Q", content, start + 4)[0])
    if kind not in (BYTES, WIDE):
        return None
    if kind == WIDE:
        encoding, length = "utf-16-le", length * 2
    return content[start + 8 : start + 8 + min(length, VALUE_MAX)].decode(encoding, "replace").partition("\0")[0]
