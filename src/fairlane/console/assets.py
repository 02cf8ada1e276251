"""The static files of the console: read and compressed once, served with an ETag.

Laws:
- Only files that were read at the start are served: a URL is looked up by name and never becomes a path.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from fairlane.api.problems import nothing_here
from fairlane.api.routes.health import home

INDEX = "index.html"
MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
}
GZIP_LEAST_BYTES = 200
router = APIRouter(tags=["page"], include_in_schema=False)


class StaticFile(NamedTuple):
    """A file as it is sent."""

    media_type: str
    etag: str
    content: bytes
    gzipped: bytes | None  # None: not smaller


@cache
def static_files() -> dict[str, StaticFile]:
    """Return every static file, by its path below /static/."""
    return dict(_read_folder(files("fairlane.console") / "static", ""))


def _read_folder(folder: Traversable, prefix: str) -> list[tuple[str, StaticFile]]:
    static: list[tuple[str, StaticFile]] = []
    for item in folder.iterdir():
        if item.is_dir():
            static += _read_folder(item, f"{prefix}{item.name}/")
        elif (media_type := MEDIA_TYPES.get(item.name.rpartition(".")[2])) is not None:
            static.append((prefix + item.name, _read_file(media_type, item.read_bytes())))
    return static


def _read_file(media_type: str, content: bytes) -> StaticFile:
    gzipped = gzip.compress(content, 9, mtime=0) if len(content) >= GZIP_LEAST_BYTES else content
    etag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
    return StaticFile(media_type, etag, content, gzipped if len(gzipped) < len(content) else None)


def file_response(request: Request, name: str, vary: str = "Accept-Encoding") -> Response:
    """Respond with a static file."""
    file = static_files().get(name)
    if file is None:
        raise nothing_here()
    headers = {"etag": file.etag, "cache-control": "no-cache", "vary": vary}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    encodings = [part.partition(";")[0].strip() for part in request.headers.get("accept-encoding", "").split(",")]
    if file.gzipped is None or "gzip" not in encodings:
        return Response(file.content, 200, headers | {"content-type": file.media_type})
    return Response(file.gzipped, 200, headers | {"content-type": file.media_type, "content-encoding": "gzip"})


@router.get("/")
async def get_index(request: Request) -> Response:
    """Serve the page to browsers, and the API's own response to programs."""
    if "text/html" in request.headers.get("accept", ""):
        return file_response(request, INDEX, "Accept, Accept-Encoding")
    return await home()


@router.get("/static/{name:path}")
async def get_file(request: Request, name: str) -> Response:
    """Serve a static file."""
    return file_response(request, name)
