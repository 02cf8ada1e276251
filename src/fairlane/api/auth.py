"""API keys: created, shown once, kept as a hash, looked up by their public part, rotated, revoked at once.

Laws:
- A key is 256 random bits. The store keeps its SHA-256: whoever reads the store cannot call with what is there.
- Hashes are compared in constant time, and an unknown public part takes as long as a known one.
- What was read is cached for at most `CACHE_SECONDS`, so that a key revoked anywhere ends everywhere. Only while the store is
  away a key counts as it was when it was last read, so that streams stay open; nothing can be read or changed meanwhile.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

from fairlane.core.document import validate_text
from fairlane.core.errors import BadValue, Mistake, StoreError, Unknown, WrongState
from fairlane.engine import Engine
from fairlane.queue.audit import Actor, recorded
from fairlane.queue.models import KEEP, Keep

from .permissions import Permission, Role, Scope, permissions_of, validate_scopes
from .problems import Problem, nothing_here

GROUP = "keys"
PREFIX = "fl"
CACHE_SECONDS = 1.0
CACHE_MAX = 10_000  # keys; more are read again
PAGE = 500
CUSTOMER_SCOPES: tuple[Scope, ...] = ("submit", "read")  # of a key that was made without a choice
EXPIRES_SECONDS = 90 * 86400.0  # unless its maker chooses otherwise
EXPIRES_MAX_SECONDS = 100 * 365 * 86400
OVERLAP_SECONDS = 7 * 86400.0  # that a key stays valid beside the one that replaces it
OVERLAP_MAX_SECONDS = 365 * 86400.0


KeyState = Literal["active", "expired", "revoked"]


class Key(NamedTuple):
    """A key as the store has it; `id` is its public part."""

    id: str
    digest: str
    role: Role
    customer: str | None
    name: str
    made_ms: int
    expires_ms: int | None
    revoked_ms: int | None = None
    scopes: tuple[Scope, ...] = ()  # none: everything that the role may do
    replaced_by: str | None = None  # the key that a rotation made

    def state(self, now_ms: int) -> KeyState:
        return self.ended(now_ms) or "active"

    def ended(self, now_ms: int) -> Literal["revoked", "expired"] | None:
        """Say why it is no longer valid; None: it is."""
        if self.revoked_ms is not None:
            return "revoked"
        return "expired" if self.expires_ms is not None and self.expires_ms <= now_ms else None

    @property
    def caller(self) -> Caller:
        """Whoever shows this key."""
        return Caller(self.id, self.customer, self.role, permissions_of(self.role, self.scopes), self.name)


class Caller(NamedTuple):
    """Whoever sends a request: a customer, which sees its own, or staff (a viewer, an operator, an admin), who sees all."""

    id: str  # the public part of a key, or the id of a person
    customer: str | None  # None: staff
    role: Role
    permissions: frozenset[Permission]
    name: str = ""  # of the key, or of the person
    is_person: bool = False  # who signed in as such, and not with a key
    is_upload_token: bool = False

    @property
    def log_fields(self) -> dict[str, str]:
        """Who this is, for a line of the log; names are not for it."""
        fields = {"upload_token" if self.is_upload_token else "person" if self.is_person else "key": self.id}
        return fields if self.customer is None else {**fields, "customer": self.customer}

    @property
    def sees_all(self) -> bool:
        return self.customer is None

    def actor(self, address: str) -> Actor:
        """Whoever it is, for the audit log."""
        return Actor("person" if self.is_person else "key", self.id, self.name, self.role, address)

    def may_see(self, customer: str | None) -> bool:
        """Whether what belongs to this customer is visible."""
        return self.customer is None or self.customer == customer

    def customer_for(self, name: str | None) -> str:
        """Decide whose documents a request is about: a customer's own, or those of the customer an operator names."""
        if self.customer is None:
            if name is None:
                raise Problem("bad-value", "customer is missing; an operator's key says for whom: customer=NAME")
            return validate_text("customer", name)
        if name is not None and name != self.customer:
            raise nothing_here()
        return self.customer


def time_ms() -> int:
    """Read this machine's clock, in milliseconds."""
    return time.time_ns() // 1_000_000


def create(
    engine: Engine,
    *,
    customer: str | None = None,
    role: Role | None = None,
    scopes: Iterable[str] = (),
    name: str = "",
    expires_seconds: float | None = EXPIRES_SECONDS,
    now_ms: int | None = None,
    actor: Actor | None = None,
) -> tuple[str, Key]:
    """Make a key of a customer, or of a role (without either: an operator); its text cannot be had again."""
    secret, key = new_key(customer, role, scopes, name, expires_seconds, time_ms() if now_ms is None else now_ms)
    add(engine, key, actor)
    return secret, key


