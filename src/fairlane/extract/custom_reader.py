"""Readers of your own: functions that read the files of a media type instead of the built-in reader, in the sandbox or outside.

Laws:
- A file is detected, checked and read by the built-in reader first, without OCR; a reader gets no file that this refuses.
- A reader gives text and what it knows better. Size, hash, media type, thumbnail and the files inside are as the built-in
  reader found them.
- The result keeps every law of results, whatever a reader returns; what breaks one is `crashed`, and the detail names it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from fairlane.core.errors import BadValue, Mistake

from .builder import ExtractionBuilder, iso_datetime
from .failure import Unreadable
from .language import guess
from .limits import Limits
from .messages import LANGUAGES
from .result import WARNING_CODES, Extraction, ExtractionWarning, WarningCode

LANGUAGE_SAMPLE = 20_000
_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_ABOUT_THE_FILE = ("wrong_name", "references_ignored", "macros_ignored", "attachments_ignored", "members_skipped")
log = logging.getLogger("fairlane.extract")


class ReaderInput(NamedTuple):
    """What a reader gets: the file, its sender's name for it, the limits, and what the built-in reader found without OCR."""

    path: Path
    name: str
    limits: Limits
    extraction: Extraction


class ReaderPage(NamedTuple):
    """A page as Markdown; without a label that of the built-in reader. `ocr_confidence` is 0 to 1, for text from a picture."""

    text: str
    label: str = ""
    ocr_confidence: float | None = None


@dataclass(frozen=True)
class ReaderResult:
    """What a reader returns. What is left out stays as the built-in reader found it; the language is guessed from the text."""

    pages: Sequence[str | ReaderPage]
    title: str | None = None
    author: str | None = None
    created: str | None = None  # ISO 8601
    modified: str | None = None
    language: str | None = None
    warnings: Sequence[WarningCode | ExtractionWarning] = ()

    def __post_init__(self) -> None:
        if isinstance(self.pages, str) or not isinstance(self.pages, Sequence):
            raise BadValue("pages", self.pages, "a list with the Markdown of each page")
        for number, page in enumerate(self.pages):
            _check_page(f"pages[{number}]", page)
        for name in ("title", "author", "created", "modified"):
            _check_fact(name, getattr(self, name))
        if self.language not in (None, *LANGUAGES):
            raise BadValue("language", self.language, f"one of {', '.join(LANGUAGES)}, or None: it is guessed then")
        for number, warning in enumerate(self.warnings):
            code = warning.code if isinstance(warning, ExtractionWarning) else warning
            if code not in WARNING_CODES:
                raise BadValue(f"warnings[{number}]", code, f"one of {', '.join(WARNING_CODES)}")


def _check_page(name: str, page: object) -> None:
    if isinstance(page, str):
        return
    if not isinstance(page, ReaderPage) or not isinstance(page.text, str) or not isinstance(page.label, str):
        raise BadValue(name, page, "a text, or a ReaderPage of texts")
    confidence: object = page.ocr_confidence
    if confidence is not None and not (type(confidence) in (int, float) and 0 <= confidence <= 1):  # type: ignore[operator]
        raise BadValue(f"ocr_confidence of {name}", confidence, "a number from 0 to 1, or None")


