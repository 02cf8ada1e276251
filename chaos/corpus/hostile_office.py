"""Hostile files in the formats of old office programs, and the code that each must end with."""

from __future__ import annotations

import struct

from fairlane.extract.ole import ENTRY, HEADER, SIGNATURE
from fairlane.extract.ole_writer import write_ole

from .hostile import Hostile
from .old_office import (
    by_libreoffice,
    message,
    msg_attachment,
    ppt_record,
    ppt_shape,
    ppt_slide,
    ppt_text,
    presentation,
    record,
    workbook,
    xlsb,
)
from .samples import BY_LANGUAGE

SAMPLE = BY_LANGUAGE["pl"]
MILLION = 1_000_000
FREE, END = 0xFFFFFFFF, 0xFFFFFFFE


def _entry(name: str, kind: int, child: int = FREE, start: int = END, size: int = 0, left: int = FREE) -> bytes:
    stored = name.encode("utf-16-le") + b"\0\0"
    return ENTRY.pack(stored, len(stored), kind, 1, left, FREE, child, b"", start, size)


def _ole(fat: list[int], sectors: list[bytes], tables: int = 1, lists: int = 0) -> bytes:
    """A file whose first sectors are the table and the directory. With `lists`, the table is listed very often."""
    fat = [0xFFFFFFFD, *fat]
    sectors = [struct.pack(f"<{len(fat)}L", *fat).ljust(512, b"\xff"), *sectors]
    first_list = len(sectors)
    numbers = struct.pack("<127L", *[0] * 127)
    sectors += [numbers + struct.pack("<L", first_list + number + 1) for number in range(lists)]
    head = HEADER.pack(SIGNATURE, b"", 0x3E, 3, b"\xfe\xff", 9, 6, 0, tables, 1, 0, 4096, END, 0, first_list, lists)
    listed = struct.pack("<109L", *([0] * 109 if lists else [0, *[FREE] * 108]))
    return b"".join((head, listed, *(sector.ljust(512, b"\0") for sector in sectors)))


def directory_in_a_circle() -> bytes:
    """Its sector is followed by itself."""
    return _ole([1], [_entry("Root Entry", 5, child=1) + _entry("Workbook", 2) + _entry("x", 2, left=1) * 2])


def entries_in_a_circle() -> bytes:
    """Entries that follow each other, and a storage that holds itself."""
    entries = [_entry("Root Entry", 5, child=1), _entry("a", 1, child=1, left=2), _entry("b", 1, child=1, left=1)]
    return _ole([END], [b"".join(entries)])


def stream_in_a_circle() -> bytes:
    """A sector of zeros again and again, a hundred megabytes by the table, which is listed very often."""
    stream = _entry("Workbook", 2, start=2, size=100 * MILLION)
    return _ole([END, 2], [_entry("Root Entry", 5, child=1) + stream, workbook({"a": []})[:512]], 3_000, 24)


def strings_that_lie() -> bytes:
    """Two thousand million shared strings, by their own count; each of them 65,535 letters long."""
    shared = record(0xFC, struct.pack("<2L", 2**31, 2**31) + b"\xff\xff\1" + b"a\0" * 100) + record(0x3C, b"\1") * 1_000
    content = workbook({"a": [["words"]]})
    start = content.index(struct.pack("<H", 0xFC))
    return write_ole({"Workbook": content[:start] + shared + content[start:]})


def corner_cells() -> bytes:
    cells = [record(0x203, struct.pack("<3Hd", y, y, 0, 1.5)) for y in range(0, 65_536, 16)]
    content = workbook({"a": []})
    return write_ole({"Workbook": content[:-4] + b"".join(cells) + content[-4:]})


