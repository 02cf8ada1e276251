"""A scanned page before OCR: even light, straight lines, and which way they run.

All is found on a reduced copy, in some twenty milliseconds a page; a page that needs nothing is not touched.

Laws:
- Lines show in a profile, the darkness of each row of pixels: the straighter the lines, the more it goes up and down. The angle
  with the sharpest profile is the skew. The same is done with columns, for pages that were turned.
- A page is changed only where its profile is clear: a photo stays as it is.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 900  # pixels of the reduced copy
BORDER = 0.03  # of a page that is left out: scanners leave black bars there
STRIPS = 32  # in which the copy is sheared instead of turned: that takes a hundredth of the time
SKEW_MAX, SKEW_LEAST = 12.0, 0.5  # degrees
CLEAR = 3.0  # how much sharper lines must show than at a usual angle
SHARPER = 1.3  # how much sharper they must show than as they are
SHADE_SHARE = 0.4  # of the contrast of the ink; differences of the light beyond that hide letters


class Lines(NamedTuple):
    """How the lines of a page run: their skew in degrees, and whether they run down instead of across."""

    skew: float = 0.0
    is_down: bool = False
    is_clear: bool = False


def flatten(image: Image) -> Image:
    """Return the picture in grey, on white where it is transparent."""
    if image.mode in ("LA", "RGBA", "PA") or "transparency" in image.info:
        from PIL.Image import alpha_composite, new

        image = image.convert("RGBA")
        image = alpha_composite(new("RGBA", image.size, "white"), image)
    return image.convert("L")


def even_out(page: Image) -> Image:
    """Return the page with even light and full contrast; the same page if it has both."""
    from PIL import ImageChops, ImageFilter, ImageOps

    small = page.reduce(max(1, max(page.size) // SIDE))
    paper = small.reduce(3) if min(small.size) > 60 else small
    paper = paper.filter(ImageFilter.MaxFilter(9)).filter(ImageFilter.GaussianBlur(4))
    shade = _level(paper, 0.9) - _level(paper, 0.1)
    contrast = _level(ImageChops.subtract(paper.resize(small.size), small), 0.98)
    if shade <= contrast * SHADE_SHARE:
        return page
    ink = ImageChops.subtract(paper.resize(page.size), page)
    return ImageOps.invert(ImageOps.autocontrast(ink, cutoff=(2, 1)))


def _level(image: Image, share: float) -> int:
    """Return the grey that this share of the pixels does not exceed."""
    left = share * image.width * image.height
    for level, count in enumerate(image.histogram()):
        left -= count
        if left <= 0:
            return level
    return 255


def find_lines(page: Image) -> Lines:
    """Find how the lines of a page run."""
    from PIL import ImageChops, ImageOps
    from PIL.Image import Transpose

    small = page.reduce(max(1, max(page.size) // SIDE))
    small = ImageChops.invert(ImageOps.crop(small, round(BORDER * min(small.size))))  # outside of a sheared picture is black
    score, skew, is_clear = _find_skew(small)
    turned_score, turned_skew, is_turned_clear = _find_skew(small.transpose(Transpose.ROTATE_90))
    if turned_score > score and is_turned_clear:
        return Lines(turned_skew, is_down=turned_score > CLEAR * score, is_clear=True)
    return Lines(skew, is_clear=True) if is_clear else Lines()


def straighten(page: Image, lines: Lines) -> Image:
    """Turn a page by its skew."""
    from PIL.Image import Resampling

    if abs(lines.skew) < SKEW_LEAST:
        return page
    return page.rotate(-lines.skew, Resampling.BICUBIC, expand=True, fillcolor=_level(page, 0.9))


def _find_skew(small: Image) -> tuple[int, float, bool]:
    """Return how sharply lines show at the best angle, that angle, and whether they are lines at all."""
    from PIL.Image import Resampling

    strips = small.resize((STRIPS, small.height), Resampling.BOX)
    step = small.width / STRIPS
    coarse = {
        degrees / 2: _sharpness(strips, degrees / 2, step) for degrees in range(-int(2 * SKEW_MAX), int(2 * SKEW_MAX) + 1)
    }
    around = max(coarse, key=lambda degrees: coarse[degrees])
    fine = {around + eighths / 8: _sharpness(strips, around + eighths / 8, step) for eighths in range(-4, 5)}
    best = max(fine, key=lambda degrees: fine[degrees])
    usual = sorted(coarse.values())[len(coarse) // 2]
    if fine[best] < coarse[0.0] * SHARPER:
        best = 0.0
    return max(fine.values()), best, max(fine.values()) > CLEAR * usual


def _sharpness(strips: Image, degrees: float, step: float) -> int:
    """Return how much the profile goes up and down when the page is sheared by this angle."""
    from PIL.Image import Resampling, Transform

    shear = -math.tan(math.radians(degrees)) * step
    matrix = (1.0, 0.0, 0.0, shear, 1.0, -shear * STRIPS / 2)
    sheared = strips.transform(strips.size, Transform.AFFINE, matrix, Resampling.NEAREST)
    profile = sheared.resize((1, strips.height), Resampling.BOX).tobytes()
    return sum((above - below) ** 2 for above, below in pairwise(profile))
