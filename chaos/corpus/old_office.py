"""Writers of small XLS, XLSB, DOC, PPT and MSG files, and the same by LibreOffice.

`old_office.zip` has files that LibreOffice 7.4 made of the flat OpenDocument files beside them, with
`soffice --headless --convert-to doc letter.fodt` (and xls, ppt); `password.*` and `opened.xls` were stored by its API, with a
password; that of `opened.xls` is the one that Excel tries by itself.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from fairlane.extract.ole_writer import write_ole

from .office import office, rels
from .samples import Sample

Cell = str | float | bool | tuple[float, int] | None  # a pair: a number and its style
Rows = Sequence[Sequence[Cell]]
TICKS = 10_000_000  # of a second, as Windows counts time
SENT = datetime(2026, 3, 1, 8, 30, tzinfo=UTC)
CREATED = int((SENT - datetime(1601, 1, 1, tzinfo=UTC)).total_seconds()) * TICKS
DATES = ("General", "yyyy\\-mm\\-dd", "[h]:mm", "hh:mm:ss")  # the number formats of styles
HEADING, BULLET, NUMBERED = b"\x40\x26\0", b"\x0b\x46\1\0\x0a\x26\0", b"\x0b\x46\2\0\x0a\x26\0"
IN_TABLE, ROW_END = b"\x16\x24\1", b"\x16\x24\1\x17\x24\1"


@cache
def by_libreoffice() -> dict[str, bytes]:
    """The files that LibreOffice made, and what it made them of."""
    with zipfile.ZipFile(Path(__file__).with_suffix(".zip")) as package:
        return {name: package.read(name) for name in package.namelist()}


def properties(sample: Sample) -> bytes:
    """A stream of properties: code page, title, author, when it was created."""

    def text(value: str) -> bytes:
        content = value.encode() + b"\0"
        return struct.pack("<2L", 30, len(content)) + content.ljust(-(-len(content) // 4) * 4, b"\0")

    values = {
        1: struct.pack("<2L", 2, 65001),
        2: text(sample.title),
        4: text(sample.author),
        12: struct.pack("<LQ", 64, CREATED),
    }
    offset, places, content = 8 + 8 * len(values), b"", b""
    for number, value in values.items():
        places += struct.pack("<2L", number, offset + len(content))
        content += value
    section = struct.pack("<2L", offset + len(content), len(values)) + places + content
    return struct.pack("<2HL16sL16sL", 0xFFFE, 0, 0, b"", 1, b"", 48) + section


# -- workbooks


def record(kind: int, content: bytes = b"") -> bytes:
    return struct.pack("<2H", kind, len(content)) + content


def biff8_string(text: str, is_short: bool = False) -> bytes:
    """A string, with one byte a letter where that is enough."""
    wide = any(letter > "\xff" for letter in text)
    content = text.encode("utf-16-le") if wide else text.encode("latin-1")
    return struct.pack("<2B" if is_short else "<HB", len(content) >> wide, wide) + content


def shared_strings(strings: list[str], split_at: int) -> bytes:
    """The record of strings, split into records of so many bytes; what is left of a string says again how wide it is."""
    out, current = b"", struct.pack("<2L", len(strings), len(strings))
    kind = 0xFC
    for text in strings:
        stored = biff8_string(text)
        head, flag, letters = stored[:3], stored[2], stored[3:]
        if len(current) + 3 > split_at:
            out, current, kind = out + record(kind, current), b"", 0x3C
        current += head
        while len(current) + len(letters) > split_at:
            fits = max(0, split_at - len(current)) // 2 * 2
            out, letters, kind = out + record(kind, current + letters[:fits]), letters[fits:], 0x3C
            if flag and not any(letters[1::2]):
                flag, letters = 0, letters[::2]
            current = bytes([flag])
        current += letters
    return out + record(kind, current)


def workbook(sheets: dict[str, Rows], split_at: int = 8_224, is_1904: bool = False) -> bytes:
    """The stream of a BIFF8 workbook."""
    strings = list(dict.fromkeys(cell for rows in sheets.values() for row in rows for cell in row if isinstance(cell, str)))
    globals = record(0x42, struct.pack("<H", 1200)) + record(0x22, struct.pack("<H", is_1904))
    for number, code in enumerate(DATES):
        globals += record(0x41E, struct.pack("<H", 164 + number) + biff8_string(code))
    for number in range(len(DATES)):
        globals += record(0xE0, struct.pack("<2H16x", 0, 164 + number))
    begin, end = record(0x809, struct.pack("<2H12x", 0x600, 5)), record(0x0A)
    shared = shared_strings(strings, split_at)
    names = [biff8_string(name, is_short=True) for name in sheets]
    offset = len(begin + globals + shared + end) + sum(len(name) + 10 for name in names)
    places, bodies = b"", b""
    for name, rows in zip(names, sheets.values(), strict=True):
        places += record(0x85, struct.pack("<LH", offset + len(bodies), 0) + name)
        bodies += record(0x809, struct.pack("<2H12x", 0x600, 0x10)) + biff_cells(rows, strings) + record(0x0A)
    return begin + globals + places + shared + end + bodies


def biff_cells(rows: Rows, strings: list[str]) -> bytes:
    out = b""
    for y, row in enumerate(rows):
        for x, cell in enumerate(row):
            place = struct.pack("<3H", y, x, 0)
            if isinstance(cell, str):
                out += record(0xFD, place + struct.pack("<L", strings.index(cell)))
            elif isinstance(cell, bool):
                out += record(0x205, place + struct.pack("<2B", cell, 0))
            elif isinstance(cell, tuple):
                out += record(0x203, struct.pack("<3Hd", y, x, cell[1], cell[0]))
            elif cell is not None:
                out += record(0x203, place + struct.pack("<d", cell))
    return out


def biff5_workbook(rows: Rows, encoding: str = "cp1250") -> bytes:
    """The stream of a workbook of Excel 95, with one sheet."""
    begin, end = record(0x809, struct.pack("<2H4x", 0x500, 5)), record(0x0A)
    globals = record(0x42, struct.pack("<H", int(encoding[2:]))) + record(0x41E, b"\xa4\0\x0ayyyy\\-mm\\-dd"[:13])
    globals += record(0xE0, struct.pack("<2H12x", 0, 0)) + record(0xE0, struct.pack("<2H12x", 0, 14))
    name = "Dane ół".encode(encoding)
    place = record(0x85, struct.pack("<LHB", len(begin + globals + end) + 11 + len(name), 0, len(name)) + name)
    cells = b""
    for y, row in enumerate(rows):
        for x, cell in enumerate(row):
            if isinstance(cell, str):
                letters = cell.encode(encoding)
                cells += record(0x204, struct.pack("<4H", y, x, 0, len(letters)) + letters)
            elif isinstance(cell, tuple):
                cells += record(0x203, struct.pack("<3Hd", y, x, cell[1], cell[0]))
    return begin + globals + place + end + record(0x809, struct.pack("<2H4x", 0x500, 0x10)) + cells + record(0x0A)


def make_xls(sample: Sample) -> bytes:
    """The sample's lines on one sheet, its table on another."""
    table: Rows = [*sample.table, ("2026", (46082.0, 1)), (1.1, True)]
    sheets: dict[str, Rows] = {sample.title[:31].replace(":", ""): [[line] for line in sample.lines], sample.items[1]: table}
    return write_ole({"Workbook": workbook(sheets, split_at=120), "\5SummaryInformation": properties(sample)})


