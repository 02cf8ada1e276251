"""What does a stranger's file say, read where it can do no harm? `extract`, in a confined process.

Facts come as JSON, the text and the picture as the parts that go with it, members as files in the scratch folder.

Laws:
- What comes out is what `extract` gives: an `Extraction`, or an `Unreadable` with the same codes.
- Nothing is believed: types, lengths, offsets, names and files are checked against the laws of a result when they are read
  back, and what breaks one is `crashed`. That the text is what the file says cannot be checked.
- Afterwards the scratch folder holds the members and nothing else; after a failure, nothing.
"""

from __future__ import annotations

import atexit
import codecs
import math
import os
import re
import shutil
import stat
import struct
from functools import partial
from pathlib import Path
from typing import Any, get_args

from fairlane import sandbox
from fairlane.core.errors import BadValue

from . import LANGUAGES, WARNING_CODES, Extraction, Limits, Member, Notice, Page, Unreadable, sandbox_entry, warm
from .draft import BLOCK, CHARACTER_BYTES_MAX, FACT_MAX, is_clean, moment, sha256_of, size_of
from .members import NAME_MAX
from .result import Unit
from .sandbox_entry import read

THUMBNAIL_BYTES_MAX = 10_000_000
MEMORY_MAX = sandbox.Bounds.memory_max
FACTS = frozenset(Extraction.__dataclass_fields__) - {"text_bytes", "thumbnail"}
_MEMBER = re.compile(r"member-\d{5,6}")
_MEDIA_TYPE = re.compile(r"[a-z]+/[a-z0-9.+-]{1,100}")
_PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


_template: sandbox.Template | None = None


def prepare() -> None:
    """Once, for this process and its forks: refuse where files cannot be confined, and start a template, so that attempts
    begin faster and know nothing of what is in memory here."""
    global _template
    sandbox.require()
    if _template is None:
        try:
            _template = sandbox.Template.started(sandbox_entry.__name__)
            atexit.register(release)
        except sandbox.Gone:
            warm()  # attempts will be forks of this process


def release() -> None:
    """Let go of the template: attempts are forks of this process again."""
    global _template
    if _template is not None:
        _template.close()
        _template = None


def extract_isolated(
    path: Path,
    name: str,
    scratch: Path,
    limits: Limits | None = None,
    depth: int = 0,
    memory_max: int = MEMORY_MAX,
    *,
    sha256: str | None = None,
    without: frozenset[str] = frozenset(),
) -> Extraction:
    """Read a file as `extract` does, in a confined process; `scratch` is an empty folder of this attempt's own."""
    limits = limits or Limits()
    if next(scratch.iterdir(), None) is not None:
        raise BadValue("scratch", str(scratch), "an empty folder")
    path, place = path.absolute(), scratch.absolute()
    size = size_of(path, limits)
    sha256 = sha256 or sha256_of(path)  # here, where it costs less: a fork copies every page that it touches
    try:
        bounds = bounds_of(limits, memory_max)
        try:
            if _template is None:
                raise sandbox.Gone("there was none")
            arguments = [str(path), name, str(place), vars(limits), depth, sha256]
            heard = sandbox.run_in(_template, arguments, scratch, bounds, (path,), without=without)
        except sandbox.Gone:
            work = partial(read, path, name, place, limits, depth, sha256)
            heard = sandbox.run(work, scratch, bounds, (path,), without=without)
        result = _checked(heard, size, sha256, scratch, limits)
    except BaseException:
        _clear(scratch, ())
        raise
    _clear(scratch, [one.path.name for one in result.members])
    return result


def bounds_of(limits: Limits, memory_max: int = MEMORY_MAX) -> sandbox.Bounds:
    """What stands behind the limits of a file: a little more, so that the extractor's own words come first."""
    parts_max = limits.text_max * CHARACTER_BYTES_MAX + THUMBNAIL_BYTES_MAX
    return sandbox.Bounds(
        seconds_max=limits.seconds_max + 2,
        cpu_seconds_max=math.ceil(limits.seconds_max) + 1,
        memory_max=memory_max,
        file_max=max(limits.unpacked_max, parts_max + sandbox.Bounds.answer_max) + 4096,
        scratch_max=limits.unpacked_max + 4096 * limits.members_max,
        files_max=limits.members_max + 10,
        parts_max=parts_max,
    )


def _clear(scratch: Path, kept: list[str] | tuple[()]) -> None:
    with os.scandir(scratch) as entries:
        for entry in list(entries):
            if entry.name in kept:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)


class _Garbage(Exception):
    """What came back breaks a law of results."""


