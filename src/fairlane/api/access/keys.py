"""Keys on behalf of an admin: made, listed, rotated, revoked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from fairlane.api import auth
from fairlane.api.auth import Caller, Key, KeyState
from fairlane.api.key_uses import last_use
from fairlane.api.permissions import Role
from fairlane.api.problems import Problem, nothing_here
from fairlane.queue import KEEP, Keep, Queue
from fairlane.queue.audit import Actor
from fairlane.queue.audited_queue import AuditedQueue

SCAN_MAX = 5000  # keys that are examined for one page


class KeyView(NamedTuple):
    """A key, when it was last used, and its text, which is shown this once."""

    key: Key
    last_used_ms: int | None = None
    secret: str | None = None


class KeyPage(NamedTuple):
    """A page of keys; it may be short, or empty, although there are more."""

    keys: list[KeyView]
    next: str | None


class KeyFilter(NamedTuple):
    """Which keys: those for which everything holds that is not None."""

    customer: str | None = None
    role: Role | None = None
    state: KeyState | None = None

    def matches(self, key: Key, now_ms: int) -> bool:
        return (
            self.customer in (None, key.customer) and self.role in (None, key.role) and self.state in (None, key.state(now_ms))
        )


class KeyAccess:
    """Reads and changes of keys; for anybody but admins there are none."""

    def __init__(self, queue: Queue, caller: Caller) -> None:
        if "admin" not in caller.permissions:
            raise nothing_here()
        self._engine = queue.engine
        self._actor: Actor | None = queue.actor if isinstance(queue, AuditedQueue) else None

    def create(self, wanted: Iterable[dict[str, Any]]) -> list[KeyView]:
        """Make keys; none if one of them cannot be."""
        made = [auth.new_key(**_with_holder(options), now_ms=auth.time_ms()) for options in wanted]
        for _, key in made:
            auth.add(self._engine, key, self._actor)
        return [KeyView(key, None, secret) for secret, key in made]

    def page(self, filter: KeyFilter, after: str, limit: int) -> KeyPage:
        """Read keys that match, by their public part, those after `after`."""
        now_ms, found = auth.time_ms(), list[Key]()
        for _ in range(0, SCAN_MAX, auth.PAGE):
            page = auth.key_page(self._engine, after, auth.PAGE)
            for key in page:
                after = key.id
                found += [key] if filter.matches(key, now_ms) else []
                if len(found) == limit:
                    return KeyPage(self._views(found), after)
            if len(page) < auth.PAGE:
                return KeyPage(self._views(found), None)
        return KeyPage(self._views(found), after)

    def _views(self, keys: list[Key]) -> list[KeyView]:
        return [KeyView(key, last_use(self._engine, key.id)) for key in keys]

    def get(self, id: str) -> KeyView:
        return self._views([auth.find(self._engine, id)])[0]

    def rotate(self, id: str, overlap_seconds: float, expires_seconds: float | Keep | None = KEEP) -> KeyView:
        """Make a key that replaces this one, which stays valid for the overlap."""
        secret, key, _ = auth.rotate(
            self._engine, id, overlap_seconds=overlap_seconds, expires_seconds=expires_seconds, actor=self._actor
        )
        return KeyView(key, None, secret)

    def revoke(self, id: str) -> KeyView:
        auth.revoke(self._engine, id, actor=self._actor)
        return self.get(id)


def _with_holder(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a key with its role; refused if they say neither whose it is nor its role."""
    if options["customer"] is None and options["role"] is None:
        if options["scopes"] != ["metrics"]:
            raise Problem(
                "bad-value", "a key is of a customer, or has a role: give customer, or role viewer, operator or admin"
            )
        return options | {"role": "viewer"}
    return options
