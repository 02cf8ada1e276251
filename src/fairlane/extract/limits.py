"""Limits of one file, and the meter that enforces them.

Laws:
- Everything that a file can make grow is counted while it grows, never after.
- Exceeding a limit ends the extraction with its code; nothing is cut off silently.
- The resource limits of the process (memory, CPU, files) back these up: a meter cannot stop a parser within a call.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from fairlane.core.errors import BadValue

from .failure import Unreadable

LANGUAGES_MAX = 10  # of OCR: each takes time
_LANGUAGE = re.compile(r"[a-z]{3}(?:_[a-z0-9_]{1,20})?")


@dataclass(frozen=True)
class Limits:
    """The most that one file may contain or use."""

    size_max: int = 100_000_000  # bytes of the file itself
    unpacked_max: int = 500_000_000  # bytes that come out of it: parts, members, streams
    text_max: int = 20_000_000  # characters of Markdown
    pages_max: int = 2_000  # pages, slides or sheets
    cells_max: int = 1_000_000  # cells of tables
    members_max: int = 1_000  # files in an archive or an e-mail
    parts_max: int = 10_000  # files inside an office document
    depth_max: int = 3  # archives in archives
    nesting_max: int = 256  # elements in elements, groups in groups
    attributes_max: int = 1_000  # of one XML element
    token_max: int = 8_000_000  # bytes of one tag, comment or value in XML
    pixels_max: int = 50_000_000  # of one image or drawn page
    seconds_max: float = 60.0  # in all, OCR included
    thumbnail_side: int = 256  # pixels, the longer side
    ocr_languages: tuple[str, ...] = ("eng", "pol", "por", "spa", "deu")
    ocr_pages_max: int = 20  # further pages are left without text, with a warning
    ocr_page_seconds: float = 20.0  # for one page
    # Of a PDF or a TIFF only the pages from the first of these numbers on, up to the second; (0, 0): they are listed and not
    # read. None: all.
    pages: tuple[int, int] | None = None


def parse_languages(value: object, where: str) -> tuple[str, ...]:
    """Return the languages of OCR in a list, or in text as in `eng+ces`; a `BadValue` for what tesseract cannot name."""
    names = value.split("+") if isinstance(value, str) else value
    if not isinstance(names, list) or not 0 < len(names) <= LANGUAGES_MAX:
        raise BadValue(where, value, f'1 to {LANGUAGES_MAX} of tesseract\'s languages, such as "eng+ces"')
    for name in names:
        if not isinstance(name, str) or _LANGUAGE.fullmatch(name) is None:
            raise BadValue(
                where, name, "one of tesseract's languages, such as eng or chi_sim; `tesseract --list-langs` shows them"
            )
    return tuple(dict.fromkeys(names))


class Meter:
    """Counts what one file uses, and raises `Unreadable` when that exceeds a limit."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._ends_at = time.monotonic() + limits.seconds_max
        self._unpacked = self._text = self._pages = self._cells = 0

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._ends_at - time.monotonic())

    def check_time(self) -> None:
        """Raise when the time is over; call it wherever a file can cause a long loop."""
        if time.monotonic() > self._ends_at:
            raise Unreadable("timed_out", f"took longer than {self.limits.seconds_max:g} s")

    def count_unpacked(self, count: int) -> None:
        """Count bytes that were unpacked."""
        self._unpacked += count
        self.check_time()
        if self._unpacked > self.limits.unpacked_max:
            raise Unreadable("too_large", f"unpacks to more than {self.limits.unpacked_max:,} bytes")

    def count_text(self, count: int) -> None:
        """Count characters that were written."""
        self._text += count
        self.check_time()
        self.check_text(0)

    def check_text(self, count: int) -> None:
        """Check the text with this many characters that are in memory but not written yet."""
        if self._text + count > self.limits.text_max:
            raise Unreadable("too_large", f"has more than {self.limits.text_max:,} characters of text")

    def count_page(self) -> None:
        """Count one more page, slide or sheet."""
        self._pages += 1
        self.check_time()
        self.check_pages(self._pages)

    def check_pages(self, count: int) -> None:
        """Check the number of pages that the file declares."""
        if count > self.limits.pages_max:
            raise Unreadable("too_many_pages", f"has {count:,} pages or more; {self.limits.pages_max:,} are allowed")

    def count_cells(self, count: int = 1) -> None:
        """Count cells of a table."""
        self._cells += count
        if self._cells > self.limits.cells_max:
            raise Unreadable("too_large", f"has more than {self.limits.cells_max:,} cells")

    def check_nesting(self, depth: int) -> None:
        """Check the depth of nested elements or groups."""
        if depth > self.limits.nesting_max:
            raise Unreadable("too_large", f"is nested more than {self.limits.nesting_max} deep")

    def check_pixels(self, width: int, height: int) -> None:
        """Check the size of an image before it is decoded or drawn."""
        if width <= 0 or height <= 0:
            raise Unreadable("corrupt", f"an image of {width} by {height} pixels")
        if width * height > self.limits.pixels_max:
            raise Unreadable("too_large", f"an image of {width:,} by {height:,} pixels; allowed are {self.limits.pixels_max:,}")
