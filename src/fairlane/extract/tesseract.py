"""The tesseract program: which languages it has, what it reads on a picture and how sure it is, and which way up a page is.

Laws:
- One thread; a call takes no longer than the seconds that it may.
- The program is looked for at each use: it may be installed or removed while a worker runs.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from .builder import clean

if TYPE_CHECKING:
    from PIL.Image import Image

PROGRAM = "tesseract"
NOT_LANGUAGES = ("osd", "equ", "snum")  # models for orientation, formulas and digits
ORIENTATION = "osd"
ORIENTATION_LEAST = 1.0  # below that its answer is a guess
CHARACTERS_LEAST = 12  # for a guess of the orientation; the program's own default is 50
OUTPUTS = ("-c", "tessedit_create_txt=1", "-c", "tessedit_create_tsv=1")
_ROW = re.compile(r"5(?:\t-?\d+){9}\t(-?[\d.]+)\t(.*)")  # of a word
_TABLE = re.compile(r"(?:level|[1-5]\t\d+)\t.*")
_ROTATE = re.compile(r"Rotate: (\d+)\nOrientation confidence: ([\d.]+)")


class TesseractFailed(Exception):
    """The program could not be run, failed or took too long."""


class Reading(NamedTuple):
    """What was read on a picture."""

    text: str = ""
    letters: int = 0
    confidence: float = 0.0  # 0 to 1, the mean of the words, longer ones counting more

    @property
    def score(self) -> float:
        """How much was read that is probably right: below 0.5 it is noise."""
        return self.letters * (self.confidence - 0.5)


def installed_models() -> tuple[str, ...] | None:
    """Return the models that the program has; None without the program."""
    program = shutil.which(PROGRAM)
    if program is None:
        return None
    try:
        listed = subprocess.run([program, "--list-langs"], capture_output=True, text=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return tuple(listed.stdout.split("\n", 1)[-1].split())


def read_picture(picture: Image, languages: list[str], seconds: float) -> Reading:
    """Read a picture in these languages."""
    output = _run(picture, ["-l", "+".join(languages), "--psm", "3", *OUTPUTS], seconds)
    text, letters, sum_of_confidences = [], 0, 0.0
    for line in output.replace("\f", "").split("\n"):
        word = _ROW.fullmatch(line)
        if word is not None and (length := len(word[2].strip())):
            letters += length
            sum_of_confidences += length * max(0.0, float(word[1])) / 100
        if _TABLE.fullmatch(line) is None:
            text.append(line)
    if not letters:
        return Reading()
    return Reading(clean("\n".join(text)).strip(), letters, min(1.0, sum_of_confidences / letters))


def find_turn(picture: Image, seconds: float) -> int | None:
    """Return by how many degrees, anticlockwise, a picture must be turned to be upright; None where that is not clear."""
    options = ["--psm", "0", "-l", ORIENTATION, "-c", f"min_characters_to_try={CHARACTERS_LEAST}"]
    try:
        found = _ROTATE.search(_run(picture, options, seconds))
    except TesseractFailed:
        return None  # too few letters
    return -int(found[1]) % 360 if found is not None and float(found[2]) >= ORIENTATION_LEAST else None


def _run(picture: Image, options: list[str], seconds: float) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, "BMP")
    try:
        completed = subprocess.run(  # noqa: S603
            [PROGRAM, "stdin", "stdout", *options], input=buffer.getvalue(), capture_output=True, timeout=max(seconds, 0.001),
            env={**os.environ, "OMP_THREAD_LIMIT": "1"}, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TesseractFailed(f"a page took longer than {seconds:.0f} s") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise TesseractFailed(str(error)) from error
    if completed.returncode != 0:
        raise TesseractFailed(completed.stderr.decode("utf-8", "replace"))
    return completed.stdout.decode("utf-8", "replace")
