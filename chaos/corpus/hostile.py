"""Hostile files, and the code that each must end with.

Made when asked for: some are large.
"""

from __future__ import annotations

import bz2
import io
import lzma
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import NamedTuple

from PIL import Image

from fairlane.extract import Code
from fairlane.extract.ole_writer import write_ole

from .all import of_sample
from .archives import (
    MILLION,
    greedy_xz,
    gzip_of_zeros,
    long_name_bomb,
    many_streams,
    nested_gzip,
    tar_of_everything,
    tar_of_folders,
    tar_that_lies,
)
from .office import HEAD, ODF, WORD, make_docx, make_epub, make_odp, make_ods, make_odt, make_xlsx, rels, zipped
from .others import draw, make_image
from .pdf import Pdf, make_pdf
from .samples import BY_LANGUAGE

SAMPLE = BY_LANGUAGE["pl"]
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


class Hostile(NamedTuple):
    """A file, the name it comes under, and the code it must end with; none if it must be read all the same."""

    name: str
    make: Callable[[], bytes]
    code: Code | None


def _cut(kind: str, share: float = 0.6) -> Callable[[], bytes]:
    def make() -> bytes:
        content = of_sample(SAMPLE)[f"pl.{kind}"]
        return content[: int(len(content) * share)]

    return make


