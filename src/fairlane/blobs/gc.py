"""Garbage collection of files: the sweep removes what no document owns.

A document's files are removed with it; the sweep is for what senders, workers and purges that were killed left behind.

Laws:
- A document owns its input, the results of its newest token unless it failed or was cancelled, and those of its steps that are
  done.
- A file without an owner is removed only when it is older than the grace period: bytes are written before their document
  exists.
- The sweep knows no engine: the caller passes a function that finds a document by its id, one that finds the tokens of its
  earlier steps, and one that says whether files are held. The last is called after the others, before anything is removed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from fairlane.core.document import DocumentRow
from fairlane.core.errors import StoreBusy

from .files import Files, StoredFile

GRACE_SECONDS = 24 * 3600
REMOVE_BATCH_SIZE = 500

FindDocument = Callable[[str], DocumentRow | None]
FindSteps = Callable[[str], Collection[int]]  # the tokens under which the steps of a document wrote, those that are done


class SweepResult(NamedTuple):
    """What one sweep did; call again with `after=mark` until the mark is None."""

    looked: int
    removed: int
    bytes: int
    mark: str | None


class Sweep:
    """One sweep, which may run in slices; it keeps its place in the listing, so that a slice costs what it looks at."""

    def __init__(
        self,
        files: Files,
        find_document: FindDocument,
        find_steps: FindSteps,
        are_held: Callable[[], bool],
        grace_seconds: float,
        after: str | None = None,
    ) -> None:
        self._files, self._are_held, self._grace_seconds = files, are_held, grace_seconds
        self._find_document, self._find_steps = find_document, find_steps
        self._listing = files.list_files(after=after or "")
        self._mark = after

    def run(self, seconds_max: float | None = None) -> SweepResult:
        """Remove files without an owner, for at most that many seconds."""
        deadline = None if seconds_max is None else time.monotonic() + seconds_max
        looked = removed_bytes = 0
        removed = self._files.blobs.remove_unfinished(self._grace_seconds) if self._mark is None else 0
        batch: list[str] = []
        owners = _Owners(
            self._find_document, self._find_steps
        )  # a new one: what it remembers may have changed since the last slice
        for file in self._listing:
            looked, self._mark = looked + 1, file.key
            if file.age_seconds >= self._grace_seconds and not owners.has_owner(file):
                batch.append(file.key)
                removed, removed_bytes = removed + 1, removed_bytes + file.size
            if len(batch) == REMOVE_BATCH_SIZE:
                self._remove(batch)
                batch.clear()
            if deadline is not None and time.monotonic() >= deadline:
                break
        else:
            self._mark = None
        self._remove(batch)
        return SweepResult(looked, removed, removed_bytes, self._mark)

    def _remove(self, keys: list[str]) -> None:
        if keys and self._are_held():
            raise StoreBusy("a backup of this queue is under way and keeps every file; sweep again when it has ended")
        self._files.blobs.remove(keys)


def remove_leftovers(files: Files, find_document: FindDocument, find_steps: FindSteps, customer: str) -> int:
    """Remove a forgotten customer's files without an owner; return how many inputs are left, because they are too young."""
    owners, batch, left = _Owners(find_document, find_steps), list[str](), 0
    for file in files.list_files(customer):
        if owners.has_owner(file):
            continue
        if file.token is None and file.age_seconds < GRACE_SECONDS:
            left += 1  # its document may be on the way; a result's was there before it
        else:
            batch.append(file.key)
        if len(batch) == REMOVE_BATCH_SIZE:
            files.blobs.remove(batch)
            batch.clear()
    files.blobs.remove(batch)
    return left


class _Owners:
    """Knows which files have an owner; files of one document are listed together, so each document is looked up once."""

    def __init__(self, find_document: FindDocument, find_steps: FindSteps) -> None:
        self._find_document, self._find_steps = find_document, find_steps
        self._id = ""
        self._steps: Collection[int] | None = None  # of the document with that id, once it was needed

    def has_owner(self, file: StoredFile) -> bool:
        if file.document != self._id:
            self._id, self._document, self._steps = file.document, self._find_document(file.document), None
        document = self._document
        if document is None:
            return False
        if file.token is None or (file.token == document.token and document.state not in ("failed", "cancelled")):
            return True
        if self._steps is None:
            self._steps = self._find_steps(file.document)
        return file.token in self._steps
