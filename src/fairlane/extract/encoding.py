"""Text encodings: detection and decoding.

Detection tries, in this order: a byte order mark; UTF-16 or 32 without one, by the position of zero bytes; a declared encoding
that writes everything in ASCII; UTF-8; another declared encoding; then the legacy encodings of our five languages, scored by
how many of the decoded letters those languages use; and for everything else charset-normalizer.

Laws:
- Text is decoded in blocks and counted, so a large file costs its limit and no more.
- A guess is a warning, and so is every byte that cannot be decoded.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from .builder import BLOCK, ExtractionBuilder

BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
XML_BEGINNINGS = {"<?xml".encode(encoding): encoding for encoding in ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")}
NOT_TEXT = ("idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "mbcs", "oem")
IN_ASCII = ("iso2022", "hz", "utf-7")  # as Python names them; to UTF-8 their bytes look like ASCII
SAMPLE = 262_144
LEGACY = ("cp1252", "cp1250", "iso8859_2")
# The letters beyond ASCII of each language.
LETTERS = {
    "pl": set("ąćęłńóśźżĄĆĘŁŃÓŚŹŻ"),
    "pt": set("ãõçáéíóúâêôàÃÕÇÁÉÍÓÚÂÊÔÀ"),
    "es": set("ñáéíóúüÑÁÉÍÓÚÜ¿¡"),
    "de": set("äöüßÄÖÜ"),
}
SIGNS = set("€§°±–—…„”“’‘«»•©®™ªº·\xa0\xad²³½")
_WORD_WITH_SIGN_INSIDE = re.compile(r"[^\W\d_][¡-¿×÷‚-™•]+[^\W\d_]")
_UPPER_INSIDE = re.compile(r"[a-ząćęłńóśźżäöüßãõçáéíóúâêôàñ][ĄĆĘŁŃÓŚŹŻÄÖÜÃÕÇÁÉÍÓÚÂÊÔÀÑ](?:[a-z]|\b)")


def detect_bom(start: bytes) -> tuple[str, int] | None:
    """Return the encoding that a byte order mark names, and the length of the mark."""
    for mark, encoding in BOMS:
        if start.startswith(mark):
            return encoding, len(mark)
    return None


def detect_wide(start: bytes) -> str | None:
    """Detect UTF-16 or 32 without a mark, by how XML begins, or by the zero bytes of Latin letters at the same positions."""
    for beginning, encoding in XML_BEGINNINGS.items():
        if start.startswith(beginning):
            return encoding
    start = start[: min(len(start) // 4 * 4, 4096)]
    if len(start) < 4 or 0 not in start:
        return None
    count = len(start) // 4
    zeros = [start[position::4].count(0) / count for position in range(4)]
    for encoding, filled, empty in (
        ("utf-32-le", (0,), (2, 3)),
        ("utf-32-be", (3,), (0, 1)),
        ("utf-16-le", (0, 2), (1, 3)),
        ("utf-16-be", (1, 3), (0, 2)),
    ):
        if all(zeros[position] > 0.6 for position in empty) and all(zeros[position] < 0.1 for position in filled):
            return encoding
    return None


def codec_name(name: str) -> str | None:
    """Return Python's name of a declared encoding, or None if it is unknown or not an encoding of text."""
    name = name.strip(" \t\r\n\"'").lower()
    if not re.fullmatch(r"[a-z0-9_.:\-]{2,40}", name):
        return None
    if name in ("iso-8859-1", "latin1", "latin-1", "us-ascii", "ascii"):
        return "cp1252"  # what senders mean by it
    try:
        codec = codecs.lookup(name)
    except LookupError:
        return None
    is_text = getattr(codec, "_is_text_encoding", True) and codec.name.replace("_", "-") not in NOT_TEXT
    return codec.name if is_text else None


def guess_legacy(sample: bytes) -> str:
    """Guess the encoding of a text that is not UTF-8."""
    scores = {encoding: _score(sample, encoding) for encoding in LEGACY}
    best = max(LEGACY, key=lambda encoding: scores[encoding])
    if scores[best] > 0:
        return best
    from charset_normalizer import from_bytes

    match = from_bytes(sample[:65_536], steps=5, chunk_size=512).best()
    return codec_name(match.encoding) or "cp1252" if match is not None else "cp1252"


