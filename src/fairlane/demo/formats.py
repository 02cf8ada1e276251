"""How is a letter written as a file of each format? Small and valid, with nothing but the standard library."""

from __future__ import annotations

import csv
import io
import json
import textwrap
import zipfile
from collections.abc import Callable
from email.message import EmailMessage
from email.policy import SMTP
from html import escape

from .texts import Letter

PDF_LINES = 44  # of a page
_ZIP_TIME = (2025, 1, 1, 0, 0, 0)  # the same bytes on every day
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
_PDF_POLISH_FROM = 128
_PDF_POLISH = {
    "ą": "aogonek", "ć": "cacute", "ę": "eogonek", "ł": "lslash", "ń": "nacute", "ś": "sacute", "ź": "zacute",
    "ż": "zdotaccent", "Ł": "Lslash", "Ś": "Sacute", "Ź": "Zacute", "Ż": "Zdotaccent",
}  # fmt: skip
_MAIN_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"


def txt(letter: Letter) -> bytes:
    """Plain text."""
    body = "\n\n".join(textwrap.fill(one, 72) for one in letter.paragraphs)
    told = letter.language
    return f"{letter.title} {letter.number}\n\n{told.greeting}\n\n{body}\n\n{told.closing}\n{letter.author}\n".encode()


def md(letter: Letter) -> bytes:
    """Markdown with the table of the invoice."""
    rows = "\n".join(f"| {item} | {quantity} | {price} |" for item, quantity, price in letter.lines)
    head = f"| {' | '.join(letter.language.columns)} |\n|---|---|---|"
    body = "\n\n".join(letter.paragraphs)
    return f"# {letter.title} {letter.number}\n\n{body}\n\n{head}\n{rows}\n\n*{letter.author}*\n".encode()


def table_csv(letter: Letter) -> bytes:
    """The invoice's lines, with a byte order mark as spreadsheets write it."""
    held = io.StringIO()
    writer = csv.writer(held)
    writer.writerows([letter.language.columns, *letter.lines])
    return held.getvalue().encode("utf-8-sig")


def as_json(letter: Letter) -> bytes:
    """The invoice for programs."""
    lines = [{"item": item, "quantity": quantity, "price": price} for item, quantity, price in letter.lines]
    told = {
        "number": letter.number,
        "language": letter.language.code,
        "title": letter.title,
        "author": letter.author,
        "text": letter.paragraphs,
        "lines": lines,
    }
    return (json.dumps(told, ensure_ascii=False, indent=2) + "\n").encode()


def html(letter: Letter) -> bytes:
    """A page."""
    body = "\n".join(f"<p>{escape(one)}</p>" for one in letter.paragraphs)
    rows = "\n".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in letter.lines)
    title = escape(letter.title)
    return (
        f'<!DOCTYPE html>\n<html lang="{letter.language.code}">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<h1>{title} {letter.number}</h1>\n{body}\n<table>\n{rows}\n</table>\n</html>\n"
    ).encode()


def eml(letter: Letter) -> bytes:
    """An e-mail with the invoice's lines attached."""
    message = EmailMessage(SMTP)
    message["From"] = f"{letter.author} <sender@example.org>"
    message["To"] = "documents@example.com"
    message["Subject"] = f"{letter.title} {letter.number}"
    message["Date"] = "Wed, 01 Jan 2025 09:30:00 +0000"
    message["Message-ID"] = f"<{letter.language.code}-{letter.number}@example.org>"
    message.set_content("\n\n".join((letter.language.greeting, *letter.paragraphs, letter.author)))
    message.add_attachment(table_csv(letter).decode("utf-8-sig"), subtype="csv", filename="lines.csv")
    message.set_boundary(f"=={letter.language.code}-{letter.number}==")  # the same on every run
    return message.as_bytes()


def docx(letter: Letter) -> bytes:
    """A document of Word."""
    paragraphs = "".join(
        f'<w:p><w:r><w:t xml:space="preserve">{escape(one)}</w:t></w:r></w:p>'
        for one in (f"{letter.title} {letter.number}", letter.language.greeting, *letter.paragraphs, letter.author)
    )
    members = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/word/document.xml" ContentType="{_MAIN_TYPE}"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
        f'<Relationship Id="rId1" Type="{_OFFICE}" Target="word/document.xml"/></Relationships>',
        "word/document.xml": f'<w:document xmlns:w="{_WORD}"><w:body>{paragraphs}</w:body></w:document>',
    }
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            declared = f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n{content}'
            archive.writestr(zipfile.ZipInfo(name, _ZIP_TIME), declared.encode(), zipfile.ZIP_DEFLATED)
    return held.getvalue()


def pdf(letter: Letter) -> bytes:
    """Pages of text in a font that every reader has."""
    lines = [f"{letter.title} {letter.number}", "", letter.language.greeting]
    for paragraph in (*letter.paragraphs, letter.author):
        lines += ["", *textwrap.wrap(paragraph, 80)]
    pages = [lines[at : at + PDF_LINES] for at in range(0, len(lines), PDF_LINES)]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    glyphs = " ".join(f"/{glyph}" for glyph in _PDF_POLISH.values())
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        f"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding << /Differences [{_PDF_POLISH_FROM} {glyphs}] "
        "/Type /Encoding /BaseEncoding /WinAnsiEncoding >> >>".encode(),
    ]
    for number, page in enumerate(pages):
        drawn = b"BT /F1 11 Tf 60 790 Td 16 TL\n" + b"".join(b"(" + _pdf_text(line) + b") '\n" for line in page) + b"ET"
        objects += [
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >> "
            + f"/Contents {5 + 2 * number} 0 R >>".encode(),
            f"<< /Length {len(drawn)} >>\nstream\n".encode() + drawn + b"\nendstream",
        ]
    return _pdf_file(objects)


def _pdf_text(line: str) -> bytes:
    """Latin letters as they are; the Polish ones it lacks have places of their own, named in the font's encoding."""
    placed = line.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
    for place, letter in enumerate(_PDF_POLISH, start=_PDF_POLISH_FROM):
        placed = placed.replace(letter, chr(place))
    return placed.encode("latin-1", errors="replace")


def _pdf_file(objects: list[bytes]) -> bytes:
    """Objects with the table that says where each begins."""
    made, offsets = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n"), []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(made))
        made += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
    table = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n" + "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(made)}\n%%EOF\n"
    return bytes(made) + table.encode() + trailer.encode()


FORMATS: dict[str, Callable[[Letter], bytes]] = {
    "pdf": pdf, "docx": docx, "txt": txt, "eml": eml, "html": html, "md": md, "csv": table_csv, "json": as_json,
}  # fmt: skip
