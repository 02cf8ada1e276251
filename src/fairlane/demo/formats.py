"""Writers of a sample letter in each format: small and valid files, made with the standard library only."""

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

PDF_LINES = 44  # per page
_ZIP_TIME = (2025, 1, 1, 0, 0, 0)  # fixed, so that the bytes are the same every day
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
    """Write plain text."""
    body = "\n\n".join(textwrap.fill(paragraph, 72) for paragraph in letter.paragraphs)
    language = letter.language
    return f"{letter.title} {letter.number}\n\n{language.greeting}\n\n{body}\n\n{language.closing}\n{letter.author}\n".encode()


def md(letter: Letter) -> bytes:
    """Write Markdown with the invoice as a table."""
    rows = "\n".join(f"| {item} | {quantity} | {price} |" for item, quantity, price in letter.lines)
    head = f"| {' | '.join(letter.language.columns)} |\n|---|---|---|"
    body = "\n\n".join(letter.paragraphs)
    return f"# {letter.title} {letter.number}\n\n{body}\n\n{head}\n{rows}\n\n*{letter.author}*\n".encode()


def table_csv(letter: Letter) -> bytes:
    """Write the invoice's lines, with a byte order mark as spreadsheets do."""
    buffer = io.StringIO()
    csv.writer(buffer).writerows([letter.language.columns, *letter.lines])
    return buffer.getvalue().encode("utf-8-sig")


def as_json(letter: Letter) -> bytes:
    """Write the invoice as JSON."""
    lines = [{"item": item, "quantity": quantity, "price": price} for item, quantity, price in letter.lines]
    data = {
        "number": letter.number,
        "language": letter.language.code,
        "title": letter.title,
        "author": letter.author,
        "text": letter.paragraphs,
        "lines": lines,
    }
    return (json.dumps(data, ensure_ascii=False, indent=2) + "\n").encode()


def html(letter: Letter) -> bytes:
    """Write a web page."""
    body = "\n".join(f"<p>{escape(paragraph)}</p>" for paragraph in letter.paragraphs)
    rows = "\n".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in letter.lines)
    title = escape(letter.title)
    return (
        f'<!DOCTYPE html>\n<html lang="{letter.language.code}">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<h1>{title} {letter.number}</h1>\n{body}\n<table>\n{rows}\n</table>\n</html>\n"
    ).encode()


def eml(letter: Letter) -> bytes:
    """Write an e-mail with the invoice's lines attached."""
    message = EmailMessage(SMTP)
    message["From"] = f"{letter.author} <sender@example.org>"
    message["To"] = "documents@example.com"
    message["Subject"] = f"{letter.title} {letter.number}"
    message["Date"] = "Wed, 01 Jan 2025 09:30:00 +0000"
    message["Message-ID"] = f"<{letter.language.code}-{letter.number}@example.org>"
    message.set_content("\n\n".join((letter.language.greeting, *letter.paragraphs, letter.author)))
    message.add_attachment(table_csv(letter).decode("utf-8-sig"), subtype="csv", filename="lines.csv")
    message.set_boundary(f"=={letter.language.code}-{letter.number}==")  # fixed, instead of a random one
    return message.as_bytes()


def docx(letter: Letter) -> bytes:
    """Write a Word document."""
    paragraphs = "".join(
        f'<w:p><w:r><w:t xml:space="preserve">{escape(paragraph)}</w:t></w:r></w:p>'
        for paragraph in (f"{letter.title} {letter.number}", letter.language.greeting, *letter.paragraphs, letter.author)
    )
    members = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/word/document.xml" ContentType="{_MAIN_TYPE}"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
        f'<Relationship Id="rId1" Type="{_OFFICE}" Target="word/document.xml"/></Relationships>',
        "word/document.xml": f'<w:document xmlns:w="{_WORD}"><w:body>{paragraphs}</w:body></w:document>',
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            xml = f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n{content}'
            archive.writestr(zipfile.ZipInfo(name, _ZIP_TIME), xml.encode(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def pdf(letter: Letter) -> bytes:
    """Write pages of text in a font that every PDF reader has."""
    lines = [f"{letter.title} {letter.number}", "", letter.language.greeting]
    for paragraph in (*letter.paragraphs, letter.author):
        lines += ["", *textwrap.wrap(paragraph, 80)]
    pages = [lines[start : start + PDF_LINES] for start in range(0, len(lines), PDF_LINES)]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    glyphs = " ".join(f"/{glyph}" for glyph in _PDF_POLISH.values())
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        f"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding << /Differences [{_PDF_POLISH_FROM} {glyphs}] "
        "/Type /Encoding /BaseEncoding /WinAnsiEncoding >> >>".encode(),
    ]
    for number, page in enumerate(pages):
        content = b"BT /F1 11 Tf 60 790 Td 16 TL\n" + b"".join(b"(" + _pdf_text(line) + b") '\n" for line in page) + b"ET"
        objects += [
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >> "
            + f"/Contents {5 + 2 * number} 0 R >>".encode(),
            f"<< /Length {len(content)} >>\nstream\n".encode() + content + b"\nendstream",
        ]
    return _pdf_file(objects)


def _pdf_text(line: str) -> bytes:
    """Encode a line in Latin-1; Polish letters that it lacks get codes of their own, which the font's encoding names."""
    text = line.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
    for code, letter in enumerate(_PDF_POLISH, start=_PDF_POLISH_FROM):
        text = text.replace(letter, chr(code))
    return text.encode("latin-1", errors="replace")


def _pdf_file(objects: list[bytes]) -> bytes:
    """Join the objects and append the table of their offsets."""
    content, offsets = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n"), []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(content))
        content += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
    table = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n" + "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(content)}\n%%EOF\n"
    return bytes(content) + table.encode() + trailer.encode()


FORMATS: dict[str, Callable[[Letter], bytes]] = {
    "pdf": pdf, "docx": docx, "txt": txt, "eml": eml, "html": html, "md": md, "csv": table_csv, "json": as_json,
}  # fmt: skip
