"""What are the tags and texts of an HTML page, however broken it is?

A scanner of our own: every rule moves forward and never looks back, so that a page of a million open comments or quotes costs
its length. (The parser of the standard library takes the square of it on some such pages.) Broken markup is read as browsers
read it: an open comment, script or tag at the end swallows the rest.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

RAW = ("script", "style", "textarea", "title", "xmp", "noembed", "noframes")
_NAME = re.compile(r"[a-zA-Z][^\s/>]{0,40}")
_ATTRIBUTE = re.compile(r"""[\s/]*([^\s/>=][^\s/>=]*)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>"'][^\s>]*)?)?""")
_RAW_ENDS = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in RAW}
ATTRIBUTES_MAX = 100


class Tag(NamedTuple):
    """A tag that begins or ends something."""

    name: str
    attributes: dict[str, str]
    is_end: bool


def unescape(text: str) -> str:
    """Text with its character references resolved; an absurd number among them leaves it as it is."""
    if "&" not in text:
        return text
    try:
        return html.unescape(text)
    except (ValueError, OverflowError):
        return text


def scan(page: str) -> Iterator[Tag | str]:
    """Tags and texts in their order."""
    place, end = 0, len(page)
    while place < end:
        opening = page.find("<", place)
        if opening < 0:
            opening = end
        if opening > place:
            yield unescape(page[place:opening])
        if opening >= end - 1:
            return
        place = opening + 1
        following = page[place]
        if following.isascii() and following.isalpha():
            tag, place = _opened(page, place)
            yield tag
            if tag.name in RAW:
                text, place = _raw(page, place, tag.name)
                yield text
        elif following == "/":
            found = _NAME.match(page, place + 1)
            place = _after(page, ">", place)
            if found is not None:
                yield Tag(found.group().lower(), {}, is_end=True)
        elif following in "!?":
            place = _after(page, "-->", place) if page.startswith("!--", place) else _after(page, ">", place)
        else:
            yield "<"


def _after(page: str, mark: str, place: int) -> int:
    found = page.find(mark, place)
    return found + len(mark) if found >= 0 else len(page)


def _opened(page: str, place: int) -> tuple[Tag, int]:
    """The tag whose name begins here, and the place after it."""
    found = _NAME.match(page, place)
    name = found.group().lower() if found is not None else ""
    place = found.end() if found is not None else place
    attributes: dict[str, str] = {}
    while (attribute := _ATTRIBUTE.match(page, place)) is not None and attribute.end() > place:
        place = attribute.end()
        if len(attributes) < ATTRIBUTES_MAX:
            value = attribute.group(2) or ""
            attributes.setdefault(attribute.group(1).lower(), unescape(value.strip("\"'")))
    return Tag(name, attributes, is_end=False), _after(page, ">", place)


def _raw(page: str, place: int, name: str) -> tuple[str, int]:
    """The text up to the end of a script, style or title, and the place where its end tag begins."""
    found = _RAW_ENDS[name].search(page, place)
    end = found.start() if found is not None else len(page)
    return page[place:end], end
