"""Progress and partial results of running documents: a record under the document's id, written on the store's thread.

Laws:
- A record names the token it belongs to. One of a newer token is never overwritten, and `Queue.progress` shows a record
  only while its token is the document's own: so what a stale worker writes is never seen.
- Only the newest report of a document is written, at most once in WRITE_SECONDS: reports are for people to look at.
- A lost report does no harm; a store that fails here fails nothing.
- A finished document has a result and needs no report: its record is removed. Others stay until their document is purged.
- No record is left of a document that was erased while its report was on the way.
"""

from __future__ import annotations

import json

from fairlane.core.document import Claim
from fairlane.core.errors import StoreError
from fairlane.engine.protocol import PROGRESS, Engine

WRITE_SECONDS = 0.5

Unwritten = list[tuple[Claim, str | None]]  # None removes the record


class ProgressStore:
    """The newest reports that are not written yet, and the way to write them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._unwritten: dict[str, tuple[Claim, str | None]] = {}  # by document id
        self._reporting: set[tuple[str, int]] = set()  # id and token of running documents that have reported

    def record(self, claim: Claim, progress: float | str | None, partial: str | None) -> None:
        """Keep what a handler reported, to be written soon; `partial` is JSON text."""
        value = json.dumps({"token": claim.token, "attempt": claim.attempts, "progress": progress})
        self._unwritten[claim.id] = claim, f'{value[:-1]}, "partial": {partial or "null"}}}'
        self._reporting.add((claim.id, claim.token))

    def forget(self, claim: Claim, is_done: bool) -> None:
        """Forget a document that left the worker; remove the record of one that is done."""
        if (claim.id, claim.token) in self._reporting:
            self._reporting.remove((claim.id, claim.token))
            if is_done:
                self._unwritten[claim.id] = claim, None

    def take_unwritten(self) -> Unwritten:
        """Return what is to be written now."""
        unwritten = list(self._unwritten.values())
        self._unwritten.clear()
        return unwritten

    def write(self, unwritten: Unwritten) -> None:
        """Write reports; to be called on the store's thread."""
        for claim, value in unwritten:
            try:
                self._write(claim, value)
            except StoreError:
                return

    def _write(self, claim: Claim, value: str | None) -> None:
        record = self._engine.record(PROGRESS, claim.id)
        if record is not None and json.loads(record.value)["token"] > claim.token:
            return  # another worker runs it by now
        version = self._engine.put_record(PROGRESS, claim.id, value, 0 if record is None else record.version)
        if record is None and version and self._engine.document(claim.id) is None:
            self._engine.put_record(PROGRESS, claim.id, None)
