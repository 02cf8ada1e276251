"""What does a store of bytes promise? Five verbs, a sentence each.

Laws for every store:
- Under a key there is nothing, or everything that was put there: never a part.
- What was put is durable when `put` returns.
- Memory does not grow with what is put, opened or listed.
- Keys are made by us (`files.py`) of letters, digits, `-` and `/`; a store trusts them, and knows no queue.
- What the disk or the server refuses is a StoreError; whether bytes are the right ones is checked by who reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO, NamedTuple, Protocol


class Stored(NamedTuple):
    """One key in a listing."""

    key: str
    size: int
    age_seconds: float  # since it was put, by the store's clock as far as it has one


class Blobs(Protocol):
    """The verbs. No store has more or fewer."""

    def put(self, contents: Mapping[str, Iterable[bytes]], beside: str | None = None) -> None:
        """All the pieces under their key, in place of what was there; nothing is left of one that cannot be read or written;
        `beside` is a key in the same folder whose `put` has returned, if the caller knows of one."""

    def open(self, key: str) -> BinaryIO:
        """What is under a key, as a file that can be read and sought; Unknown if there is nothing. Its `name` is a path where
        it lies on this machine."""

    def remove(self, keys: Sequence[str]) -> None:
        """Nothing is under these keys any more; where nothing was, that is fine."""

    def listed(self, folder: str, after: str = "") -> Iterator[Stored]:
        """What is below a folder, in the order of keys, after one of them; what comes or goes meanwhile may be in it or not."""

    def drop_unfinished(self, age_seconds: float) -> int:
        """Remove what writers that died left half-written so long ago; returns how many."""
