"""About how many pages has a file? Estimated from its bytes as they pass by, without any parser.

Laws:
- A PDF has as many pages as page objects can be seen in it. Where none can (they may be packed), and for everything else, it
  is a page for every 50,000 bytes.
- At least 1, at most 10,000: what a document may cost.
"""

from __future__ import annotations

import re

PAGE_BYTES = 50_000
PAGES_MAX = 10_000
_PAGE = re.compile(rb"/Type[\0\t\n\f\r ]{0,16}/Page(?![0-9A-Za-z])")
_LENGTH_MAX = 32  # of what is looked for, and a byte more


class PagesSeen:
    """Counts what passes by."""

    def __init__(self) -> None:
        self._is_pdf: bool | None = None
        self._rest = b""
        self._pages = self._size = 0

    def add(self, piece: bytes) -> None:
        """The next bytes of the file."""
        self._size += len(piece)
        if self._is_pdf is False:
            return
        seen = self._rest + piece
        if self._is_pdf is None:
            if len(seen) < 1024:  # too little to know yet
                self._rest = seen
                return
            self._is_pdf = b"%PDF-" in seen[:1024]
        if self._is_pdf:
            self._count(seen, len(seen) - 1)

    def pages(self) -> int:
        """The estimate, when all has passed by."""
        if self._is_pdf or (self._is_pdf is None and b"%PDF-" in self._rest):
            self._count(self._rest, len(self._rest))
        return min(PAGES_MAX, max(1, self._pages or -(-self._size // PAGE_BYTES)))

    def _count(self, seen: bytes, end_max: int) -> None:
        """Count what ends before that; the rest is looked at again together with what follows."""
        last = 0
        for found in _PAGE.finditer(seen):
            if found.end() <= end_max:
                self._pages += 1
                last = found.end()
        self._rest = seen[max(last, len(seen) - _LENGTH_MAX) :]
