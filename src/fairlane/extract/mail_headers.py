"""Headers of e-mails, decoded as far as possible: encoded words, and letters that were sent raw."""

from __future__ import annotations

import re
from email.errors import MessageError
from email.header import Header, decode_header
from email.message import Message

from .builder import clean
from .encoding import codec_name, decode
from .failure import one_line

BROKEN = (MessageError, ValueError, LookupError, TypeError, AttributeError)  # what the package raises on broken headers
HEADER_MAX = 2_000
_ENCODED_WORDS = re.compile(rb"((?:=\?[^?\s]{1,40}\?[bBqQ]\?[^?\s]{0,1000}\?=\s*)+)")


def charset(part: Message) -> str | None:
    """Return the encoding that a part declares."""
    try:
        return part.get_content_charset()
    except BROKEN:
        return None


def header(message: Message, name: str) -> str:
    """Return a header on one line."""
    raw: object = message.get(name)
    if isinstance(raw, Header):
        return one_line(clean(_decode_raw(raw, _declared(message))), HEADER_MAX)
    return one_line(clean(_decode_words(str(raw or "")[:HEADER_MAX])), HEADER_MAX)


def _declared(message: Message) -> str | None:
    """Return the encoding that the message declares for its text, or the first of its parts: raw letters are mostly in it."""
    if (declared := charset(message)) is not None or not message.is_multipart():
        return declared
    children = [child for child in message.get_payload() if isinstance(child, Message)]
    return next((found for child in children if (found := charset(child)) is not None), None)


def _decode_words(text: str) -> str:
    try:
        pieces = decode_header(text)
    except BROKEN:
        return text
    return "".join(piece if isinstance(piece, str) else _decode_piece(piece, encoding) for piece, encoding in pieces)


def _decode_piece(content: bytes, declared: str | None) -> str:
    encoding = codec_name(declared) if declared else None
    return content.decode(encoding, "replace") if encoding is not None else decode(content)


def _decode_raw(raw: Header, declared: str | None) -> str:
    """Decode a header with bytes beyond ASCII: they are UTF-8, or what the message declares, or a guess."""
    content = b"".join(piece if isinstance(piece, bytes) else piece.encode() for piece, _ in decode_header(raw))
    pieces = _ENCODED_WORDS.split(content[:HEADER_MAX])
    return "".join(
        _decode_words(piece.decode("ascii", "replace")) if number % 2 else decode(piece, declared)
        for number, piece in enumerate(pieces)
    )


def file_name(part: Message, message: Message) -> str | None:
    """Return the name of an attachment; `message` is what it is attached to."""
    for name in ("Content-Disposition", "Content-Type"):
        raw: object = part.get(name)
        if isinstance(raw, Header):
            part.replace_header(name, _decode_raw(raw, _declared(message)))
    try:
        shown = part.get_filename()
    except BROKEN:
        return "attachment"
    if shown is None:
        return None
    holder = Message()
    holder["Name"] = shown.replace("\n", " ").replace("\r", " ")
    return header(holder, "Name") or "attachment"
