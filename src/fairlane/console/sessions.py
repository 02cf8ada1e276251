"""Who looks at the page? Sessions: a key is exchanged for a cookie, which ends with its key, at sign-out, or after some hours.

Laws:
- A session is 256 random bits; the store keeps the SHA-256 of them, under the key that it stands for.
- A key has at most `SESSIONS_A_KEY` sessions: a new one pushes out the oldest, so that nothing grows and nothing is swept.
- A session opens what its key opens, and nothing once that key is revoked or has expired.
- A request that changes something shows, besides the cookie, a word that only our own page can have read.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

from fairlane.api.auth import CACHE_MAX, CACHE_SECONDS, time_ms
from fairlane.engine import Engine

GROUP = "sessions"
COOKIE = "fairlane"
CSRF_HEADER = b"x-fairlane-csrf"
SESSION_SECONDS = 12 * 3600
SESSIONS_A_KEY = 20
SECRET_LENGTH = 43  # of 256 bits in base64


class Session(NamedTuple):
    """A session as the store knows it."""

    digest: str
    expires_ms: int


def key_id_of(cookie: str) -> str:
    """The public part of the key that a cookie stands for; empty if it does not look like one of ours."""
    id, _, secret = cookie.partition(".")
    looks_right = len(id) == 16 and id.isalnum() and id.isascii() and len(secret) == SECRET_LENGTH
    return id if looks_right else ""


def csrf_of(cookie: str) -> str:
    """The word that changing requests show; whoever has only the store or only the page's address cannot make it."""
    return hmac.new(cookie.encode(errors="replace"), b"fairlane csrf", hashlib.sha256).hexdigest()


def cookie_in(headers: dict[bytes, bytes]) -> str:
    """The session's cookie among the headers of a request; empty: there is none."""
    for part in headers.get(b"cookie", b"").split(b";"):
        name, _, value = part.strip().partition(b"=")
        if name == COOKIE.encode():
            return value.decode("ascii", "replace")
    return ""


class Sessions:
    """Begins and ends sessions, and tells them by their cookie; remembers for a moment what the store said."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._cache: dict[str, tuple[float, list[Session]]] = {}

    def begin(self, key_id: str) -> str:
        """A new session of a key; returns the cookie. May block."""
        cookie = f"{key_id}.{secrets.token_urlsafe(32)}"
        one = Session(_digest(cookie), time_ms() + SESSION_SECONDS * 1000)
        while not self._replaced(key_id, lambda known: [*known, one][-SESSIONS_A_KEY:]):
            pass
        return cookie

    def end(self, cookie: str) -> None:
        """Sign out; a session that is not there stays so. May block."""
        key_id, digest = key_id_of(cookie), _digest(cookie)
        while key_id and not self._replaced(key_id, lambda known: [one for one in known if one.digest != digest]):
            pass

    def _replaced(self, key_id: str, change: Callable[[list[Session]], list[Session]]) -> bool:
        """Whether the sessions of a key were changed; False: somebody else changed them at the same time."""
        record = self._engine.record(GROUP, key_id)
        known = [] if record is None else _read(record.value)
        wanted = change([one for one in known if one.expires_ms > time_ms()])
        self._cache.pop(key_id, None)
        value = json.dumps(wanted) if wanted else None
        if record is None and value is None:
            return True
        return self._engine.put_record(GROUP, key_id, value, 0 if record is None else record.version) is not None

    def is_cached(self, key_id: str) -> bool:
        """Whether `is_open` would answer without asking the store."""
        known = self._cache.get(key_id)
        return known is not None and time.monotonic() - known[0] < CACHE_SECONDS

    def load(self, key_id: str) -> None:
        """Ask the store for the sessions of a key; may block."""
        record = self._engine.record(GROUP, key_id)
        if len(self._cache) >= CACHE_MAX:
            self._cache.clear()
        self._cache[key_id] = (time.monotonic(), [] if record is None else _read(record.value))

    def is_open(self, cookie: str) -> bool:
        """Whether this cookie is that of a session, by what was learned."""
        _, known = self._cache.get(key_id_of(cookie), (0.0, []))
        digest, now_ms = _digest(cookie), time_ms()
        found = [one for one in known if hmac.compare_digest(one.digest, digest)]
        return any(one.expires_ms > now_ms for one in found)


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode(errors="replace")).hexdigest()


def _read(value: str) -> list[Session]:
    return [Session(*one) for one in json.loads(value)]
