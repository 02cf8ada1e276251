"""Previews: the picture of its first page that an office program keeps in a document, or the cover of a book, as the thumbnail.

Laws:
- A preview is decoded within the limits of a picture and drawn anew, like every thumbnail.
- One that is missing, damaged, too large or of a single colour is no failure: the first lines are drawn instead.
"""

from __future__ import annotations

import io
import warnings

from .builder import ExtractionBuilder
from .failure import Unreadable, corrupt_on_error
from .thumbnail import shrink
from .zip_package import Package

BYTES_MAX = 5_000_000
FORMATS = ["PNG", "JPEG", "WEBP", "GIF"]


def read_preview(builder: ExtractionBuilder, package: Package, part: str) -> None:
    """Use a part of the package as the thumbnail, if it is there and shows something."""
    if not builder.limits.thumbnail_side or builder.picture is not None or not package.is_small(part, BYTES_MAX):
        return
    try:
        thumbnail = _shrunk(builder, package.read_small(part, BYTES_MAX))
    except Unreadable as error:
        if error.code not in ("corrupt", "too_large"):
            raise
        return
    if thumbnail is not None:
        builder.picture = lambda: thumbnail


def _shrunk(builder: ExtractionBuilder, content: bytes) -> bytes | None:
    from PIL import Image

    with warnings.catch_warnings(), corrupt_on_error("Pillow"):
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            builder.meter.check_pixels(*image.size)
            if image.convert("L").getcolors(1) is not None:
                return None  # a single shade
            return shrink(image, builder.limits.thumbnail_side)
