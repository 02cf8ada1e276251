"""What is on an image? Its size, when and by whom it was made, its look, and, by OCR, its words.

Laws:
- Dimensions are read and checked before anything is decoded.
- An image stands as it is looked at: the orientation that a camera noted is applied.
- A TIFF has pages; of an animation only the first picture counts.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .draft import Draft
from .failure import Unreadable, foreign
from .ocr import Ocr
from .pictures import shrink

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = {
    "image/png": "PNG",
    "image/jpeg": "JPEG",
    "image/tiff": "TIFF",
    "image/webp": "WEBP",
    "image/gif": "GIF",
}
DESCRIPTION, ARTIST, CHANGED, TAKEN, DETAILS = 0x010E, 0x013B, 0x0132, 0x9003, 0x8769


@contextmanager
def _opened(draft: Draft) -> Iterator[Image]:
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = draft.limits.pixels_max
    with warnings.catch_warnings(), foreign("Pillow"):
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(draft.path, formats=[FORMATS[draft.media_type]]) as image:
                yield image
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise Unreadable("too_large", str(error)) from error


def read(draft: Draft) -> None:
    """Every page is looked at once: for its size, the thumbnail and the words on it."""
    ocr = Ocr(draft)
    with _opened(draft) as image:
        number = 0
        while True:
            draft.new_page(str(number + 1))
            _read_page(draft, image, ocr, number)
            number += 1
            if draft.media_type != "image/tiff" or not _turn(image, number):
                return


def _turn(image: Image, number: int) -> bool:
    try:
        image.seek(number)
    except EOFError:
        return False
    return True


def _read_page(draft: Draft, image: Image, ocr: Ocr, number: int) -> None:
    from PIL import ImageOps

    draft.meter.pixels(*image.size)
    if number and not ocr.is_wanted:
        return  # nothing would be done with it
    if number == 0:
        _read_facts(draft, image)
    upright = ImageOps.exif_transpose(image)
    draft.meter.tick()
    if number == 0:
        draft.dimensions = upright.size
    if ocr.is_wanted:
        draft.write(ocr.read(upright))
    if number == 0 and draft.limits.thumbnail_side:
        thumbnail = shrink(upright, draft.limits.thumbnail_side)
        draft.picture = lambda: thumbnail


def _read_facts(draft: Draft, image: Image) -> None:
    """Who, when and what, from EXIF."""
    exif = image.getexif()
    draft.fact("title", _told(exif.get(DESCRIPTION)))
    draft.fact("author", _told(exif.get(ARTIST)))
    taken = exif.get_ifd(DETAILS).get(TAKEN) if DETAILS in exif else None
    draft.fact("created", _moment(_told(taken)))
    draft.fact("modified", _moment(_told(exif.get(CHANGED))))


def _told(value: object) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str):
        return ""
    try:  # Pillow reads bytes as Latin 1, cameras and programs write UTF-8
        return value.encode("latin-1").decode("utf-8")
    except ValueError:
        return value


def _moment(text: str) -> str:
    """Cameras write 2026:03:01 09:30:00."""
    day, _, time = text.strip(" \0").partition(" ")
    return f"{day.replace(':', '-')}T{time}" if time else ""
