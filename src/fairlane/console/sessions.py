"""Sessions: a key, or a sign-in as oneself, is exchanged for a cookie, which is valid until sign-out and for some hours.

Laws:
- A session is 256 random bits; the store keeps their SHA-256, in a record of its owner: the key, or the person.
- An owner has at most `SESSIONS_MAX` sessions: a new one replaces the oldest, so that records stay small. Records of people
  hold names, and are removed when their last session is over.
- A session of a key grants what its key grants, and nothing once that key is revoked or has expired. One of a person grants
  what the groups that the person had at sign-in grant now.
- Over TLS only the cookie with the prefix `__Host-` counts: another one may come from a neighbouring host, or from outside TLS.
- A request that changes something carries, besides the cookie, a CSRF token that only the page of this server can read.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from fairlane.api import auth
from fairlane.api.auth import CACHE_MAX, CACHE_SECONDS, time_ms
from fairlane.api.permissions import Role
from fairlane.core.document import Record
from fairlane.core.errors import Unknown
from fairlane.engine import Engine
from fairlane.engine.protocol import RECORD_BYTES_MAX
from fairlane.queue.audit import Actor, recorded
from fairlane.queue.record_groups import walk_records

from .people import Person, is_person_id

GROUP, PEOPLE = "sessions", "people"  # those of keys, and those of people
COOKIE = "fairlane"
HTTPS_PREFIX = "__Host-"  # browsers accept a cookie of such a name from this host alone, and over TLS alone
CSRF_HEADER = b"x-fairlane-csrf"
SESSION_SECONDS = 12 * 3600
SESSIONS_MAX = 20  # of one key or person
SECRET_LENGTH = 43  # of 256 bits in base64
SIGN_IN_COOKIE = "fairlane-sign-in"  # while somebody is away at the provider; as the other one, with __Host- over TLS


class StoredSession(NamedTuple):
    """A session in the record of its owner."""

    digest: str
    expires_ms: int
    person: Person | None = None  # None: of a key
    id_token: str = ""  # shown to the provider when its session is to end too


class SessionEntry(NamedTuple):
    """Who has sessions, and until when the last of them lasts."""

    id: str  # of the key or the person
    is_person: bool
    name: str
    role: Role
    customer: str | None
    sessions: int
    expires_ms: int


def owner_of(cookie: str) -> str:
    """Return the id of the key or the person in a cookie; empty if it is not a cookie of ours."""
    id, _, secret = cookie.partition(".")
    is_key = len(id) == 16 and id.isalnum() and id.isascii()
    return id if (is_key or is_person_id(id)) and len(secret) == SECRET_LENGTH else ""


def csrf_token(cookie: str) -> str:
    """Return the token that requests carry besides the cookie; it cannot be made from what the store holds."""
    return hmac.new(cookie.encode(errors="replace"), b"fairlane csrf", hashlib.sha256).hexdigest()


def cookie_name(*, is_https: bool, base: str = COOKIE) -> str:
    """Return the name of a cookie: one that no other host and no plain connection can set, where there is TLS."""
    return HTTPS_PREFIX + base if is_https else base


def find_cookie(headers: dict[bytes, bytes], *, is_https: bool, base: str = COOKIE) -> str:
    """Return the session cookie of a request, or another one of ours; empty if it has none."""
    expected = cookie_name(is_https=is_https, base=base).encode()
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

    def begin(self, owner: str | Person, actor: Actor | None = None, id_token: str = "") -> str:
        """Begin a session of a key or a person and return its cookie; that of an actor is in the audit log. May block."""
        with recorded(self._engine, actor, "session.begin"):
            return self._begin(owner, id_token)

    def _begin(self, owner: str | Person, id_token: str) -> str:
        id, person = (owner, None) if isinstance(owner, str) else (owner.id, owner)
        cookie = f"{id}.{secrets.token_urlsafe(32)}"
        session = StoredSession(_digest(cookie), time_ms() + SESSION_SECONDS * 1000, person, id_token)
        while not self._try_update(id, lambda sessions: [*sessions, session][-SESSIONS_MAX:]):
            pass
        return cookie

    def end(self, cookie: str, actor: Actor | None = None) -> StoredSession | None:
        """End a session and return it, if it exists; may block."""
        with recorded(self._engine, actor, "session.end"):
            return self._end(cookie)

    def _end(self, cookie: str) -> StoredSession | None:
        owner, digest, ended = owner_of(cookie), _digest(cookie), None
        if owner:
            self.load(owner)
            ended = self.find(cookie)
        while owner and not self._try_update(owner, lambda sessions: [each for each in sessions if each.digest != digest]):
            pass
        return ended

    def entries(self, after: str) -> Iterator[SessionEntry]:
        """Iterate over whoever is signed in; may block."""
        return list_sessions(self._engine, after)

    def revoke(self, id: str, actor: Actor) -> None:
        """End all sessions of a key or a person; may block."""
        revoke_sessions(self._engine, id, actor)
        self._cache.pop(id, None)

    def remove_expired(self) -> None:
        """Remove the records of people, and of keys, whose last session is over; may block."""
        for group in (GROUP, PEOPLE):
            for record in walk_records(self._engine, group):
                if not _open_sessions(record):
                    self._engine.put_record(group, record.key, None, record.version)  # unless a session begins meanwhile

    def _try_update(self, owner: str, update: Callable[[list[StoredSession]], list[StoredSession]]) -> bool:
        """Update the sessions of an owner; return False if they were changed at the same time."""
        record = _read(self._engine, owner)
        sessions = update([] if record is None else _open_sessions(record))
        self._cache.pop(owner, None)
        value = _encode(sessions) if sessions else None
        if record is None and value is None:
            return True
        group = PEOPLE if is_person_id(owner) else GROUP
        return self._engine.put_record(group, owner, value, 0 if record is None else record.version) is not None

    def is_cached(self, owner: str) -> bool:
        """Return whether `find` can be called without `load`."""
        cached = self._cache.get(owner)
        return cached is not None and time.monotonic() - cached[0] < CACHE_SECONDS

    def is_known(self, owner: str) -> bool:
        """Return whether the sessions of a key or a person are in the cache, however old."""
        return owner in self._cache

    def load(self, owner: str) -> None:
        """Read the sessions of a key or a person into the cache; may block."""
        record = _read(self._engine, owner)
        if len(self._cache) >= CACHE_MAX:
            self._cache.clear()
        self._cache[owner] = (time.monotonic(), [] if record is None else _decode(record))

    def find(self, cookie: str) -> StoredSession | None:
        """Return the session in the cache that a cookie belongs to, unless it has expired."""
        _, sessions = self._cache.get(owner_of(cookie), (0.0, []))
        digest, now_ms = _digest(cookie), time_ms()
        matching = [session for session in sessions if hmac.compare_digest(session.digest, digest)]
        return next((session for session in matching if session.expires_ms > now_ms), None)


def list_sessions(engine: Engine, after: str = "") -> Iterator[SessionEntry]:
    """Iterate over whoever is signed in: people first, then keys, by id; those after an id."""
    groups = (GROUP,) if after and not is_person_id(after) else (PEOPLE, GROUP)
    for group in groups:
        for record in walk_records(engine, group, after if group == groups[0] else ""):
            entry = _entry(engine, record)
            if entry is not None:
                yield entry


def revoke_sessions(engine: Engine, id: str, actor: Actor | None = None) -> int:
    """End all sessions of a key or a person, and return how many there were; servers notice within a second."""
    record = _read(engine, id)
    sessions = [] if record is None else _open_sessions(record)
    if record is None or not sessions:
        raise Unknown(f"nobody with the id {id[:100]} is signed in; `fairlane sessions list` shows who is")
    owner = sessions[-1].person or auth.find_key(engine, id)
    whose = None if owner is None else owner.customer
    with recorded(engine, actor, "session.revoke", target=id, customer=whose, before={"sessions": len(sessions)}):
        engine.put_record(record.group, id, None)
    return len(sessions)


def _entry(engine: Engine, record: Record) -> SessionEntry | None:
    sessions = _open_sessions(record)
    if not sessions:
        return None
    expires_ms, person = max(session.expires_ms for session in sessions), sessions[-1].person
    if person is not None:
        return SessionEntry(record.key, True, person.name, person.role, person.customer, len(sessions), expires_ms)
    key = auth.find_key(engine, record.key)
    if key is None or key.ended(time_ms()) is not None:
        return None
    return SessionEntry(record.key, False, key.name, key.role, key.customer, len(sessions), expires_ms)


def _read(engine: Engine, owner: str) -> Record | None:
    return engine.record(PEOPLE, owner) if is_person_id(owner) else engine.record(GROUP, owner)


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode(errors="replace")).hexdigest()


def _open_sessions(record: Record) -> list[StoredSession]:
    now_ms = time_ms()
    return [session for session in _decode(record) if session.expires_ms > now_ms]


def _encode(sessions: list[StoredSession]) -> str:
    """Encode the sessions of one owner; a person's record names its customer, so that it is found when that is forgotten.

    What makes a record too large goes: tokens first, then the oldest sessions.
    """
    newest = sessions[-1].person
    if newest is None:
        return json.dumps([[session.digest, session.expires_ms] for session in sessions])
    members = [session._asdict() | {"person": session.person and session.person._asdict()} for session in sessions]
    text = json.dumps({"customer": newest.customer, "sessions": members})
    if len(text) <= RECORD_BYTES_MAX or len(sessions) == 1:
        return text
    without_tokens = [session._replace(id_token="") for session in sessions]
    return _encode(sessions[1:] if without_tokens == sessions else without_tokens)


def _decode(record: Record) -> list[StoredSession]:
    stored = json.loads(record.value)
    if record.group == GROUP:
        return [StoredSession(*fields) for fields in stored]
    return [_person_session(members) for members in stored["sessions"]]


def _person_session(members: dict[str, Any]) -> StoredSession:
    person = members["person"] | {"groups": tuple(members["person"]["groups"])}
    return StoredSession(members["digest"], members["expires_ms"], Person(**person), members["id_token"])
