"""Request bodies of uploads: streamed from the disk, and readable again for a retry."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from fairlane.blobs.files import open_content
from fairlane.core.errors import Mistake

from .transport import BodySource, UploadCallback

MEDIA_TYPE = "application/octet-stream"  # the worker detects the format
IN_MEMORY_BYTES = 1024 * 1024  # of a stream that can be read only once; the rest is spooled to a temporary file


@contextmanager
def upload_body(path: Any, content: Any, on_progress: UploadCallback | None) -> Iterator[BodySource]:
    """Yield the body of an upload; a stream is copied first, so that it can be read twice."""
    source = open_content(path, content)
    if isinstance(source, bytes | bytearray | memoryview):
        yield BodySource(io.BytesIO(source), len(source), MEDIA_TYPE, on_progress)
    elif path is not None:
        with source:
            yield BodySource(source, os.fstat(source.fileno()).st_size, MEDIA_TYPE, on_progress)
    else:
        with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES) as copy:
            size = _copy(source, cast(BinaryIO, copy))
            yield BodySource(cast(BinaryIO, copy), size, MEDIA_TYPE, on_progress)


def _copy(stream: BinaryIO, copy: BinaryIO) -> int:
    try:
        shutil.copyfileobj(stream, copy)
    except (OSError, TypeError) as error:
        raise Mistake(f"the content cannot be read to its end: {error}; nothing was sent") from error
    return copy.tell()
