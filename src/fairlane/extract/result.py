"""Extraction results.

Laws:
- Text is valid Unicode without control characters other than tab and new line, so it can be stored and sent anywhere.
- Names, titles and authors are data from the file: shown, never used as a path.
- Page offsets count characters of `text`; pages are contiguous and cover it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, get_args

WarningCode = Literal[
    "wrong_name",
    "encoding_guessed",
    "characters_replaced",
    "letters_unknown",
    "no_text",
    "damaged_parts",
    "references_ignored",
    "macros_ignored",
    "attachments_ignored",
    "members_skipped",
    "ocr_missing",
    "ocr_language_missing",
    "ocr_failed",
    "ocr_pages_skipped",
    "ocr_used",
    "ocr_unsure",
    "text_garbled",
]
WARNING_CODES: tuple[WarningCode, ...] = get_args(WarningCode)
Unit = Literal["page", "sheet", "slide"]


class ExtractionWarning(NamedTuple):
    """Something that a reader of the text should know."""

    code: WarningCode
    detail: str = ""


class Page(NamedTuple):
    """A page, slide or sheet: `text[start:end]`, and how sure OCR is of it (0 to 1) if it has read it."""

    label: str
    start: int
    end: int
    ocr_confidence: float | None = None


class Member(NamedTuple):
    """A file inside the file: its name in the archive, and the path of its bytes."""

    name: str
    size: int
    path: Path


@dataclass(frozen=True)
class Extraction:
    """The type, text and facts of a file."""

    media_type: str
    size: int
    sha256: str
    text_bytes: bytes  # UTF-8
    unit: Unit
    pages: tuple[Page, ...]
    title: str | None = None
    author: str | None = None
    created: str | None = None  # ISO 8601
    modified: str | None = None
    language: str | None = None
    width: int | None = None  # pixels, of an upright image
    height: int | None = None
    ocr_confidence: float | None = None  # 0 to 1, of all that OCR has read
    thumbnail: bytes | None = None  # PNG
    warnings: tuple[ExtractionWarning, ...] = ()
    members: tuple[Member, ...] = ()

    @cached_property
    def text(self) -> str:
        """The text, as Markdown."""
        return self.text_bytes.decode()

    def text_of(self, number: int) -> str:
        """Return the text of a page, counted from 0."""
        page = self.pages[number]
        return self.text[page.start : page.end]

    def facts(self) -> dict[str, object]:
        """Return everything but the text and the thumbnail, as JSON values."""
        return {
            "media_type": self.media_type,
            "size": self.size,
            "sha256": self.sha256,
            "unit": self.unit,
            "pages": [page._asdict() for page in self.pages],
            "title": self.title,
            "author": self.author,
            "created": self.created,
            "modified": self.modified,
            "language": self.language,
            "width": self.width,
            "height": self.height,
            "ocr_confidence": self.ocr_confidence,
            "warnings": [warning._asdict() for warning in self.warnings],
            "members": [{"name": name, "size": size, "path": path.name} for name, size, path in self.members],
        }
