"""The response of a confined process: a sealed file in memory, made and read by the caller.

It contains the lengths of what follows, then the binary parts, then a JSON body.

Laws:
- The file is as large as a response may be, and sealed against growing. Bytes that are never written take no memory.
- It is read when no process is left that could write to it, and nothing in it is trusted, not even the lengths.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple, NoReturn

from .errors import AttemptFailed, Crashed, LimitExceeded, WorkFailed
from .limits import ResourceLimits

PARTS_COUNT_MAX = 2
DETAIL_MAX = 300  # characters
MALFORMED = "the response is malformed"
_LENGTHS = Struct(f"<{PARTS_COUNT_MAX}QQ")  # of the parts, and of the body
_encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_OUT_OF_MEMORY = b'{"code": "too_large", "detail": "needs more memory than it may take"}'  # no memory is left to build it


class Response(NamedTuple):
    """A JSON value and binary parts. Outside of the confined process neither can be trusted."""

    value: object
    parts: tuple[bytes, ...] = ()


def response_size(limits: ResourceLimits) -> int:
    """Return the bytes of the largest response."""
    return _LENGTHS.size + limits.parts_max + limits.response_max


def create_response_file(limits: ResourceLimits) -> int:
    """Return a file in memory that a response fits into and nothing larger."""
    file = os.memfd_create("fairlane", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, response_size(limits))
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return file


# -- in the confined process


def run_and_respond(work: Callable[[], object], file: int) -> NoReturn:
    """Run the work, write its result or its failure to the response file, and exit."""
    lengths = [0] * PARTS_COUNT_MAX
    try:
        result = work()
        value, parts = result if isinstance(result, Response) else Response(result)
        body = _encode_json({"value": value}).encode()
        for number, part in enumerate(parts):
            lengths[number] = _write(file, _LENGTHS.size + sum(lengths), part)
        _write(file, _LENGTHS.size + sum(lengths), body)
    except Exception as error:  # noqa: BLE001 - every failure becomes the response
        lengths, body = [0] * PARTS_COUNT_MAX, _encode_failure(error)
        _write(file, _LENGTHS.size, body)
    os.pwrite(file, _LENGTHS.pack(*lengths, len(body)), 0)
    os._exit(0)


def _write(file: int, position: int, content: bytes) -> int:
    """Write all bytes at this position; return how many there were."""
    rest = memoryview(content)
    while rest:
        try:
            count = os.pwrite(file, rest, position)
        except PermissionError as error:  # the seal: the file does not grow
            raise LimitExceeded(f"its response has more than {position:,} bytes") from error
        rest, position = rest[count:], position + count
    return len(content)


def _encode_failure(error: Exception) -> bytes:
    if isinstance(error, MemoryError):
        return _OUT_OF_MEMORY
    if isinstance(error, AttemptFailed):
        code, detail = error.code, error.detail
    elif isinstance(error, OSError):
        is_full = error.errno in (errno.EFBIG, errno.ENOSPC, errno.EDQUOT)
        code, detail = LimitExceeded.code if is_full else Crashed.code, str(error)
    else:
        code, detail = Crashed.code, f"{type(error).__name__}: {error}"
    return json.dumps({"code": code, "detail": detail[:DETAIL_MAX]}).encode()


# -- in the caller


def read_response(file: int, limits: ResourceLimits) -> Response:
    """Return the response, or raise the failure that it reports."""
    *lengths, body_length = _LENGTHS.unpack(os.pread(file, _LENGTHS.size, 0))
    if sum(lengths) > limits.parts_max or body_length > limits.response_max:
        raise Crashed(MALFORMED)
    position, parts = _LENGTHS.size, []
    for length in lengths:
        parts.append(os.pread(file, length, position))
        position += length
    message = _decode(os.pread(file, body_length, position))
    if message.keys() == {"value"}:
        return Response(message["value"], tuple(parts))
    if message.keys() == {"code", "detail"} and all(isinstance(text, str) for text in message.values()):
        raise WorkFailed(str(message["code"]), str(message["detail"])[:DETAIL_MAX])
    raise Crashed(MALFORMED)


def _decode(body: bytes) -> dict[str, object]:
    if not body:
        raise Crashed("the process sent no response")
    try:
        message = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Crashed(MALFORMED) from error
    if not isinstance(message, dict):
        raise Crashed(MALFORMED)
    return message


def _refuse_constant(name: str) -> object:
    raise ValueError(name)
