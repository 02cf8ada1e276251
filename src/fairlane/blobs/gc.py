"""Garbage collection of files: the sweep removes what no document owns.

Laws:
- A document owns its input, and the results of its newest token unless it failed or was cancelled.
- A file without an owner is removed only when it is older than the grace period: bytes are written before their document
  exists.
- The sweep knows no engine: the caller passes a function that finds a document by its id.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from fairlane.core.document import DocumentRow

from .files import Files, StoredFile

GRACE_SECONDS = 24 * 3600
REMOVE_BATCH_SIZE = 500

FindDocument = Callable[[str], DocumentRow | None]


class SweepResult(NamedTuple):
    """What one sweep did; call again with `after=mark` until the mark is None."""

    looked: int
    removed: int
    bytes: int
    mark: str | None


def sweep(
    files: Files, find_document: FindDocument, grace_seconds: float, seconds_max: float | None = None, after: str | None = None
) -> SweepResult:
    """Remove files without an owner, for at most `seconds_max` seconds, beginning after a key."""
    deadline = None if seconds_max is None else time.monotonic() + seconds_max
    looked = removed_bytes = 0
    removed = files.blobs.remove_unfinished(grace_seconds) if after is None else 0
    batch: list[str] = []
    owners = _Owners(find_document)
    mark = after
    for file in files.list_files(after=after or ""):
        looked, mark = looked + 1, file.key
        if file.age_seconds >= grace_seconds and not owners.has_owner(file):
            batch.append(file.key)
            removed, removed_bytes = removed + 1, removed_bytes + file.size
        if len(batch) == REMOVE_BATCH_SIZE:
            files.blobs.remove(batch)
            batch.clear()
        if deadline is not None and time.monotonic() >= deadline:
            break
    else:
        mark = None
    files.blobs.remove(batch)
    return SweepResult(looked, removed, removed_bytes, mark)


def remove_forgotten(files: Files, find_document: FindDocument, customer: str, ids: set[str]) -> None:
    """Remove the files of a customer's erased documents; files of a submission under way are not among `ids` and stay."""
    owners, batch = _Owners(find_document), list[str]()
    for file in files.list_files(customer):
        if (file.document in ids or file.age_seconds >= GRACE_SECONDS) and not owners.has_owner(file):
            batch.append(file.key)
        if len(batch) == REMOVE_BATCH_SIZE:
            files.blobs.remove(batch)
            batch.clear()
    files.blobs.remove(batch)


class _Owners:
    """Knows which files have an owner; files of one document are listed together, so each document is looked up once."""

    def __init__(self, find_document: FindDocument) -> None:
        self._find_document = find_document
        self._id = ""

    def has_owner(self, file: StoredFile) -> bool:
        if file.document != self._id:
            self._id, self._document = file.document, self._find_document(file.document)
        document = self._document
        if document is None:
            return False
        return file.token is None or (file.token == document.token and document.state not in ("failed", "cancelled"))
