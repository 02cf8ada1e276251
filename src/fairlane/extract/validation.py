"""Validation of what the confined process sends back.

Laws:
- Nothing in the response is trusted: types, lengths, offsets and names are checked against the laws of a result, and a
  response that breaks one is `crashed`. Whether the text is what the file says cannot be checked.
"""

from __future__ import annotations

import codecs
import re
import struct
from pathlib import Path
from typing import Any, get_args

from fairlane.sandbox import Response

from .builder import BLOCK, FACT_MAX, is_clean, iso_datetime
from .failure import Unreadable
from .limits import Limits
from .member_store import member_name
from .members import NAME_MAX
from .messages import LANGUAGES
from .result import WARNING_CODES, Extraction, ExtractionWarning, Member, Page, Unit

THUMBNAIL_BYTES_MAX = 10_000_000
FACTS = frozenset(Extraction.__dataclass_fields__) - {"text_bytes", "thumbnail"}
_MEDIA_TYPE = re.compile(r"[a-z]+/[a-z0-9.+-]{1,100}")
_PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


class _InvalidResponse(Exception):
    """The response breaks a law of results."""


def validate_response(response: Response, size: int, sha256: str, row_size: int, scratch: Path, limits: Limits) -> Extraction:
    """Build a result from a response of the confined process; an `Unreadable` if it breaks a law of results.

    `size` and `sha256` are those of the file, `row_size` is that of the output file; members will be in `scratch`.
    """
    facts, (content, thumbnail) = response.value, response.parts
    try:
        if not isinstance(facts, dict) or facts.keys() != FACTS:
            raise _InvalidResponse("facts")
        length = _text_length(content, limits)
        return Extraction(
            media_type=_pattern(facts, "media_type", _MEDIA_TYPE),
            size=_choice(facts, "size", (size,)),
            sha256=_choice(facts, "sha256", (sha256,)),
            text_bytes=content,
            unit=_choice(facts, "unit", get_args(Unit)),
            pages=_pages(facts, length, limits),
            title=_line(facts, "title"),
            author=_line(facts, "author"),
            created=_datetime(facts, "created"),
            modified=_datetime(facts, "modified"),
            language=_choice(facts, "language", (None, *LANGUAGES)),
            width=_pixels(facts, "width", limits),
            height=_pixels(facts, "height", limits),
            ocr_confidence=_confidence(facts),
            thumbnail=_thumbnail(thumbnail, limits) if thumbnail else None,
            warnings=_warnings(facts),
            members=_members(facts, row_size, scratch, limits),
        )
    except _InvalidResponse as error:
        raise Unreadable("crashed", f"the confined process sent an invalid result: {error}") from error


# -- text, thumbnail and members


def _text_length(content: bytes, limits: Limits) -> int:
    """Count the characters of a text, block by block so that no copy is kept."""
    length, position, whole = 0, 0, memoryview(content)
    try:
        while position < len(content):
            is_last = position + BLOCK >= len(content)
            block, used = codecs.utf_8_decode(whole[position : position + BLOCK], "strict", is_last)
            length, position = length + len(block), position + used
    except UnicodeDecodeError as error:
        raise _InvalidResponse("text") from error
    if length > limits.text_max or not is_clean(content):
        raise _InvalidResponse("text")
    return length


def _thumbnail(content: bytes, limits: Limits) -> bytes:
    if not content.startswith(_PNG) or not len(_PNG) + 8 <= len(content) <= THUMBNAIL_BYTES_MAX:
        raise _InvalidResponse("thumbnail")
    if not all(0 < side <= limits.thumbnail_side for side in struct.unpack_from(">II", content, len(_PNG))):
        raise _InvalidResponse("thumbnail")
    return content


def _members(facts: dict[str, Any], row_size: int, scratch: Path, limits: Limits) -> tuple[Member, ...]:
    """Return the members, whose sizes must add up to that of the output file."""
    members = []
    for number, member in enumerate(_records(facts, "members", {"name", "size", "path"}, limits.members_max), start=1):
        path = _choice(member, "path", (member_name(number),))
        size = _integer(member, "size", 0, limits.size_max)
        members.append(Member(_line(member, "name", NAME_MAX) or "", size, scratch / path))
    if sum(member.size for member in members) != row_size:
        raise _InvalidResponse("members")
    return tuple(members)


# -- facts


def _choice(facts: dict[str, Any], name: str, values: tuple[Any, ...]) -> Any:
    for value in values:
        if type(facts[name]) is type(value) and facts[name] == value:
            return value
    raise _InvalidResponse(name)


def _pattern(facts: dict[str, Any], name: str, pattern: re.Pattern[str]) -> str:
    value = facts[name]
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise _InvalidResponse(name)
    return value


def _line(facts: dict[str, Any], name: str, length_max: int = FACT_MAX) -> str | None:
    value = facts[name]
    if value is None or (isinstance(value, str) and value.isprintable() and len(value) <= length_max):
        return value
    raise _InvalidResponse(name)


def _datetime(facts: dict[str, Any], name: str) -> str | None:
    value = _line(facts, name)
    if value is not None and iso_datetime(value) != value:
        raise _InvalidResponse(name)
    return value


def _integer(facts: dict[str, Any], name: str, least: int, most: int) -> int:
    value = facts[name]
    if type(value) is not int or not least <= value <= most:
        raise _InvalidResponse(name)
    return value


def _pixels(facts: dict[str, Any], name: str, limits: Limits) -> int | None:
    return None if facts[name] is None else _integer(facts, name, 1, limits.pixels_max)


def _confidence(facts: dict[str, Any]) -> float | None:
    """Return how sure OCR is: a share, as a whole number or a fraction; NaN is neither."""
    value: float | None = facts["ocr_confidence"]
    if value is not None and (type(value) not in (int, float) or not 0 <= value <= 1):
        raise _InvalidResponse("ocr_confidence")
    return value


def _records(facts: dict[str, Any], name: str, keys: set[str], count_max: int) -> list[dict[str, Any]]:
    records = facts[name]
    if not isinstance(records, list) or len(records) > count_max:
        raise _InvalidResponse(name)
    if not all(isinstance(record, dict) and record.keys() == keys for record in records):
        raise _InvalidResponse(name)
    return records


def _pages(facts: dict[str, Any], length: int, limits: Limits) -> tuple[Page, ...]:
    """Return the pages, which must be contiguous and cover the text."""
    pages: list[Page] = []
    last = 0
    for page in _records(facts, "pages", {"label", "start", "end", "ocr_confidence"}, max(1, limits.pages_max)):
        start, end = page["start"], page["end"]
        if type(start) is not int or start != last or type(end) is not int or not start <= end <= length:
            raise _InvalidResponse("pages")
        pages.append(Page(_line(page, "label") or "", start, end, _confidence(page)))
        last = end
    if not pages or last != length:
        raise _InvalidResponse("pages")
    return tuple(pages)


def _warnings(facts: dict[str, Any]) -> tuple[ExtractionWarning, ...]:
    """Return the warnings, each at most once."""
    records = _records(facts, "warnings", {"code", "detail"}, len(WARNING_CODES))
    warnings = tuple(
        ExtractionWarning(_choice(record, "code", WARNING_CODES), _line(record, "detail") or "") for record in records
    )
    if len({warning.code for warning in warnings}) != len(warnings):
        raise _InvalidResponse("warnings")
    return warnings
