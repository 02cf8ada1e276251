"""Sessions: a key is exchanged for a cookie, which is valid until sign-out, for some hours, and only while its key is.

Laws:
- A session is 256 random bits; the store keeps their SHA-256, in a record of the key.
- A key has at most `SESSIONS_A_KEY` sessions: a new one replaces the oldest, so that records stay small without clean-up.
- A session grants what its key grants, and nothing once that key is revoked or has expired.
- Over TLS only the cookie with the prefix `__Host-` counts: another one may come from a neighbouring host, or from outside TLS.
- A request that changes something carries, besides the cookie, a CSRF token that only the page of this server can read.
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
from fairlane.queue.audit import Actor, recorded

GROUP = "sessions"
COOKIE = "fairlane"
HTTPS_COOKIE = "__Host-fairlane"  # browsers accept a cookie of this name from this host alone, and over TLS alone
CSRF_HEADER = b"x-fairlane-csrf"
SESSION_SECONDS = 12 * 3600
SESSIONS_A_KEY = 20
SECRET_LENGTH = 43  # of 256 bits in base64


class StoredSession(NamedTuple):
    """A session in the record of its key."""

    digest: str
    expires_ms: int


def key_id_of(cookie: str) -> str:
    """Return the public part of the key in a cookie; empty if it is not a cookie of ours."""
    id, _, secret = cookie.partition(".")
    is_ours = len(id) == 16 and id.isalnum() and id.isascii() and len(secret) == SECRET_LENGTH
    return id if is_ours else ""


def csrf_token(cookie: str) -> str:
    """Return the token that requests carry besides the cookie; it cannot be made from what the store holds."""
    return hmac.new(cookie.encode(errors="replace"), b"fairlane csrf", hashlib.sha256).hexdigest()


def cookie_name(*, is_https: bool) -> str:
    """Return the name of the session cookie: one that no other host and no plain connection can set, where there is TLS."""
    return HTTPS_COOKIE if is_https else COOKIE


def find_cookie(headers: dict[bytes, bytes], *, is_https: bool) -> str:
    """Return the session cookie of a request; empty if it has none."""
    expected = cookie_name(is_https=is_https).encode()
    for part in headers.get(b"cookie", b"").split(b";"):
        name, _, value = part.strip().partition(b"=")
        if name == expected:
            return value.decode("ascii", "replace")
    return ""


class SessionStore:
    """Begins, ends and verifies sessions; what the store holds is cached for a moment."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._cache: dict[str, tuple[float, list[StoredSession]]] = {}

    def begin(self, key_id: str, actor: Actor | None = None) -> str:
        """Begin a session of a key and return its cookie; that of an actor is in the audit log. May block."""
        with recorded(self._engine, actor, "session.begin"):
            return self._begin(key_id)

    def _begin(self, key_id: str) -> str:
        cookie = f"{key_id}.{secrets.token_urlsafe(32)}"
        session = StoredSession(_digest(cookie), time_ms() + SESSION_SECONDS * 1000)
        while not self._try_update(key_id, lambda sessions: [*sessions, session][-SESSIONS_A_KEY:]):
            pass
        return cookie

    def end(self, cookie: str, actor: Actor | None = None) -> None:
        """End a session, if it exists; may block."""
        with recorded(self._engine, actor, "session.end"):
            self._end(cookie)

    def _end(self, cookie: str) -> None:
        key_id, digest = key_id_of(cookie), _digest(cookie)
        while key_id and not self._try_update(key_id, lambda sessions: [each for each in sessions if each.digest != digest]):
            pass

    def _try_update(self, key_id: str, update: Callable[[list[StoredSession]], list[StoredSession]]) -> bool:
        """Update the sessions of a key; return False if they were changed at the same time."""
        record = self._engine.record(GROUP, key_id)
        stored = [] if record is None else _decode(record.value)
        sessions = update([session for session in stored if session.expires_ms > time_ms()])
        self._cache.pop(key_id, None)
        value = json.dumps(sessions) if sessions else None
        if record is None and value is None:
            return True
        return self._engine.put_record(GROUP, key_id, value, 0 if record is None else record.version) is not None

    def is_cached(self, key_id: str) -> bool:
        """Return whether `is_open` can be called without `load`."""
        cached = self._cache.get(key_id)
        return cached is not None and time.monotonic() - cached[0] < CACHE_SECONDS

    def is_known(self, key_id: str) -> bool:
        """Return whether the sessions of a key are in the cache, however old."""
        return key_id in self._cache

    def load(self, key_id: str) -> None:
        """Read the sessions of a key into the cache; may block."""
        record = self._engine.record(GROUP, key_id)
        if len(self._cache) >= CACHE_MAX:
            self._cache.clear()
        self._cache[key_id] = (time.monotonic(), [] if record is None else _decode(record.value))

    def is_open(self, cookie: str) -> bool:
        """Return whether a cookie belongs to a session in the cache that has not expired."""
        _, sessions = self._cache.get(key_id_of(cookie), (0.0, []))
        digest, now_ms = _digest(cookie), time_ms()
        matching = [session for session in sessions if hmac.compare_digest(session.digest, digest)]
        return any(session.expires_ms > now_ms for session in matching)


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode(errors="replace")).hexdigest()


def _decode(value: str) -> list[StoredSession]:
    return [StoredSession(*fields) for fields in json.loads(value)]
