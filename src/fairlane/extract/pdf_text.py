"""Text of one page of a PDF without structure, with the breaks between its words, and whether letters can be trusted.

PDFium has two ways to the text. One gives every letter, also those beside the page, and every break. The other gives the
letters on the page and drops breaks between letters of one height: `01` and `3` in two columns become `013`.

Laws:
- Text beside the page is left out.
- Fonts that do not say which letters they draw give wrong text or none, or letters of private use or none at all.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

import pypdfium2.raw as pdfium  # type: ignore[import-untyped]

from .builder import ExtractionBuilder

SAMPLE = 16  # letters of a page that are looked at; each takes a call
UNKNOWN_SHARE, UNKNOWN_MOST = 0.2, 0.5  # of the letters: worth a warning, and too many to use the others
DISTINCT_LEAST = 5  # in a piece of unknown letters: fewer are bullets, dots or stars
CHECKED_EVERY = 1_000
_UNKNOWN = re.compile("(?:[\x80-\x9f\ue000-\uf8ff\ufffd][ \r\n]{0,2}){8}")
_LINE_ENDS = re.compile(r"\s*\n\s*")


def unknown_share(textpage: Any, text: str) -> float:
    """Return the share of letters whose fonts do not say what they draw, by a sample, or more if a piece of text is such."""
    count = textpage.count_chars()
    if not count:
        texts = textpage.page.get_objects(filter=[pdfium.FPDF_PAGEOBJ_TEXT], max_depth=2)
        return 0.0 if next(iter(texts), None) is None else 1.0
    sample = range(0, count, max(1, count // SAMPLE))
    share = sum(_is_unknown(textpage, index) for index in sample) / len(sample)
    has_piece = any(len(set(match[0])) >= DISTINCT_LEAST for match in _UNKNOWN.finditer(text))
    return max(share, UNKNOWN_SHARE) if has_piece else share


def read_textpage(builder: ExtractionBuilder, textpage: Any) -> str:
    """Return the text of a page."""
    count = textpage.count_chars()
    if not count:
        return ""
    text: str = textpage.get_text_range()
    on_page: str = textpage.get_text_bounded()
    if "".join(text.split()) == "".join(on_page.split()):
        return text
    return _letters_on_page(builder, textpage, count)


def _letters_on_page(builder: ExtractionBuilder, textpage: Any, count: int) -> str:
    """Return the letters on the page, with all breaks, one by one: some lie beside it, or have more than 16 bits."""
    left, bottom, right, top = textpage.page.get_bbox()
    x, y = ctypes.c_double(), ctypes.c_double()
    edges = [ctypes.c_double() for _ in range(4)]  # left, right, bottom, top
    letters: list[str] = []
    for index in range(count):
        if index % CHECKED_EVERY == 0:
            builder.meter.check_time()
        code = pdfium.FPDFText_GetUnicode(textpage, index)
        if not 0 < code < 0x110000:
            continue
        if not pdfium.FPDFText_IsGenerated(textpage, index):
            pdfium.FPDFText_GetCharOrigin(textpage, index, x, y)
            pdfium.FPDFText_GetCharBox(textpage, index, *edges)
            is_begun_inside = left <= x.value <= right and bottom <= y.value <= top
            is_seen = edges[0].value < right and edges[1].value > left and edges[2].value < top and edges[3].value > bottom
            if not (is_begun_inside or is_seen):
                continue
        letters.append(chr(code))
    return _LINE_ENDS.sub("\n", "".join(letters))


def _is_unknown(textpage: Any, index: int) -> bool:
    code = pdfium.FPDFText_GetUnicode(textpage, index)
    has_no_letter: bool = pdfium.FPDFText_HasUnicodeMapError(textpage, index) == 1
    return code == 0 or 0x80 <= code < 0xA0 or 0xE000 <= code < 0xF900 or code == 0xFFFD or has_no_letter
