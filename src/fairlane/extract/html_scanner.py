"""HTML scanner: the tags and texts of a page, however broken it is.

Every rule moves forward and never looks back, so a page of a million open comments or quotes takes linear time; the parser of
the standard library takes quadratic time on some such pages. Broken markup is read as browsers read it: an unclosed comment,
script or tag swallows the rest.
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
CDATA = "![CDATA["


class Tag(NamedTuple):
    """A start or end tag."""

    name: str
    attributes: dict[str, str]
    is_end: bool


def unescape(text: str) -> str:
    """Resolve character references; leave the text as it is if one of them has an absurd number."""
    if "&" not in text:
        return text
    try:
        return html.unescape(text)
    except (ValueError, OverflowError):
        return text


def scan(page: str, is_xml: bool = False) -> Iterator[Tag | str]:
    """Yield tags and texts in order; in XML a tag may end itself, `<title/>`, and text may be in CDATA."""
    position, end = 0, len(page)
    while position < end:
        opening = page.find("<", position)
        if opening < 0:
            opening = end
        if opening > position:
            yield unescape(page[position:opening])
        if opening >= end - 1:
            return
        position = opening + 1
        following = page[position]
        if following.isascii() and following.isalpha():
            tag, position = _parse_start_tag(page, position)
            yield tag
            inside, position = _read_inside(page, position, tag.name, is_xml)
            if inside is not None:
                yield inside
        elif following == "/":
            name = _NAME.match(page, position + 1)
            position = _skip_past(page, ">", position)
            if name is not None:
                yield Tag(name.group().lower(), {}, is_end=True)
        elif following in "!?":
            text, position = _read_declaration(page, position, is_xml)
            yield text
        else:
            yield "<"


def _read_inside(page: str, position: int, name: str, is_xml: bool) -> tuple[Tag | str | None, int]:
    """Return what follows a start tag at once: the end of a tag that ends itself, or the text of a script, style or title."""
    if is_xml and page.endswith("/>", 0, position):
        return Tag(name, {}, is_end=True), position
    return _read_raw_text(page, position, name) if name in RAW else (None, position)


def _read_declaration(page: str, position: int, is_xml: bool) -> tuple[str, int]:
    """Return the text of a declaration, which only CDATA has, and the position after it."""
    if is_xml and page.startswith(CDATA, position):
        end = _skip_past(page, "]]>", position)
        return page[position + len(CDATA) : end].removesuffix("]]>"), end
    return "", _skip_past(page, "-->" if page.startswith("!--", position) else ">", position)


def _skip_past(page: str, mark: str, position: int) -> int:
    index = page.find(mark, position)
    return index + len(mark) if index >= 0 else len(page)


def _parse_start_tag(page: str, position: int) -> tuple[Tag, int]:
    """Return the tag whose name begins here, and the position after it."""
    match = _NAME.match(page, position)
    name = match.group().lower() if match is not None else ""
    position = match.end() if match is not None else position
    attributes: dict[str, str] = {}
    while (attribute := _ATTRIBUTE.match(page, position)) is not None and attribute.end() > position:
        position = attribute.end()
        if len(attributes) < ATTRIBUTES_MAX:
            value = attribute.group(2) or ""
            attributes.setdefault(attribute.group(1).lower(), unescape(value.strip("\"'")))
    return Tag(name, attributes, is_end=False), _skip_past(page, ">", position)


def _read_raw_text(page: str, position: int, name: str) -> tuple[str, int]:
    """Return the text of a script, style or title, and the position of its end tag."""
    match = _RAW_ENDS[name].search(page, position)
    end = match.start() if match is not None else len(page)
    return page[position:end], end
