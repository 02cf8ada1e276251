"""Verbs of `Client` for admins, keys and the audit log; and upload tokens, for whoever may submit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

from fairlane.core.document import validate_text
from fairlane.core.policy import plain_seconds
from fairlane.queue import KEEP, Cost, Keep
from fairlane.queue.audit import AuditEntry
from fairlane.queue.validation import now_milliseconds

from . import models
from .models import KeyInfo, NewKey, NewUploadToken, UploadTokenInfo, member, members, unexpected_response
from .retries import RetryingTransport

KEYS, UPLOAD_TOKENS, AUDIT = "/v1/keys", "/v1/upload-tokens", "/v1/audit"
PAGE_SIZE, KEYS_PAGE_SIZE = 500, 200


class AdminVerbs:
    """What an admin does with a server, besides documents and customers; upload tokens are for whoever may submit."""

    _http: RetryingTransport

    # -- keys ----------------------------------------------------------------------------------------------------------

    def keys(self, *, customer: str | None = None, role: str | None = None, state: str | None = None) -> Iterator[KeyInfo]:
        """Yield keys without their secrets: of a customer, of a role, and that are active, expired or revoked."""
        wanted = {"customer": customer, "role": role, "state": state, "limit": KEYS_PAGE_SIZE}
        query = urlencode({name: value for name, value in wanted.items() if value is not None})
        return map(models.key_info, self._pages(f"{KEYS}?{query}", "keys"))

    def create_key(
        self,
        *,
        customer: str | None = None,
        role: str | None = None,
        scopes: Iterable[str] = (),
        name: str = "",
        expires: float | timedelta | Keep | None = KEEP,
    ) -> NewKey:
        """Make a key of a customer or of a role; without `expires` it is valid for 90 days, with None for ever."""
        wanted = {"customer": customer, "role": role, "scopes": scopes, "name": name, "expires": expires}
        return self.create_keys([wanted])[0]

    def create_keys(self, keys: Iterable[Mapping[str, Any]]) -> list[NewKey]:
        """Make many keys, up to 100, each with the options of `create_key`; none if one of them cannot be made.

        Never repeated by itself: if the response is lost, look at `keys` for those that nobody knows.
        """
        body = {"keys": [_key_body(**options) for options in keys]}
        made = member(self._http.send("POST", KEYS, body, is_idempotent=False), "keys")
        return [models.new_key(value) for value in made]

    def rotate_key(
        self, id: str, *, overlap: float | timedelta = 7 * 86400, expires: float | timedelta | Keep | None = KEEP
    ) -> NewKey:
        """Replace a key by a new one like it; the old one stays valid for the overlap."""
        body = {"overlap": plain_seconds(overlap), **_expiry(expires)}
        return models.new_key(self._http.send("POST", f"{_key(id)}/rotate", body, is_idempotent=False))

    def revoke_key(self, id: str) -> KeyInfo:
        """End a key for good."""
        return models.key_info(self._http.send("DELETE", _key(id), is_idempotent=True))

    # -- upload tokens -------------------------------------------------------------------------------------------------

    def create_upload_token(
        self,
        *,
        customer: str | None = None,
        kind: str | None = None,
        bytes_max: int | None = None,
        cost: Cost = 1,
        payload: Any = None,
        no_better_than: int | None = None,
        expires: float | timedelta = 900,
    ) -> NewUploadToken:
        """Make a token with which a browser uploads one document; everything but its file is chosen here.

        An operator names the customer with `customer`.
        """
        optional = (("customer", customer), ("kind", kind), ("no_better_than", no_better_than))
        named = {name: value for name, value in optional if value is not None}
        body = {**named, "bytes_max": bytes_max, "cost": cost, "payload": payload, "expires_in": plain_seconds(expires)}
        return models.new_upload_token(self._http.send("POST", UPLOAD_TOKENS, body, is_idempotent=True))

    def upload_token(self, id: str) -> UploadTokenInfo:
        """Return whether an upload token was used, and for which document."""
        address = f"{UPLOAD_TOKENS}/{quote(validate_text('upload token id', id), safe='')}"
        return models.upload_token_info(self._http.get(address))

    # -- audit ---------------------------------------------------------------------------------------------------------

    def audit(
        self,
        *,
        who: str | None = None,
        what: str | None = None,
        customer: str | None = None,
        since: float | datetime | None = None,
        until: float | datetime | None = None,
    ) -> Iterator[AuditEntry]:
        """Yield who changed what, newest first: by a key or a user, an action or all of a sort, a customer, and when."""
        moments = {name: _seconds(value) for name, value in (("since", since), ("until", until))}
        wanted: dict[str, Any] = {"who": who, "what": what, "customer": customer, **moments, "limit": PAGE_SIZE}
        query = urlencode({name: value for name, value in wanted.items() if value is not None})
        return map(models.audit_entry, self._pages(f"{AUDIT}?{query}", "entries"))

    def _pages(self, path: str, name: str) -> Iterator[Any]:
        next_path: str | None = path
        while next_path is not None:
            page = self._http.get(next_path)
            yield from member(page, name)
            next_path = members(page).get("next")
            if next_path is not None and not str(next_path).startswith("/v1/"):
                raise unexpected_response("the link to the next page leads elsewhere")


def _key_body(
    customer: str | None = None,
    role: str | None = None,
    scopes: Iterable[str] = (),
    name: str = "",
    expires: float | timedelta | Keep | None = KEEP,
) -> dict[str, Any]:
    holder = {name: value for name, value in (("customer", customer), ("role", role)) if value is not None}
    return {**holder, "scopes": list(scopes), "name": name, **_expiry(expires)}


def _expiry(expires: float | timedelta | Keep | None) -> dict[str, Any]:
    return {} if isinstance(expires, Keep) else {"expires_in": plain_seconds(expires)}


def _key(id: str) -> str:
    return f"{KEYS}/{quote(validate_text('key id', id), safe='')}"


def _seconds(moment: float | datetime | None) -> float | None:
    milliseconds = now_milliseconds(moment)
    return None if milliseconds is None else milliseconds / 1000
