"""A worker's own record in the registry of workers: written when it starts, renewed, and removed when it ends.

Laws:
- All calls are made on the store's thread, one after the other; none is part of a claim.
- A failure of the store is reported, and the record is written at the next beat: the registry never stops a worker.
"""

from __future__ import annotations

import os
import platform
import secrets
import time
from collections.abc import Mapping

from fairlane.core.errors import StoreError
from fairlane.engine.protocol import Engine
from fairlane.queue.models import WorkerState
from fairlane.queue.workers import WORKERS, WorkerRecord, decode_record, remove_gone
from fairlane.version import __version__

from .document import describe_error

BEAT_SECONDS = 10.0  # between two writes
LOOK_SECONDS = 2.0  # between two looks whether an operator drains this worker
TIDY_SECONDS = 600.0  # between two removals of workers that are gone
TRIES = 5  # of a write that meets an operator's


class Registration:
    """The record of one run of a worker."""

    def __init__(self, engine: Engine, name: str, kind_slots: Mapping[str, int], slots: int) -> None:
        self._engine = engine
        self._instance = secrets.token_hex(6)
        host, kinds = platform.node()[:100] or "unknown", tuple(sorted(kind_slots))
        fewer = {kind: count for kind, count in kind_slots.items() if count < slots}
        self._record = WorkerRecord(
            name,
            host,
            os.getpid(),
            __version__,
            engine.schema,
            kinds,
            slots,
            0,
            0,
            "working",
            {},
            drain=False,
            kind_slots=fewer,
        )
        self._written_at, self._tidied_at = 0.0, time.monotonic()
        self._is_removed = False

    @property
    def is_drain_wanted(self) -> bool:
        """Whether an operator wants this worker to claim no more, as far as the last look."""
        return self._record.drain

    def beat(self, state: WorkerState, running: Mapping[str, float]) -> str | None:
        """Look for an operator's wish, and write the record if that is due; `running` maps document ids to seconds.

        Return what failed, if anything did.
        """
        if self._is_removed:
            return None
        try:
            if self._is_due(state, running):
                self._write(state, running)
            else:
                row = self._engine.record(WORKERS, self._instance)
                if row is not None:
                    self._record = self._record._replace(drain=decode_record(row.value).drain)
            if time.monotonic() - self._tidied_at >= TIDY_SECONDS:
                self._tidied_at = time.monotonic()
                remove_gone(self._engine)
        except StoreError as error:
            return describe_error(error)
        return None

    def _is_due(self, state: WorkerState, running: Mapping[str, float]) -> bool:
        """Whether something is to be written: the state, a document that runs for a while already, or that it is alive."""
        if state != self._record.state or time.monotonic() - self._written_at >= BEAT_SECONDS:
            return True
        return any(id not in self._record.running for id, seconds in running.items() if seconds >= LOOK_SECONDS)

    def _write(self, state: WorkerState, running: Mapping[str, float]) -> None:
        for _ in range(TRIES):
            row = self._engine.record(WORKERS, self._instance)
            now_ms = self._engine.now()
            record = self._record._replace(
                drain=row is not None and decode_record(row.value).drain,
                started_ms=self._record.started_ms or now_ms,
                seen_ms=now_ms,
                state=state,
                running={id: now_ms - round(seconds * 1000) for id, seconds in running.items()},
            )
            if self._engine.put_record(WORKERS, self._instance, record.encode(), 0 if row is None else row.version) is not None:
                self._record, self._written_at = record, time.monotonic()
                return

    def remove(self) -> None:
        """Remove the record; a store that is away keeps it, and the worker is shown as gone."""
        self._is_removed = True
        try:
            self._engine.put_record(WORKERS, self._instance, None)
        except StoreError:
            return
