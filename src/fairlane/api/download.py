"""Downloads: the bytes of a file or an archive, streamed as an attachment under a safe name.

Laws:
- A browser saves a file and never shows it: it was sent by somebody else, and would run as part of this site.
- A name cannot leave the folder it is saved to, and cannot look as if it had another ending than it has.
"""

from __future__ import annotations

import contextlib
import os
import unicodedata
from collections.abc import AsyncIterator, Generator
from typing import BinaryIO
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from .problems import Problem
from .service import Service

PIECE_BYTES = 256 * 1024
NAME_MAX, ENDING_MAX = 120, 20


def file_response(service: Service, content: BinaryIO, name: str, size: int) -> Response:
    """Respond with an open file, which is closed at the end."""
    try:
        service.refuse_waiting()
    except Problem:
        content.close()
        raise
    headers = {"content-disposition": attachment(name), "content-length": str(size)}
    return StreamingResponse(_pieces(service, content), headers=headers, media_type="application/octet-stream")


def archive_response(service: Service, pieces: Generator[bytes], name: str) -> Response:
    """Respond with an archive that is made while it is sent; one that breaks off ends without the end of its last chunk."""
    headers = {"content-disposition": attachment(name), "cache-control": "no-store"}
    return StreamingResponse(_made_pieces(service, pieces), headers=headers, media_type="application/x-tar")


async def _made_pieces(service: Service, pieces: Generator[bytes]) -> AsyncIterator[bytes]:
    try:
        with service.while_waiting():
            while piece := await service.call(next, pieces, b""):
                yield piece
    finally:
        with contextlib.suppress(ValueError):  # a thread is still making a piece, which nobody waits for
            pieces.close()


async def _pieces(service: Service, content: BinaryIO) -> AsyncIterator[bytes]:
    try:
        with service.while_waiting():
            while piece := await service.call(content.read, PIECE_BYTES):
                yield piece
    finally:
        content.close()


def attachment(name: str) -> str:
    """Return the Content-Disposition (RFC 6266) of a file: a name in ASCII for old programs, the true one for others."""
    safe = safe_name(name)
    plain = "".join(letter if letter.isascii() and letter not in '"\\%' else "_" for letter in safe)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(safe, safe='')}"


def safe_name(name: str) -> str:
    """Return the name without folders, and without characters that cannot be seen or that turn the text around."""
    last = name.replace("\\", "/").rpartition("/")[2]
    visible = "".join("_" if unicodedata.category(letter)[0] == "C" or letter in '<>:"|?*' else letter for letter in last)
    stem, ending = os.path.splitext(visible.strip(" ."))
    return (stem[: NAME_MAX - ENDING_MAX] + ending[:ENDING_MAX]).strip(" .") or "document"
