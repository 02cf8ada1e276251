"""Spans of a worker: a hook that makes `wait` and `handle` of every attempt.

Laws:
- The worker's loop waits for nothing here: the moment when a document became ready is read from the store on a thread.
- If that thread falls behind, `wait` spans are left out; `handle` spans never are.
"""

from __future__ import annotations

import time
from contextlib import suppress

from fairlane.core.errors import FairlaneError
from fairlane.engine import Engine
from fairlane.procs.threads import DaemonThreads
from fairlane.tracing.spans import Spans, SpanSubject

from .hooks import WorkerEvent

PENDING_MAX = 1000  # waits that are still to be read
CLOSE_SECONDS = 2.0  # for reads that are still to come, when the worker ends
ENDINGS = ("finished", "unfinished", "lost")


class TracingHook:
    """A hook for every event."""

    def __init__(self, spans: Spans, engine: Engine) -> None:
        self._spans = spans
        self._engine = engine
        self._began_ns: dict[tuple[str, int], int] = {}
        self._pending = 0
        self._thread = DaemonThreads(1, "fairlane-traces")

    def __call__(self, event: WorkerEvent) -> None:
        if event.id is None or event.token is None:
            return
        attempt, now = (event.id, event.token), time.time_ns()
        if event.name == "began":
            self._began_ns[attempt] = now
            if self._pending < PENDING_MAX and self._spans.is_sampled(event.id):
                self._pending += 1
                self._thread.submit(self._trace_wait, event, now)
        elif event.name in ENDINGS and (began := self._began_ns.pop(attempt, None)) is not None:
            self._spans.handled(_subject(event, event.outcome or event.name), began, now)

    def close(self) -> None:
        """Send what is left."""
        self._thread.close(CLOSE_SECONDS)
        self._spans.close()

    def _trace_wait(self, event: WorkerEvent, began_ns: int) -> None:
        assert event.id is not None
        try:
            with suppress(FairlaneError):
                document = self._engine.document(event.id)
                if document is None or document.token != event.token or document.state in ("ready", "delayed"):
                    return  # it went on meanwhile: ready_ms is of another attempt
                self._spans.waited(_subject(event, None), document.ready_ms * 1_000_000, began_ns)
        finally:
            self._pending -= 1


def _subject(event: WorkerEvent, outcome: str | None) -> SpanSubject:
    assert event.id is not None
    assert event.customer is not None
    assert event.priority is not None
    return SpanSubject(event.id, event.customer, event.priority, event.attempt, outcome)