def many_sheets_of_one() -> bytes:
    """Two thousand sheets, all of them the same large one."""
    words = struct.pack("<HB", 4_000, 0) + b"words " * 666 + b"four"
    cells = b"".join(record(0x204, struct.pack("<3H", y, 1, 0) + words) for y in range(200))
    content = workbook({"a": []})
    place = content.index(record(0x85, b"")[:2])
    length = 4 + struct.unpack_from("<H", content, place + 2)[0]
    sheet = content[place : place + length]
    offset = struct.unpack_from("<L", sheet, 4)[0] + length * 1_999
    sheets = (sheet[:4] + struct.pack("<L", offset) + sheet[8:]) * 2_000
    content = content[:place] + sheets + content[place + length :]
    return write_ole({"Workbook": content[:-4] + cells + content[-4:]})


def pieces_that_overlap() -> bytes:
    """Ten thousand pieces, each of them the whole text."""
    count, letters = 10_000, 60_000
    table = b"\2" + struct.pack("<L", count * 12 + 4)
    table += struct.pack(f"<{count + 1}L", *(number * letters for number in range(count + 1)))
    table += struct.pack("<2xLH", 1024 * 2 | 0x40000000, 0) * count
    stream = bytearray(1024) + b"words " * 10_000
    struct.pack_into("<2H6xH", stream, 0, 0xA5EC, 0xC1, 0x0200)
    struct.pack_into("<L", stream, 76, count * letters)
    struct.pack_into("<2L", stream, 154 + 33 * 8, 0, len(table))
    return write_ole({"WordDocument": bytes(stream), "1Table": table})


def deep_groups() -> bytes:
    group = ppt_shape(ppt_text(4, "bottom"))
    for _ in range(5_000):
        group = ppt_record(0xF003, ppt_record(0xF004, is_container=True) + group, is_container=True)
    return presentation([(ppt_slide(group), b"")], [], SAMPLE)


def edits_in_a_circle() -> bytes:
    """A presentation whose last edit says that it followed itself."""
    content = bytearray(presentation([(ppt_slide(ppt_shape(ppt_text(0, "words"))), b"")], [], SAMPLE))
    edit = content.index(struct.pack("<2HL", 0, 0xFF5, 28))
    stream = content.index(struct.pack("<2HL", 0xF, 0x3E8, 0)[:4])
    struct.pack_into("<L", content, edit + 16, edit - stream)
    return bytes(content)


def storages_in_storages() -> bytes:
    """A message in a message in a message …"""
    tree: dict[str, object] = {"a": b"b"}
    for _ in range(400):
        tree = {"c": tree}
    return write_ole(message(SAMPLE, more={"__attach_version1.0_#00000000": msg_attachment("a", tree, method=5)}))  # type: ignore[arg-type]


HOSTILE_OFFICE: dict[str, Hostile] = {
    "ole directory in a circle": Hostile("a.xls", directory_in_a_circle, "corrupt"),
    "ole entries in a circle": Hostile("a.xls", entries_in_a_circle, "unsupported"),
    "ole stream in a circle": Hostile("a.xls", stream_in_a_circle, None),
    "shared strings that lie": Hostile("a.xls", strings_that_lie, None),
    "cells in the corner": Hostile("a.xls", corner_cells, None),
    "many sheets of one": Hostile("a.xls", many_sheets_of_one, "too_large"),
    "records without end": Hostile(
        "a.xls", lambda: write_ole({"Workbook": workbook({"a": []})[:-4] + b"\x01\0\0\0" * MILLION}), None
    ),
    "a cell in the corner of xlsb": Hostile("a.xlsb", lambda: xlsb({"a": [[1]]}, SAMPLE, last=(1_048_575, 16_383)), None),
    "pieces that overlap": Hostile("a.doc", pieces_that_overlap, "too_large"),
    "deep groups": Hostile("a.ppt", deep_groups, "too_large"),
    "edits in a circle": Hostile("a.ppt", edits_in_a_circle, None),
    "storages in storages": Hostile("a.msg", storages_in_storages, "too_large"),
    "doc with a password": Hostile("a.doc", lambda: by_libreoffice()["password.doc"], "encrypted"),
    "xls with a password": Hostile("a.xls", lambda: by_libreoffice()["password.xls"], "encrypted"),
}
