"""OCR: the text on a picture, read by the tesseract program if it is installed.

Laws:
- Without the program there is no text but a warning; extraction never fails because of OCR.
- One thread, one page at a time, within the time of the page and of the whole file.
- Every file that needs the program looks for it anew, so that a running worker notices when it is installed or removed. That
  takes some milliseconds of the second that a page takes.
- The first page is read in all installed languages; once its language is clear, the others are read in that one, which takes a
  quarter of the time.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from functools import cached_property
from typing import TYPE_CHECKING

from .builder import ExtractionBuilder, clean
from .language import guess

if TYPE_CHECKING:
    from PIL.Image import Image

NAMES = {"en": "eng", "pl": "pol", "pt": "por", "es": "spa", "de": "deu"}
PROGRAM = "tesseract"
SIDE_LEAST = 20  # pixels; smaller images have no text


def installed_languages() -> tuple[str, ...] | None:
    """Return the languages that the program has; None without the program."""
    program = shutil.which(PROGRAM)
    if program is None:
        return None
    try:
        listed = subprocess.run([program, "--list-langs"], capture_output=True, text=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return tuple(listed.stdout.split()[1:])


class Ocr:
    """Reads the pages of one file."""

    def __init__(self, builder: ExtractionBuilder) -> None:
        self._builder = builder
        self._pages = 0
        self._is_narrow = False

    @cached_property
    def _installed_languages(self) -> tuple[str, ...] | None:
        return installed_languages()

    @cached_property
    def _languages(self) -> list[str]:
        return [language for language in self._builder.limits.ocr_languages if language in (self._installed_languages or ())]

    @property
    def can_read(self) -> bool:
        """Whether another page can be read; if not, add a warning with the reason."""
        if not self._builder.limits.ocr_pages_max:
            return False
        if self._installed_languages is None:
            self._builder.warn("ocr_missing", f"the program {PROGRAM} is not installed")
        elif not self._languages:
            self._builder.warn("ocr_language_missing", ", ".join(self._builder.limits.ocr_languages))
        elif self._pages >= self._builder.limits.ocr_pages_max:
            self._builder.warn("ocr_pages_skipped", f"only the first {self._pages} pages without text were read")
        else:
            return True
        return False

    def read(self, image: Image) -> str:
        """Return the text on one page."""
        self._pages += 1
        if min(image.size) < SIDE_LEAST:
            return ""
        missing = [language for language in self._builder.limits.ocr_languages if language not in self._languages]
        if missing and not self._is_narrow:
            self._builder.warn("ocr_language_missing", ", ".join(missing))
        text = self._run(image.convert("L"))
        if text:
            self._builder.warn("ocr_used")
        language = NAMES.get(guess(text) or "")
        if language in self._languages and not self._is_narrow:
            self._languages, self._is_narrow = [language], True
        return text

    def _run(self, image: Image) -> str:
        buffer = io.BytesIO()
        image.save(buffer, "BMP")
        command = [PROGRAM, "stdin", "stdout", "-l", "+".join(self._languages), "--psm", "3"]
        environment = {**os.environ, "OMP_THREAD_LIMIT": "1"}
        seconds = min(self._builder.limits.ocr_page_seconds, self._builder.meter.seconds_left)
        try:
            completed = subprocess.run(  # noqa: S603
                command, input=buffer.getvalue(), capture_output=True, timeout=max(seconds, 0.001), env=environment, check=False
            )
        except subprocess.TimeoutExpired:
            self._builder.meter.check_time()
            self._builder.warn("ocr_failed", f"a page took longer than {seconds:.0f} s")
            return ""
        except (OSError, subprocess.SubprocessError) as error:
            self._builder.warn("ocr_failed", str(error))
            return ""
        if completed.returncode != 0:
            self._builder.warn("ocr_failed", completed.stderr.decode("utf-8", "replace"))
            return ""
        return clean(completed.stdout.decode("utf-8", "replace")).strip()
