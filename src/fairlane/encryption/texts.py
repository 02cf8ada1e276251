"""Encrypted texts: `enc1:KEY-ID:…`, bound to their context: which text of which document it is, or which record.

Laws:
- Every text is encrypted (AES-256-GCM) under a key of its own, derived with 128 random bits: no nonce is ever used twice.
- The context is authenticated: a text that was copied elsewhere, or changed, does not open.
- Texts that are not encrypted are returned as they are. JSON never begins like an encrypted text: the two cannot be confused.
"""

from __future__ import annotations

import base64
import binascii
import os
import re

from fairlane.core.errors import StoreError

from .keyring import EncryptionKeyring, KeyMissing

MARK = "enc1:"
SALT_BYTES = 16
TAG_BYTES = 16
_NONCE = bytes(12)  # the key is used once
_PURPOSE = b"fairlane text\0"
_TOKEN = re.compile(r"enc1:([0-9a-f]{8}):([A-Za-z0-9_-]{43,})")


class TextDamaged(StoreError):
    """An encrypted text is not what was written there."""

    def __init__(self, context: str) -> None:
        super().__init__(
            f"what is stored as {context} was changed, or belongs elsewhere: its key does not open it; restore a backup"
        )


def is_sealed(text: str) -> bool:
    """Return whether a text is encrypted as a whole."""
    return text.startswith(MARK)


def key_id_of(text: str) -> str | None:
    """Return the id of the key that a text, or a part of it, is encrypted with; None: with none."""
    match = _TOKEN.search(text)
    return None if match is None else match[1]


def seal(keyring: EncryptionKeyring, context: str, text: str) -> str:
    """Encrypt a text with the first key; without one return it as it is."""
    key = keyring.first
    if key is None:
        return text
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    salt = os.urandom(SALT_BYTES)
    sealed = AESGCM(key.derive(_PURPOSE + salt)).encrypt(_NONCE, text.encode(), context.encode())
    return f"{MARK}{key.id}:{base64.urlsafe_b64encode(salt + sealed).rstrip(b'=').decode()}"


def unseal(keyring: EncryptionKeyring, context: str, text: str) -> str:
    """Decrypt a text; one that is not encrypted is returned as it is. Raise KeyMissing or TextDamaged."""
    if not text.startswith(MARK):
        return text
    match = _TOKEN.fullmatch(text)
    if match is None:
        raise TextDamaged(context)
    return _open(keyring, context, match)


def unseal_within(keyring: EncryptionKeyring, context: str, text: str) -> str:
    """Decrypt what is encrypted within a text for people; what cannot be opened is replaced by a word about it."""
    if MARK not in text:
        return text

    def opened(match: re.Match[str]) -> str:
        try:
            return _open(keyring, context, match)
        except KeyMissing as error:
            return f"(encrypted with key {error.key_id}, which is not here)"
        except StoreError:
            return match[0]  # it only looks like one

    return _TOKEN.sub(opened, text)


def reseal(keyring: EncryptionKeyring, context: str, text: str) -> str:
    """Encrypt a text with the first key, whatever it was encrypted with; without one decrypt it."""
    target = None if keyring.first is None else keyring.first.id
    if (key_id_of(text) if is_sealed(text) else None) == target:
        return text
    return seal(keyring, context, unseal(keyring, context, text))


def reseal_within(keyring: EncryptionKeyring, context: str, text: str) -> str:
    """Do the same to a text of which only a part may be encrypted."""
    target = None if keyring.first is None else keyring.first.id
    if MARK not in text:
        return seal(keyring, context, text) if text else text
    return _TOKEN.sub(
        lambda match: match[0] if match[1] == target else seal(keyring, context, _open(keyring, context, match)), text
    )


def _open(keyring: EncryptionKeyring, context: str, match: re.Match[str]) -> str:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    key = keyring.find(match[1])
    try:
        data = base64.urlsafe_b64decode(match[2] + "=" * (-len(match[2]) % 4))
        salt, sealed = data[:SALT_BYTES], data[SALT_BYTES:]
        return AESGCM(key.derive(_PURPOSE + salt)).decrypt(_NONCE, sealed, context.encode()).decode()
    except (InvalidTag, ValueError, binascii.Error):
        raise TextDamaged(context) from None
