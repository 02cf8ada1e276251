"""In which encoding is a text, and what does it say?

In this order: a byte order mark; UTF-16 or 32 without one, told by where the zeros are; what the document declares; UTF-8, if
all of it is; then the old encodings of our five languages, judged by which of them turns the bytes into letters that those
languages use; and for everything else charset-normalizer.

Laws:
- Text is decoded in blocks and counted, so a large file costs its limit and no more.
- A guess is told as a warning, and so is every byte that could not be read.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from .draft import BLOCK, Draft

MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
NOT_TEXT = ("idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "mbcs", "oem")
SAMPLE = 262_144
OLD = ("cp1252", "cp1250", "iso8859_2")
# The letters beyond ASCII of each language; German before the others shares its letters with many.
LETTERS = {
    "pl": set("ąćęłńóśźżĄĆĘŁŃÓŚŹŻ"),
    "pt": set("ãõçáéíóúâêôàÃÕÇÁÉÍÓÚÂÊÔÀ"),
    "es": set("ñáéíóúüÑÁÉÍÓÚÜ¿¡"),
    "de": set("äöüßÄÖÜ"),
}
SIGNS = set("€§°±–—…„”“’‘«»•©®™ªº·\xa0\xad²³½")
_WORD_WITH_SIGN_INSIDE = re.compile(r"[^\W\d_][¡-¿×÷‚-™•]+[^\W\d_]")
_UPPER_INSIDE = re.compile(r"[a-ząćęłńóśźżäöüßãõçáéíóúâêôàñ][ĄĆĘŁŃÓŚŹŻÄÖÜÃÕÇÁÉÍÓÚÂÊÔÀÑ](?:[a-z]|\b)")


def marked(start: bytes) -> tuple[str, int] | None:
    """The encoding that a byte order mark tells, and how long the mark is."""
    for mark, encoding in MARKS:
        if start.startswith(mark):
            return encoding, len(mark)
    return None


def wide(start: bytes) -> str | None:
    """UTF-16 or 32 without a mark: most Latin letters have zeros at the same places."""
    start = start[: len(start) // 4 * 4][:4096]
    if len(start) < 4 or 0 not in start:
        return None
    count = len(start) // 4
    zeros = [start[place::4].count(0) / count for place in range(4)]
    for encoding, filled, empty in (
        ("utf-32-le", (0,), (2, 3)),
        ("utf-32-be", (3,), (0, 1)),
        ("utf-16-le", (0, 2), (1, 3)),
        ("utf-16-be", (1, 3), (0, 2)),
    ):
        if all(zeros[place] > 0.6 for place in empty) and all(zeros[place] < 0.1 for place in filled):
            return encoding
    return None


def known(name: str) -> str | None:
    """The name of an encoding as Python has it, if it is one of text that we may use."""
    name = name.strip(" \t\r\n\"'").lower()
    if not re.fullmatch(r"[a-z0-9_.:\-]{2,40}", name):
        return None
    if name in ("iso-8859-1", "latin1", "latin-1", "us-ascii", "ascii"):
        return "cp1252"  # what everybody means by it
    try:
        found = codecs.lookup(name)
    except LookupError:
        return None
    is_text = getattr(found, "_is_text_encoding", True) and found.name.replace("_", "-") not in NOT_TEXT
    return found.name if is_text else None


def judge(sample: bytes) -> str:
    """The encoding of a text that is not UTF-8."""
    scores = {encoding: _score(sample, encoding) for encoding in OLD}
    best = max(OLD, key=lambda encoding: scores[encoding])
    if scores[best] > 0:
        return best
    from charset_normalizer import from_bytes

    found = from_bytes(sample[:65_536], steps=5, chunk_size=512).best()
    return known(found.encoding) or "cp1252" if found is not None else "cp1252"


def _score(sample: bytes, encoding: str) -> float:
    """How much these bytes look like one of our languages in this encoding, from the letters beyond ASCII."""
    text = sample.decode(encoding, "replace")
    high = [letter for letter in text if letter >= "\x80"]
    if not high:
        return 0.0
    used = max(sum(letter in letters for letter in high) for letters in LETTERS.values())
    signs = sum(letter in SIGNS for letter in high)
    odd = len(_WORD_WITH_SIGN_INSIDE.findall(text)) + len(_UPPER_INSIDE.findall(text))
    odd += sum(letter == "\ufffd" or "\x80" <= letter <= "\x9f" for letter in high) * 2
    return (used + signs * 0.5 - odd * 1.5) / len(high) - 0.5


def pick(start: bytes, declared: str | None = None) -> tuple[str, int, bool]:
    """The encoding of a text that begins like this, how many bytes of it are a mark, and whether it is a guess."""
    if (mark := marked(start)) is not None:
        return (*mark, False)
    if (encoding := wide(start)) is not None:
        return encoding, 0, False
    if is_utf8(start):
        return "utf-8", 0, False
    if declared is not None and (encoding := known(declared)) is not None and not encoding.startswith(("utf-8", "utf_8")):
        return encoding, 0, False
    if _is_nearly_utf8(start):
        return "utf-8", 0, False
    return judge(start), 0, True


def is_utf8(sample: bytes) -> bool:
    """Whether a beginning is UTF-8, though it may be cut in the middle of a letter."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample, final=False)
    except UnicodeDecodeError:
        return False
    return True


def _is_nearly_utf8(sample: bytes) -> bool:
    """UTF-8 with a few bytes damaged: far more letters of several bytes than bytes that fit nowhere."""
    text = sample.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    return broken * 10 < sum(letter >= "\x80" for letter in text) - broken


def decode(content: bytes, declared: str | None = None) -> str:
    """A short text, decoded; for headers and parts of messages."""
    encoding, skip, _ = pick(content[:SAMPLE], declared)
    return content[skip:].decode(encoding, "replace")


def read_blocks(draft: Draft, declared: str | None = None, path: Path | None = None) -> Iterator[str]:
    """The text of a file, block by block."""
    with (path or draft.path).open("rb") as file:
        encoding, skip, is_guess = pick(file.read(SAMPLE), declared)
        if encoding == "utf-8" and not _all_utf8(file, skip):
            file.seek(0)
            encoding, is_guess = ("utf-8", False) if _is_nearly_utf8(file.read(SAMPLE)) else (judge(_high(file)), True)
        if is_guess:
            draft.warn("encoding_guessed", encoding)
        file.seek(skip)
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        while block := file.read(BLOCK):
            draft.meter.tick()
            yield _told(draft, decoder.decode(block), encoding)
        yield _told(draft, decoder.decode(b"", final=True), encoding)


def _all_utf8(file: BinaryIO, skip: int) -> bool:
    """Whether the whole file is UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    file.seek(skip)
    try:
        while block := file.read(BLOCK):
            decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _high(file: BinaryIO) -> bytes:
    """The lines of a file that are not ASCII, as many as are needed to judge."""
    file.seek(0)
    found = b""
    while len(found) < 65_536 and (line := file.readline(4096)):
        found += line if not line.isascii() else b""
    return found


def _told(draft: Draft, text: str, encoding: str) -> str:
    if "\ufffd" in text:
        draft.warn("characters_replaced", encoding)
    return text


def read_text(draft: Draft, declared: str | None = None) -> str:
    """The whole text of a file, as long as it may be."""
    pieces: list[str] = []
    length = 0
    for block in read_blocks(draft, declared):
        length += len(block)
        draft.meter.hold(length)
        pieces.append(block)
    return "".join(pieces).replace("\r\n", "\n").replace("\r", "\n")
