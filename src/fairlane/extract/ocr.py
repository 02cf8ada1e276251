"""OCR: the text on a picture, read by the tesseract program if it is installed.

Laws:
- Without the program there is no text but a warning; extraction never fails because of OCR.
- One thread, one page at a time, within the time of the page and of the whole file.
- Every file that needs the program looks for it anew, so that a running worker notices when it is installed or removed. That
  takes some milliseconds of the second that a page takes.
- The first page is read in all installed languages; once its language is clear, the others are read in that one, which takes
  two thirds of the time. A page that is in another one after all is read in all of them again.
- A page is read once if the program is sure of it. One that it is not sure of is read again, turned or cleaned, and the best
  reading is kept: three at most.
"""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING

from .builder import ExtractionBuilder
from .language import guess
from .scan import Lines, even_out, find_lines, flatten, straighten
from .tesseract import (
    NOT_LANGUAGES,
    ORIENTATION,
    PROGRAM,
    Reading,
    TesseractFailed,
    find_turn,
    installed_models,
    read_picture,
)

if TYPE_CHECKING:
    from PIL.Image import Image

NAMES = {"en": "eng", "pl": "pol", "pt": "por", "es": "spa", "de": "deu"}
SIDE_LEAST = 20  # pixels; smaller images have no text
NOISE = 0.6  # of pages upside down the program is 0.4 to 0.5 sure
UNSURE = 0.8  # below that somebody should look at the page
SURE = 0.9  # of clean pages it is 0.93 to 0.97 sure
SMALL, LARGE = 900_000, 3_000_000  # pixels: A4 with less than 100, and with more than 175 dots per inch


class Ocr:
    """Reads the pages of one file."""

    def __init__(self, builder: ExtractionBuilder) -> None:
        self._builder = builder
        self._pages = 0
        self._language: str | None = None  # of the pages so far, once it is clear
        self._turn = 0  # degrees, of the page before

    @cached_property
    def _models(self) -> tuple[str, ...] | None:
        return installed_models()

    @cached_property
    def _languages(self) -> list[str]:
        models = set(self._models or ()).difference(NOT_LANGUAGES)
        return [language for language in self._builder.limits.ocr_languages if language in models]

    @property
    def can_read(self) -> bool:
        """Whether another page can be read; if not, add a warning with the reason."""
        if not self._builder.limits.ocr_pages_max:
            return False
        if self._models is None:
            self._builder.warn("ocr_missing", f"the program {PROGRAM} is not installed")
        elif not self._languages:
            self._builder.warn("ocr_language_missing", ", ".join(self._builder.limits.ocr_languages))
        elif self._pages >= self._builder.limits.ocr_pages_max:
            self._builder.warn("ocr_pages_skipped", f"only the first {self._pages} pages without text were read")
        else:
            return True
        return False

    def read(self, image: Image, number: int) -> str:
        """Return the text of the page of this number, counted from 0, and keep how sure it is."""
        return self.keep(number, self.recognise(image))

    def keep(self, number: int, reading: Reading) -> str:
        """Take a reading as the text of a page: keep how sure it is, and warn where that is not much."""
        if reading.letters:
            self._builder.warn("ocr_used")
            self._builder.note_confidence(number, reading.letters, reading.confidence)
            if reading.confidence < UNSURE:
                self._builder.warn("ocr_unsure", f"page {number + 1}")
        return reading.text

    def recognise(self, image: Image) -> Reading:
        """Read a picture as well as it can be done in the time of a page."""
        self._pages += 1
        if min(image.size) < SIDE_LEAST:
            return Reading()
        missing = [language for language in self._builder.limits.ocr_languages if language not in self._languages]
        if missing:
            self._builder.warn("ocr_language_missing", ", ".join(missing))
        reader = _PageReader(self._languages, self._language, min(self._builder.limits.ocr_page_seconds, self._seconds_left))
        try:
            reading = reader.read(image, self._turn, has_orientation=ORIENTATION in (self._models or ()))
        except TesseractFailed as error:
            self._builder.meter.check_time()
            self._builder.warn("ocr_failed", str(error))
            return Reading()
        if reading.confidence >= UNSURE:
            language = NAMES.get(guess(reading.text) or "")
            self._turn, self._language = reader.turn, language if language in self._languages else self._language
        return reading

    @property
    def _seconds_left(self) -> float:
        return self._builder.meter.seconds_left


class _PageReader:
    """Reads one page, several times if need be."""

    def __init__(self, languages: list[str], language: str | None, seconds: float) -> None:
        self._languages, self._language = languages, language
        self._ends_at = time.monotonic() + seconds
        self.turn = 0  # degrees by which the page was turned in the end

    @property
    def _seconds(self) -> float:
        return self._ends_at - time.monotonic()

    def read(self, image: Image, turn: int, *, has_orientation: bool) -> Reading:
        """Read a page, first turned as the page before."""
        page = even_out(flatten(image)).rotate(turn, expand=True)
        lines = find_lines(page)
        page = straighten(page, lines)
        more = self._first_turn(page, lines, has_orientation)
        page, self.turn = page.rotate(more, expand=True), (turn + more) % 360
        best = read_picture(page, [self._language] if self._language else self._languages, self._seconds)
        try:
            if best.confidence < NOISE and (lines.is_clear or best.letters):
                page, best = self._read_turned(page, best, lines, has_orientation)
            if self._is_in_another_language(best):
                best = max(best, read_picture(page, self._languages, self._seconds), key=_score)
            elif best.letters and best.confidence < SURE:
                best = max(best, read_picture(_clean(page), self._languages, self._seconds), key=_score)
        except TesseractFailed:
            pass  # the time is over: the best so far
        return best

    def _first_turn(self, page: Image, lines: Lines, has_orientation: bool) -> int:
        """Return the turn before the first reading: lines that run down are noise, which takes long to read."""
        if not lines.is_down:
            return 0
        turn = find_turn(page, self._seconds) if has_orientation else None
        return 90 if turn is None else turn

    def _read_turned(self, page: Image, best: Reading, lines: Lines, has_orientation: bool) -> tuple[Image, Reading]:
        """Read a page whose letters do not stand upright once more; the better reading and its picture come back."""
        more = find_turn(page, self._seconds) if has_orientation else None
        if more is None:
            more = 180 if lines.is_clear else 0
        if not more:
            return page, best
        turned = page.rotate(more, expand=True)
        reading = read_picture(turned, self._languages, self._seconds)
        if reading.score <= best.score:
            return page, best
        self.turn = (self.turn + more) % 360
        return turned, reading

    def _is_in_another_language(self, reading: Reading) -> bool:
        return self._language is not None and NAMES.get(guess(reading.text) or "", self._language) != self._language


def _score(reading: Reading) -> float:
    return reading.score


def _clean(page: Image) -> Image:
    """Return a small page enlarged, and another one without grain."""
    from PIL.Image import Resampling
    from PIL.ImageFilter import MedianFilter

    size = page.width * page.height
    if size > LARGE:
        return page.filter(MedianFilter(3))
    larger = page.resize((2 * page.width, 2 * page.height), Resampling.BICUBIC)
    return larger if size < SMALL else larger.filter(MedianFilter(5))
