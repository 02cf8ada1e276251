"""Which words are on a picture? What the tesseract program reads, if it is there.

Laws:
- Without the program there is no text and a warning that says so; extraction never fails because of OCR.
- One thread, one page at a time, within the time of the page and of the whole file.
- Each file that needs the program looks for it anew, so that one that was installed or removed meanwhile is noticed by workers
  that run. It takes some milliseconds of the second that a page takes.
- The first page is read in all languages that are installed; once its language is clear, the others are read in that one,
  which takes a quarter of the time.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from functools import cached_property
from typing import TYPE_CHECKING

from .draft import Draft, clean
from .language import guess

if TYPE_CHECKING:
    from PIL.Image import Image

NAMES = {"en": "eng", "pl": "pol", "pt": "por", "es": "spa", "de": "deu"}
PROGRAM = "tesseract"
SIDE_LEAST = 20  # pixels; smaller ones hold no word


def installed() -> tuple[str, ...] | None:
    """The languages that the program has; None if the program is not there."""
    found = shutil.which(PROGRAM)
    if found is None:
        return None
    try:
        listed = subprocess.run([found, "--list-langs"], capture_output=True, text=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return tuple(listed.stdout.split()[1:])


class Ocr:
    """Reads the pages of one file."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._pages = 0
        self._is_narrow = False

    @cached_property
    def _installed(self) -> tuple[str, ...] | None:
        return installed()

    @cached_property
    def _languages(self) -> list[str]:
        return [language for language in self._draft.limits.ocr_languages if language in (self._installed or ())]

    @property
    def is_wanted(self) -> bool:
        """Whether another page can be read; if not, a warning gives the reason."""
        if not self._draft.limits.ocr_pages_max:
            return False
        if self._installed is None:
            self._draft.warn("ocr_missing", f"the program {PROGRAM} is not installed")
        elif not self._languages:
            self._draft.warn("ocr_language_missing", ", ".join(self._draft.limits.ocr_languages))
        elif self._pages >= self._draft.limits.ocr_pages_max:
            self._draft.warn("ocr_pages_skipped", f"only the first {self._pages} pages without text were read")
        else:
            return True
        return False

    def read(self, image: Image) -> str:
        """The words on one page."""
        self._pages += 1
        if min(image.size) < SIDE_LEAST:
            return ""
        missing = [one for one in self._draft.limits.ocr_languages if one not in self._languages]
        if missing and not self._is_narrow:
            self._draft.warn("ocr_language_missing", ", ".join(missing))
        text = self._run(image.convert("L"))
        if text:
            self._draft.warn("ocr_used")
        language = NAMES.get(guess(text) or "")
        if language in self._languages and not self._is_narrow:
            self._languages, self._is_narrow = [language], True
        return text

    def _run(self, image: Image) -> str:
        buffer = io.BytesIO()
        image.save(buffer, "BMP")
        command = [PROGRAM, "stdin", "stdout", "-l", "+".join(self._languages), "--psm", "3"]
        environment = {**os.environ, "OMP_THREAD_LIMIT": "1"}
        seconds = min(self._draft.limits.ocr_page_seconds, self._draft.meter.seconds_left)
        try:
            told = subprocess.run(  # noqa: S603
                command, input=buffer.getvalue(), capture_output=True, timeout=max(seconds, 0.001), env=environment, check=False
            )
        except subprocess.TimeoutExpired:
            self._draft.meter.tick()
            self._draft.warn("ocr_failed", f"a page took longer than {seconds:.0f} s")
            return ""
        except (OSError, subprocess.SubprocessError) as error:
            self._draft.warn("ocr_failed", str(error))
            return ""
        if told.returncode != 0:
            self._draft.warn("ocr_failed", told.stderr.decode("utf-8", "replace"))
            return ""
        return clean(told.stdout.decode("utf-8", "replace")).strip()
