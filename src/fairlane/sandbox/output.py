"""The output file of an attempt: the only file that it may write to, opened by the caller.

Laws:
- There is no other way to write: no file can be opened for it, made, changed, moved or removed.
- The kernel lets it grow no larger than `ResourceLimits.output_max`, or than a response, if that is larger; the caller checks
  the rest. Room cannot be reserved in it beyond its size.
"""

from __future__ import annotations

import os
from typing import BinaryIO

from .errors import LimitExceeded
from .limits import ResourceLimits

_descriptor: int | None = None


def set_output(descriptor: int | None) -> None:
    """In the confined process: make this the output file."""
    global _descriptor
    _descriptor = descriptor


def output_file() -> BinaryIO:
    """In the work of an attempt: return its output file, unbuffered."""
    if _descriptor is None:
        raise OSError("this attempt has no output file")
    return open(_descriptor, "r+b", buffering=0, closefd=False)


def check_output(descriptor: int | None, limits: ResourceLimits) -> None:
    """In the caller: raise a `LimitExceeded` if the file is too large."""
    if descriptor is not None and os.fstat(descriptor).st_size > limits.output_max:
        raise LimitExceeded(f"wrote more than {limits.output_max:,} bytes")
