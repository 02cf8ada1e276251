"""Image extractor: dimensions, author and dates, a thumbnail, and the text by OCR.

Laws:
- Dimensions are read and checked before anything is decoded.
- An image is turned upright, by the orientation that the camera recorded.
- A TIFF has pages; of an animation only the first frame is read.
- HEIC needs a decoder that Pillow does not carry; it is used where pi-heif or pillow-heif is installed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from .builder import ExtractionBuilder
from .failure import Unreadable, corrupt_on_error
from .ocr import Ocr
from .thumbnail import shrink

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = {
    "image/png": "PNG",
    "image/jpeg": "JPEG",
    "image/tiff": "TIFF",
    "image/webp": "WEBP",
    "image/gif": "GIF",
    "image/bmp": "BMP",
    "image/jp2": "JPEG2000",
    "image/avif": "AVIF",
    "image/heic": "HEIF",
}
HEIC_DECODERS = ("pillow_heif", "pi_heif")
DESCRIPTION, ARTIST, CHANGED, TAKEN, DETAILS = 0x010E, 0x013B, 0x0132, 0x9003, 0x8769


def load_decoders() -> None:
    """Load the decoders that Pillow loads late or does not carry, with a single thread each: the sandbox allows no others."""
    from PIL import AvifImagePlugin, Jpeg2KImagePlugin, MpoImagePlugin, TiffImagePlugin, WebPImagePlugin  # noqa: F401

    AvifImagePlugin.DEFAULT_MAX_THREADS = 1
    heic_decoder()


@cache
def heic_decoder() -> str | None:
    """Register a decoder for HEIC, and return its name, if there is one."""
    for name in HEIC_DECODERS:
        try:
            decoder = import_module(name)
        except ImportError:
            continue
        decoder.register_heif_opener(thumbnails=False, depth_images=False, aux_images=False, decode_threads=1)
        return name
    return None


@contextmanager
def _open_image(builder: ExtractionBuilder) -> Iterator[Image]:
    from PIL import Image

    load_decoders()
    if builder.media_type == "image/heic" and heic_decoder() is None:
        raise Unreadable("unsupported", "image/heic; its decoder is not installed, see the extra `heic`")
    Image.MAX_IMAGE_PIXELS = builder.limits.pixels_max
    with warnings.catch_warnings(), corrupt_on_error("Pillow"):
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(builder.path, formats=[FORMATS[builder.media_type]]) as image:
                yield image
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise Unreadable("too_large", str(error)) from error


def read(builder: ExtractionBuilder) -> None:
    """Decode every page once, for its size, its thumbnail and its text."""
    ocr = Ocr(builder)
    with _open_image(builder) as image:
        if builder.media_type == "image/tiff" and builder.limits.pages is not None:
            return _read_slice(builder, image, ocr)
        number = 0
        while True:
            builder.new_page(str(number + 1))
            _read_page(builder, image, ocr, number)
            number += 1
            if builder.media_type != "image/tiff" or not _seek_frame(image, number):
                return None


def _read_slice(builder: ExtractionBuilder, image: Image, ocr: Ocr) -> None:
    """Read some frames of a TIFF, or list all of them."""
    count: int = image.n_frames  # type: ignore[attr-defined]
    builder.meter.check_pages(count)
    for number in range(count) if builder.only_lists_pages else builder.pages_to_read(count):
        builder.new_page(str(number + 1))
        if not builder.only_lists_pages and _seek_frame(image, number):
            _read_page(builder, image, ocr, number)


def _seek_frame(image: Image, number: int) -> bool:
    try:
        image.seek(number)
    except EOFError:
        return False
    return True


def _read_page(builder: ExtractionBuilder, image: Image, ocr: Ocr, number: int) -> None:
    from PIL import ImageOps

    builder.meter.check_pixels(*image.size)
    if number and not ocr.can_read:
        return  # without OCR only the first page is used
    if number == 0:
        _read_facts(builder, image)
    upright = ImageOps.exif_transpose(image)
    builder.meter.check_time()
    if number == 0:
        builder.dimensions = upright.size
    if ocr.can_read:
        builder.write(ocr.read(upright, number))
    if number == 0 and builder.limits.thumbnail_side:
        thumbnail = shrink(upright, builder.limits.thumbnail_side)
        builder.picture = lambda: thumbnail


def _read_facts(builder: ExtractionBuilder, image: Image) -> None:
    """Read title, author and dates from EXIF."""
    exif = image.getexif()
    builder.fact("title", _exif_text(exif.get(DESCRIPTION)))
    builder.fact("author", _exif_text(exif.get(ARTIST)))
    taken = exif.get_ifd(DETAILS).get(TAKEN) if DETAILS in exif else None
    builder.fact("created", _exif_datetime(_exif_text(taken)))
    builder.fact("modified", _exif_datetime(_exif_text(exif.get(CHANGED))))


def _exif_text(value: object) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str):
        return ""
    try:  # Pillow reads bytes as Latin 1, cameras and programs write UTF-8
        return value.encode("latin-1").decode("utf-8")
    except ValueError:
        return value


def _exif_datetime(text: str) -> str:
    """Convert the form that cameras write, 2026:03:01 09:30:00."""
    day, _, time = text.strip(" \0").partition(" ")
    return f"{day.replace(':', '-')}T{time}" if time else ""
