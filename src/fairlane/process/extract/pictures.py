"""How is a picture made small, and how are the first lines of a text drawn?

Laws:
- A thumbnail is a PNG whose longer side is at most `thumbnail_side`; it carries nothing of the file but its look.
- A text is drawn only with a font of the system that has the letters of our languages; without one there is no picture.
"""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont

FONTS = (
    "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
    "/usr/share/fonts/dejavu-sans-fonts/DejaVuSans.ttf",
    "/usr/share/fonts/TTF/DejaVuSans.ttf",
    "/usr/share/fonts/dejavu/DejaVuSans.ttf",
    "/usr/share/fonts/truetype/liberation/LiberationSans-Regular.ttf",
    "/usr/share/fonts/liberation-sans/LiberationSans-Regular.ttf",
    "/usr/share/fonts/truetype/noto/NotoSans-Regular.ttf",
    "/usr/share/fonts/noto/NotoSans-Regular.ttf",
    "/usr/share/fonts/truetype/freefont/FreeSans.ttf",
)
LETTERS = "łżãõçñ¿äöüß"
LINES, LINE_MAX, FONT_SIZE = 22, 60, 8


def shrink(image: Image, side: int) -> bytes:
    """A PNG of this image, small enough."""
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
    """The image as PNG, without what the file had beside it."""
    image.info = {}
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


@cache
def font(paths: tuple[str, ...] = FONTS) -> FreeTypeFont | None:
    """A font of this system that has the letters of our languages."""
    from PIL import ImageFont

    for path in paths:
        try:
            if Path(path).is_file():
                found = ImageFont.truetype(path, FONT_SIZE)
                missing = bytes(found.getmask("\u0378"))
                if all(bytes(found.getmask(letter)) != missing for letter in LETTERS):
                    return found
        except OSError:
            continue
    return None


def draw_text(text: str, side: int) -> bytes | None:
    """The first lines, as on a sheet of paper."""
    found = font()
    if found is None or not text.strip():
        return None
    from PIL import Image, ImageDraw

    paper = Image.new("L", (side * 181 // 256, side), 255)
    pen = ImageDraw.Draw(paper)
    lines = [line[:LINE_MAX].replace("\t", "  ") for line in text.lstrip("\n").split("\n")[:LINES]]
    pen.multiline_text((10, 10), "\n".join(lines), fill=0, font=found, spacing=3)
    return as_png(paper)
