"""Who calls? Keys: made, shown once, kept as a hash, looked up by their public part, revoked at once.

Laws:
- A key is 256 random bits. The store keeps the SHA-256 of it: whoever reads the store cannot call with what is there.
- Hashes are compared in constant time, and an unknown public part takes as long as a known one.
- What was read is believed for at most `BELIEVED_SECONDS`, so that a key revoked anywhere ends everywhere.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Iterator
from typing import Literal, NamedTuple

from fairlane.core.document import validate_text
from fairlane.core.errors import BadValue, Mistake, Unknown
from fairlane.engine import Engine

GROUP = "keys"
PREFIX = "fl"
BELIEVED_SECONDS = 1.0
BELIEVED_MAX = 10_000  # keys that are remembered; more are read again
PAGE = 500
EXPIRES_MAX_SECONDS = 100 * 365 * 86400

Role = Literal["customer", "operator"]


class Key(NamedTuple):
    """A key as the store knows it; `id` is its public part."""

    id: str
    digest: str
    role: Role
    customer: str | None
    name: str
    made_ms: int
    expires_ms: int | None
    revoked_ms: int | None

    def ended(self, now_ms: int) -> str | None:
        """Why it no longer opens anything; None: it does."""
        if self.revoked_ms is not None:
            return "revoked"
        return "expired" if self.expires_ms is not None and self.expires_ms <= now_ms else None


class Caller(NamedTuple):
    """Who asks: a customer, which sees its own, or an operator, who sees all."""

    key_id: str
    customer: str | None  # None: an operator

    @property
    def is_operator(self) -> bool:
        return self.customer is None


def wall_ms() -> int:
    """This machine's clock, in milliseconds."""
    return time.time_ns() // 1_000_000


def create(
    engine: Engine, *, customer: str | None, name: str = "", expires_seconds: float | None = None, now_ms: int | None = None
) -> tuple[str, Key]:
    """Make a key for a customer, or for an operator (None); the text of it is not to be had again."""
    if customer is not None:
        validate_text("customer", customer)
    if name:
        validate_text("name", name)
    if expires_seconds is not None and not 0 < expires_seconds <= EXPIRES_MAX_SECONDS:
        raise BadValue("expires", expires_seconds, "more than 0 seconds and at most 100 years")
    made_ms = wall_ms() if now_ms is None else now_ms
    expires_ms = None if expires_seconds is None else made_ms + round(expires_seconds * 1000)
    while True:
        id = secrets.token_hex(8)
        told = f"{PREFIX}_{id}_{secrets.token_urlsafe(32)}"
        key = Key(id, _digest(told), "operator" if customer is None else "customer", customer, name, made_ms, expires_ms, None)
        if engine.put_record(GROUP, id, _written(key), 0) is not None:
            return told, key


def listed(engine: Engine) -> Iterator[Key]:
    """Every key, revoked ones too, by their public part."""
    after = ""
    while page := engine.records(GROUP, after, PAGE):
        yield from (_read(one.key, one.value) for one in page)
        after = page[-1].key


def revoke(engine: Engine, id: str, *, now_ms: int | None = None) -> Key:
    """End a key; one that is revoked already stays so."""
    validate_text("key id", id)
    if id.count("_") >= 2:
        raise Mistake("that is a whole key; name it by its id, the part between the first two underscores")
    while True:
        record = engine.record(GROUP, id)
        if record is None:
            raise Unknown(f"there is no key {id}; `fairlane keys list` shows them")
        key = _read(id, record.value)
        if key.revoked_ms is not None:
            return key
        ended = key._replace(revoked_ms=wall_ms() if now_ms is None else now_ms)
        if engine.put_record(GROUP, id, _written(ended), record.version) is not None:
            return ended


def has_operator(engine: Engine) -> bool:
    """Whether any operator key opens the service."""
    now_ms = wall_ms()
    return any(key.role == "operator" and key.ended(now_ms) is None for key in listed(engine))


class Keyring:
    """Tells callers by what they show; remembers for a moment what the store said."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._believed: dict[str, tuple[float, Key | None]] = {}

    def believed(self, id: str) -> bool:
        """Whether `caller` would answer without asking the store."""
        known = self._believed.get(id)
        return known is not None and time.monotonic() - known[0] < BELIEVED_SECONDS

    def learn(self, id: str) -> None:
        """Ask the store for a key; may block."""
        record = self._engine.record(GROUP, id)
        if len(self._believed) >= BELIEVED_MAX:
            self._believed.clear()
        self._believed[id] = (time.monotonic(), None if record is None else _read(id, record.value))

    def caller(self, told: str) -> Caller | None:
        """Who shows this key, by what was learned; None: nobody we know."""
        id = public_part(told)
        _, key = self._believed.get(id, (0.0, None)) if id else (0.0, None)
        is_right = hmac.compare_digest(_digest(told), _NOBODY if key is None else key.digest)
        if key is None or not is_right or key.ended(wall_ms()) is not None:
            return None
        return Caller(key.id, key.customer)

    def holder(self, id: str) -> Caller | None:
        """Whose key this is, by what was learned, if it still opens anything; for sessions, which showed it before."""
        key = self.key(id)
        return None if key is None or key.ended(wall_ms()) is not None else Caller(key.id, key.customer)

    def key(self, id: str) -> Key | None:
        """What was last learned of a key."""
        return self._believed.get(id, (0.0, None))[1]


def public_part(told: str) -> str:
    """The part of a key that it is looked up by; empty if it does not look like one of ours."""
    prefix, _, rest = told.partition("_")
    id, _, secret = rest.partition("_")
    looks_right = prefix == PREFIX and len(id) == 16 and id.isalnum() and id.isascii() and 40 <= len(secret) <= 64
    return id if looks_right else ""


def _digest(told: str) -> str:
    return hashlib.sha256(told.encode(errors="surrogateescape")).hexdigest()


_NOBODY = _digest("")


def _written(key: Key) -> str:
    return json.dumps({name: value for name, value in key._asdict().items() if name != "id"})


def _read(id: str, value: str) -> Key:
    return Key(id=id, **json.loads(value))
