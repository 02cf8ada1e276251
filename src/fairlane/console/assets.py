"""What does a browser load? The files of the page, read and compressed once, served with an ETag.

Laws:
- Only what was read at the start is served: an address is looked up by name and never becomes a path.
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
TYPES = {
    "html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8",
    "json": "application/json", "svg": "image/svg+xml", "png": "image/png", "ico": "image/x-icon", "woff2": "font/woff2",
    "txt": "text/plain; charset=utf-8", "webmanifest": "application/manifest+json",
}  # fmt: skip
SQUEEZED_LEAST_BYTES = 200
router = APIRouter(tags=["page"], include_in_schema=False)


class File(NamedTuple):
    """A file as it is sent."""

    media_type: str
    etag: str
    plain: bytes
    squeezed: bytes | None  # with gzip, where that is smaller


@cache
def static() -> dict[str, File]:
    """Every file of the page, by its address below /static/."""
    return dict(_read(files("fairlane.console") / "static", ""))


def _read(folder: Traversable, before: str) -> list[tuple[str, File]]:
    found = []
    for one in folder.iterdir() if folder.is_dir() else ():
        if one.is_dir():
            found += _read(one, f"{before}{one.name}/")
        elif (media_type := TYPES.get(one.name.rpartition(".")[2])) is not None:
            found.append((before + one.name, _file(media_type, one.read_bytes())))
    return found


def _file(media_type: str, plain: bytes) -> File:
    squeezed = gzip.compress(plain, 9, mtime=0) if len(plain) >= SQUEEZED_LEAST_BYTES else plain
    etag = f'"{hashlib.sha256(plain).hexdigest()[:24]}"'
    return File(media_type, etag, plain, squeezed if len(squeezed) < len(plain) else None)


def sent(request: Request, name: str, vary: str = "Accept-Encoding") -> Response:
    """A file of the page as an answer."""
    one = static().get(name)
    if one is None:
        raise nothing_here()
    headers = {"etag": one.etag, "cache-control": "no-cache", "vary": vary}
    if one.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    accepted = [told.partition(";")[0].strip() for told in request.headers.get("accept-encoding", "").split(",")]
    if one.squeezed is None or "gzip" not in accepted:
        return Response(one.plain, 200, headers | {"content-type": one.media_type})
    return Response(one.squeezed, 200, headers | {"content-type": one.media_type, "content-encoding": "gzip"})


def wants_page(request: Request) -> bool:
    """Whether a browser asks, and there is a page for it."""
    return "text/html" in request.headers.get("accept", "") and INDEX in static()


@router.get("/")
async def get_index(request: Request) -> Response:
    """Serve the page to browsers, and the API's own answer to programs."""
    return sent(request, INDEX, "Accept, Accept-Encoding") if wants_page(request) else await home()


@router.get("/static/{name:path}")
async def get_file(request: Request, name: str) -> Response:
    """A file of the page."""
    return sent(request, name)
