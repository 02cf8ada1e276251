"""Cursors: numbers of the queue as customers see them, from which nobody can tell how much the whole queue has done.

A customer's cursor is the number, encrypted: a permutation of 128 bits (four Feistel rounds of HMAC-SHA256, a textbook
construction) under a secret that the store keeps, so that any server can read it, also after a restart.

Laws:
- Operators see plain numbers. Customers see nothing that orders, counts or compares events of others.
- A cursor can be read only by the customer that it was made for. A number that was guessed is not a cursor.
- The same event has the same cursor everywhere. Cursors that stand for "up to here" are salted: two of them look different
  although nothing has happened in between.
"""

from __future__ import annotations

import hmac
import json
import secrets
from functools import lru_cache

from fairlane.engine import Engine

GROUP, KEY = "cursors", "secret"
SECRET_BYTES = 32
HALF_BITS = 64  # the number is one half; the other has zeros to recognise a cursor by, and the salt
SALT_BITS = 24
ROUNDS = 4  # as many as make a permutation that cannot be told from a random one, asked in both directions
CURSOR_DIGITS = 39  # of a number of 128 bits


class Cursors:
    """Makes and reads cursors, with the secret of one queue."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._secret: bytes | None = None

    @property
    def is_loaded(self) -> bool:
        return self._secret is not None

    def load(self) -> bytes:
        """Read the secret; the first server makes it. May block."""
        while self._secret is None:
            record = self._engine.record(GROUP, KEY)
            if record is not None:
                self._secret = bytes.fromhex(json.loads(record.value))
            else:  # if another server is faster, its secret counts
                self._engine.put_record(GROUP, KEY, json.dumps(secrets.token_hex(SECRET_BYTES)), 0)
        return self._secret

    def encode(self, customer: str | None, number: int, *, is_salted: bool = False) -> str:
        """Return a number as a customer, or an operator (None), may see it; may block unless the secret is loaded."""
        if customer is None:
            return str(number)
        salt = secrets.randbits(SALT_BITS) if is_salted else 0
        return str(_permute(_subkey(self.load(), customer), number << HALF_BITS | salt))

    def decode(self, customer: str | None, cursor: str) -> int | None:
        """Return the number in a cursor; None: it is not one of this customer. May block unless the secret is loaded."""
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= CURSOR_DIGITS):
            return None
        if customer is None:
            return int(cursor) if len(cursor) < 17 else None
        if int(cursor) >> (2 * HALF_BITS):
            return None
        number, rest = divmod(_invert(_subkey(self.load(), customer), int(cursor)), 1 << HALF_BITS)
        return None if rest >> SALT_BITS else number


@lru_cache(10_000)
def _subkey(secret: bytes, customer: str) -> bytes:
    return hmac.digest(secret, customer.encode(errors="surrogatepass"), "sha256")


def _permute(key: bytes, block: int) -> int:
    left, right = divmod(block, 1 << HALF_BITS)
    for number in range(ROUNDS):
        left, right = right, left ^ _round(key, number, right)
    return left << HALF_BITS | right


def _invert(key: bytes, block: int) -> int:
    left, right = divmod(block, 1 << HALF_BITS)
    for number in reversed(range(ROUNDS)):
        left, right = right ^ _round(key, number, left), left
    return left << HALF_BITS | right


def _round(key: bytes, number: int, half: int) -> int:
    digest = hmac.digest(key, bytes([number]) + half.to_bytes(HALF_BITS // 8, "big"), "sha256")
    return int.from_bytes(digest[: HALF_BITS // 8], "big")
