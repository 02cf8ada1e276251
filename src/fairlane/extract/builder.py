"""ExtractionBuilder: one file being read, and the result as far as it is known.

Extractors write into the builder as they read, and its meter counts. It upholds the laws of a result: clean text, contiguous
pages, each warning once.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

from .failure import Unreadable, one_line
from .limits import Limits, Meter
from .member_store import MemberStore
from .result import Extraction, ExtractionWarning, Member, Page, Unit, WarningCode

# Not allowed in text: control characters, lone surrogates, and the two non-characters that some files are full of.
_UNCLEAN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")
_CONTROL_BYTES = [bytes([code]) for code in (*range(0x09), *range(0x0B, 0x20), 0x7F)]
_CONTROL_PAIR = re.compile(b"\xc2[\x80-\x9f]")  # U+0080 to U+009F
_NO_CHARACTER = re.compile(b"\xef\xbf[\xbe\xbf]")  # U+FFFE and U+FFFF
FACT_MAX = 500
CHARACTER_BYTES_MAX = 4
BLOCK = 65_536


def clean(text: str) -> str:
    """Remove what cannot be stored or sent everywhere; clean text is returned as it is, without a copy."""
    if _UNCLEAN.search(text) is None:
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x0c", "\n").replace("\x0b", "\n").replace("\x85", "\n")
    text = _CONTROL.sub("", text)
    # A surrogate pair becomes its character, a lone surrogate a replacement mark.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def is_clean(content: bytes) -> bool:
    """Return whether `clean` would leave this UTF-8 text as it is; for long texts many times faster than `clean` itself."""
    return not (
        any(byte in content for byte in _CONTROL_BYTES)  # a search for one byte runs at memory speed
        or (b"\xc2" in content and _CONTROL_PAIR.search(content))
        or (b"\xef" in content and _NO_CHARACTER.search(content))
    )


class ExtractionBuilder:
    """One file being read, with its limits, and the result so far."""

    def __init__(self, path: Path, name: str, member_store: MemberStore | None, limits: Limits, depth: int = 0) -> None:
        self.path, self.name, self.member_store, self.depth = path, name, member_store, depth
        self.limits = limits
        self.meter = Meter(limits)
        self.media_type = "application/octet-stream"
        self.unit: Unit = "page"
        self.title: str | None = None
        self.author: str | None = None
        self.created: str | None = None
        self.modified: str | None = None
        self.dimensions: tuple[int, int] | None = None
        self.picture: Callable[[], bytes | None] | None = None  # draws the thumbnail, if the format can
        self.members: list[Member] = []
        self._text = io.BytesIO()  # UTF-8: half the memory of a str, and the form of the result
        self._pieces: list[str] = []  # written, but not in `_text` yet
        self._pieces_length = self._length = 0
        self._is_blank = True
        self._pages: list[tuple[str, int]] = []
        self._warnings: dict[WarningCode, ExtractionWarning] = {}
        self._confidences: dict[int, tuple[int, float]] = {}  # of pages that OCR has read: their letters, and how sure it is

    # -- text and pages

    @property
    def only_lists_pages(self) -> bool:
        """Whether pages are listed and not read, for those who will read them in slices."""
        return self.limits.pages == (0, 0)

    def pages_to_read(self, count: int) -> range:
        """Return which of so many pages are read: all, or those of a slice."""
        first, end = self.limits.pages or (0, count)
        return range(min(first, count), min(end, count))

    @property
    def length(self) -> int:
        return self._length

    @property
    def is_page_blank(self) -> bool:
        """Whether this page is still empty."""
        return self._length == (self._pages[-1][1] if self._pages else 0)

    def write(self, text: str) -> None:
        """Add text to the current page."""
        text = clean(text)
        self.meter.count_text(len(text))
        self._pieces.append(text)
        self._pieces_length += len(text)
        self._length += len(text)
        if self._pieces_length >= BLOCK:
            self._pack()

    def _pack(self) -> None:
        """Join the pieces into the buffer: many small strings take several times the memory of their text."""
        block = "".join(self._pieces)
        self._is_blank = self._is_blank and (not block or block.isspace())
        self._text.write(block.encode())
        self._pieces.clear()
        self._pieces_length = 0

    def new_page(self, label: str = "") -> None:
        """Begin a page, even after an empty one."""
        self.meter.count_page()
        if self._length and not self.is_page_blank:
            self.write("\n\n")
        self._pages.append((one_line(label, FACT_MAX), self._length))

    def break_page(self) -> None:
        """Begin a page unless this one is empty."""
        if not self._pages:
            self._pages.append(("", 0))
            self.meter.count_page()
        if not self.is_page_blank:
            self.new_page()

    # -- facts

    def warn(self, code: WarningCode, detail: str = "") -> None:
        """Add a warning, once; its first detail is kept."""
        self._warnings.setdefault(code, ExtractionWarning(code, one_line(detail, FACT_MAX)))

    def note_confidence(self, number: int, letters: int, confidence: float) -> None:
        """Keep how sure OCR is of a page, counted from 0."""
        self._confidences[number] = letters, confidence

    def _confidence(self, numbers: Iterable[int]) -> float | None:
        """Return how sure OCR is of these pages; None if it has read none of them."""
        read = [self._confidences[number] for number in numbers if number in self._confidences]
        letters = sum(letters for letters, _ in read)
        return round(sum(letters * confidence for letters, confidence in read) / letters, 2) if letters else None

    def fact(self, name: str, value: str | None) -> None:
        """Set title, author, created or modified; the first non-empty value stays."""
        shown = one_line(clean(value or ""), FACT_MAX)
        if name in ("created", "modified"):
            shown = iso_datetime(shown) or ""
        if shown and getattr(self, name) is None:
            setattr(self, name, shown)

    def finish(self, size: int, sha256: str, language: str | None, thumbnail: bytes | None) -> Extraction:
        """Return the result; nothing may be added afterwards."""
        self._pack()
        if self._is_blank and not self.members:
            self.warn("no_text")
        starts = self._pages or [("", 0)]
        ends = [start for _, start in starts[1:]] + [self._length]
        width, height = self.dimensions or (None, None)
        first, _ = self.limits.pages or (0, 0)
        return Extraction(
            media_type=self.media_type,
            size=size,
            sha256=sha256,
            text_bytes=self._text.getvalue(),
            unit=self.unit,
            pages=tuple(
                Page(label, start, end, self._confidence([number]))
                for number, ((label, start), end) in enumerate(zip(starts, ends, strict=True), start=first)
            ),
            title=self.title,
            author=self.author,
            created=self.created,
            modified=self.modified,
            language=language,
            width=width,
            height=height,
            ocr_confidence=self._confidence(self._confidences),
            thumbnail=thumbnail,
            warnings=tuple(self._warnings.values()),
            members=tuple(self.members),
        )

    def sample(self, length: int) -> str:
        """Return the first `length` characters of the text."""
        self._pack()
        with self._text.getbuffer() as text:
            return bytes(text[: length * CHARACTER_BYTES_MAX]).decode(errors="ignore")[:length]


def iso_datetime(text: str) -> str | None:
    """Return a date or time in its normal ISO 8601 form, or None: files put anything there."""
    try:
        return datetime.fromisoformat(text.strip()).isoformat()
    except ValueError:
        return None


def check_size(path: Path, limits: Limits) -> int:
    """Return the size of a file; refuse an empty or too large one."""
    size = path.stat().st_size
    if size == 0:
        raise Unreadable("empty", "the file has no bytes")
    if size > limits.size_max:
        raise Unreadable("too_large", f"the file has {size:,} bytes; {limits.size_max:,} are allowed")
    return size


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, read in blocks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
