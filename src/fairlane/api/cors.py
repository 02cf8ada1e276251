"""CORS: the sites whose pages may upload a document with an upload token; none unless they are named.

Laws:
- Only the route of uploads answers to other sites, and only to those that are named; there is no "everybody".
- Cookies are never part of it: whoever calls shows an upload token, which a page gets from its own server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from fairlane.core.errors import BadValue

ROUTE = "/v1/uploads"
EXPECTED = "the origin of a site, scheme, host and port alone, as in https://app.example.com"
VARY = (b"vary", b"Origin")
PREFLIGHT = [
    (b"access-control-allow-methods", b"POST"),
    (b"access-control-allow-headers", b"authorization, content-type"),
    (b"access-control-max-age", b"600"),
]


class UploadOrigins:
    """The sites that were named."""

    def __init__(self, origins: Iterable[str] = ()) -> None:
        self._origins = frozenset(_validate(origin) for origin in origins)

    def headers(self, route: str, request: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        """Return what every response to this request says to browsers; nothing for other routes and sites."""
        if route != ROUTE or not self._origins:
            return []
        origin = request.get(b"origin", b"")
        if origin.decode("latin-1") not in self._origins:
            return [VARY]
        return [VARY, (b"access-control-allow-origin", origin), (b"access-control-expose-headers", b"Retry-After")]

    def is_preflight(self, method: str, route: str, request: Mapping[bytes, bytes]) -> bool:
        """Whether a browser asks on behalf of such a site what it may send."""
        is_question = method == "OPTIONS" and b"access-control-request-method" in request
        return is_question and len(self.headers(route, request)) > 1


def _validate(origin: str) -> str:
    parts = urlsplit(origin)
    try:
        is_origin = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_origin = False
    if not is_origin or "@" in parts.netloc or origin != f"{parts.scheme}://{parts.netloc}" or not origin.isascii():
        raise BadValue("--upload-origin", origin, EXPECTED)
    if origin != origin.lower() or "*" in origin:
        raise BadValue("--upload-origin", origin, f"{EXPECTED}, in small letters and without *")
    return origin
