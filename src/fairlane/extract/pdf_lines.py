"""Lines of a PDF page: their text, boxes, size and font, as PDFium knows them.

Laws:
- A call to PDFium costs half a microsecond and a page has thousands of characters, so boxes are asked for by line, by word only
  where a line has wide gaps, and by character only where a link begins or ends.
- Coordinates are those of upright text: x grows along the lines and y upwards, however the page is turned.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import pypdfium2.raw as pdfium  # type: ignore[import-untyped]

CHARACTERS_MAX = 60_000  # on one page; a page of small print has 10,000
LINES_MAX = 4_000
GAP_MIN = 0.9  # of the font size: no space between words is so wide, unless the line is justified
SCATTERED_MIN, SCATTERED_SHARE = 20, 0.6  # lines, and how many of them are a letter or two
SPACE_MIN = 0.15  # of the font size
NARROW_GAP_MIN = 0.3  # of the font size: between what was drawn apart
GAP_TO_SPACES = 2.2  # a gap is so many times as wide as the line's usual space
WIDE_LINE = 1.06  # a line whose characters are so much wider than those of other lines may have a gap within
WIDE_CHARACTER = 0.62  # of the font size
BOLD_WEIGHT = 600
_BOLD = re.compile(r"bold|black|heavy|semibold|demi|-bd\b|cmbx|sfbx", re.IGNORECASE)
_MONO = re.compile(r"mono|courier|consol|menlo|typewriter|cmtt|sftt|inconsolata|code", re.IGNORECASE)
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_WORD = re.compile(r"\S+")
FIXED_PITCH = 1  # bit of a font's flags
TURNS = (0, 90, 180, 270)
Box = tuple[float, float, float, float]  # left, bottom, right, top
Index = Callable[[int], int]  # from a character of a line to its number on the page


class Font(NamedTuple):
    """What layout asks of a font."""

    is_bold: bool = False
    is_mono: bool = False


class Word(NamedTuple):
    """A word of a line, by its offsets in the line, and where it is."""

    start: int
    end: int
    x0: float
    x1: float


class LinkPart(NamedTuple):
    """A part of a line that leads somewhere."""

    start: int
    end: int
    target: str


@dataclass(slots=True)
class Line:
    """A line as PDFium put it together; it may run across columns."""

    text: str
    index: Index  # of each of its characters, on the page
    order: int
    x0: float
    x1: float
    y: float  # of its base
    size: float
    font: Font
    has_gaps: bool
    words: list[Word] | None = None
    runs: list[tuple[float, float]] = field(default_factory=list)  # what was drawn apart, if any of it was
    cuts: list[float] = field(default_factory=list)  # where columns end that are nearer to each other than `GAP_MIN`
    links: list[LinkPart] = field(default_factory=list)


def turned(box: Box, turn: int) -> Box:
    """Return a box in the coordinates of text that runs in this direction, in degrees."""
    left, bottom, right, top = box
    if turn == 0:
        return box
    if turn == 90:
        return bottom, -right, top, -left
    if turn == 180:
        return -right, -top, -left, -bottom
    return -top, left, -bottom, right


class PageText:
    """The characters of a page, and the calls that measure them."""

    def __init__(self, textpage: Any, page_box: Box) -> None:
        self._raw = textpage.raw
        self._page_box = page_box
        self._box = [ctypes.c_double() for _ in range(4)]
        self._left, self._right, self._bottom, self._top = (ctypes.byref(value) for value in self._box)
        self._matrix = pdfium.FS_MATRIX()
        self._matrix_reference = ctypes.byref(self._matrix)
        self._fonts: dict[int, Font] = {}
        self.turn = 0
        self.aside: list[str] = []  # lines that run in another direction, or are nowhere
        self.text = self._read_text(pdfium.FPDFText_CountChars(self._raw))

    def _read_text(self, count: int) -> str:
        """Return the text, one character for each that PDFium counts."""
        buffer = (ctypes.c_ushort * (count + 1))()
        written = pdfium.FPDFText_GetText(self._raw, 0, count, buffer)
        text = bytes(buffer)[: 2 * max(0, written - 1)].decode("utf-16-le", "surrogatepass")
        if len(text) == count:
            return text
        codes = (pdfium.FPDFText_GetUnicode(self._raw, index) for index in range(count))
        return "".join(chr(code) if code <= 0x10FFFF else "\ufffd" for code in codes)

    @property
    def is_simple(self) -> bool:
        """Whether layout may look at it: not too much of it, and written from left to right."""
        return (
            len(self.text) <= CHARACTERS_MAX
            and self.text.count("\r\n") < LINES_MAX
            and _RIGHT_TO_LEFT.search(self.text) is None
        )

    def lines(self) -> list[Line]:
        """Return the lines, in the order of the file."""
        found: list[tuple[int, Line]] = []
        for order, (text, index) in enumerate(self._gathered() if self._is_scattered() else self._as_parted()):
            line, turn = self._measure(text, index, order)
            if line is None:
                self.aside.append(text)
            elif self._is_on_page(line, turn):
                found.append((turn, line))
        if not found:
            return []
        counts = Counter(turn for turn, _ in found)
        self.turn = max(counts, key=lambda turn: counts[turn])
        self.aside += [line.text for turn, line in found if turn != self.turn]
        lines = [line for turn, line in found if turn == self.turn]
        self._find_gaps(lines)
        return lines

    def _as_parted(self) -> Iterator[tuple[str, Index]]:
        """Yield the lines that PDFium found."""
        start = 0
        for text in self.text.split("\r\n"):
            if text and not text.isspace():
                yield text, start.__add__
            start += len(text) + 2

    def _is_scattered(self) -> bool:
        """Whether PDFium takes letters for lines: it guesses which way a page is written, from where there is ink."""
        lines = self.text.split("\r\n")
        short = sum(len(line.strip()) <= 2 for line in lines)
        return len(lines) >= SCATTERED_MIN and short > SCATTERED_SHARE * len(lines)

    def _gathered(self) -> Iterator[tuple[str, Index]]:
        """Yield lines of the letters that follow each other on one height."""
        letters: list[str] = []
        indexes: list[int] = []
        y_before = x_before = 0.0
        box = pdfium.FS_RECTF()  # with the space that belongs to the letter
        for number, letter in enumerate(self.text):
            if letter.isspace() or not pdfium.FPDFText_GetMatrix(self._raw, number, self._matrix_reference):
                continue
            pdfium.FPDFText_GetLooseCharBox(self._raw, number, ctypes.byref(box))
            x, right = box.left, box.right
            y, size = self._matrix.f, abs(pdfium.FPDFText_GetFontSize(self._raw, number) * self._matrix.d)
            if letters and (abs(y - y_before) > size / 2 or x < x_before - size):
                yield "".join(letters), indexes.__getitem__
                letters, indexes = [], []
            elif letters and x - x_before > SPACE_MIN * size:
                letters.append(" ")
                indexes.append(indexes[-1])
            letters.append(letter)
            indexes.append(number)
            y_before, x_before = y, right
        if letters:
            yield "".join(letters), indexes.__getitem__

    def _is_on_page(self, line: Line, turn: int) -> bool:
        """Whether any of a line is on the page; only words of it that are will count."""
        left, bottom, right, top = turned(self._page_box, turn)
        if line.x0 < left or line.x1 > right:
            words = line.words or self._measure_words(line, turn)
            line.words = [word for word in words if word.x1 > left and word.x0 < right]
            line.has_gaps = True
            if not line.words:
                return False
            line.x0, line.x1 = min(word.x0 for word in line.words), max(word.x1 for word in line.words)
        return line.y + line.size > bottom and line.y - line.size * 0.3 < top

    def _measure(self, text: str, index: Index, order: int) -> tuple[Line | None, int]:
        """Return a line with its size, font and extent, and its direction."""
        first = len(text) - len(text.lstrip())
        last = len(text.rstrip()) - 1
        middle = (first + last) // 2
        while text[middle].isspace():
            middle += 1
        matrix = self._matrix
        if not pdfium.FPDFText_GetMatrix(self._raw, index(middle), self._matrix_reference):
            return None, 0
        a, b = matrix.a, matrix.b
        if abs(b) < abs(a) / 20:
            turn = 0 if a > 0 else 180
        elif abs(a) < abs(b) / 20:
            turn = 90 if b > 0 else 270
        else:
            return None, 0  # aslant, as a watermark
        scale = (matrix.c**2 + matrix.d**2) ** 0.5
        size = abs(pdfium.FPDFText_GetFontSize(self._raw, index(middle))) * scale
        start = index(0)
        count = pdfium.FPDFText_CountRects(self._raw, start, index(len(text) - 1) - start + 1)
        if size < 0.1 or count <= 0:
            return None, 0
        line = Line(text, index, order, 0.0, 0.0, 0.0, size, self._font(index, first, middle, last), has_gaps=False)
        y = turned((matrix.e, matrix.f, matrix.e, matrix.f), turn)[1]
        line.y = y
        boxes = self._boxes(line, turn, count)
        if not boxes:
            return None, 0
        line.x0, line.x1 = boxes[0][0], max(box[1] for box in boxes)
        runs = [boxes[0]]
        for left, end in boxes[1:]:
            gap = left - runs[-1][1]
            line.has_gaps |= gap > GAP_MIN * size
            if gap > NARROW_GAP_MIN * size:
                runs.append((left, end))
            else:
                runs[-1] = (runs[-1][0], max(runs[-1][1], end))
        line.runs = runs if len(runs) > 1 and line.words is None else []
        return line, turn

    def _boxes(self, line: Line, turn: int, count: int) -> list[tuple[float, float]]:
        """Return where the parts of a line begin and end, from left to right; the cheaper of runs and words."""
        if count > 2 * line.text.count(" ") + 4:
            line.words = self._measure_words(line, turn)
            return sorted((word.x0, word.x1) for word in line.words)
        boxes = []
        for index in range(count):
            if pdfium.FPDFText_GetRect(self._raw, index, self._left, self._top, self._right, self._bottom):
                left, right, bottom, top = (value.value for value in self._box)
                box = turned((left, bottom, right, top), turn)
                boxes.append((box[0], box[2]))
        boxes.sort()
        return boxes

    def _font(self, index: Index, first: int, middle: int, last: int) -> Font:
        """Return the font of a line: bold, or with letters of one width, only if its beginning, middle and end are."""
        font = self._font_at(index(middle))
        if not (font.is_bold or font.is_mono) or first == last:
            return font
        others = (self._font_at(index(first)), self._font_at(index(last)))
        is_bold, is_mono = all(other.is_bold for other in others), all(other.is_mono for other in others)
        return Font(font.is_bold and is_bold, font.is_mono and is_mono)

    def _font_at(self, index: int) -> Font:
        text_object = pdfium.FPDFText_GetTextObject(self._raw, index)
        handle = pdfium.FPDFTextObj_GetFont(text_object) if text_object else None
        if not handle:
            return Font()
        address = ctypes.addressof(handle.contents)
        font = self._fonts.get(address)
        if font is None:
            buffer = ctypes.create_string_buffer(256)
            pdfium.FPDFFont_GetBaseFontName(handle, buffer, 256)
            name = buffer.value.decode("utf-8", "replace").rpartition("+")[2]
            weight = pdfium.FPDFFont_GetWeight(handle)
            is_mono = _MONO.search(name) is not None or bool(pdfium.FPDFFont_GetFlags(handle) & FIXED_PITCH)
            font = Font(_BOLD.search(name) is not None or weight >= BOLD_WEIGHT, is_mono)
            self._fonts[address] = font
        return font

    def _find_gaps(self, lines: list[Line]) -> None:
        """Mark lines that may have gaps within a run, as where one operator writes a row of a table."""
        widths = sorted((line.x1 - line.x0) / (len(line.text) * line.size) for line in lines if len(line.text) >= 20)
        usual = widths[len(widths) // 4] if widths else 0.0
        for line in lines:
            if " " in line.text and not line.has_gaps:
                width = (line.x1 - line.x0) / (len(line.text) * line.size)
                line.has_gaps = width > usual * WIDE_LINE or width > WIDE_CHARACTER

    def words(self, line: Line) -> list[Word]:
        """Return the words of a line, where they are."""
        if line.words is None:
            line.words = self._measure_words(line, self.turn)
        return line.words

    def _measure_words(self, line: Line, turn: int) -> list[Word]:
        found = []
        for match in _WORD.finditer(line.text):
            first = self.character_box(line.index(match.start()), turn)
            last = self.character_box(line.index(match.end() - 1), turn)
            found.append(Word(match.start(), match.end(), min(first[0], last[0]), max(first[2], last[2])))
        return found

    def character_box(self, index: int, turn: int | None = None) -> Box:
        """Return the box of a character of the page."""
        pdfium.FPDFText_GetCharBox(self._raw, index, self._left, self._right, self._bottom, self._top)
        left, right, bottom, top = (value.value for value in self._box)
        return turned((left, bottom, right, top), self.turn if turn is None else turn)

    def colour(self, index: int) -> tuple[int, ...]:
        """Return the colour of a character of the page."""
        values = [ctypes.c_uint() for _ in range(4)]
        pdfium.FPDFText_GetFillColor(self._raw, index, *(ctypes.byref(value) for value in values))
        return tuple(value.value for value in values)

    def splits(self, line: Line) -> list[tuple[int, int, float, float]]:
        """Split a line at its wide gaps; return the parts by their offsets and where they are."""
        if not line.has_gaps:
            return [(0, len(line.text), line.x0, line.x1)]
        words = self.words(line)
        gaps = [max(word.x0 - before.x1, before.x0 - word.x1, 0.0) for before, word in pairwise(words)]
        usual = sorted(gaps)[len(gaps) // 2] if len(gaps) >= 4 else 0.0
        least = max(GAP_MIN * line.size, GAP_TO_SPACES * usual if usual < GAP_MIN * line.size else 0.0)
        parts, begin = [], 0
        for index in range(1, len(words) + 1):
            if index == len(words) or gaps[index - 1] > least or _is_cut(line, words[index - 1], words[index]):
                inside = words[begin:index]
                parts.append((inside[0].start, inside[-1].end, min(w.x0 for w in inside), max(w.x1 for w in inside)))
                begin = index
        return parts


def _is_cut(line: Line, before: Word, after: Word) -> bool:
    return any(before.x1 <= cut <= after.x0 for cut in line.cuts)