def _cut_image(kind: str) -> Callable[[], bytes]:
    def make() -> bytes:
        noise = random.Random(5).randbytes(300 * 200 * 3)
        content = make_image(Image.frombytes("RGB", (300, 200), noise), kind)
        return content[: len(content) // 2]

    return make


# -- ZIP


class Packed(NamedTuple):
    """Something deflated, and how long it says it is."""

    content: bytes
    size: int


def deflated(start: bytes, block: bytes, times: int) -> Packed:
    """A block again and again, deflated only once: after a full flush nothing refers to what was before."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    head = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    return Packed(head + again * times + b"\x03\x00", len(start) + len(block) * times)


def raw_zip(members: dict[str, Packed], declared_size: int | None = None) -> bytes:
    """A ZIP of members that are packed already; the check sums of large ones are wrong, and nobody gets so far."""
    body = directory = b""
    for name, (content, size) in members.items():
        declared = size if declared_size is None else declared_size
        check = zlib.crc32(zlib.decompress(content, -15)) if size < 100_000 else 0
        fields = struct.pack("<HHHHHLLLH", 20, 0, 8, 0, 33, check, len(content), declared, len(name)) + b"\0\0"
        directory += (
            b"PK\x01\x02" + struct.pack("<H", 20) + fields + struct.pack("<HHHLL", 0, 0, 0, 0, len(body)) + name.encode()
        )
        body += b"PK\x03\x04" + fields + name.encode() + content
    count = len(members)
    return body + directory + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(directory), len(body), 0)


def zip_bomb(unpacked: int = 2_000 * MILLION) -> bytes:
    """A member of zeros: a thousandth of what it unpacks to."""
    return raw_zip({"zeros.txt": deflated(b"", bytes(MILLION), unpacked // MILLION)})


def zip_of_zips(depth: int) -> bytes:
    """An archive in an archive in an archive."""
    content = zipped({"inner.txt": "at the bottom"})
    for number in range(depth):
        content = zipped({f"level-{number}.zip": content})
    return content


def overlapping_zip(entries: int = 200, size: int = 4 * MILLION) -> bytes:
    """Many entries of the directory point to the same bytes."""
    body = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = body.compress(bytes(size)) + body.flush()
    check = zlib.crc32(bytes(size))
    local = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 8, 0, 0, check, len(packed), size, 5, 0) + b"a.txt" + packed
    directory = b"".join(
        struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 8, 0, 0, check, len(packed), size, 5, 0, 0, 0, 0, 0, 0) + b"a.txt"
        for _ in range(entries)
    )
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, entries, entries, len(directory), len(local), 0)
    return local + directory + end


def many_members(count: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as package:
        for number in range(count):
            package.writestr(f"{number}.txt", b"x")
    return buffer.getvalue()


def locked(content: bytes, name: str) -> bytes:
    """A ZIP, one of whose entries says that it needs a password."""
    changed = bytearray(content)
    changed[changed.index(name.encode()) - 30 + 6] |= 1
    changed[changed.rindex(name.encode()) - 46 + 8] |= 1
    return bytes(changed)


def encrypted_zip() -> bytes:
    return locked(zipped({"secret.txt": "you cannot read this"}), "secret.txt")


def lying_zip() -> bytes:
    """Sizes in the directory say a few bytes; there are a great many."""
    return raw_zip({"zeros.txt": deflated(b"", bytes(MILLION), 600)}, declared_size=5)


def hostile_names() -> bytes:
    """Names that would be dangerous if they were used."""
    buffer = io.BytesIO()
    names = [
        "../../etc/passwd",
        "/etc/cron.d/x",
        "C:\\Windows\\x.txt",
        "a" * 4000 + ".txt",
        "new\nline.txt",
        "con.txt",
        "‮fdp.txt",
    ]
    with zipfile.ZipFile(buffer, "w") as package:
        for name in names:
            package.writestr(zipfile.ZipInfo(name), b"harmless")
        link = zipfile.ZipInfo("link.txt")
        link.external_attr = 0o120777 << 16
        package.writestr(link, b"/etc/passwd")
    return buffer.getvalue()


# -- XML and office


def ods_of_rows(times: int, length: int) -> bytes:
    """A row that repeats, with a cell of so many letters."""
    cell = f"<table:table-cell><text:p>{'x' * length}</text:p></table:table-cell>"
    row = f'<table:table-row table:number-rows-repeated="{times}">{cell}</table:table-row>'
    return make_ods(SAMPLE, f"<table:table>{row}</table:table>")


def odp_in_objects() -> bytes:
    """A slide with an object that refers to itself many times over."""
    refers = '<draw:frame><draw:object xlink:href="./Object 1"/></draw:frame>'
    inner = f"{HEAD}<office:document-content {ODF}>{refers * 20}<text:p>words</text:p></office:document-content>"
    return make_odp(SAMPLE, f"<draw:page>{refers * 20}</draw:page>", {"Object 1/content.xml": inner})


def epub_of_one_chapter() -> bytes:
    """A book whose reading order names a large chapter a thousand times."""
    content = make_epub(SAMPLE, {"a.xhtml": f"<p>{'words ' * 100_000}</p>"})
    with zipfile.ZipFile(io.BytesIO(content)) as package:
        parts: dict[str, str | bytes] = {name: package.read(name) for name in package.namelist()}
    reference = b'<itemref idref="c0"/>'
    parts["OEBPS/book.opf"] = package_document = bytes(parts["OEBPS/book.opf"]).replace(reference, reference * 1_000)  # type: ignore[arg-type]
    assert package_document.count(reference) == 1_000
    return zipped(parts)


def long_lines(count: int) -> bytes:
    """An event with many descriptions, each as long as a line may be."""
    return b"BEGIN:VCALENDAR\nBEGIN:VEVENT\n" + (b"DESCRIPTION:" + b"words " * 160_000 + b"\n") * count


COMMENTS = b"COMMENT:x\n" * 600_000
ENTITIES = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {chr(98 + n)} "{("&" + chr(97 + n) + ";") * 10}">' for n in range(9)
)


def entity_bomb() -> bytes:
    return f"{HEAD}{ENTITIES}]><x>&j;</x>".encode()


def many_references(count: int, around: tuple[str, str] = ("", "")) -> bytes:
    """A document that grows to millions of characters by references to one long entity."""
    references = "&a;" * count
    return f'{HEAD}<!DOCTYPE x [<!ENTITY a "{"a" * 9_000}">]><x>{around[0]}{references}{around[1]}</x>'.encode()


def external_entity(address: str = "file:///etc/passwd") -> bytes:
    return f'{HEAD}<!DOCTYPE x [<!ENTITY e SYSTEM "{address}">]><x>&e;</x>'.encode()


DOCUMENT = f"{HEAD}<w:document {WORD}><w:body><w:p><w:r><w:t>".encode()


def docx_with(document: str) -> bytes:
    return make_docx(SAMPLE, more={"word/document.xml": document})


def docx_bomb(part: Packed) -> bytes:
    """A DOCX with this as its document, far larger than the file."""
    with zipfile.ZipFile(io.BytesIO(make_docx(SAMPLE))) as package:
        members = {name: deflated(package.read(name), b"", 0) for name in package.namelist()}
    return raw_zip(members | {"word/document.xml": part})


def docx_tiny_runs(count: int = 300_000) -> bytes:
    """Very many runs of one letter in one paragraph."""
    return make_docx(SAMPLE, "<w:p>" + "<w:r><w:t>ł</w:t></w:r>" * count + "</w:p>")


def shared_string_bomb() -> bytes:
    """One long string, and a row of sixteen thousand cells that are it: 1.6 GB in one line."""
    cells = "".join(f'<c r="{_letters(n)}1" t="s"><v>0</v></c>' for n in range(16_000))
    return make_xlsx(SAMPLE, f"<row>{cells}</row>", ["long " * 20_000])


def many_cells(count: int = 1_200_000) -> bytes:
    return make_xlsx(SAMPLE, "<row>" + "<c><v>1</v></c>" * count + "</row>")


def far_corner() -> bytes:
    """One cell at the beginning, one in the last row and column."""
    return make_xlsx(SAMPLE, '<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>2</v></c></row>')


def diagonal(count: int = 16_000) -> bytes:
    """Every row has its own column: a table of these would have a quarter of a billion cells."""
    rows = "".join(f'<row r="{n + 1}"><c r="{_letters(n)}{n + 1}"><v>{n}</v></c></row>' for n in range(count))
    return make_xlsx(SAMPLE, rows)


def _letters(number: int) -> str:
    letters = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def encrypted_office() -> bytes:
    """The old container that office documents with a password are in."""
    return write_ole({"EncryptedPackage": bytes(3_000), "EncryptionInfo": bytes(200)})


def outside_relations() -> bytes:
    """A template and a picture from elsewhere."""
    return make_docx(
        SAMPLE,
        more={
            "word/_rels/document.xml.rels": rels(
                ("r1", "attachedTemplate", "http://127.0.0.1:9/evil.dotm"), ("r2", "header", "file:///etc/passwd")
            )
        },
    )


# -- PDF and images


def pdf_of_objects(count: int) -> bytes:
    """A page, and a great many objects that nothing refers to."""
    pdf = Pdf()
    page = pdf.add(b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] >>")
    pdf.add(b"<< /Type /Pages /Count 1 /Kids [%d 0 R] >>" % page)
    root = pdf.add(b"<< /Type /Catalog /Pages 2 0 R >>")
    for _ in range(count):
        pdf.add(b"[]")
    return pdf.written(root)


def pdf_bomb(size: int = 600 * MILLION, layers: int = 1) -> bytes:
    """A page whose content unpacks to spaces without end."""
    content = b"\x78\xda" + deflated(b"", b" " * MILLION, size // MILLION).content + b"\0\0\0\0"
    for _ in range(layers - 1):
        content = zlib.compress(content, 9)
    pdf = Pdf()
    stream = pdf.stream(content, b"/Filter [" + b"/FlateDecode " * layers + b"]")
    page = pdf.add(b"<< /Type /Page /Parent 3 0 R /MediaBox [0 0 200 200] /Contents %d 0 R >>" % stream)
    pdf.add(b"<< /Type /Pages /Count 1 /Kids [%d 0 R] >>" % page)
    return pdf.written(pdf.add(b"<< /Type /Catalog /Pages 3 0 R >>"))


def pdf_of_pages(count: int) -> bytes:
    """The same page again and again."""
    pdf = Pdf()
    page = pdf.add(b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] >>")
    pdf.add(b"<< /Type /Pages /Count %d /Kids [%s] >>" % (count, b" ".join([b"%d 0 R" % page] * count)))
    return pdf.written(pdf.add(b"<< /Type /Catalog /Pages 2 0 R >>"))


def pdf_with_cycle() -> bytes:
    """A tree of pages that holds itself."""
    pdf = Pdf()
    pdf.add(b"<< /Type /Pages /Count 3 /Kids [1 0 R 1 0 R] >>")
    return pdf.written(pdf.add(b"<< /Type /Catalog /Pages 1 0 R >>"))


def huge_page() -> bytes:
    return make_pdf([["A page of two hundred metres"]], size=(600_000, 600_000))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">L", len(content)) + kind + content + struct.pack(">L", zlib.crc32(kind + content))


def png_of_size(width: int, height: int) -> bytes:
    """A small file that says it is a huge image."""
    head = struct.pack(">LLBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes(10_000))
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", rows) + _chunk(b"IEND", b"")


def tiff_loop() -> bytes:
    """A TIFF whose first page is followed by itself."""
    content = bytearray(make_image(draw(["x"], (40, 40), 12), "TIFF"))
    start = struct.unpack_from("<L", content, 4)[0]
    count = struct.unpack_from("<H", content, start)[0]
    struct.pack_into("<L", content, start + 2 + 12 * count, start)
    return bytes(content)


# -- text


def deep_html(depth: int = 100_000) -> bytes:
    return b"<html><body>" + b"<div>" * depth + "dno źródła".encode() + b"</div>" * depth


def open_comments() -> bytes:
    return b"<html><p>before</p>" + b"<!-- <a b='<" * 300_000


def deep_rtf() -> bytes:
    return b"{\\rtf1 " + b"{" * 100_000 + b"x"


def deep_mail(depth: int = 400) -> bytes:
    head = b"From: a@example.org\nTo: b@example.org\nSubject: deep\nMIME-Version: 1.0\n"
    parts = b"".join(b'Content-Type: multipart/mixed; boundary="b%d"\n\n--b%d\n' % (n, n) for n in range(depth))
    return head + parts + b"Content-Type: text/plain\n\nhello\n"


HOSTILE: dict[str, Hostile] = {
    "empty": Hostile("empty.pdf", lambda: b"", "empty"),
    "empty zip": Hostile("empty.zip", lambda: zipped({}), "empty"),
    "only folders": Hostile("folders.zip", lambda: zipped({"a/": "", "__MACOSX/a": "x"}), "empty"),
    "truncated pdf": Hostile("cut.pdf", lambda: b"%PDF-1.5\n" + bytes(range(100)), "corrupt"),
    **{
        f"truncated {kind}": Hostile(f"cut.{kind}", _cut(kind), "corrupt")
        for kind in ("docx", "pptx", "xlsx", "odt", "ods", "odp", "epub", "svg", "zip", "xml")
    },
    **{
        f"truncated {kind}": Hostile(f"cut.{kind}", _cut_image(kind), "corrupt")
        for kind in ("PNG", "JPEG", "TIFF", "WEBP", "GIF", "BMP", "JPEG2000", "AVIF")
    },
    "encrypted pdf": Hostile("locked.pdf", lambda: make_pdf([["secret"]], password="secret"), "encrypted"),
    "encrypted zip": Hostile("locked.zip", encrypted_zip, "encrypted"),
    "encrypted office": Hostile("locked.docx", encrypted_office, "encrypted"),
    "encrypted odt": Hostile("locked.odt", lambda: make_odt(SAMPLE, manifest="<encryption-data/>"), "encrypted"),
    "old office": Hostile("old.doc", lambda: write_ole({"VisioDocument": bytes(5_000)}), "unsupported"),
    "noise in ole": Hostile("old.doc", lambda: OLE + bytes(4_000), "corrupt"),
    "noise": Hostile("noise.bin", lambda: random.Random(7).randbytes(20_000), "unsupported"),
    "program": Hostile("invoice.pdf", lambda: b"MZ\x90\x00\x03" + bytes(1_000), "unsupported"),
    "zip bomb": Hostile("bomb.zip", zip_bomb, "too_large"),
    "zip that lies": Hostile("lies.zip", lying_zip, "corrupt"),
    "zip in zip in zip": Hostile("nested.zip", lambda: zip_of_zips(6), None),
    "overlapping zip": Hostile("overlap.zip", overlapping_zip, "corrupt"),
    "many members": Hostile("many.zip", lambda: many_members(20_000), "too_large"),
    "hostile names": Hostile("../../names\n.zip", hostile_names, None),
    "gzip bomb": Hostile("bomb.gz", gzip_of_zeros, "too_large"),
    "bzip2 bomb": Hostile("bomb.bz2", lambda: bz2.compress(bytes(200 * MILLION)), "too_large"),
    "xz bomb": Hostile("bomb.xz", lambda: lzma.compress(bytes(200 * MILLION), preset=0), "too_large"),
    "xz that wants memory": Hostile("greedy.xz", greedy_xz, "too_large"),
    "many packed pieces": Hostile("pieces.gz", many_streams, "too_large"),
    "gzip in gzip in gzip": Hostile("nested.gz", lambda: nested_gzip(6), None),
    "tar of links and devices": Hostile("everything.tar", tar_of_everything, None),
    "tar that lies": Hostile("lies.tar", tar_that_lies, None),
    "tar with a name of 300 MB": Hostile("name.tar.gz", long_name_bomb, "too_large"),
    "tar of folders": Hostile("folders.tar.gz", tar_of_folders, "too_large"),
    "mailbox of separators": Hostile("many.mbox", lambda: b"From a 09:30 2026\nTo: b\n\n" * 500_000, "too_large"),
    "ods of one row": Hostile("row.ods", lambda: ods_of_rows(1_048_576, 1), "too_large"),
    "ods of empty rows": Hostile("empty.ods", lambda: ods_of_rows(1_048_576, 0), None),
    "ods of long rows": Hostile("long.ods", lambda: ods_of_rows(1_000, 50_000), "too_large"),
    "odp in objects": Hostile("objects.odp", odp_in_objects, None),
    "epub of one chapter": Hostile("chapter.epub", epub_of_one_chapter, None),
    "epub bomb": Hostile("bomb.epub", lambda: make_epub(SAMPLE, {"a.xhtml": "<p>" + "x" * 21 * MILLION}), "too_large"),
    "entity bomb in epub": Hostile("bomb.epub", lambda: make_epub(SAMPLE, {}, {"OEBPS/book.opf": entity_bomb()}), "corrupt"),
    "entity bomb in svg": Hostile(
        "bomb.svg", lambda: entity_bomb().replace(b"<x>", b"<svg>").replace(b"</x>", b"</svg>"), "corrupt"
    ),
    "svg of many texts": Hostile("texts.svg", lambda: b"<svg>" + b"<text>x</text>" * 300_000 + b"</svg>", None),
    "calendar of one line": Hostile("line.ics", lambda: b"BEGIN:VCALENDAR\nSUMMARY:" + b"x\n " * 9 * MILLION, "too_large"),
    "calendar of long lines": Hostile("lines.ics", lambda: long_lines(90), "too_large"),
    "calendar of comments": Hostile(
        "comments.ics", lambda: b"BEGIN:VCALENDAR\nBEGIN:VEVENT\n" + b"COMMENT:x\n" * 600_000, "too_large"
    ),
    "svg title in pieces": Hostile(
        "title.svg", lambda: b"<svg><title>" + b"x<!---->" * 400_000 + b"</title><text>x</text></svg>", None
    ),
    "card of quotes": Hostile("quotes.vcf", lambda: b"BEGIN:VCARD\nFN;" + b'"' * 900_000, None),
    "card of parameters": Hostile("parameters.vcf", lambda: b"BEGIN:VCARD\nFN" + b";a=b" * 200_000 + b":x", None),
    "card of soft line ends": Hostile("soft.vcf", lambda: b"BEGIN:VCARD\nNOTE;QUOTED-PRINTABLE:" + b"=\n" * 4 * MILLION, None),
    "entity bomb": Hostile("bomb.xml", entity_bomb, "corrupt"),
    "one small entity": Hostile("small.xml", lambda: b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>', None),
    "many references": Hostile("many.xml", lambda: many_references(1_000_000), "too_large"),
    "many references in a tag": Hostile("tag.xml", lambda: many_references(1_000_000, ("<y z='", "'/>")), "too_large"),
    "entity of itself": Hostile("self.xml", lambda: f'{HEAD}<!DOCTYPE x [<!ENTITY a "&a;">]><x>&a;</x>'.encode(), "corrupt"),
    "long attributes of every element": Hostile(
        "defaults.xml",
        lambda: (f"{HEAD}<!DOCTYPE x [<!ATTLIST y z CDATA '{'a' * 100_000}'>]><x>" + "<y/>" * 100_000 + "</x>").encode(),
        "corrupt",
    ),
    "external entity": Hostile("outside.xml", external_entity, "corrupt"),
    "entity bomb in docx": Hostile("bomb.docx", lambda: docx_with(entity_bomb().decode()), "corrupt"),
    "external entity in docx": Hostile("outside.docx", lambda: docx_with(external_entity().decode()), "corrupt"),
    "doctype in docx": Hostile("doctype.docx", lambda: docx_with(f"{HEAD}<!DOCTYPE a><a/>"), "corrupt"),
    "deep xml": Hostile("deep.xml", lambda: (HEAD + "<a>" * 100_000).encode(), "too_large"),
    "deep docx": Hostile("deep.docx", lambda: docx_with(HEAD + "<a>" * 100_000), "too_large"),
    "endless tag": Hostile("tag.docx", lambda: docx_bomb(deflated(b"<a b='", b"x" * MILLION, 100)), "too_large"),
    "many attributes": Hostile(
        "tag.xml", lambda: (HEAD + "<a " + " ".join(f"a{n}='1'" for n in range(5_000)) + "/>").encode(), "too_large"
    ),
    "docx bomb": Hostile("bomb.docx", lambda: docx_bomb(deflated(DOCUMENT, b"a" * MILLION, 600)), "too_large"),
    "docx of blanks": Hostile(
        "blanks.docx", lambda: docx_bomb(deflated(DOCUMENT, b"</w:t>" + b" " * MILLION + b"<w:t>", 600)), "too_large"
    ),
    "docx of tiny runs": Hostile("runs.docx", docx_tiny_runs, None),
    "docx from outside": Hostile("outside.docx", outside_relations, None),
    "shared string bomb": Hostile("strings.xlsx", shared_string_bomb, "too_large"),
    "many cells": Hostile("cells.xlsx", many_cells, "too_large"),
    "far corner": Hostile("corner.xlsx", far_corner, None),
    "diagonal": Hostile("diagonal.xlsx", diagonal, None),
    "many sheets": Hostile("sheets.xlsx", lambda: make_xlsx(SAMPLE, more_sheets=2_500), "too_many_pages"),
    "pdf of objects": Hostile("objects.pdf", lambda: pdf_of_objects(60_000), None),
    "pdf bomb": Hostile("bomb.pdf", pdf_bomb, "too_large"),
    "pdf bomb in layers": Hostile("layers.pdf", lambda: pdf_bomb(600 * MILLION, 3), "too_large"),
    "pdf of pages": Hostile("pages.pdf", lambda: pdf_of_pages(5_000), "too_many_pages"),
    "pdf with a cycle": Hostile("cycle.pdf", pdf_with_cycle, "corrupt"),
    "pdf with a huge page": Hostile("huge.pdf", huge_page, None),
    "huge image": Hostile("huge.png", lambda: png_of_size(60_000, 60_000), "too_large"),
    "image beyond numbers": Hostile("huge.png", lambda: png_of_size(2**31 - 1, 2**31 - 1), "too_large"),
    "tiff in a loop": Hostile("loop.tiff", tiff_loop, None),
    "deep html": Hostile("deep.html", deep_html, None),
    "open comments": Hostile("comments.html", open_comments, None),
    "deep rtf": Hostile("deep.rtf", deep_rtf, "too_large"),
    "deep mail": Hostile("deep.eml", deep_mail, "too_large"),
    "deep json": Hostile("deep.json", lambda: b"[" * 200_000, None),
    "zeros in text": Hostile("zeros.txt", lambda: ("zażółć gęślą jaźń " * 20 + "\0\x07").encode(), None),
    "lone surrogates": Hostile("lone.txt", lambda: b"\xff\xfe" + "ab\ud800c".encode("utf-16-le", "surrogatepass"), None),
    "one long line": Hostile("line.csv", lambda: b"a;" * 200_000, None),
    "long text": Hostile("long.txt", lambda: b"word " * 5_000_000, "too_large"),
}
