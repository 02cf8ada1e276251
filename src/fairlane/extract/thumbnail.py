"""Thumbnails: a picture made small, or the first lines of a text drawn as on paper.

Laws:
- A thumbnail is a PNG whose longer side is at most `thumbnail_side`; it carries no metadata of the file.
- Text is drawn with the font in this package, so it looks the same on every machine.
"""

from __future__ import annotations

import io
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont

FONT = "fonts/DejaVuSans-subset.ttf"
LINES, LINE_MAX, FONT_SIZE = 22, 60, 8


def shrink(image: Image, side: int) -> bytes:
    """Return the image as a PNG of at most this side."""
    if image.mode == "1":
        image = image.convert("L")
    elif image.mode not in ("L", "RGB", "RGBA"):
        has_alpha = image.mode in ("LA", "PA", "RGBa", "La") or "transparency" in image.info
        image = image.convert("RGBA" if has_alpha else "L" if image.mode.startswith(("I", "F")) else "RGB")
    else:
        image = image.copy() if max(image.size) <= side else image
    image.thumbnail((side, side), reducing_gap=2.0)
    return as_png(image)


def as_png(image: Image) -> bytes:
    """Return the image as a PNG without metadata."""
    image.info = {}
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


@cache
def font() -> FreeTypeFont:
    """Load the font of this package into memory: a confined process may not open its file."""
    from PIL import ImageFont

    return ImageFont.truetype(io.BytesIO(files(__package__).joinpath(FONT).read_bytes()), FONT_SIZE)


def draw_text(text: str, side: int) -> bytes | None:
    """Draw the first lines, as on a sheet of paper."""
    if not text.strip():
        return None
    from PIL import Image, ImageDraw

    paper = Image.new("L", (side * 181 // 256, side), 255)
    pen = ImageDraw.Draw(paper)
    # `splitlines`, not `split`: Pillow fails on a line with another separator of lines inside, such as U+2029.
    lines = [line[:LINE_MAX].replace("\t", "  ") for line in text.lstrip("\n").splitlines()[:LINES]]
    pen.multiline_text((10, 10), "\n".join(lines), fill=0, font=font(), spacing=3)
    return as_png(paper)