def xlsb_record(kind: int, content: bytes = b"") -> bytes:
    head = bytes([kind]) if kind < 0x80 else bytes([kind & 0x7F | 0x80, kind >> 7])
    length, size = len(content), b""
    while length >= 0x80:
        size, length = size + bytes([length & 0x7F | 0x80]), length >> 7
    return head + size + bytes([length]) + content


def xlsb_string(text: str) -> bytes:
    content = text.encode("utf-16-le")
    return struct.pack("<L", len(content) // 2) + content


def xlsb_sheet(rows: Rows, strings: list[str], last: tuple[int, int] | None = None) -> bytes:
    width = max((len(row) for row in rows), default=1)
    out = xlsb_record(129) + xlsb_record(148, struct.pack("<4L", 0, len(rows), 0, width)) + xlsb_record(145)
    for y, row in enumerate(rows):
        out += xlsb_record(0, struct.pack("<L13x", y))
        for x, cell in enumerate(row):
            if isinstance(cell, str):
                out += xlsb_record(7, struct.pack("<3L", x, 0, strings.index(cell)))
            elif isinstance(cell, bool):
                out += xlsb_record(4, struct.pack("<2LB", x, 0, cell))
            elif cell is not None:
                value, style = cell if isinstance(cell, tuple) else (cell, 0)
                out += xlsb_record(5, struct.pack("<2Ld", x, style, value))
    if last is not None:  # one more cell
        out += xlsb_record(0, struct.pack("<L13x", last[0])) + xlsb_record(5, struct.pack("<2Ld", last[1], 0, 2.5))
    return out + xlsb_record(146) + xlsb_record(130)


def xlsb(sheets: dict[str, Rows], sample: Sample, last: tuple[int, int] | None = None) -> bytes:
    """A binary workbook: a package as of an XLSX, with records for parts."""
    strings = list(dict.fromkeys(cell for rows in sheets.values() for row in rows for cell in row if isinstance(cell, str)))
    places = b"".join(
        xlsb_record(156, struct.pack("<2L", 0, number) + xlsb_string(f"rId{number}") + xlsb_string(name))
        for number, name in enumerate(sheets, start=1)
    )
    formats = b"".join(
        xlsb_record(44, struct.pack("<H", 164 + number) + xlsb_string(code)) for number, code in enumerate(DATES)
    )
    cell_formats = b"".join(xlsb_record(47, struct.pack("<2H12x", 0, 164 + number)) for number in range(len(DATES)))
    targets = [(f"rId{number}", "worksheet", f"worksheets/sheet{number}.bin") for number in range(1, len(sheets) + 1)]
    parts: dict[str, str | bytes] = {
        "xl/workbook.bin": xlsb_record(131)
        + xlsb_record(153, bytes(12))
        + xlsb_record(143)
        + places
        + xlsb_record(144)
        + xlsb_record(132),
        "xl/_rels/workbook.bin.rels": rels(
            *targets, ("s", "sharedStrings", "sharedStrings.bin"), ("f", "styles", "styles.bin")
        ),
        "xl/sharedStrings.bin": xlsb_record(159, bytes(8))
        + b"".join(xlsb_record(19, b"\0" + xlsb_string(text)) for text in strings),
        "xl/styles.bin": xlsb_record(278)
        + (xlsb_record(615, struct.pack("<L", len(DATES))) + formats + xlsb_record(616))
        + (xlsb_record(617, struct.pack("<L", len(DATES))) + cell_formats + xlsb_record(618))
        + xlsb_record(279),
    }
    for number, rows in enumerate(sheets.values(), start=1):
        parts[f"xl/worksheets/sheet{number}.bin"] = xlsb_sheet(rows, strings, last)
    return office("xl/workbook.bin", "application/vnd.ms-excel.sheet.binary.macroEnabled.main", sample, parts)


def make_xlsb(sample: Sample) -> bytes:
    """The same as `make_xls`."""
    table: Rows = [*sample.table, ("2026", (46082.0, 1)), (1.1, True)]
    return xlsb({sample.title: [[line] for line in sample.lines], sample.items[1]: table}, sample)


# -- documents


def doc_page(runs: list[tuple[int, bytes]], start: int, entry: int) -> bytes:
    """A page of formats: where runs end, and their formats, from the end of the page backwards."""
    page = bytearray(512)
    page[511] = len(runs)
    struct.pack_into(f"<{len(runs) + 1}L", page, 0, start, *(end for end, _ in runs))
    free = 510
    for number, (_, content) in enumerate(runs):
        free = (free - len(content)) // 2 * 2
        page[free : free + len(content)] = content
        page[(len(runs) + 1) * 4 + number * entry] = free // 2
    return bytes(page)


def doc_styles() -> bytes:
    """Two styles: the usual one, and the first heading, by its number only."""

    def style(id: int, name: str, based_on: int) -> bytes:
        content = struct.pack("<5H", id, 1 | based_on << 4, 1, 0, 0) + struct.pack("<H", len(name)) + name.encode("utf-16-le")
        content += b"\0\0" + struct.pack("<2H", 2, 0)
        return struct.pack("<H", len(content)) + content

    return struct.pack("<H18s", 18, struct.pack("<2H", 2, 10)) + style(0, "Normal", 0xFFF) + style(1, "naglowek", 0)


def doc_lists() -> tuple[bytes, bytes, bytes]:
    """Two lists: bullets and numbers; their levels; what paragraphs call them."""
    lists = struct.pack("<H", 2) + b"".join(struct.pack("<L22xBx", id, 1) for id in (77, 78))
    levels = b"".join(struct.pack("<LB23x", 1, kind) + struct.pack("<H", 0) for kind in (23, 0))
    return lists, levels, struct.pack("<L", 2) + b"".join(struct.pack("<L12x", id) for id in (77, 78))


def document(paragraphs: list[tuple[str, int, bytes]], sample: Sample, deleted: str = "") -> bytes:
    """A document: each paragraph with its mark, style and sprms. What is Latin is in a piece of one byte a letter."""
    text = b""
    runs: list[tuple[int, bytes]] = []
    letter_runs: list[tuple[int, bytes]] = []
    pieces: list[tuple[int, int]] = []
    positions = [0]
    for letters, style, sprms in paragraphs:
        narrow = all(letter in "\t\r\x07\x0c\x13\x14\x15" or " " <= letter <= "~" for letter in letters)
        offset = 1024 + len(text)
        pieces.append((offset, 1))
        content = letters.encode("cp1252") if narrow else letters.encode("utf-16-le")
        pieces[-1] = (offset * 2 | 0x40000000 if narrow else offset, 0)
        if deleted and deleted in letters and narrow:
            letter_runs += [
                (offset + letters.index(deleted), b"\0"),
                (offset + letters.index(deleted) + len(deleted), b"\3\0\x08\1"),
            ]
        text += content
        runs.append((1024 + len(text), b"\0" + bytes([(3 + len(sprms)) // 2]) + struct.pack("<H", style) + sprms + b"\0"))
        positions.append(positions[-1] + len(content) // (1 if narrow else 2))
    letter_runs.append((1024 + len(text), b"\0"))
    text = text.ljust(-(-len(text) // 512) * 512, b"\0")
    page = (1024 + len(text)) // 512
    stream = bytearray(1024) + text + doc_page(runs, 1024, 13) + doc_page(letter_runs, 1024, 1)
    table, places = b"", {}

    def put(number: int, content: bytes, more: bytes = b"") -> None:
        nonlocal table
        places[number] = (len(table), len(content))
        table += content + more

    count = len(pieces)
    plan = struct.pack(f"<{count + 1}L", *positions) + b"".join(struct.pack("<2xL2x", place) for place, _ in pieces)
    put(1, doc_styles())
    put(12, struct.pack("<3L", 1024, runs[-1][0], page + 1))
    put(13, struct.pack("<3L", 1024, runs[-1][0], page))
    put(33, b"\2" + struct.pack("<L", len(plan)) + plan)
    lists, levels, overrides = doc_lists()
    put(73, lists, levels)
    put(74, overrides)
    struct.pack_into("<2H6xH", stream, 0, 0xA5EC, 0xC1, 0x0200)
    struct.pack_into("<L", stream, 76, positions[-1])
    for number, place in places.items():
        struct.pack_into("<2L", stream, 154 + number * 8, *place)
    return write_ole({"WordDocument": bytes(stream), "1Table": table, "\5SummaryInformation": properties(sample)})


def make_doc(sample: Sample) -> bytes:
    """What the sample has: a heading, a paragraph, a list, a table."""
    rows: list[tuple[str, int, bytes]] = []
    for cells in sample.table:
        rows += [(f"{cell}\x07", 0, IN_TABLE) for cell in cells]
        rows.append(("\x07", 0, ROW_END))
    return document(
        [
            (f"{sample.title}\r", 1, b""),
            (f"{sample.paragraph}\r", 0, b""),
            *((f"{item}\r", 0, BULLET) for item in sample.items),
            *rows,
            ("\r", 0, b""),
        ],
        sample,
    )


# -- presentations


def ppt_record(kind: int, content: bytes = b"", instance: int = 0, is_container: bool | None = None) -> bytes:
    """A record; those below 0x0F00 and some others hold records."""
    container = kind < 0x0F00 and kind not in (0x03EF, 0x03F3, 0x0BC3) if is_container is None else is_container
    return struct.pack("<2HL", instance << 4 | (0xF if container else 0), kind, len(content)) + content


def ppt_text(kind: int, text: str, styles: bytes = b"") -> bytes:
    content = ppt_record(0xF9F, struct.pack("<L", kind)) + ppt_record(0xFA0, text.encode("utf-16-le"))
    return content + (ppt_record(0xFA1, styles) if styles else b"")


def ppt_shape(box: bytes, more: bytes = b"", placeholder: int = 0) -> bytes:
    """A shape with a text box."""
    atom = ppt_record(0xF00A, struct.pack("<2L", 1, 0))
    data = ppt_record(0xF011, ppt_record(0xBC3, struct.pack("<L2Bxx", 0, placeholder, 0)), is_container=True)
    return ppt_record(0xF004, atom + more + data + ppt_record(0xF00D, box, is_container=True), is_container=True)


def ppt_table(rows: Sequence[Sequence[str]]) -> bytes:
    """A group of shapes that says that it is a table."""
    mark = ppt_record(0xF004, ppt_record(0xF122, struct.pack("<HL", 0x39F, 1), instance=1), is_container=True)
    cells = b"".join(
        ppt_shape(ppt_text(4, cell), ppt_record(0xF00F, struct.pack("<4l", x * 100, y * 50, x * 100 + 99, y * 50 + 49)))
        for y, row in enumerate(rows)
        for x, cell in enumerate(row)
    )
    return ppt_record(0xF003, mark + cells, is_container=True)


def ppt_slide(content: bytes, notes: int = 0, kind: int = 0x3EE, more: bytes = b"") -> bytes:
    group = ppt_record(0xF003, ppt_record(0xF004, is_container=True) + content, is_container=True)
    atom = ppt_record(0x3EF, struct.pack("<12x2L4x", 0x80000000, notes))
    return ppt_record(kind, atom + ppt_record(0x40C, ppt_record(0xF002, group, is_container=True)) + more)


def presentation(slides: list[tuple[bytes, bytes]], notes: list[bytes], sample: Sample, links: bytes = b"") -> bytes:
    """A presentation: slides with the texts that their outline has, and the notes of each."""

    def places(ids: list[tuple[int, int, bytes]], instance: int) -> bytes:
        atoms = b"".join(ppt_record(0x3F3, struct.pack("<L8xL4x", part, id)) + texts for part, id, texts in ids)
        return ppt_record(0xFF0, atoms, instance, is_container=True)

    parts = [slide for slide, _ in slides] + notes
    body = ppt_record(
        0x3E8,
        (ppt_record(0x409, links) if links else b"")
        + places([(2 + number, 256 + number, texts) for number, (_, texts) in enumerate(slides)], 0)
        + places([(2 + len(slides) + number, 512 + number, b"") for number in range(len(notes))], 2),
    )
    offsets, stream = [0], body
    for part in parts:
        offsets.append(len(stream))
        stream += part
    directory, edit = len(stream), 0
    stream += ppt_record(0x1772, struct.pack(f"<L{len(offsets)}L", 1 | len(offsets) << 20, *offsets))
    edit = len(stream)
    stream += ppt_record(0xFF5, struct.pack("<2L3L2L", 0, 0, 0, directory, 1, len(parts) + 2, 0))
    current = ppt_record(0xFF6, struct.pack("<4L", 20, 0xE391C05F, edit, 0))
    return write_ole(
        {"PowerPoint Document": stream, "Current User": current, "\5SummaryInformation": properties(sample)},
    )


def make_ppt(sample: Sample) -> bytes:
    """A slide with title, text and list, in its outline; one with the table; notes on the first."""
    bullets = struct.pack("<LHLH", len("\r".join(sample.items)) + 1, 0, 0x1, 1)
    reference = [ppt_shape(ppt_record(0xF9E, struct.pack("<L", number))) for number in range(2)]
    first = ppt_slide(b"".join(reference) + ppt_shape(ppt_text(4, sample.paragraph)), notes=512)
    outline = ppt_text(0, sample.title) + ppt_text(1, "\r".join(sample.items), bullets)
    second = ppt_slide(ppt_shape(ppt_text(0, sample.items[0])) + ppt_table(sample.table))
    notes = ppt_slide(ppt_shape(ppt_text(2, sample.title), placeholder=12), kind=0x3F0)
    return presentation([(first, outline), (second, b"")], [notes], sample)


# -- messages


def msg_tree(
    texts: dict[int, str], fixed: dict[int, tuple[int, int]], header: int, more: dict[str, object] | None = None
) -> dict[str, object]:
    """The storage of a message, a recipient or an attachment: texts and numbers by the number of the property."""
    stream = bytes(header) + b"".join(struct.pack("<2HLQ", kind, id, 6, value) for id, (kind, value) in fixed.items())
    for id, text in texts.items():
        stream += struct.pack("<2H2L4x", 0x1F, id, 6, len(text) * 2 + 2)
    tree: dict[str, object] = {f"__substg1.0_{id:04X}001F": text.encode("utf-16-le") for id, text in texts.items()}
    return tree | {"__properties_version1.0": stream} | (more or {})


def msg_attachment(name: str, content: bytes | dict[str, object], method: int = 1) -> dict[str, object]:
    kind = "0102" if isinstance(content, bytes) else "000D"
    return msg_tree({0x3707: name}, {0x3705: (3, method)}, 8, {f"__substg1.0_3701{kind}": content})


def message(sample: Sample, header: int = 32, more: dict[str, object] | None = None, **texts: str) -> dict[str, object]:
    """The storage of a message with what the sample has."""
    to = msg_tree({0x3001: "Office", 0x39FE: "office@example.org"}, {0x0C15: (3, 1)}, 8)
    body = "\r\n\r\n".join([sample.paragraph, *sample.items])
    known = {0x37: sample.title, 0x42: sample.author, 0x5D02: "sender@example.org", 0x1A: "IPM.Note", 0x1000: body}
    known |= {int(id[1:], 16): text for id, text in texts.items()}
    names = {f"__substg1.0_000{number}0102": b"" for number in (2, 3, 4)}
    own: dict[str, object] = {"__recip_version1.0_#00000000": to} | ({"__nameid_version1.0": names} if header == 32 else {})
    return msg_tree(known, {0x39: (0x40, CREATED)}, header, own | (more or {}))


def make_msg(sample: Sample) -> bytes:
    """A message with a file, and a message in it."""
    inner = message(sample, header=24)
    return write_ole(
        message(  # type: ignore[arg-type]
            sample,
            more={
                "__attach_version1.0_#00000000": msg_attachment("a.csv", ";".join(sample.table[0]).encode()),
                "__attach_version1.0_#00000001": msg_attachment(sample.items[0], inner, method=5),
            },
        )
    )
