"""People whom an authenticating proxy names: the headers with their name and their groups.

Laws:
- The headers count only in requests from a proxy that `--trusted-proxy` names. The middleware takes them out of all others
  before anything reads them, and also those that come twice: one of the two may be the client's own.
- A session that began so counts only in requests in which the proxy names the same person, with groups that grant the same
  role: what the proxy says now is what counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fairlane.core.errors import BadValue, Mistake

from .people import NAME_MAX, Person, make_person

ISSUER = "proxy"  # who vouches for these people
GROUPS_BYTES_MAX = 8192  # of a header; a longer one names no group
PREFIX_MIN = {4: 16, 6: 64}  # of a trusted network, by IP version: a wider one is more than a proxy
EXPECTED = "the name of a header that the proxy alone sets, as in Remote-User: letters, digits and hyphens"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,60}")
_TAKEN = frozenset(
    (
        "accept", "authorization", "connection", "content-encoding", "content-length", "content-type", "cookie", "expect",
        "forwarded", "host", "idempotency-key", "keep-alive", "last-event-id", "origin", "range", "referer", "te", "trailer",
        "transfer-encoding", "upgrade", "user-agent", "via", "x-fairlane-csrf", "x-forwarded-for", "x-forwarded-proto",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """The headers in which a proxy says who sends a request, in lower case."""

    user_header: str
    groups_header: str | None = None

    @property
    def headers(self) -> frozenset[bytes]:
        return frozenset(name.encode() for name in (self.user_header, self.groups_header) if name is not None)

    def named(self, headers: Mapping[bytes, bytes]) -> tuple[Person, list[str]] | None:
        """Return whom the proxy names, and their groups; None: it names nobody."""
        user = _text(headers.get(self.user_header.encode(), b""))
        if not user or len(user) > NAME_MAX:
            return None
        listed = b"" if self.groups_header is None else headers.get(self.groups_header.encode(), b"")
        groups = _text(listed) if len(listed) <= GROUPS_BYTES_MAX else ""
        return make_person(ISSUER, user, user), [group for part in groups.split(",") if (group := part.strip())]


def _text(value: bytes) -> str:
    try:
        return value.decode().strip()
    except UnicodeDecodeError:
        return ""


def header_name(option: str, name: str) -> str:
    """Check the name of a header, and return it in lower case."""
    if _NAME.fullmatch(name) is None:
        raise BadValue(option, name, EXPECTED)
    if name.lower() in _TAKEN or name.lower().startswith("sec-"):
        raise Mistake(f"{option} is {name!r}, which means something else already; it must be {EXPECTED}")
    return name.lower()
