"""What does this file say? One function that turns a local file into text, facts and a picture, or into one error.

`extract` is made to run in a child process with limits of its own: parsers of others are used on strangers' files here.

Laws:
- Out comes an `Extraction` or an `Unreadable`, nothing else.
- Nothing is read but the file; nothing is written but members, into the scratch folder; no connection is made. The only
  program that is started is tesseract.
- Parsers are imported when a file needs them; `warm` imports them all, for a template that children are forked from.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path

from .draft import Draft, sha256_of, size_of
from .failure import CAN_RETRY, Code, Unreadable
from .language import guess
from .limits import Limits
from .messages import LANGUAGES, failure_code, failure_text, warning_text
from .result import WARNING_CODES, Extraction, Member, Notice, Page

__all__ = [
    "CAN_RETRY",
    "LANGUAGES",
    "WARNING_CODES",
    "Code",
    "Extraction",
    "Limits",
    "Member",
    "Notice",
    "Page",
    "Unreadable",
    "extract",
    "failure_code",
    "failure_text",
    "warm",
    "warning_text",
]
LANGUAGE_SAMPLE = 20_000
PICTURE_SAMPLE = 4_000


def extract(
    path: Path, name: str, scratch: Path | None = None, limits: Limits | None = None, depth: int = 0, sha256: str | None = None
) -> Extraction:
    """Read a file; `name` is what its sender calls it, `depth` how many archives it came out of, `sha256` its hash if known."""
    try:
        return _extract(Draft(path, name, scratch, limits or Limits(), depth), sha256)
    except Unreadable:
        raise
    except MemoryError as error:
        raise Unreadable("too_large", "needs more memory than a document may take") from error
    except Exception as error:
        raise Unreadable("crashed", f"{type(error).__name__}: {error}") from error


def _extract(draft: Draft, sha256: str | None) -> Extraction:
    size = size_of(draft.path, draft.limits)
    sha256 = sha256 or sha256_of(draft.path)
    from .sniff import MODULES, media_type

    draft.media_type = media_type(draft)
    _reader(MODULES[draft.media_type])(draft)
    sample = draft.sample(LANGUAGE_SAMPLE)
    return draft.finish(size, sha256, guess(sample), _thumbnail(draft, sample))


@cache
def _reader(name: str) -> Callable[[Draft], None]:
    module, _, function = name.partition(".")
    found: Callable[[Draft], None] = getattr(import_module(f"{__name__}.{module}"), function)
    return found


def _thumbnail(draft: Draft, text: str) -> bytes | None:
    if not draft.limits.thumbnail_side:
        return None
    if draft.picture is not None:
        return draft.picture()
    if draft.members:
        return None
    from .pictures import draw_text

    return draw_text(text[:PICTURE_SAMPLE], draft.limits.thumbnail_side)


def warm() -> None:
    """Import every parser, so that a child that is forked afterwards need not."""
    import codecs
    import email.parser  # noqa: F401

    import charset_normalizer  # noqa: F401
    import pypdfium2  # type: ignore[import-untyped]  # noqa: F401
    from PIL import Image, ImageDraw, ImageFont, ImageOps, MpoImagePlugin, TiffImagePlugin, WebPImagePlugin  # noqa: F401

    from .pictures import font
    from .sniff import MODULES

    for reader in MODULES.values():
        _reader(reader)
    Image.preinit()  # the other formats that are read; `init` would load forty more
    for encoding in ("cp437", "cp1250", "cp1252", "iso8859-2", "utf-16", "utf-32", "raw-unicode-escape"):
        codecs.lookup(encoding)
    font()
