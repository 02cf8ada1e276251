"""A page estimate for a file, from its bytes as they stream by, without a parser.

Laws:
- A PDF has as many pages as page objects are visible in it. Where none is (they may be compressed), and for every other
  format, it is one page for every 50,000 bytes.
- At least 1, at most 10,000: the highest cost of a document.
"""

from __future__ import annotations

import re

PAGE_BYTES = 50_000
PAGES_MAX = 10_000
_PAGE = re.compile(rb"/Type[\0\t\n\f\r ]{0,16}/Page(?![0-9A-Za-z])")
_MATCH_BYTES_MAX = 32  # the longest match, and the byte after it


class PageCounter:
    """Counts the pages of one file."""

    def __init__(self) -> None:
        self._is_pdf: bool | None = None
        self._rest = b""
        self._pages = self._size = 0

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the file."""
        self._size += len(piece)
        if self._is_pdf is False:
            return
        buffer = self._rest + piece
        if self._is_pdf is None:
            if len(buffer) < 1024:  # too little to recognise a PDF
                self._rest = buffer
                return
            self._is_pdf = b"%PDF-" in buffer[:1024]
        if self._is_pdf:
            self._count(buffer, len(buffer) - 1)

    def pages(self) -> int:
        """Return the estimate, once the whole file was fed."""
        if self._is_pdf or (self._is_pdf is None and b"%PDF-" in self._rest):
            self._count(self._rest, len(self._rest))
        return min(PAGES_MAX, max(1, self._pages or -(-self._size // PAGE_BYTES)))

    def _count(self, buffer: bytes, end_max: int) -> None:
        """Count matches that end by `end_max`; keep the tail, in which a match may begin."""
        last = 0
        for match in _PAGE.finditer(buffer):
            if match.end() <= end_max:
                self._pages += 1
                last = match.end()
        self._rest = buffer[max(last, len(buffer) - _MATCH_BYTES_MAX) :]
