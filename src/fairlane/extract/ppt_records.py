"""Records of PowerPoint files of before 2007: a tree, in which a record is in the length of its parent."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

HEADER = struct.Struct("<2HL")


class PptRecord(NamedTuple):
    """A record: its kind, its number among its like, and where its content is."""

    kind: int
    instance: int
    start: int
    end: int


def read_record(content: bytes, position: int, end: int) -> PptRecord | None:
    """Return the record that begins there, as far as it is there; None without a header."""
    if position + HEADER.size > end:
        return None
    options, kind, length = HEADER.unpack_from(content, position)
    start = position + HEADER.size
    return PptRecord(kind, options >> 4, start, min(start + length, end))


def read_records(content: bytes, parent: PptRecord) -> Iterator[PptRecord]:
    """Yield the records in a record."""
    position = parent.start
    while (record := read_record(content, position, parent.end)) is not None:
        yield record
        position = record.end


def wide_text(content: bytes, record: PptRecord) -> str:
    """Return the content of a record as UTF-16, a letter for each of its halves."""
    units = content[record.start : record.start + (record.end - record.start) // 2 * 2]
    try:
        text = units.decode("utf-16-le")
    except UnicodeDecodeError:
        text = ""
    return text if len(text) * 2 == len(units) else "".join(map(chr, struct.unpack(f"<{len(units) // 2}H", units)))
