"""What is sent when a document has a file? Its bytes, straight from the disk, as often as it takes."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from fairlane.blobs.files import given_file
from fairlane.core.errors import Mistake

from .transport import Advance, Body

MEDIA_TYPE = "application/octet-stream"  # what it is, the worker finds out
IN_MEMORY_BYTES = 1024 * 1024  # of a stream that can be read only once; more goes to a file that is gone afterwards


@contextmanager
def body_of(path: Any, content: Any, advance: Advance | None) -> Iterator[Body]:
    """The body of an upload; a stream that cannot be read twice is copied first, so that it can."""
    given = given_file(path, content)
    if isinstance(given, bytes | bytearray | memoryview):
        yield Body(io.BytesIO(given), len(given), MEDIA_TYPE, advance)
    elif path is not None:
        with given:
            yield Body(given, os.fstat(given.fileno()).st_size, MEDIA_TYPE, advance)
    else:
        with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES) as copy:
            size = _copied(given, cast(BinaryIO, copy))
            yield Body(cast(BinaryIO, copy), size, MEDIA_TYPE, advance)


def _copied(stream: BinaryIO, copy: BinaryIO) -> int:
    try:
        shutil.copyfileobj(stream, copy)
    except (OSError, TypeError) as error:
        raise Mistake(f"the content cannot be read to its end: {error}; nothing was sent") from error
    return copy.tell()
