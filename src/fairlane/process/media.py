"""What kind of file is this? Its content is asked first; its name only settles what content cannot tell.

Laws:
- A type that content would show is never believed from a name: text called `.pdf` is not a PDF.
- Nothing is unpacked and nothing is parsed; a few kilobytes from both ends of the file are enough.
"""

from __future__ import annotations

import re
from mimetypes import MimeTypes

UNKNOWN = "application/octet-stream"
PLAIN = "text/plain"
ZIP = "application/zip"
OLE = "application/x-ole-storage"
OFFICE = "application/vnd.openxmlformats-officedocument."

SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"II+\0", "image/tiff"),
    (b"MM\0+", "image/tiff"),
    (b"PK\x03\x04", ZIP),
    (b"PK\x05\x06", ZIP),  # one without members
    (b"\x1f\x8b\x08", "application/gzip"),
    (b"\xfd7zXZ\0", "application/x-xz"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"{\\rtf", "application/rtf"),
    (b"%!PS", "application/postscript"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", OLE),  # Word, Excel and Outlook before 2007
)

_OFFICE_FOLDERS = {
    b"word": OFFICE + "wordprocessingml.document",
    b"xl": OFFICE + "spreadsheetml.sheet",
    b"ppt": OFFICE + "presentationml.presentation",
}
_MEMBER = re.compile(rb"PK(?:\x03\x04.{26}|\x01\x02.{42})(word|xl|ppt)/", re.DOTALL)
_MIMETYPE = re.compile(rb"PK\x03\x04.{26}mimetype(application/[\w.+-]{1,80}?)PK", re.DOTALL)  # how ODF and EPUB begin
# Possessive: a file full of comments must not make the search try every way to divide them.
_HTML = re.compile(rb"\s*+(?:<!--(?>.*?-->)\s*+)*+<(?:!doctype\s+html|html)\b", re.DOTALL | re.IGNORECASE)

_OLE_NAMED = {"application/msword", "application/vnd.ms-excel", "application/vnd.ms-powerpoint", "application/vnd.ms-outlook"}
_SHOWN_BY_CONTENT = {*(kind for _, kind in SIGNATURES), *_OFFICE_FOLDERS.values(), *_OLE_NAMED}
_TEXTUAL = {"message/rfc822", "application/json", "application/xml", "application/yaml", "application/javascript"}
_names = MimeTypes()  # Python's own table: what a machine has installed does not matter
for _kind, _ending in (
    ("text/markdown", ".md"),
    ("text/x-log", ".log"),
    ("application/yaml", ".yaml"),
    ("application/yaml", ".yml"),
):
    _names.add_type(_kind, _ending)


def media_type(name: str, head: bytes, tail: bytes, is_text: bool) -> str:
    """The media type of a file, from both ends of its content, from whether all of it is text, and from its name."""
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    for signature, found in SIGNATURES:
        if head.startswith(signature):
            return _zipped(head, tail) if found == ZIP else _ole(name) if found == OLE else found
    if b"%PDF-" in head[:1024]:  # some printers write a few lines before it
        return "application/pdf"
    return _text(name, head) if is_text else _binary(name)


def _zipped(head: bytes, tail: bytes) -> str:
    if told := _MIMETYPE.match(head):
        return told[1].decode()
    member = _MEMBER.search(head) or _MEMBER.search(tail)
    return _OFFICE_FOLDERS[member[1]] if member else ZIP


def _ole(name: str) -> str:
    named = _named(name)
    return named if named in _OLE_NAMED else OLE


def _text(name: str, head: bytes) -> str:
    head = head.removeprefix(b"\xef\xbb\xbf")
    if _HTML.match(head):
        return "text/html"
    named = _named(name)
    if named and is_textual(named):
        return named
    return "application/xml" if head.startswith(b"<?xml") else PLAIN


def _binary(name: str) -> str:
    named = _named(name)
    return UNKNOWN if named is None or is_textual(named) or named in _SHOWN_BY_CONTENT else named


def _named(name: str) -> str | None:
    return _names.guess_type("x-" + name.lower().rpartition("/")[2])[0]


def is_textual(kind: str) -> bool:
    """Whether a media type is one of text."""
    return kind.startswith("text/") or kind in _TEXTUAL or kind.endswith(("+xml", "+json"))