def new_key(
    customer: str | None, role: Role | None, scopes: Iterable[str], name: str, expires_seconds: float | None, now_ms: int
) -> tuple[str, Key]:
    """Make a key that the store does not have yet; the values are validated."""
    if customer is not None:
        validate_text("customer", customer)
    role = role or ("operator" if customer is None else "customer")
    if (role == "customer") != (customer is not None):
        raise Mistake(f"a key is of a customer, or of a viewer, an operator or an admin: role {role} with customer {customer}")
    if name:
        validate_text("name", name)
    if expires_seconds is not None and not 0 < expires_seconds <= EXPIRES_MAX_SECONDS:
        raise BadValue("expires", expires_seconds, "more than 0 seconds and at most 100 years")
    expires_ms = None if expires_seconds is None else now_ms + round(expires_seconds * 1000)
    id = secrets.token_hex(8)
    secret = f"{PREFIX}_{id}_{secrets.token_urlsafe(32)}"
    chosen = validate_scopes(role, scopes) or (CUSTOMER_SCOPES if role == "customer" else ())
    return secret, Key(id, digest_of(secret), role, customer, name, now_ms, expires_ms, None, chosen)


def add(engine: Engine, key: Key, actor: Actor | None = None) -> None:
    """Store a new key, on behalf of an actor."""
    with recorded(engine, actor, "key.create", target=key.id, customer=key.customer) as change:
        if engine.put_record(GROUP, key.id, _to_json(key), 0) is None:
            raise StoreError(f"there is a key {key.id} already; try again")  # its id is 64 random bits
        change.after = _described(key)


def _described(key: Key) -> dict[str, Any]:
    """Return what the audit log keeps of a key."""
    return {"role": key.role, "scopes": list(key.scopes), "name": key.name, "expires_ms": key.expires_ms}


def key_page(engine: Engine, after: str, limit: int) -> list[Key]:
    """Read a page of keys by their public part, revoked ones too."""
    return [_from_json(record.key, record.value) for record in engine.records(GROUP, after, limit)]


def list_keys(engine: Engine) -> Iterator[Key]:
    """Iterate over every key by its public part, revoked ones too."""
    after = ""
    while page := key_page(engine, after, PAGE):
        yield from page
        after = page[-1].id


def find(engine: Engine, id: str) -> Key:
    """Read a key by its public part."""
    return _read(engine, id)[0]


def find_key(engine: Engine, id: str) -> Key | None:
    """Read a key by its public part; None: there is none."""
    record = engine.record(GROUP, id)
    return None if record is None else _from_json(id, record.value)


def _read(engine: Engine, id: str) -> tuple[Key, int]:
    """Read a key and the version of its record."""
    validate_text("key id", id)
    if id.count("_") >= 2:
        raise Mistake("that is a whole key; name it by its id, the part between the first two underscores")
    record = engine.record(GROUP, id)
    if record is None:
        raise Unknown(f"there is no key {id}; `fairlane keys list` shows them")
    return _from_json(id, record.value), record.version


def revoke(engine: Engine, id: str, *, now_ms: int | None = None, actor: Actor | None = None) -> Key:
    """End a key; one that is revoked already stays so."""
    key = find(engine, id)
    with recorded(engine, actor, "key.revoke", target=id, customer=key.customer, before=_described(key)):
        while True:
            key, version = _read(engine, id)
            if key.revoked_ms is not None:
                return key
            revoked = key._replace(revoked_ms=time_ms() if now_ms is None else now_ms)
            if engine.put_record(GROUP, id, _to_json(revoked), version) is not None:
                return revoked


