"""Where are progress and partial results kept? In records, a document's under its id, written by the worker on its thread.

Laws:
- A record says which token it belongs to. One of a newer token is never overwritten, and `Queue.progress` shows a record
  only while its token is the document's own: so what a stale worker writes is never seen.
- Only the newest report of a document is written, at most once in REPORT_SECONDS: reports are for people to look at.
- Losing one is no harm; the store failing here fails nothing.
- What is done has a result and needs no report; its record is removed. Others stay until their document is purged.
"""

from __future__ import annotations

import json

from fairlane.core.document import Claim
from fairlane.core.errors import StoreError
from fairlane.engine.protocol import PROGRESS, Engine

REPORT_SECONDS = 0.5


Due = list[tuple[Claim, str | None]]


class Reports:
    """The newest reports that are not written yet."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._unwritten: dict[str, tuple[Claim, str | None]] = {}  # by document id
        self._reporting: set[tuple[str, int]] = set()  # id and token of documents in hand that told something

    def note(self, claim: Claim, progress: float | str | None, partial: str | None) -> None:
        """A handler told something."""
        value = json.dumps({"token": claim.token, "attempt": claim.attempts, "progress": progress})
        self._unwritten[claim.id] = claim, f'{value[:-1]}, "partial": {partial or "null"}}}'
        self._reporting.add((claim.id, claim.token))

    def finished(self, claim: Claim, is_done: bool) -> None:
        """A document left the worker: what is done needs no report any more."""
        if (claim.id, claim.token) in self._reporting:
            self._reporting.remove((claim.id, claim.token))
            if is_done:
                self._unwritten[claim.id] = claim, None

    def take(self) -> Due:
        """What is to be written now."""
        due = list(self._unwritten.values())
        self._unwritten.clear()
        return due

    def write(self, due: Due) -> None:
        """Write it; on the store's thread."""
        for claim, told in due:
            try:
                self._write(claim, told)
            except StoreError:
                return

    def _write(self, claim: Claim, told: str | None) -> None:
        record = self._engine.record(PROGRESS, claim.id)
        if record is not None and json.loads(record.value)["token"] > claim.token:
            return  # somebody else runs it by now
        self._engine.put_record(PROGRESS, claim.id, told, 0 if record is None else record.version)
