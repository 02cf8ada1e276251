"""Writers of the formats that are text or pictures: RTF, HTML, e-mail, CSV, JSON, XML, images."""

from __future__ import annotations

import base64
import csv
import io
import json
from email.message import EmailMessage
from html import escape

from PIL import Image, ImageDraw

from fairlane.extract.thumbnail import font

from .samples import Sample


def rtf_text(text: str, codepage: str = "cp1252") -> str:
    """Letters as RTF has them: in the code page if they are there, else as numbers with a stand-in."""
    out = ""
    for letter in text:
        if letter in "\\{}":
            out += "\\" + letter
        elif letter.isascii():
            out += letter
        else:
            try:
                out += f"\\'{letter.encode(codepage)[0]:02x}"
            except UnicodeEncodeError:
                out += "".join(f"\\u{int.from_bytes(pair, 'little', signed=True)}?" for pair in _pairs(letter))
    return out


def _pairs(letter: str) -> list[bytes]:
    content = letter.encode("utf-16-le")
    return [content[start : start + 2] for start in range(0, len(content), 2)]


def make_rtf(sample: Sample, codepage: int = 1252, times: int = 1) -> bytes:
    """What the sample has, so many times over."""

    def encode(text: str) -> str:
        return rtf_text(text, f"cp{codepage}")

    rows = "".join(
        "\\trowd\\cellx3000\\cellx6000\n" + "".join(f"\\intbl {encode(cell)}\\cell\n" for cell in cells) + "\\row\n"
        for cells in sample.table
    )
    body = (
        f"\\pard\\outlinelevel0\\b {encode(sample.title)}\\b0\\par\n\\pard {encode(sample.paragraph)}\\par\n"
        f"{encode(sample.items[0])}\\par {encode(sample.items[1])}\\par\n{rows}\\pard\\par"
    )
    return (
        f"{{\\rtf1\\ansi\\ansicpg{codepage}\\deff0{{\\fonttbl{{\\f0\\fswiss Arial;}}}}{{\\colortbl;\\red0\\green0\\blue0;}}\n"
        f"{{\\info{{\\title {encode(sample.title)}}}{{\\author {encode(sample.author)}}}"
        "{\\creatim\\yr2026\\mo3\\dy1\\hr9\\min30}}\n{\\*\\generator Nobody;}{\\pict\\pngblip 89504e47}"
        f"{body * times}}}"
    ).encode("ascii")


def make_html(sample: Sample, encoding: str = "utf-8", times: int = 1) -> bytes:
    """What the sample has, so many times over."""
    items = "".join(f"<li>{escape(text)}" for text in sample.items)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>" for cells in sample.table)
    body = f"<h1>{escape(sample.title)}</h1>\n<p>{escape(sample.paragraph)}</p>\n<ul>{items}</ul><table>{rows}</table>"
    page = (
        f'<!DOCTYPE html>\n<html lang="{sample.language}"><head><meta charset="{encoding}">'
        f"<title>{escape(sample.title)}</title>\n"
        f'<meta name="author" content="{escape(sample.author)}"><style>p {{ color: red }}</style></head>\n<body>'
        f"<script>document.write('<p>script</p>')</script>{body * times}</body></html>"
    )
    return page.encode(encoding, "xmlcharrefreplace")


def make_eml(sample: Sample, is_html: bool = False, charset: str = "utf-8") -> bytes:
    message = EmailMessage()
    message["Subject"] = sample.title
    message["From"] = f"{sample.author} <sender@example.org>"
    message["To"] = "office@example.org"
    message["Date"] = "Sun, 01 Mar 2026 09:30:00 +0100"
    if is_html:
        message.set_content(make_html(sample).decode(), subtype="html", charset=charset)
    else:
        message.set_content("\n\n".join([sample.paragraph, *sample.items]) + "\n", charset=charset, cte="quoted-printable")
        message.add_alternative(f"<p>{escape(sample.paragraph)}</p>", subtype="html")
    message.add_attachment(make_csv(sample), maintype="text", subtype="csv", filename=f"{sample.table[0][1]}.csv")
    for number, part in enumerate(message.walk()):
        if part.is_multipart():
            part.set_boundary(f"=={number}==")
    return message.as_bytes()


def make_markdown(sample: Sample) -> bytes:
    return (sample.markdown + "\n").encode()


def make_csv(sample: Sample, separator: str = ";") -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=separator).writerows(sample.table)
    return buffer.getvalue().encode()


def make_json(sample: Sample) -> bytes:
    return json.dumps(sample._asdict(), ensure_ascii=False, indent=1).encode()


def make_xml(sample: Sample, encoding: str = "utf-8") -> bytes:
    text = f'<?xml version="1.0" encoding="{encoding}"?>\n<letter><title>{escape(sample.title)}</title>\n'
    return (text + f"<p>{escape(sample.paragraph)}</p></letter>").encode(encoding)


def draw(lines: list[str], size: tuple[int, int] = (1000, 400), letter: int = 32) -> Image.Image:
    """Black words on white paper."""
    paper = Image.new("RGB", size, "white")
    ImageDraw.Draw(paper).multiline_text(
        (20, 20), "\n".join(lines), fill="black", font=font().font_variant(size=letter), spacing=12
    )
    return paper


