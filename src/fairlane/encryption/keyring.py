"""Encryption keys: where they come from, and how a key is named without being known.

Laws:
- The first key encrypts, every key decrypts. The word `none` in the first place encrypts nothing, and decrypts with the rest.
- A key is 256 random bits. Its id follows from it, so a wrong key cannot pass for the right one.
- A key is neither printed nor repeated in an error.
- A file that every user of the machine may read, or that others may change, keeps no secret: it is refused.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
import stat
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from fairlane.core.errors import Mistake, StoreUnfit

KEYS_VARIABLE, FILE_VARIABLE = "FAIRLANE_ENCRYPTION_KEYS", "FAIRLANE_ENCRYPTION_KEY_FILE"
KEY_BYTES = 32
NONE = "none"
FILE_BYTES_MAX = 64 * 1024
OPEN_MODE = 0o027  # whoever has one of these bits makes a file of keys open to others; a group may read it
EXPECTED = f"{KEY_BYTES} random bytes in base64, as `fairlane encrypt --new-key` prints them"


class KeyMissing(StoreUnfit):
    """A value is encrypted with a key that this program does not have."""

    def __init__(self, key_id: str) -> None:
        super().__init__(
            f"this queue is encrypted with key {key_id}, which this program does not have; add that key to {KEYS_VARIABLE} or "
            f"to the file that {FILE_VARIABLE} names"
        )
        self.key_id = key_id


class EncryptionKey(NamedTuple):
    """One key; its text never shows what it is."""

    id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"<encryption key {self.id}>"

    def derive(self, purpose: bytes) -> bytes:
        """Return a key for one purpose, from which this one cannot be computed."""
        return derive(self.secret, purpose)


class EncryptionKeyring(NamedTuple):
    """The keys of this program."""

    first: EncryptionKey | None = None  # None: write plain
    keys: tuple[EncryptionKey, ...] = ()  # all that may decrypt

    def find(self, key_id: str) -> EncryptionKey:
        """Return the key of an id, or raise KeyMissing."""
        for key in self.keys:
            if key.id == key_id:
                return key
        raise KeyMissing(key_id)

    def has(self, key_id: str) -> bool:
        return any(key.id == key_id for key in self.keys)


def derive(secret: bytes, purpose: bytes) -> bytes:
    """Derive a key for one purpose (HKDF-Expand, SHA-256)."""
    try:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
    except ModuleNotFoundError as error:
        raise StoreUnfit('encryption needs the package cryptography; run in the clone: pip install ".[encryption]"') from error
    return HKDFExpand(SHA256(), KEY_BYTES, purpose).derive(secret)


def new_key() -> str:
    """Make a key, as text."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def load_keyring(path: str | None = None, environment: Mapping[str, str] = os.environ) -> EncryptionKeyring:
    """Read the keys: from a file, else from the environment, which has them or names a file; without any, an empty keyring."""
    text, name = environment.get(KEYS_VARIABLE), environment.get(FILE_VARIABLE)
    if path is None and text is not None and name is not None:
        raise Mistake(f"{KEYS_VARIABLE} and {FILE_VARIABLE} are both set; unset one of them")
    if path is not None or (text is None and name is not None):
        file = path or name or ""
        return _parse(_read(file).splitlines(), file)
    return EncryptionKeyring() if text is None else _parse(text.split(","), KEYS_VARIABLE)


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise Mistake(
            f"the encryption keys cannot be read from {path}: {error.strerror}; name a file that can be read"
        ) from None
    if stat.S_ISREG(mode) and mode & OPEN_MODE:
        raise Mistake(
            f"the encryption keys in {path} are open to others: its mode is {stat.S_IMODE(mode):o}; chmod 600 {path}, or 640 "
            f"for a group that shares the queue, and change the keys if somebody may have read them"
        )
    if len(content) > FILE_BYTES_MAX:
        raise Mistake(f"{path} is larger than {FILE_BYTES_MAX:,} bytes; name a file that has encryption keys and nothing else")
    return content.decode("ascii", "replace")


def _parse(entries: list[str], source: str) -> EncryptionKeyring:
    words = [word for word in (entry.partition("#")[0].strip() for entry in entries) if word]
    if not words:
        raise Mistake(f"{source} has no encryption key; it must have one or more: {EXPECTED}")
    if NONE in words[1:]:
        raise Mistake(f"{source} has {NONE!r} in place {words.index(NONE, 1) + 1}; it may only come first")
    is_plain = words[0] == NONE
    keys = tuple(_key(word, number, source) for number, word in enumerate(words, 1) if not (is_plain and number == 1))
    return EncryptionKeyring(None if is_plain else keys[0], keys)


def _key(word: str, number: int, source: str) -> EncryptionKey:
    try:
        secret = base64.b64decode(word.replace("-", "+").replace("_", "/"), validate=True)
    except (ValueError, binascii.Error):
        secret = b""
    if len(secret) != KEY_BYTES:
        raise Mistake(f"encryption key {number} in {source} is not one; it must be {EXPECTED}")
    return _named(secret)


@cache
def _named(secret: bytes) -> EncryptionKey:
    return EncryptionKey(derive(secret, b"fairlane key id")[:4].hex(), secret)