def rotate(
    engine: Engine,
    id: str,
    *,
    overlap_seconds: float = OVERLAP_SECONDS,
    expires_seconds: float | Keep | None = KEEP,
    now_ms: int | None = None,
    actor: Actor | None = None,
) -> tuple[str, Key, Key]:
    """Make a key like this one, which ends after the overlap; return the text of the new one, the new one and the old one.

    The new one is valid for as long as the old one was made for, unless it is said.
    """
    if not 0 <= overlap_seconds <= OVERLAP_MAX_SECONDS:
        raise BadValue("overlap", overlap_seconds, f"0 to {OVERLAP_MAX_SECONDS:,.0f} seconds")
    now_ms = time_ms() if now_ms is None else now_ms
    old = _replaceable(find(engine, id), now_ms)
    if isinstance(expires_seconds, Keep):
        expires_seconds = None if old.expires_ms is None else (old.expires_ms - old.made_ms) / 1000
    secret, new = new_key(old.customer, old.role, old.scopes, old.name, expires_seconds, now_ms)
    with recorded(engine, actor, "key.rotate", target=id, customer=old.customer, before=_described(old)) as change:
        add(engine, new)  # first: a death before the next step leaves a key that nobody knows, and not a customer without one
        try:
            old = _replace(engine, id, new.id, now_ms, now_ms + round(overlap_seconds * 1000))
        except Mistake:
            engine.put_record(GROUP, new.id, None)
            raise
        change.after = {"new_key": new.id, "new_expires_ms": new.expires_ms, "old_expires_ms": old.expires_ms}
    return secret, new, old


def _replace(engine: Engine, id: str, new_id: str, now_ms: int, until_ms: int) -> Key:
    """Let a key end at that time, or when it would have ended anyway."""
    while True:
        key, version = _read(engine, id)
        ends_ms = until_ms if key.expires_ms is None else min(until_ms, key.expires_ms)
        replaced = _replaceable(key, now_ms)._replace(expires_ms=ends_ms, replaced_by=new_id)
        if engine.put_record(GROUP, id, _to_json(replaced), version) is not None:
            return replaced


def _replaceable(key: Key, now_ms: int) -> Key:
    if (ended := key.ended(now_ms)) is not None:
        raise WrongState(f"key {key.id} is {ended}; make a new one instead of rotating it")
    if key.replaced_by is not None:
        raise WrongState(f"key {key.id} was replaced by {key.replaced_by}; rotate that one")
    return key


def has_admin(engine: Engine) -> bool:
    """Whether any admin's key is valid."""
    now_ms = time_ms()
    return any(key.role == "admin" and key.ended(now_ms) is None for key in list_keys(engine))


class Keyring:
    """Identifies callers by their keys; caches for a moment what the store said."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._cache: dict[str, tuple[float, Key | None]] = {}

    def is_cached(self, id: str) -> bool:
        """Whether `caller` answers without reading the store."""
        entry = self._cache.get(id)
        return entry is not None and time.monotonic() - entry[0] < CACHE_SECONDS

    def load(self, id: str) -> None:
        """Read a key from the store into the cache; may block."""
        record = self._engine.record(GROUP, id)
        if len(self._cache) >= CACHE_MAX:  # ids that strangers made up go first
            known = {key_id: entry for key_id, entry in self._cache.items() if entry[1] is not None}
            self._cache = known if len(known) < CACHE_MAX // 2 else {}
        self._cache[id] = (time.monotonic(), None if record is None else _from_json(id, record.value))

    def caller(self, secret: str) -> Caller | None:
        """Identify the caller by the text of its key, from the cache; None: no valid key."""
        id = public_part(secret)
        key = self.key(id) if id else None
        is_right = hmac.compare_digest(digest_of(secret), _NO_KEY if key is None else key.digest)
        if key is None or not is_right or key.ended(time_ms()) is not None:
            return None
        return key.caller

    def holder(self, id: str) -> Caller | None:
        """Identify the caller by the public part of a key that was proved before, from the cache; None: no longer valid."""
        key = self.key(id)
        return None if key is None or key.ended(time_ms()) is not None else key.caller

    def key(self, id: str) -> Key | None:
        """Return a key from the cache."""
        return self._cache.get(id, (0.0, None))[1]


def public_part(secret: str) -> str:
    """Return the part of a key that it is looked up by; empty if this cannot be a key."""
    prefix, _, rest = secret.partition("_")
    id, _, random = rest.partition("_")
    is_key = prefix == PREFIX and len(id) == 16 and id.isalnum() and id.isascii() and 40 <= len(random) <= 64
    return id if is_key else ""


def digest_of(secret: str) -> str:
    """Return what is kept of a key, or of an upload token."""
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()


_NO_KEY = digest_of("")


def _to_json(key: Key) -> str:
    return json.dumps({name: value for name, value in key._asdict().items() if name != "id"})


def _from_json(id: str, value: str) -> Key:
    """Parse a key; members that a newer version added are ignored, and those that an older one lacked have their defaults."""
    members = json.loads(value)
    scopes = members.get("scopes", CUSTOMER_SCOPES if members["role"] == "customer" else ())
    return Key(id=id, **{name: members[name] for name in _FIELDS if name in members}, scopes=tuple(scopes))


_FIELDS = frozenset(Key._fields) - {"id", "scopes"}
