"""How does a confined process say what it has found? In a file in memory, which the caller makes and reads.

It holds the lengths of what follows, then the parts, and last the JSON.

Laws:
- The file is as large as an answer may be, and sealed: it cannot grow. What is not written takes no memory.
- It is read when nobody lives who could write to it, and nothing in it is believed, its lengths neither.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from fairlane.extract.failure import DETAIL_MAX, Unreadable

from .limits import Bounds

PARTS_MAX = 2
_LENGTHS = Struct(f"<{PARTS_MAX}QQ")  # of the parts, and of the JSON
_GARBAGE = b"["
_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_NO_MEMORY = b'{"code": "too_large", "detail": "needs more memory than a document may take"}'  # there is none to make it of


class Answer(NamedTuple):
    """What a confined process has to say: a value that is JSON, and what goes with it."""

    value: object
    parts: tuple[bytes, ...] = ()


class Heard(NamedTuple):
    """What the caller has of an answer, none of which it may believe."""

    value: object
    parts: tuple[bytes, ...]


def answering(work: Callable[[], object]) -> Callable[[int], None]:
    """In the confined process: run, and answer with what comes of it, or with the failure."""

    def call(answer: int) -> None:
        lengths = [0] * PARTS_MAX
        try:
            returned = work()
            value, parts = returned if isinstance(returned, Answer) else Answer(returned)
            said = _json({"value": value}).encode()
            for number, part in enumerate(parts):
                lengths[number] = _write(answer, _LENGTHS.size + sum(lengths), part)
            _write(answer, _LENGTHS.size + sum(lengths), said)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller is told
            lengths, said = [0] * PARTS_MAX, _failure(error)
            _write(answer, _LENGTHS.size, said)
        os.pwrite(answer, _LENGTHS.pack(*lengths, len(said)), 0)
        os._exit(0)

    return call


def _write(answer: int, place: int, part: bytes) -> int:
    """Write a part at this place; returns how many bytes that were."""
    rest = memoryview(part)
    while rest:
        try:
            count = os.pwrite(answer, rest, place)
        except PermissionError as error:  # it is sealed: it does not grow
            raise Unreadable("too_large", f"answers with more than {place:,} bytes") from error
        rest, place = rest[count:], place + count
    return len(part)


def _failure(error: Exception) -> bytes:
    if isinstance(error, MemoryError):
        return _NO_MEMORY
    code, detail = "crashed", f"{type(error).__name__}: {error}"
    if isinstance(error, Unreadable):
        code, detail = error.code, error.detail
    elif isinstance(error, OSError):
        code, detail = "too_large" if error.errno in (errno.EFBIG, errno.ENOSPC, errno.EDQUOT) else "crashed", str(error)
    return json.dumps({"code": code, "detail": detail[:DETAIL_MAX]}).encode()


def new_answer(bounds: Bounds) -> int:
    """Where the confined process may write its answer: so much, and no more."""
    answer = os.memfd_create("fairlane", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(answer, _LENGTHS.size + bounds.parts_max + bounds.answer_max)
    fcntl.fcntl(answer, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return answer


def said(answer: int, bounds: Bounds) -> tuple[bytes, tuple[bytes, ...]]:
    """What stands there once nobody can write to it any more: the JSON, and the parts."""
    *lengths, length = _LENGTHS.unpack(os.pread(answer, _LENGTHS.size, 0))
    if sum(lengths) > bounds.parts_max or length > bounds.answer_max:
        return _GARBAGE, ()
    place, parts = _LENGTHS.size, []
    for one in lengths:
        parts.append(os.pread(answer, one, place))
        place += one
    return os.pread(answer, length, place), tuple(parts)
