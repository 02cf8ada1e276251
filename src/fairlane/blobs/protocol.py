"""The contract of a blob store: five verbs.

Laws for every store:
- A key holds nothing, or everything that was put there: never a part.
- What was put is durable when `put` returns.
- Memory use does not grow with the size of what is put, opened or listed.
- Keys are made by `files.py` from letters, digits, `-` and `/`. A store trusts them, and knows no queue.
- Whatever the disk or the server refuses becomes a StoreError. Whoever reads the bytes checks that they are the right ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO, NamedTuple, Protocol


class BlobInfo(NamedTuple):
    """One key in a listing."""

    key: str
    size: int
    age_seconds: float  # since it was put, by the store's clock as far as it has one


class Cipher(Protocol):
    """What stands between the bytes of files and their store, if they are encrypted; a context is `document/name`."""

    def encrypt(self, context: str, pieces: Iterable[bytes]) -> Iterable[bytes]:
        """Return the pieces as they are to be stored."""

    def decrypt(self, context: str, file: BinaryIO, closes: bool = False) -> BinaryIO:
        """Return a seekable file of the plain bytes, which closes the other one if it shall; or that one, if it is plain."""


class Blobs(Protocol):
    """The verbs. No store has more or fewer."""

    def put(self, contents: Mapping[str, Iterable[bytes]], sibling_key: str | None = None) -> None:
        """Write the pieces under each key, replacing what was there. If one cannot be read or written, nothing of it stays.

        `sibling_key` is a key in the same folder whose `put` has returned, if the caller knows one: it saves syncs.
        """

    def open(self, key: str) -> BinaryIO:
        """Return a key's content as a seekable file, or raise Unknown. Its `name` is a path if it lies on this machine."""

    def remove(self, keys: Sequence[str]) -> None:
        """Remove these keys; missing ones are ignored."""

    def list_folder(self, folder: str, after: str = "") -> Iterator[BlobInfo]:
        """Yield what is below a folder in key order, after a key; concurrent changes may or may not show."""

    def remove_unfinished(self, age_seconds: float) -> int:
        """Remove what writers that died left half-written at least that long ago; return how many."""
