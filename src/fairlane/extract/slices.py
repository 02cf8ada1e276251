"""Slices: a long PDF or TIFF is read in slices of some pages, each a part of its document, and joined in order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fairlane.core.document import PARTS_MAX
from fairlane.worker import Document, Split

from . import Extraction, ExtractionWarning, Limits, Page, Unreadable
from .custom_reader import LANGUAGE_SAMPLE
from .language import guess

SLICED = ("application/pdf", "image/tiff")  # the types of which a slice can be read
SEPARATOR = "\n\n"  # between pages, as the builder of an extraction writes it


def split_pages(count: int, size: int, payload: Mapping[str, Any] | None = None) -> Split:
    """Return the slices of so many pages, each with this payload: of that size, or larger if there would be too many."""
    size = max(size, -(-count // PARTS_MAX))
    slices = [(first, min(first + size, count)) for first in range(0, count, size)]
    return Split([{**(payload or {}), "pages": pages} for pages in slices], costs=[end - first for first, end in slices])


def slice_of(document: Document) -> tuple[int, int]:
    """Return the pages that a part is to read."""
    first, end = document.payload["pages"]
    return int(first), int(end)


def join_slices(document: Document, limits: Limits) -> Extraction:
    """Return the extraction of a document of which all slices are read."""
    texts, pages, warnings, length = list[bytes](), list[Page](), dict[str, ExtractionWarning](), 0
    facts: dict[str, Any] = {}
    for number, (text, own) in enumerate(_read_slices(document)):
        characters = text.decode()
        if length and characters:
            texts.append(SEPARATOR.encode())
            length += len(SEPARATOR)
            pages[-1] = pages[-1]._replace(end=length)
        pages += [Page(**page | {"start": length + page["start"], "end": length + page["end"]}) for page in own["pages"]]
        texts.append(text)
        length += len(characters)
        if length > limits.text_max:
            raise Unreadable("too_large", f"has more than {limits.text_max:,} characters of text")
        for warning in own["warnings"]:
            warnings.setdefault(warning["code"], ExtractionWarning(**warning))
        facts = own if number == 0 else facts
    content = b"".join(texts)
    if content.strip():
        warnings.pop("no_text", None)
    sample = content[: 4 * LANGUAGE_SAMPLE].decode(errors="ignore")[:LANGUAGE_SAMPLE]
    kept = ("media_type", "size", "sha256", "unit", "title", "author", "created", "modified", "width", "height")
    return Extraction(
        text_bytes=content, pages=tuple(pages), language=guess(sample), thumbnail=_thumbnail(document),
        ocr_confidence=_confidence(pages), warnings=tuple(warnings.values()), **{name: facts[name] for name in kept},
    )  # fmt: skip


def _read_slices(document: Document) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield the text and the facts of each slice."""
    for number in range(1, len(document.parts or ()) + 1):
        with document.open_part(number, "text") as text, document.open_part(number, "facts") as facts:
            yield text.read(), json.loads(facts.read())


def _confidence(pages: Sequence[Page]) -> float | None:
    """Return how sure OCR is of all that it has read, longer pages counting more."""
    read = [(page.end - page.start, page.ocr_confidence) for page in pages if page.ocr_confidence is not None]
    length = sum(characters for characters, _ in read)
    return round(sum(characters * confidence for characters, confidence in read) / length, 2) if length else None


def _thumbnail(document: Document) -> bytes | None:
    """Return the thumbnail of the first page."""
    result = (document.parts or [{}])[0]
    if "thumbnail" not in result.get("fairlane.results", {}):
        return None
    with document.open_part(1, "thumbnail") as thumbnail:
        return thumbnail.read()
