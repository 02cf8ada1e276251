"""Strings of BIFF8 workbooks: a string may go on in the next records, there with letters of another width.

Laws:
- How many strings there are is what the records hold, not what they say.
- Formatting and phonetic readings are skipped.
"""

from __future__ import annotations

import struct

from .builder import ExtractionBuilder
from .failure import Unreadable

WIDE, PHONETIC, RICH = 1, 4, 8  # flags
COUNTS = 8  # bytes before the first shared string

Parts = list[tuple[int, int]]  # where a record and those that continue it begin and end


class _StringReader:
    """Reads strings out of a row of records."""

    def __init__(self, content: bytes, parts: Parts) -> None:
        self._content, self._parts = content, parts
        self._part = 0
        self._position, self._end = parts[0]

    @property
    def is_over(self) -> bool:
        return self._position >= self._end and not self._next_part()

    def _next_part(self) -> bool:
        """Go on to the next record that has something; the last one stays."""
        while self._part + 1 < len(self._parts):
            self._part += 1
            self._position, self._end = self._parts[self._part]
            if self._position < self._end:
                return True
        return False

    def skip(self, count: int) -> None:
        """Skip bytes, over records."""
        while count > self._end - self._position:
            count -= self._end - self._position
            self._position = self._end
            if not self._next_part():
                return
        self._position += count

    def string(self, is_short: bool = False) -> str:
        """Return the next string; `struct.error` if there is none."""
        content = self._content
        length, flags = struct.unpack_from("<2B" if is_short else "<HB", content, self._position)
        self._position += 2 if is_short else 3
        to_skip = 0
        if flags & RICH:
            to_skip = struct.unpack_from("<H", content, self._position)[0] * 4
            self._position += 2
        if flags & PHONETIC:
            to_skip += struct.unpack_from("<L", content, self._position)[0]
            self._position += 4
        text = self._letters(length, bool(flags & WIDE))
        if to_skip:
            self.skip(to_skip)
        return text

    def _letters(self, length: int, is_wide: bool) -> str:
        pieces: list[str] = []
        while True:
            here = min(length, max(0, self._end - self._position) >> is_wide)
            stop = self._position + (here << is_wide)
            letters = self._content[self._position : stop]  # half a pair may end a record; the writer joins them
            pieces.append(letters.decode("utf-16-le", "surrogatepass") if is_wide else letters.decode("latin-1"))
            self._position = stop
            length -= here
            if not length or not self._next_part():
                return pieces[0] if len(pieces) == 1 else "".join(pieces)
            is_wide = bool(self._content[self._position] & WIDE)
            self._position += 1


def read_string(content: bytes, parts: Parts, is_short: bool = False) -> str:
    """Return the one string in a record and those that continue it."""
    return _StringReader(content, parts).string(is_short)


def read_shared_strings(builder: ExtractionBuilder, content: bytes, parts: Parts) -> list[str]:
    """Return the strings that all sheets share."""
    reader = _StringReader(content, parts)
    reader.skip(COUNTS)
    strings: list[str] = []
    length = 0
    while not reader.is_over:
        try:
            text = reader.string()
        except struct.error:
            builder.warn("damaged_parts", "shared strings")
            break
        length += len(text) + 1
        builder.meter.check_text(length)
        strings.append(text)
        if len(strings) > builder.limits.cells_max:
            raise Unreadable("too_large", f"has more than {builder.limits.cells_max:,} shared strings")
    return strings
