"""The text of a Word document of before 2007: pieces anywhere in the file, in the order of a table.

Laws:
- A position counts letters as UTF-16 does, so that a letter beyond the first 65,536 has two, here and in every table.
- The letters of all pieces are counted before any are decoded: pieces may overlap.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from typing import NamedTuple

from .builder import ExtractionBuilder
from .failure import Unreadable

GRPPRL, PIECES = 1, 2  # kinds of entries before the table, and the table
COMPRESSED = 0x40000000
PIECE = struct.Struct("<2xLH")
# Sprms that a piece has in short, by their number there.
SHORT_SPRMS = {0x18: 0x2416, 0x19: 0x2417, 0x41: 0x0800}


class TextPiece(NamedTuple):
    """A run of letters in the file."""

    start: int  # position
    offset: int  # in the stream
    width: int  # bytes a letter
    sprms: bytes  # what the piece changes


class DocText:
    """The text, by position."""

    def __init__(self, builder: ExtractionBuilder, stream: bytes, table: bytes) -> None:
        self._builder, self._stream = builder, stream
        self._starts: list[int] = []
        self._pieces: list[TextPiece] = []
        self._changes: list[bytes] = []
        letters: list[str] = []
        try:
            for piece, end in self._read_pieces(self._find_pieces(table)):
                self._starts.append(piece.start)
                self._pieces.append(piece)
                letters.append(self._decode(piece, end - piece.start))
        except struct.error as error:
            raise Unreadable("corrupt", f"the table of pieces: {error}") from error
        self.letters = "".join(letters)

    def _find_pieces(self, table: bytes) -> bytes:
        """Return the table of pieces, which follows changes that they refer to."""
        position = 0
        while position < len(table):
            kind = table[position]
            if kind == PIECES:
                (length,) = struct.unpack_from("<L", table, position + 1)
                return table[position + 5 : position + 5 + length]
            if kind != GRPPRL:
                break
            (length,) = struct.unpack_from("<H", table, position + 1)
            self._changes.append(table[position + 3 : position + 3 + length])
            position += 3 + length
        raise Unreadable("corrupt", "a document without its table of pieces")

    def _read_pieces(self, table: bytes) -> list[tuple[TextPiece, int]]:
        count = max(0, len(table) - 4) // 12
        ends = struct.unpack_from(f"<{count + 1}L", table)
        pieces: list[tuple[TextPiece, int]] = []
        for number in range(count):
            start, end = ends[number], ends[number + 1]
            if end < start or start != (pieces[-1][1] if pieces else 0):
                raise Unreadable("corrupt", "pieces that are not in order")
            self._builder.meter.check_text(end)
            offset, change = PIECE.unpack_from(table, (count + 1) * 4 + number * 8)
            width = 2
            if offset & COMPRESSED:
                offset, width = (offset & ~COMPRESSED) // 2, 1
            available = max(0, len(self._stream) - offset) // width
            if end - start > available:  # cut off
                self._builder.warn("damaged_parts", "text is missing")
                end = start + available
            pieces.append((TextPiece(start, offset, width, self._change(change)), end))
            if end != ends[number + 1]:
                break
        return pieces

    def _change(self, change: int) -> bytes:
        if change & 1:
            index = change >> 1
            return self._changes[index] if index < len(self._changes) else b""
        sprm = SHORT_SPRMS.get(change >> 1 & 0x7F)
        return struct.pack("<HB", sprm, change >> 8) if sprm is not None else b""

    def _decode(self, piece: TextPiece, length: int) -> str:
        content = self._stream[piece.offset : piece.offset + length * piece.width]
        if piece.width == 1:
            return content.decode("cp1252", "replace")
        try:
            text = content.decode("utf-16-le")
        except UnicodeDecodeError:
            text = ""
        if len(text) != length:  # a letter for each half of a pair
            text = "".join(map(chr, array("H", content)))
        return text

    def locate(self, position: int) -> tuple[TextPiece, int]:
        """Return the piece of a position, and its offset in the stream."""
        piece = self._pieces[max(0, bisect_right(self._starts, position) - 1)]
        return piece, piece.offset + (position - piece.start) * piece.width

    def piece_end(self, position: int) -> int:
        """Return where the piece of a position ends."""
        index = bisect_right(self._starts, position)
        return self._starts[index] if index < len(self._starts) else len(self.letters)
