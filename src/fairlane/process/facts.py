"""What can be said of any file without understanding it? Size, SHA-256, media type, and for text its lines and words.

Laws:
- A file is read once, in pieces: memory does not grow with it.
- Text is UTF-8, UTF-16 or UTF-32 with a byte order mark, or bytes without control characters (then `unknown-8bit`).
"""

from __future__ import annotations

import codecs
import hashlib
import io
import os
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from fairlane.blob.ordinary import open_ordinary
from fairlane.core.errors import BadValue

from .media import is_textual, media_type

PIECE_BYTES = 256 * 1024
END_BYTES = 64 * 1024  # of both ends of a file: enough to know what is in a ZIP

_MARKS = ((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"),
          (codecs.BOM_UTF16_BE, "utf-16"), (codecs.BOM_UTF8, "utf-8-sig"))  # fmt: skip
_TEXT_BYTES = bytes({*range(32, 256), *b"\t\n\r\f\v\b\x1b"} - {127})


class Facts(NamedTuple):
    """What is known of a file; `encoding`, `lines` and `words` are None for what is not text."""

    size: int
    sha256: str
    media_type: str
    encoding: str | None
    lines: int | None
    words: int | None

    def told(self) -> dict[str, Any]:
        """What is known, as the result of a document."""
        return {name: value for name, value in self._asdict().items() if value is not None}


def facts_of_document(payload: Any) -> dict[str, Any]:
    """The built-in handler: the facts of the file that a document names, as its result."""
    if not isinstance(payload, dict) or not isinstance(payload.get("path"), str):
        raise BadValue("payload", payload, 'an object with the path of a file, as in {"path": "/folder/invoice.pdf"}')
    return facts(payload["path"]).told()


def facts(path: str) -> Facts:
    """Everything this module knows about one file."""
    with open_ordinary(path) as file:
        return facts_of(file, os.path.basename(path))


def facts_of(file: BinaryIO, name: str) -> Facts:
    """The same of a file that is open."""
    digest, words, ends, size = hashlib.sha256(), _Words(), _Ends(), 0
    for piece in _pieces(file):
        size += len(piece)
        digest.update(piece)
        ends.add(piece)
        words.add(piece)
    words.finish()
    kind = media_type(name, ends.head, ends.tail, words.is_text)
    if not (words.is_text and is_textual(kind)):  # a PDF may be made of printable bytes, and its lines mean nothing
        return Facts(size, digest.hexdigest(), kind, None, None, None)
    return Facts(size, digest.hexdigest(), kind, words.encoding, words.lines, words.words)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE_BYTES):
        yield piece


class _Ends:
    """The first and the last bytes of what passes by."""

    def __init__(self) -> None:
        self.head = self.tail = b""

    def add(self, piece: bytes) -> None:
        if len(self.head) < END_BYTES:
            self.head += piece[: END_BYTES - len(self.head)]
        self.tail = (self.tail + piece[-END_BYTES:])[-END_BYTES:]


class _Words:
    """Counts lines and words of what passes by, for as long as it is text."""

    def __init__(self) -> None:
        self.is_text = True
        self.encoding = "utf-8"
        self.lines = self.words = 0
        self._decoder: io.IncrementalNewlineDecoder | None = None
        self._wide = False  # two or four bytes a character, where any byte may appear
        self._last = "\n"  # the last character so far

    def add(self, piece: bytes) -> None:
        if not self.is_text:
            return
        if self._decoder is None:
            self._start(piece)
        if not self._wide and piece.translate(None, _TEXT_BYTES):
            self.is_text = False
        else:
            self._count(self._decoded(piece))

    def finish(self) -> None:
        """What was held back at the end: half a character, or a carriage return that might have been half a line end."""
        if self.is_text and self._decoder is not None:
            self._count(self._decoded(b"", final=True))
        self.lines += self._last != "\n"  # the last line need not end with a line end

    def _start(self, piece: bytes) -> None:
        self.encoding = next((name for mark, name in _MARKS if piece.startswith(mark)), "utf-8")
        self._wide = self.encoding in ("utf-16", "utf-32")
        self._decode_as(self.encoding)
        self.encoding = self.encoding.removesuffix("-sig")

    def _decode_as(self, encoding: str) -> None:
        self._inner = codecs.getincrementaldecoder(encoding)()
        self._decoder = io.IncrementalNewlineDecoder(self._inner, translate=True)

    def _decoded(self, piece: bytes, final: bool = False) -> str:
        assert self._decoder is not None
        held = self._inner.getstate()[0]
        try:
            return self._decoder.decode(piece, final)
        except UnicodeDecodeError:
            if self._wide:
                self.is_text = False
                return ""
            self.encoding = "unknown-8bit"  # as far as it was read the counts are the same
            self._decode_as("latin-1")
            return self._decoder.decode(held + piece, final)

    def _count(self, text: str) -> None:
        if not text:
            return
        self.lines += text.count("\n")
        self.words += len(text.split())
        if not self._last.isspace() and not text[0].isspace():
            self.words -= 1  # one word in two pieces
        self._last = text[-1]
