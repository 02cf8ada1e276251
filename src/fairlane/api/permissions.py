"""Permissions: the one every route of the API and of the page needs, and the ones each role and scope has.

Laws:
- Every route stands in ROUTES; one that is missing stops the server from starting.
- The middleware decides by the headers alone: nobody's body is read before it is known that the caller may send it.
- For customers, what is for staff does not exist (404). Whoever may see a thing but not change it is told so (403).
- A scope takes away from what a role has, and never adds to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Literal, NamedTuple, get_args

from fairlane.core.errors import BadValue

Role = Literal["customer", "viewer", "operator", "admin"]
Scope = Literal["submit", "read", "metrics"]
Permission = Literal["public", "self", "submit", "read", "manage", "view", "metrics", "operate", "admin", "upload"]

ROUTES: dict[tuple[str, str], Permission] = {
    # Answered without a key. The OpenAPI document is the same wherever this version runs, and holds nothing of a queue.
    ("GET", "/"): "public",
    ("GET", "/healthz"): "public",
    ("GET", "/readyz"): "public",
    ("GET", "/v1/openapi.json"): "public",
    ("GET", "/static/{name:path}"): "public",
    ("POST", "/page/session"): "public",
    ("POST", "/page/proxy-session"): "public",  # it checks whom a trusted proxy names
    ("GET", "/page/sign-in"): "public",
    ("GET", "/page/oidc/sign-in"): "public",
    ("GET", "/page/oidc/callback"): "public",  # it checks what the provider sent
    # Whose key this is.
    ("GET", "/v1/me"): "self",
    ("GET", "/page/session"): "self",
    ("DELETE", "/page/session"): "self",
    # Documents: a customer's own, for staff everybody's.
    ("POST", "/v1/documents"): "submit",
    ("POST", "/v1/batches"): "submit",
    ("POST", "/v1/checks"): "submit",
    ("POST", "/v1/upload-tokens"): "submit",
    ("GET", "/v1/upload-tokens/{token}"): "self",  # whoever makes them only submits, and looks whether they were used
    ("POST", "/v1/uploads"): "upload",
    ("GET", "/v1/documents"): "read",
    ("GET", "/v1/documents/{id}"): "read",
    ("GET", "/v1/documents/{id}/result"): "read",
    ("GET", "/v1/documents/{id}/file"): "read",
    ("GET", "/v1/documents/{id}/text"): "read",
    ("GET", "/v1/documents/{id}/thumbnail"): "read",
    ("GET", "/v1/documents/{id}/explain"): "read",
    ("GET", "/v1/documents/{id}/history"): "read",
    ("GET", "/v1/documents/{id}/steps"): "read",
    ("GET", "/v1/documents/{id}/parts"): "read",
    ("GET", "/v1/documents/{id}/attempts"): "view",
    ("DELETE", "/v1/documents/{id}"): "manage",
    ("POST", "/v1/documents/{id}/retry"): "manage",
    ("POST", "/v1/documents/bulk"): "manage",
    ("GET", "/v1/batches/{id}"): "read",
    ("GET", "/v1/events"): "read",
    # A customer's webhook.
    ("GET", "/v1/webhook"): "read",
    ("PUT", "/v1/webhook"): "manage",
    ("DELETE", "/v1/webhook"): "manage",
    ("POST", "/v1/webhook/rotate"): "manage",
    ("DELETE", "/v1/webhook/old-secret"): "manage",
    ("GET", "/v1/webhook/deliveries"): "read",
    ("POST", "/v1/webhook/deliveries"): "manage",
    ("POST", "/v1/webhook/deliveries/{id}/send"): "manage",
    # For staff.
    ("GET", "/v1/customers"): "view",
    ("GET", "/v1/customers/{customer}"): "view",
    ("GET", "/v1/customers/{customer}/explain"): "view",
    ("GET", "/v1/customers/{customer}/export"): "admin",
    ("PATCH", "/v1/customers/{customer}"): "operate",
    ("POST", "/v1/customers/{customer}/reset"): "operate",
    ("PATCH", "/v1/documents/{id}"): "operate",
    ("POST", "/v1/documents/prioritize"): "operate",
    ("GET", "/v1/policy"): "view",
    ("PUT", "/v1/policy"): "operate",
    ("POST", "/v1/policy/apply"): "operate",
    ("GET", "/v1/kinds"): "view",
    ("GET", "/v1/kinds/{kind}"): "view",
    ("PATCH", "/v1/kinds/{kind}"): "operate",
    ("GET", "/v1/workers"): "view",
    ("GET", "/v1/capacity"): "view",
    ("POST", "/v1/workers/{worker}/drain"): "operate",
    ("POST", "/v1/workers/{worker}/undrain"): "operate",
    ("GET", "/metrics"): "metrics",
    # For admins.
    ("GET", "/v1/keys"): "admin",
    ("POST", "/v1/keys"): "admin",
    ("GET", "/v1/keys/{key}"): "admin",
    ("POST", "/v1/keys/{key}/rotate"): "admin",
    ("DELETE", "/v1/keys/{key}"): "admin",
    ("GET", "/v1/audit"): "admin",
    ("GET", "/v1/sessions"): "admin",
    ("DELETE", "/v1/sessions/{id}"): "admin",
    # The page.
    ("GET", "/page/rules"): "read",
    ("GET", "/page/documents"): "read",
    ("GET", "/page/documents/{id}"): "read",
    ("GET", "/page/documents/{id}/payload"): "read",
    ("GET", "/page/batches/{id}"): "read",
    ("GET", "/page/frames"): "view",
    ("GET", "/page/history"): "view",
    ("GET", "/page/customers"): "view",
    ("GET", "/page/customers/{customer}"): "view",
    ("POST", "/page/what-if"): "view",  # it computes, and changes nothing
    ("GET", "/page/audit/export"): "admin",
}

STAFF = frozenset[Permission](("view", "metrics", "operate", "admin"))  # for customers, routes that need these do not exist
_VIEWER = frozenset[Permission](("self", "read", "view", "metrics"))
_OPERATOR = _VIEWER | frozenset[Permission](("submit", "manage", "operate"))
OF_ROLE: dict[Role, frozenset[Permission]] = {
    "customer": frozenset(("self", "submit", "read", "manage")),
    "viewer": _VIEWER,
    "operator": _OPERATOR,
    "admin": _OPERATOR | frozenset[Permission](("admin",)),
}
OF_SCOPE: dict[Scope, frozenset[Permission]] = {
    "submit": frozenset(("self", "submit")),
    "read": frozenset(("self", "read", "view")),
    "metrics": frozenset(("metrics",)),
}
UPLOAD = frozenset[Permission](("upload",))  # what an upload token may do, and no key
ROLE_NAMES: dict[Role, str] = {"customer": "a customer", "viewer": "a viewer", "operator": "an operator", "admin": "an admin"}
NEEDED = {
    "submit": "a key with scope submit",
    "read": "a key with scope read",
    "manage": "a key with both scopes, submit and read, or an operator's",
    "view": "a viewer's key",
    "metrics": "a viewer's key, or one with scope metrics",
    "operate": "an operator's key",
    "admin": "an admin's key",
    "upload": "an upload token, which POST /v1/upload-tokens makes",
}  # what to say to somebody who lacks the permission


class Missing(NamedTuple):
    """Why a caller is refused."""

    is_hidden: bool  # answer as if the route did not exist
    needed: str


@cache
def permissions_of(role: Role, scopes: tuple[Scope, ...]) -> frozenset[Permission]:
    """Return what a key of this role and these scopes may do; no scopes: everything that the role may."""
    if not scopes:
        return OF_ROLE[role]
    allowed = frozenset[Permission]().union(*(OF_SCOPE[scope] for scope in scopes))
    if {"submit", "read"} <= set(scopes):
        allowed |= {"manage"}
    return OF_ROLE[role] & allowed


def validate_scopes(role: Role, scopes: Iterable[str]) -> tuple[Scope, ...]:
    """Return the scopes of a key in their usual order; refused if its role has nothing of one."""
    chosen = set(scopes)
    known = tuple(scope for scope in get_args(Scope) if OF_ROLE[role] & OF_SCOPE[scope] - {"self"})
    if not chosen <= set(known):
        raise BadValue("scope", sorted(chosen - set(known))[0], f"{' or '.join(known)} for a key of role {role}")
    return tuple(scope for scope in known if scope in chosen)


def missing(permission: Permission, role: Role, permissions: frozenset[Permission]) -> Missing | None:
    """Say why a caller may not use a route; None: it may."""
    if permission in permissions or permission == "public":
        return None
    return Missing(role == "customer" and permission in STAFF, NEEDED.get(permission, "another key"))


def refuse_unlisted(routes: Iterable[tuple[str, str]]) -> None:
    """Refuse to start with a route of which nobody has said who may use it."""
    unlisted = sorted(set(routes) - ROUTES.keys())
    if unlisted:
        names = ", ".join(f"{method} {path}" for method, path in unlisted)
        raise RuntimeError(f"no permission is set for {names}; add it to ROUTES in fairlane/api/permissions.py")


def of_path(path: str) -> Sequence[Permission]:
    """Return the permissions of a route's path, whatever the method."""
    return _OF_PATHS.get(path, ())


_OF_PATHS: dict[str, list[Permission]] = {}
for (_, _path), _permission in ROUTES.items():
    _OF_PATHS.setdefault(_path, []).append(_permission)