def _checked(heard: sandbox.Heard, size: int, sha256: str, scratch: Path, limits: Limits) -> Extraction:
    """What came back, as a result; everything is looked at."""
    facts, (content, picture) = heard.value, heard.parts
    try:
        if not isinstance(facts, dict) or facts.keys() != FACTS:
            raise _Garbage("facts")
        length = _length(content, limits)
        return Extraction(
            media_type=_matching(facts, "media_type", _MEDIA_TYPE),
            size=_one_of(facts, "size", (size,)),
            sha256=_one_of(facts, "sha256", (sha256,)),
            text_bytes=content,
            unit=_one_of(facts, "unit", get_args(Unit)),
            pages=_pages(facts, length, limits),
            title=_shown(facts, "title"),
            author=_shown(facts, "author"),
            created=_moment(facts, "created"),
            modified=_moment(facts, "modified"),
            language=_one_of(facts, "language", (None, *LANGUAGES)),
            width=_pixels(facts, "width", limits),
            height=_pixels(facts, "height", limits),
            thumbnail=_thumbnail(picture, limits) if picture else None,
            warnings=_warnings(facts),
            members=_members(facts, scratch, limits),
        )
    except (_Garbage, OSError) as error:
        raise Unreadable("crashed", f"the answer breaks a law of results: {error}") from error


# -- parts and files


def _length(content: bytes, limits: Limits) -> int:
    """How many characters these bytes are, if they are text. Block by block: none is kept."""
    length, place, whole = 0, 0, memoryview(content)
    try:
        while place < len(content):
            block, used = codecs.utf_8_decode(whole[place : place + BLOCK], "strict", place + BLOCK >= len(content))
            length, place = length + len(block), place + used
    except UnicodeDecodeError as error:
        raise _Garbage("text") from error
    if length > limits.text_max or not is_clean(content):
        raise _Garbage("text")
    return length


def _thumbnail(content: bytes, limits: Limits) -> bytes:
    if not content.startswith(_PNG) or not len(_PNG) + 8 <= len(content) <= THUMBNAIL_BYTES_MAX:
        raise _Garbage("thumbnail")
    if not all(0 < side <= limits.thumbnail_side for side in struct.unpack_from(">II", content, len(_PNG))):
        raise _Garbage("thumbnail")
    return content


def _members(facts: dict[str, Any], scratch: Path, limits: Limits) -> tuple[Member, ...]:
    members = []
    for number, one in enumerate(_list(facts, "members", {"name", "size", "path"}, limits.members_max), start=1):
        name = _matching(one, "path", _MEMBER)
        if name != f"member-{number:05d}":
            raise _Garbage("members")
        handle = _opened(scratch / name)
        try:
            size = _one_of(one, "size", (os.fstat(handle).st_size,))
            if os.geteuid() == 0:
                os.fchown(handle, 0, os.getegid())  # it was written by the user whom root became
        finally:
            os.close(handle)
        members.append(Member(_shown(one, "name", NAME_MAX) or "", size, scratch / name))
    return tuple(members)


def _opened(path: Path) -> int:
    """A plain file in the scratch folder: no link, no device, no second name."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(handle)
        raise _Garbage(f"{path.name} is not a plain file")
    return handle


# -- facts


def _one_of(facts: dict[str, Any], name: str, values: tuple[Any, ...]) -> Any:
    for value in values:
        if type(facts[name]) is type(value) and facts[name] == value:
            return value
    raise _Garbage(name)


def _matching(facts: dict[str, Any], name: str, pattern: re.Pattern[str]) -> str:
    value = facts[name]
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise _Garbage(name)
    return value


def _shown(facts: dict[str, Any], name: str, length_max: int = FACT_MAX) -> str | None:
    value = facts[name]
    if value is None or (isinstance(value, str) and value.isprintable() and len(value) <= length_max):
        return value
    raise _Garbage(name)


def _moment(facts: dict[str, Any], name: str) -> str | None:
    value = _shown(facts, name)
    if value is not None and moment(value) != value:
        raise _Garbage(name)
    return value


def _whole(facts: dict[str, Any], name: str, least: int, most: int) -> int:
    value = facts[name]
    if type(value) is not int or not least <= value <= most:
        raise _Garbage(name)
    return value


def _pixels(facts: dict[str, Any], name: str, limits: Limits) -> int | None:
    return None if facts[name] is None else _whole(facts, name, 1, limits.pixels_max)


def _list(facts: dict[str, Any], name: str, keys: set[str], count_max: int) -> list[dict[str, Any]]:
    found = facts[name]
    if not isinstance(found, list) or len(found) > count_max:
        raise _Garbage(name)
    if not all(isinstance(one, dict) and one.keys() == keys for one in found):
        raise _Garbage(name)
    return found


def _pages(facts: dict[str, Any], length: int, limits: Limits) -> tuple[Page, ...]:
    """They follow each other and cover the text."""
    pages: list[Page] = []
    last = 0
    for one in _list(facts, "pages", {"label", "start", "end"}, max(1, limits.pages_max)):
        start, end = one["start"], one["end"]
        if type(start) is not int or start != last or type(end) is not int or not start <= end <= length:
            raise _Garbage("pages")
        pages.append(Page(_shown(one, "label") or "", start, end))
        last = end
    if not pages or last != length:
        raise _Garbage("pages")
    return tuple(pages)


def _warnings(facts: dict[str, Any]) -> tuple[Notice, ...]:
    """Each at most once."""
    found = _list(facts, "warnings", {"code", "detail"}, len(WARNING_CODES))
    notices = tuple(Notice(_one_of(one, "code", WARNING_CODES), _shown(one, "detail") or "") for one in found)
    if len({one.code for one in notices}) != len(notices):
        raise _Garbage("warnings")
    return notices
