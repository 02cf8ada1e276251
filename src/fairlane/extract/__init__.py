"""Text extraction: `extract` turns a local file into text, facts and a thumbnail, or raises `Unreadable`.

Meant to run in a child process with resource limits: it feeds untrusted files to third-party parsers. `sandboxed` does that.

Laws:
- The outcome is an `Extraction` or an `Unreadable`, nothing else.
- It reads only the file, writes only members into the scratch folder (after a failure none), and makes no connection. The
  only program it starts is tesseract.
- Parsers are imported when a file needs them; `warm` imports them all, for a process that will be forked.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

from .builder import ExtractionBuilder, check_size, file_sha256
from .custom_reader import (
    LANGUAGE_SAMPLE,
    CustomReader,
    ReaderInput,
    ReaderPage,
    ReaderResult,
    load_function,
    read_with,
    without_ocr,
)
from .failure import CAN_RETRY, Code, Unreadable
from .language import guess
from .limits import Limits
from .member_store import MemberFolder
from .messages import LANGUAGES, failure_code, failure_text, warning_text
from .result import WARNING_CODES, Extraction, ExtractionWarning, Member, Page

__all__ = [
    "CAN_RETRY",
    "LANGUAGES",
    "WARNING_CODES",
    "Code",
    "CustomReader",
    "Extraction",
    "ExtractionWarning",
    "Limits",
    "Member",
    "Page",
    "ReaderInput",
    "ReaderPage",
    "ReaderResult",
    "Unreadable",
    "extract",
    "failure_code",
    "failure_text",
    "warm",
    "warning_text",
]
PICTURE_SAMPLE = 4_000


def extract(
    path: Path, name: str, scratch: Path | None = None, limits: Limits | None = None, depth: int = 0, sha256: str | None = None
) -> Extraction:
    """Read a file; `name` is its sender's name for it, `depth` how many archives it came out of, `sha256` its hash if known."""
    member_store = None if scratch is None else MemberFolder(scratch)
    builder = ExtractionBuilder(path, name, member_store, limits or Limits(), depth)
    try:
        return build(builder, sha256)
    except Unreadable:
        for member in builder.members:
            member.path.unlink(missing_ok=True)
        raise


def build(builder: ExtractionBuilder, sha256: str | None, readers: Mapping[str, str | None] | None = None) -> Extraction:
    """Read the file of a builder; `readers` are your own by media type, None for one that comes later, outside the sandbox."""
    try:
        return _read(builder, sha256, readers or {})
    except Unreadable:
        raise
    except MemoryError as error:
        raise Unreadable("too_large", "needs more memory than a document may take") from error
    except Exception as error:
        raise Unreadable("crashed", f"{type(error).__name__}: {error}") from error


def _read(builder: ExtractionBuilder, sha256: str | None, readers: Mapping[str, str | None]) -> Extraction:
    limits = builder.limits
    extraction = _extract(builder, sha256, readers.keys())
    name = readers.get(extraction.media_type)
    if name is None:
        return extraction
    own = read_with(load_function(name), name, ReaderInput(builder.path, builder.name, limits, extraction))
    if own is not None or extraction.members:  # files that hold others have no OCR
        return own or extraction
    return _extract(ExtractionBuilder(builder.path, builder.name, builder.member_store, limits, builder.depth), sha256)


def _extract(builder: ExtractionBuilder, sha256: str | None, types_without_ocr: Container[str] = ()) -> Extraction:
    size = check_size(builder.path, builder.limits)
    sha256 = sha256 or file_sha256(builder.path)
    from .sniff import READERS, detect_media_type

    builder.media_type = detect_media_type(builder)
    if builder.media_type in types_without_ocr:
        builder.limits = without_ocr(builder.limits)
    _load_reader(READERS[builder.media_type])(builder)
    sample = builder.sample(LANGUAGE_SAMPLE)
    return builder.finish(size, sha256, guess(sample), _thumbnail(builder, sample))


@cache
def _load_reader(name: str) -> Callable[[ExtractionBuilder], None]:
    module, _, function = name.partition(".")
    reader: Callable[[ExtractionBuilder], None] = getattr(import_module(f"{__name__}.{module}"), function)
    return reader


def _thumbnail(builder: ExtractionBuilder, text: str) -> bytes | None:
    if not builder.limits.thumbnail_side:
        return None
    if builder.picture is not None:
        return builder.picture()
    if builder.members:
        return None
    from .thumbnail import draw_text

    return draw_text(text[:PICTURE_SAMPLE], builder.limits.thumbnail_side)


def warm() -> None:
    """Import every parser, so that processes forked later need not."""
    import codecs
    import email.parser  # noqa: F401

    import charset_normalizer  # noqa: F401
    import pypdfium2  # type: ignore[import-untyped]  # noqa: F401
    from PIL import Image, ImageDraw, ImageFont, ImageOps  # noqa: F401

    from .image import load_decoders
    from .sniff import READERS
    from .thumbnail import font

    for reader in READERS.values():
        _load_reader(reader)
    Image.preinit()  # the usual image formats; `init` would load forty more
    load_decoders()
    for encoding in ("cp437", "cp1250", "cp1252", "iso8859-2", "utf-16", "utf-32", "raw-unicode-escape"):
        codecs.lookup(encoding)
    font()
