"""Webhooks: where a customer is called when its documents end, and the secrets that sign the calls (Standard Webhooks).

Laws:
- A webhook has one secret, or two while it is rotated: every call is signed with each that is still valid.
- A secret is shown once, in the response that made it. The store keeps it as it is: signing needs it.
- A webhook that a customer set for itself never leads to a private address, whatever the service allows operators.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from typing import NamedTuple

from fairlane.core.errors import BadValue
from fairlane.engine import Engine
from fairlane.queue.history import newest

from .auth import time_ms
from .problems import nothing_here
from .webhook_addresses import validate_url
from .webhook_transport import PREFIX, secret_bytes

GROUP = "webhooks"  # by customer
STATE = "webhook sender"  # one record each: the cursor on the feed, and the lease
CURSOR = "cursor"
KEY_BYTES = 32
KEY_BYTES_MIN, KEY_BYTES_MAX = 24, 64  # as the specification has it
OVERLAP_DEFAULT_SECONDS = 86_400.0
OVERLAP_MAX_SECONDS = 30 * 86_400.0


class SigningSecret(NamedTuple):
    """A secret that signs calls; None: until another one takes its place."""

    secret: str
    made_ms: int
    expires_ms: int | None = None


class Webhook(NamedTuple):
    """Where a customer is called, and what signs the calls, the newest secret first."""

    url: str
    made_ms: int
    is_by_operator: bool
    secrets: tuple[SigningSecret, ...]

    def valid_secrets(self, now_ms: int) -> list[str]:
        """Return the secrets to sign with now."""
        return [held.secret for held in self.secrets if held.expires_ms is None or held.expires_ms > now_ms]


def put_webhook(engine: Engine, customer: str, url: str, secret: str | None, *, is_by_operator: bool) -> tuple[Webhook, bool]:
    """Set a customer's address; the second value says whether its secret is new. Without one named, a first webhook gets a
    new secret and a later one keeps what it has."""
    validate_url(url)
    made = None if secret is None else SigningSecret(_validate_secret(secret), time_ms())
    while True:
        record = engine.record(GROUP, customer)
        if record is None:
            if not engine.records(GROUP, "", 1):  # the first of all webhooks: deliver endings from now on
                engine.put_record(STATE, CURSOR, json.dumps(newest(engine)))
            known = None
            held: tuple[SigningSecret, ...] = (made or SigningSecret(_new_secret(), time_ms()),)
        else:
            known = _from_json(record.value)
            held = known.secrets if made is None else (made,)
        hook = Webhook(url, time_ms() if known is None else known.made_ms, is_by_operator, held)
        if engine.put_record(GROUP, customer, _to_json(hook), 0 if record is None else record.version) is not None:
            return hook, known is None or made is not None


def rotate_secret(engine: Engine, customer: str, secret: str | None, overlap_seconds: float) -> Webhook:
    """Sign with another secret from now on, and with the one before as well until the overlap is over."""
    if not 0 <= overlap_seconds <= OVERLAP_MAX_SECONDS:
        raise BadValue("overlap", overlap_seconds, f"0 to {OVERLAP_MAX_SECONDS:,.0f} seconds")
    made = SigningSecret(_new_secret() if secret is None else _validate_secret(secret), time_ms())
    expires_ms = made.made_ms + round(overlap_seconds * 1000)
    while True:
        hook, version = _existing(engine, customer)
        before = hook.secrets[0]._replace(expires_ms=expires_ms)
        changed = hook._replace(secrets=(made, before) if overlap_seconds and before.secret != made.secret else (made,))
        if engine.put_record(GROUP, customer, _to_json(changed), version) is not None:
            return changed


def expire_old_secret(engine: Engine, customer: str) -> Webhook:
    """Sign with the newest secret alone, at once."""
    while True:
        hook, version = _existing(engine, customer)
        changed = hook._replace(secrets=hook.secrets[:1])
        if engine.put_record(GROUP, customer, _to_json(changed), version) is not None:
            return changed


def webhook_of(engine: Engine, customer: str) -> Webhook | None:
    """Read a customer's webhook; None: it has none."""
    record = engine.record(GROUP, customer)
    return None if record is None else _from_json(record.value)


def drop_webhook(engine: Engine, customer: str) -> None:
    """Remove a customer's webhook; pending deliveries are dropped when they are due."""
    engine.put_record(GROUP, customer, None)


def _existing(engine: Engine, customer: str) -> tuple[Webhook, int]:
    record = engine.record(GROUP, customer)
    if record is None:
        raise nothing_here()
    return _from_json(record.value), record.version


def _new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def _validate_secret(secret: str) -> str:
    """Return a secret that somebody chose; refused, without repeating it, if it is not one."""
    try:
        size = len(secret_bytes(secret)) if secret.startswith(PREFIX) else 0
    except (ValueError, binascii.Error):
        size = 0
    if not KEY_BYTES_MIN <= size <= KEY_BYTES_MAX:
        expected = f"{PREFIX} and {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes in base64, or left out to have one made"
        raise BadValue("secret", "another text", expected)
    return secret


def _to_json(hook: Webhook) -> str:
    return json.dumps({**hook._asdict(), "secrets": [held._asdict() for held in hook.secrets]})


def _from_json(value: str) -> Webhook:
    fields = json.loads(value)
    return Webhook(**{**fields, "secrets": tuple(SigningSecret(**held) for held in fields["secrets"])})
