"""Encrypted files: a head with the id of the key, then pieces of 64 KiB, each encrypted and numbered.

Laws:
- Memory use does not grow with the file, whether it is written, read or searched.
- Every file has a key of its own, derived with 128 random bits; the number of a piece is its nonce, and the last one is marked.
  So a piece that is missing, moved, repeated, changed or of another file does not open, and a file that was cut off is noticed.
- The context of the file (document and name) is authenticated with every piece.
- A file that is not encrypted is read as it is.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from os import SEEK_CUR, SEEK_END, SEEK_SET, urandom
from typing import BinaryIO, cast

from fairlane.core.errors import BlobDamaged

from .keyring import EncryptionKey, EncryptionKeyring

MAGIC = b"\x89fl-enc1"  # no text, and no file format, begins so
KEY_ID_BYTES, SALT_BYTES, TAG_BYTES = 4, 16, 16
HEAD_BYTES = len(MAGIC) + KEY_ID_BYTES + SALT_BYTES
PIECE_BYTES = 64 * 1024
SEALED_BYTES = PIECE_BYTES + TAG_BYTES
_PURPOSE = b"fairlane file\0"


class FileCipher:
    """Encrypts and decrypts the files of documents with the keys of this program."""

    def __init__(self, keyring: EncryptionKeyring) -> None:
        self._keyring = keyring

    def encrypt(self, context: str, pieces: Iterable[bytes]) -> Iterable[bytes]:
        """Return pieces encrypted with the first key; without one as they are."""
        return pieces if self._keyring.first is None else _encrypt(self._keyring.first, context.encode(), pieces)

    def decrypt(self, context: str, file: BinaryIO, closes: bool = False) -> BinaryIO:
        """Return a file that reads the plain bytes of an encrypted one, or the file itself if it is not encrypted."""
        head = file.read(HEAD_BYTES)
        file.seek(0)
        if not is_encrypted(head):
            return file
        key = self._keyring.find(key_id_of(head))
        return cast(BinaryIO, io.BufferedReader(_DecryptedFile(file, key, head, context, closes), PIECE_BYTES))

    def is_current(self, head: bytes) -> bool:
        """Return whether a file that begins so is as the first key would have it."""
        first = self._keyring.first
        return (key_id_of(head) if is_encrypted(head) else None) == (None if first is None else first.id)


def is_encrypted(head: bytes) -> bool:
    return len(head) == HEAD_BYTES and head.startswith(MAGIC)


def key_id_of(head: bytes) -> str:
    """Return the id of the key in the head of an encrypted file."""
    return head[len(MAGIC) : len(MAGIC) + KEY_ID_BYTES].hex()


def plain_size(stored_size: int) -> int:
    """Return how many bytes are in an encrypted file."""
    body = stored_size - HEAD_BYTES
    return max(0, body - TAG_BYTES * max(1, -(-body // SEALED_BYTES)))


def _encrypt(key: EncryptionKey, context: bytes, pieces: Iterable[bytes]) -> Iterator[bytes]:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    salt = urandom(SALT_BYTES)
    cipher = AESGCM(key.derive(_PURPOSE + salt))
    yield MAGIC + bytes.fromhex(key.id) + salt
    for number, (block, is_last) in enumerate(_blocks(pieces)):
        yield cipher.encrypt(_nonce(number, is_last), block, context)


def _blocks(pieces: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield the same bytes in blocks of one size, and whether each is the last; only the last may be shorter."""
    block: bytes | None = None
    for each in _sized(pieces):
        if block is not None:
            yield block, False
        block = each
    yield block or b"", True


def _sized(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        view = memoryview(rest + piece if rest else piece)
        while len(view) >= PIECE_BYTES:
            yield bytes(view[:PIECE_BYTES])
            view = view[PIECE_BYTES:]
        rest = bytes(view)
    if rest:
        yield rest


def _nonce(number: int, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + (b"\1" if is_last else b"\0")


class _DecryptedFile(io.RawIOBase):
    """The plain bytes of an encrypted file; any piece can be read without those before it."""

    name = -1  # its bytes lie at no path

    def __init__(self, file: BinaryIO, key: EncryptionKey, head: bytes, context: str, closes: bool) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._file, self._context, self._closes = file, context, closes
        self._cipher = AESGCM(key.derive(_PURPOSE + head[len(MAGIC) + KEY_ID_BYTES :]))
        self._stored = file.seek(0, SEEK_END) - HEAD_BYTES
        self._pieces = max(1, -(-self._stored // SEALED_BYTES))
        self._size = self._stored - TAG_BYTES * self._pieces
        self._position = 0
        self._last_piece = -1, b""  # the piece that was read last: readers may want it in small parts

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        start = {SEEK_SET: 0, SEEK_CUR: self._position, SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        number, offset = divmod(self._position, PIECE_BYTES)
        if number >= self._pieces or (self._position >= self._size and self._position > 0):
            return 0
        if self._last_piece[0] != number:
            self._last_piece = number, self._piece(number)
        plain = self._last_piece[1][offset : offset + len(buffer)]
        buffer[: len(plain)] = plain
        self._position += len(plain)
        return len(plain)

    def _piece(self, number: int) -> bytes:
        from cryptography.exceptions import InvalidTag

        self._file.seek(HEAD_BYTES + number * SEALED_BYTES)
        sealed = self._file.read(SEALED_BYTES)
        try:
            return self._cipher.decrypt(_nonce(number, number == self._pieces - 1), sealed, self._context.encode())
        except (InvalidTag, ValueError):
            document = self._context.partition("/")[0]
            raise BlobDamaged(document, f"an encrypted file for {self._context}", "bytes that its key does not open") from None

    def close(self) -> None:  # also called when this object is collected
        if self._closes:
            self._file.close()
        super().close()