def make_image(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


HEIC = base64.b64decode(  # made with an encoder that the tests do not have: a white picture of 160 by 60 pixels that says Hello
    "AAAAHGZ0eXBoZWl4AAAAAG1pZjFoZWl4bWlhZgAAAXZtZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAAAAAAAAAAACJpbG9jAAAAAERA"
    "AAEAAQAAAAABmgABAAAAAAAAAQYAAAAjaWluZgAAAAAAAQAAABVpbmZlAgAAAAABAABodmMxAAAAAA5waXRtAAAAAAABAAAA9mlwcnAAAADWaXBjbwAA"
    "AHFodmNDAQQIAAAAn/gAAAAAHvAA/Pz4+AAADwNgAAEAF0ABDAH//wQIAAADAJ/4AAADAAAeugJAYQABACZCAQEECAAAAwCf+AAAAwAAHsBQgQWW6uSm"
    "ubAgAAADAyAAAAMAIWIAAQAGRAHBc8GJAAAAE2NvbHJuY2x4AAEADQAGgAAAABRpc3BlAAAAAAAAAKAAAABAAAAAKGNsYXAAAACgAAAAAQAAADwAAAAB"
    "AAAAAAAAAAL////8AAAAAgAAAA5waXhpAAAAAAEIAAAAGGlwbWEAAAAAAAAAAQABBYECAwWEAAABDm1kYXQAAAECKAGuCCj2IPEthdNrrza/0wyaZ/aG"
    "66v1WfkRYdz77ypsNARuZ+2W8CB+wqRnGyAKzA0xKmvXy4FCcvRKB65XDt+ClPSCy2QAygUK/+wUYIkTH0udz45SC4xIv8H7f277sj/1zBPUdVr2qLB5"
    "l7CA5mr9vsuEERwnlFSXYwHWodo79qogWkxhlv84UF/CRTmkvuBQ9VgjSHKrfDUwI1dkA4ndQmNI+Ug9/7xYUsS+Cz4zZpYceTMLhQc84WQr64cYYoAZ"
    "vFpbmhLWq8CgTpkNBWJjvKZ4XXv4VsHdF0FesW2fce6hYGILtAJRRINznv9+SYoX//vfAuppPwehDI/cD0wq"
)


def make_svg(sample: Sample) -> bytes:
    lines = "".join(f'<text x="0" y="{20 * number}">{escape(line)}</text>' for number, line in enumerate(sample.lines[1:], 1))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg"><title>{escape(sample.title)}</title><style>text {{ fill: red }}</style>'
        f"<script>alert(1)</script>{lines}</svg>"
    ).encode()


def folded(line: str) -> bytes:
    """A line of a calendar or card, folded after 75 bytes wherever that is."""
    content = line.encode()
    return b"\r\n ".join(content[start : start + 74] for start in range(0, len(content), 74)) + b"\r\n"


def make_ics(sample: Sample) -> bytes:
    """A calendar with one event."""
    text = sample.paragraph.replace(",", "\\,")
    lines = [
        *("BEGIN:VCALENDAR", "BEGIN:VTIMEZONE", "TZID:Europe/Warsaw", "END:VTIMEZONE", "BEGIN:VEVENT"),
        f"SUMMARY:{sample.title}",
        "DTSTART;TZID=Europe/Warsaw:20260301T093000",
        "DTEND;TZID=Europe/Warsaw:20260301T103000",
        f"LOCATION:{sample.items[0]}",
        f'ORGANIZER;CN="{sample.author}":mailto:office@example.org',
        "RRULE:FREQ=WEEKLY;COUNT=3",
        f"DESCRIPTION:{text}\\n\\n{sample.items[1]}",
        *("BEGIN:VALARM", "DESCRIPTION:alarm", "END:VALARM", "END:VEVENT", "END:VCALENDAR"),
    ]
    return b"".join(map(folded, lines))


def make_vcf(sample: Sample) -> bytes:
    """Two cards: of version 4, and of version 2.1, in quoted-printable."""
    first, _, family = sample.author.partition(" ")
    quoted = [f"={byte:02X}" for byte in sample.author.encode()]
    start, rest = "".join(quoted[:12]), "".join(quoted[12:])  # a soft end of line between them
    lines = [
        *("BEGIN:VCARD", "VERSION:4.0", f"N:{family};{first};;;", f"FN:{sample.author}", f"ORG:{sample.items[0]}"),
        *("TEL;TYPE=work:+48 600 000 000", f"PHOTO;ENCODING=b;TYPE=PNG:{'iVBORw0KGgo' * 20}", f"NOTE:{sample.paragraph}"),
        *("END:VCARD", "BEGIN:VCARD", "VERSION:2.1"),
    ]
    content = b"".join(map(folded, lines))
    content += f"FN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:{start}=\r\n{rest}\r\n".encode()
    return content + b"EMAIL;INTERNET:office@example.org\r\nEND:VCARD\r\n"


def make_xhtml(sample: Sample, body: str = "") -> str:
    """A chapter of a book."""
    items = "".join(f"<li>{escape(text)}</li>" for text in sample.items)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>" for cells in sample.table)
    body = body or f"<h1>{escape(sample.title)}</h1><p>{escape(sample.paragraph)}</p><ul>{items}</ul><table>{rows}</table>"
    head = "<title/><script src='x.js'/><link rel='stylesheet' href='x.css'/>"
    return f'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head>{head}</head><body>{body}</body></html>'