def _score(sample: bytes, encoding: str) -> float:
    """Score how well these bytes, in this encoding, read as one of our languages, by their letters beyond ASCII."""
    text = sample.decode(encoding, "replace")
    high = [letter for letter in text if letter >= "\x80"]
    if not high:
        return 0.0
    used = max(sum(letter in letters for letter in high) for letters in LETTERS.values())
    signs = sum(letter in SIGNS for letter in high)
    odd = len(_WORD_WITH_SIGN_INSIDE.findall(text)) + len(_UPPER_INSIDE.findall(text))
    odd += sum(letter == "\ufffd" or "\x80" <= letter <= "\x9f" for letter in high) * 2
    return (used + signs * 0.5 - odd * 1.5) / len(high) - 0.5


def detect(start: bytes, declared: str | None = None) -> tuple[str, int, bool]:
    """Return the encoding of a text that begins like this, the length of its byte order mark, and whether it is a guess."""
    if (mark := detect_bom(start)) is not None:
        return (*mark, False)
    if (encoding := detect_wide(start)) is not None:
        return encoding, 0, False
    encoding = codec_name(declared) if declared is not None else None
    if encoding is not None and encoding.startswith(IN_ASCII):
        return encoding, 0, False
    if is_utf8(start):
        return "utf-8", 0, False
    if encoding is not None and not encoding.startswith(("utf-8", "utf_8")):
        return encoding, 0, False
    if _is_nearly_utf8(start):
        return "utf-8", 0, False
    return guess_legacy(start), 0, True


def is_utf8(sample: bytes) -> bool:
    """Return whether a sample is UTF-8; it may be cut in the middle of a character."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample, final=False)
    except UnicodeDecodeError:
        return False
    return True


def _is_nearly_utf8(sample: bytes) -> bool:
    """Return whether this is UTF-8 with a few damaged bytes: far more multi-byte characters than invalid bytes."""
    text = sample.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    return broken * 10 < sum(letter >= "\x80" for letter in text) - broken


def decode(content: bytes, declared: str | None = None) -> str:
    """Decode a short text, such as a header or a part of an e-mail."""
    encoding, skip, _ = detect(content[:SAMPLE], declared)
    return content[skip:].decode(encoding, "replace")


def read_blocks(builder: ExtractionBuilder, declared: str | None = None, path: Path | None = None) -> Iterator[str]:
    """Yield the text of a file in blocks."""
    with (path or builder.path).open("rb") as file:
        encoding, skip, is_guess = detect(file.read(SAMPLE), declared)
        if encoding == "utf-8" and not _is_all_utf8(file, skip):
            file.seek(0)
            encoding, is_guess = (
                ("utf-8", False) if _is_nearly_utf8(file.read(SAMPLE)) else (guess_legacy(_non_ascii_lines(file)), True)
            )
        if is_guess:
            builder.warn("encoding_guessed", encoding)
        file.seek(skip)
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        while block := file.read(BLOCK):
            builder.meter.check_time()
            yield _warn_if_replaced(builder, decoder.decode(block), encoding)
        yield _warn_if_replaced(builder, decoder.decode(b"", final=True), encoding)


def _is_all_utf8(file: BinaryIO, skip: int) -> bool:
    """Return whether the whole file is UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    file.seek(skip)
    try:
        while block := file.read(BLOCK):
            decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _non_ascii_lines(file: BinaryIO) -> bytes:
    """Return lines of a file that are not ASCII, enough of them to guess by."""
    file.seek(0)
    lines = b""
    while len(lines) < 65_536 and (line := file.readline(4096)):
        lines += line if not line.isascii() else b""
    return lines


def _warn_if_replaced(builder: ExtractionBuilder, text: str, encoding: str) -> str:
    if "\ufffd" in text:
        builder.warn("characters_replaced", encoding)
    return text


def read_text(builder: ExtractionBuilder, declared: str | None = None) -> str:
    """Return the whole text of a file, within the limit."""
    pieces: list[str] = []
    length = 0
    for block in read_blocks(builder, declared):
        length += len(block)
        builder.meter.check_text(length)
        pieces.append(block)
    return "".join(pieces).replace("\r\n", "\n").replace("\r", "\n")
