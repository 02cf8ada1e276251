"""Files of the corpus that need no program: e-mails, text and CSV, in several forms and encodings."""

from __future__ import annotations

import csv
import io
import random
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path

from .markup import html_of
from .model import Document, Heading, Listing, Paragraph, Speech, Table, shown

ENCODINGS = {
    "pl": ("utf-8", "cp1250", "iso8859-2"),
    "uk": ("utf-8", "utf-16"),
    "el": ("utf-8", "utf-16"),
    "ja": ("utf-8", "utf-16"),
    "he": ("utf-8",),
}


def _encoding(language: str, seed: int) -> str:
    return random.Random(seed).choice(ENCODINGS.get(language, ("utf-8", "cp1252", "utf-16", "utf-8-sig")))


def plain_of(document: Document) -> str:
    """Return a document as the text that a person would type."""
    parts = []
    for block in document.blocks:
        match block:
            case Heading(_, text) | Paragraph(text) | Speech(text):
                parts.append(text)
            case Listing(items):
                parts.append("\n".join(f"- {item.text}" for item in items))
            case Table(rows):
                parts.append("\n".join("   ".join(shown(cell) for cell in row) for row in rows))
    return "\n\n".join(parts) + "\n"


def write_plain(path: Path, document: Document, seed: int) -> None:
    """Write text in one of the encodings of its language; letters that it lacks become `?`."""
    path.write_bytes(plain_of(document).encode(_encoding(document.language, seed), "replace"))


def write_csv(path: Path, document: Document, seed: int) -> None:
    """Write the first table as CSV, with a comma, a semicolon or a tab."""
    table = next(block for block in document.blocks if isinstance(block, Table))
    text = io.StringIO()
    csv.writer(text, delimiter=",;\t"[seed % 3]).writerows([[shown(cell) for cell in row] for row in table.rows])
    path.write_bytes(text.getvalue().encode(_encoding(document.language, seed), "replace"))


def write_mail(path: Path, document: Document, seed: int) -> None:
    """Write an e-mail: plain, HTML, or both, some with an attachment; the subject is the title."""
    message = EmailMessage(policy=SMTP)
    message["From"], message["To"] = "Grace Whitfield <grace@example.org>", "office@example.org"
    message["Subject"], message["Date"] = document.title, "Mon, 02 Mar 2026 09:30:00 +0000"
    body = document._replace(blocks=document.blocks[1:])
    message.set_content(html_of(body), subtype="html", cte="quoted-printable" if seed % 2 else "base64")
    if seed % 4 == 1:
        message.add_attachment(b"%PDF-1.4\n", maintype="application", subtype="pdf", filename="attached.pdf")
    path.write_bytes(message.as_bytes())
