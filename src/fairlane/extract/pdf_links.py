"""Links of a PDF page: which characters lead to an address, from the page's annotations.

Laws:
- A link keeps its address if a person could follow it; nothing is followed. Links to other pages of the document are left out.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from typing import Any

import pypdfium2.raw as pdfium  # type: ignore[import-untyped]

from .html import LINKED
from .pdf_lines import Box, Line, LinkPart, PageText, Word, turned

LINKS_MAX = 500  # on one page; the text of further ones stays without address
STEPS_MAX = 100_000  # words and characters looked at on one page
SLACK = 0.5  # points that a word may stand out of its link
TARGET_MAX = 2_000  # bytes
ACTION_URI = 3


def add_links(document: Any, page: Any, text: PageText, lines: list[Line]) -> None:
    """Find the links of a page and the parts of lines that they cover."""
    position, link = ctypes.c_int(0), pdfium.FPDF_LINK()
    box = pdfium.FS_RECTF()
    steps = 0
    for _ in range(LINKS_MAX):
        if not pdfium.FPDFLink_Enumerate(page.raw, ctypes.byref(position), ctypes.byref(link)):
            return
        target = _target(document, link)
        if target and pdfium.FPDFLink_GetAnnotRect(link, ctypes.byref(box)):
            left, right = sorted((box.left, box.right))
            bottom, top = sorted((box.bottom, box.top))
            steps += _cover(text, lines, turned((left, bottom, right, top), text.turn), target)
            if steps > STEPS_MAX:
                return


def _target(document: Any, link: Any) -> str:
    """Return the address of a link, or nothing."""
    action = pdfium.FPDFLink_GetAction(link)
    if not action or pdfium.FPDFAction_GetType(action) != ACTION_URI:
        return ""
    size = pdfium.FPDFAction_GetURIPath(document.raw, action, None, 0)
    if not 1 < size <= TARGET_MAX:
        return ""
    buffer = ctypes.create_string_buffer(size)
    pdfium.FPDFAction_GetURIPath(document.raw, action, buffer, size)
    target = buffer.value.decode("utf-8", "replace").strip()
    return target if target.lower().startswith(LINKED) else ""


def _cover(text: PageText, lines: list[Line], box: Box, target: str) -> int:
    """Mark the characters inside a box as a link; return how many words and characters were looked at."""
    left, bottom, right, top = box
    steps = 0
    found: list[tuple[Line, list[Word]]] = []
    for line in lines:
        if not (bottom <= line.y + line.size * 0.3 <= top and line.x0 < right and line.x1 > left):
            continue
        words = [word for word in text.words(line) if word.x1 > left and word.x0 < right]
        steps += len(text.words(line)) + len(line.links)
        if words:
            found.append((line, words))
    for line, words in found if len(found) == 1 else _coloured(text, found):
        first, last = words[0], words[-1]
        start, end = first.start, last.end
        for word in {first, last}:
            if word.x0 < left - SLACK or word.x1 > right + SLACK:
                inside = _inside(text, line, word, left, right)
                steps += word.end - word.start
                start = (inside[0] if inside else word.end) if word is first else start
                end = (inside[-1] + 1 if inside else word.start) if word is last else end
        start, end = _whole_words(line, start, end) if start < end else (start, end)
        if start < end:
            line.links = [other for other in line.links if other.end <= start or other.start >= end]
            line.links.append(LinkPart(start, end, target))
            line.links.sort()
    return steps


def _inside(text: PageText, line: Line, word: Word, left: float, right: float) -> list[int]:
    """Return the characters of a word whose middle is between two sides."""
    inside = []
    for index in range(word.start, word.end):
        box = text.character_box(line.index(index))
        if left <= (box[0] + box[2]) / 2 <= right:
            inside.append(index)
    return inside


def _coloured(text: PageText, found: list[tuple[Line, list[Word]]]) -> list[tuple[Line, list[Word]]]:
    """Return the words with a colour of their own in a box over several lines: some programs draw it around all of these."""
    colours = {(line.order, word): text.colour(line.index(word.start)) for line, words in found for word in words}
    usual = Counter(colours.values()).most_common(1)
    coloured = [(line, [word for word in words if colours[line.order, word] != usual[0][0]]) for line, words in found]
    return [(line, words) for line, words in coloured if words] or found


def _whole_words(line: Line, start: int, end: int) -> tuple[int, int]:
    """Return a link's part of a line, to the end of a word that it cuts between two letters: some programs misplace its box."""
    if start and line.text[start - 1].isalnum() and line.text[start].isalnum():
        start = _nearer(line, start)
    if end < len(line.text) and line.text[end - 1].isalnum() and line.text[end].isalnum():
        end = _nearer(line, end)
    return start, end


def _nearer(line: Line, cut: int) -> int:
    """Return the nearer end of the run of letters around a cut."""
    left = right = cut
    while left and line.text[left - 1].isalnum():
        left -= 1
    while right < len(line.text) and line.text[right].isalnum():
        right += 1
    return left if cut - left <= right - cut else right
