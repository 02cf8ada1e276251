"""Endings that no worker of Celery's wrote: cancelled, or lost with their workers too often. The result backend learns of them.

The change feed says what ended. How far it was read is kept in the store, so that nothing is missed between two feeders.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

from celery.app.task import Context
from celery.exceptions import WorkerLostError
from kombu import serialization

from fairlane.contrib.publish_check import logger
from fairlane.core.document import ChangeRow
from fairlane.core.errors import Unknown
from fairlane.engine import Engine
from fairlane.engine.protocol import EXPIRED, SPENT

from .message import TaskMessage, forget_retry, queue_of

PAGE_SIZE = 500
SAVE_SECONDS = 5.0
GROUP, KEY = "cursors", "celery feeder"
BY_THE_STORE = re.compile("|".join(re.escape(text.partition("{")[0]) + r"\d+ of \d+" for text in (EXPIRED, SPENT)))


class Endings:
    """Follows the change feed, and writes what a result backend does not know."""

    def __init__(self, app: Any, engine: Engine) -> None:
        self._app = app
        self._engine = engine
        self._after: int | None = None
        self._is_behind = True  # nothing was read yet
        self._saved: int | None = None
        self._save_at = 0.0

    def follow(self) -> Iterator[ChangeRow]:
        """Yield what changed since the last call."""
        if self._is_behind:
            self._begin()
        while page := self._page():
            for change in page:
                self._after = change.number
                if change.what in ("failed", "cancelled") and change.document is not None:
                    self._end(change, change.document)
                yield change
            if len(page) < PAGE_SIZE:
                break
        if time.monotonic() >= self._save_at:
            self._save_at = time.monotonic() + SAVE_SECONDS
            self.save()

    def save(self) -> None:
        """Keep how far the feed was read."""
        if self._after is not None and self._after != self._saved:
            self._engine.put_record(GROUP, KEY, str(self._after))
            self._saved = self._after

    def _begin(self) -> None:
        """Go on where the last feeder was; the very first begins at the end of the feed."""
        record = self._engine.record(GROUP, KEY)
        if record is not None:
            self._after = self._saved = int(record.value)
        else:
            while page := self._engine.changes(self._after, PAGE_SIZE):
                self._after = page[-1].number
        self._is_behind = False

    def _page(self) -> list[ChangeRow]:
        try:
            return self._engine.changes(self._after, PAGE_SIZE)
        except Unknown:  # purged meanwhile
            return self._engine.changes(None, PAGE_SIZE)

    def _end(self, change: ChangeRow, id: str) -> None:
        is_cancelled = change.what == "cancelled"
        if not is_cancelled and not BY_THE_STORE.match(change.note or ""):
            return  # Celery's worker has written it
        row, body = self._engine.document(id), self._engine.body(id)
        if row is None or body is None or queue_of(row.kind) is None or row.state != change.what:
            return
        forget_retry(self._engine, id)
        try:
            self._write(TaskMessage.parse(body.payload), None if is_cancelled else change.note)
        except Exception as error:  # noqa: BLE001 - a result backend that is away must not stop the feeder
            logger.warning("the result backend was not told that document %s was %s: %s", id, change.what, error)

    def _write(self, message: TaskMessage, failure: str | None) -> None:
        """Write the ending of a task, for it and for the chord that it is part of."""
        accept = serialization.prepare_accept_content(self._app.conf.accept_content)  # type: ignore[no-untyped-call]
        body = serialization.loads(message.data(), message.content_type, message.content_encoding, accept)  # type: ignore[no-untyped-call]
        _, _, embed = body
        request = Context({**message.headers, **message.properties, **embed})
        task = self._app.tasks.get(message.task)
        is_ignored = request.ignore_result or (task is not None and task.ignore_result)
        backend = self._app.backend
        if failure is None:
            backend.mark_as_revoked(message.id, "cancelled", request=request, store_result=not is_ignored)
        else:
            backend.mark_as_failure(message.id, WorkerLostError(failure), request=request, store_result=not is_ignored)