def _check_fact(name: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise BadValue(name, value, "a text or None")
    if value is not None and name in ("created", "modified") and iso_datetime(value) is None:
        raise BadValue(name, value, "a date or time as ISO 8601, such as 2026-11-19T10:30:00, or None")


ReaderFunction = Callable[[ReaderInput], ReaderResult | None]


@dataclass(frozen=True)
class CustomReader:
    """A reader of your own, `module:function`; outside the sandbox it may be the function itself.

    With `slices` it reads the pages of `limits.pages` only, where that is not None. In the sandbox it may read `files` too:
    files and folders, such as a model.
    """

    function: str | ReaderFunction
    sandbox: bool = True
    slices: bool = False
    files: Sequence[str] = ()

    def __post_init__(self) -> None:
        if isinstance(self.function, str):
            if _NAME.fullmatch(self.function) is None:
                raise BadValue("function", self.function, 'a name such as "engine:read": module and function')
        elif not callable(self.function):
            raise BadValue("function", self.function, 'a name such as "engine:read", or a function')
        elif self.sandbox:
            raise BadValue(
                "function", self.function, 'a name such as "engine:read" for the sandbox, which imports the module by itself'
            )
        if isinstance(self.files, str):
            raise BadValue("files", self.files, "a list of files and folders")
        if self.files and not self.sandbox:
            raise BadValue("files", list(self.files), "left out without the sandbox: the reader may read everything then")

    @property
    def name(self) -> str:
        """Its name, for people."""
        return self.function if isinstance(self.function, str) else getattr(self.function, "__name__", repr(self.function))

    def load(self) -> ReaderFunction:
        """Return the function; a `Mistake` if it cannot be imported."""
        return load_function(self.function) if isinstance(self.function, str) else self.function


@cache
def load_function(name: str) -> ReaderFunction:
    """Import a function by its name, `module:function`; a `Mistake` that says what is wrong."""
    module, _, attribute = name.partition(":")
    try:
        function = getattr(import_module(module), attribute, None)
    except (Exception, SystemExit) as error:  # the module is the user's own and may raise anything
        raise Mistake(f"the reader {name} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise Mistake(f"the reader {name} cannot be imported: the module {module} has no function {attribute}")
    return function  # type: ignore[no-any-return]


Readers = Mapping[str, CustomReader]  # by media type


def check_readers(readers: Readers, media_types: Iterable[str]) -> None:
    """Refuse readers of unknown types, and those outside the sandbox that cannot be imported."""
    known = sorted(media_types)
    for media_type, reader in readers.items():
        if media_type not in known:
            raise BadValue("readers", media_type, f"a media type that Fairlane detects: {', '.join(known)}")
        if not isinstance(reader, CustomReader):
            raise BadValue(f"readers[{media_type!r}]", reader, 'a CustomReader, such as CustomReader("engine:read")')
        if not reader.sandbox:
            reader.load()


def readers_for(readers: Readers, limits: Limits) -> Readers:
    """Return the readers for a file or a slice of it; pages are listed without any."""
    if limits.pages is None:
        return readers
    return {} if limits.pages == (0, 0) else {kind: reader for kind, reader in readers.items() if reader.slices}


def without_ocr(limits: Limits) -> Limits:
    """Return the limits of the built-in reader where a reader of your own comes after it."""
    return replace(limits, ocr_pages_max=0)


def read_with(
    function: ReaderFunction, name: str, file: ReaderInput, let_through: tuple[type[Exception], ...] = ()
) -> Extraction | None:
    """Call a reader; None if it leaves the file to the built-in one. What else it raises or returns is `crashed`."""
    deliberate: tuple[type[Exception], ...] = (Unreadable, *let_through)
    try:
        result: Any = function(file)
    except deliberate:
        raise
    except MemoryError as error:
        raise Unreadable("too_large", f"the reader {name} needs more memory than it may take") from error
    except Exception as error:
        log.exception("the reader %s failed", name)
        raise Unreadable("crashed", f"the reader {name} failed: {type(error).__name__}: {error}") from error
    if result is None:
        return None
    if not isinstance(result, ReaderResult):
        raise Unreadable("crashed", f"the reader {name} returned a {type(result).__name__}, not a ReaderResult or None")
    if file.limits.pages is not None and len(result.pages) != len(file.extraction.pages):
        raise Unreadable(
            "crashed",
            f"the reader {name} returned {len(result.pages)} pages for a slice of {len(file.extraction.pages)}, "
            "which limits.pages names",
        )
    return _merge(result, file.extraction, file.limits)


def _merge(result: ReaderResult, extraction: Extraction, limits: Limits) -> Extraction:
    """Return the result of a file: text by a reader, everything else as the built-in reader found it."""
    builder = ExtractionBuilder(Path(), "", None, limits)
    builder.media_type, builder.unit = extraction.media_type, extraction.unit
    first, _ = limits.pages or (0, 0)
    are_same = len(result.pages) == len(extraction.pages)
    for number, content in enumerate(result.pages):
        page = ReaderPage(content) if isinstance(content, str) else content
        builder.new_page(page.label or (extraction.pages[number].label if are_same else ""))
        builder.write(page.text)
        if page.ocr_confidence is not None:
            builder.note_confidence(first + number, max(1, len(page.text)), page.ocr_confidence)
    for source in (result, extraction):
        for fact in ("title", "author", "created", "modified"):
            builder.fact(fact, getattr(source, fact))
    if extraction.width is not None and extraction.height is not None:
        builder.dimensions = extraction.width, extraction.height
    for warning in extraction.warnings:
        if warning.code in _ABOUT_THE_FILE:
            builder.warn(*warning)
    for own in result.warnings:
        builder.warn(*(own if isinstance(own, ExtractionWarning) else (own,)))
    builder.members = list(extraction.members)
    language = result.language or guess(builder.sample(LANGUAGE_SAMPLE))
    return builder.finish(extraction.size, extraction.sha256, language, extraction.thumbnail)
