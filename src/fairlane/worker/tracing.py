"""How do a worker's doings become spans? A hook that makes `wait` and `handle` of every attempt.

Laws:
- The worker's loop waits for nothing here: when a document became ready is read from the store on a thread.
- If that thread falls behind, waits are left out; handlings never are.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from fairlane.core.errors import FairlaneError
from fairlane.engine import Engine
from fairlane.tracing.spans import Spans, SpanSubject

from .hooks import Event

DUE_MAX = 1000  # waits that are still to be read
ENDINGS = ("finished", "unfinished", "lost")


class Traced:
    """A hook for every event."""

    def __init__(self, spans: Spans, engine: Engine) -> None:
        self._spans = spans
        self._engine = engine
        self._began: dict[tuple[str, int], int] = {}
        self._due = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fairlane-traces")

    def __call__(self, event: Event) -> None:
        if event.id is None or event.token is None:
            return
        attempt, now = (event.id, event.token), time.time_ns()
        if event.name == "began":
            self._began[attempt] = now
            if self._due < DUE_MAX and self._spans.is_sampled(event.id):
                self._due += 1
                self._thread.submit(self._waited, event, now)
        elif event.name in ENDINGS and (began := self._began.pop(attempt, None)) is not None:
            self._spans.handled(_told(event, event.outcome or event.name), began, now)

    def close(self) -> None:
        """Tell what is left."""
        self._thread.shutdown()
        self._spans.close()

    def _waited(self, event: Event, began: int) -> None:
        assert event.id is not None
        try:
            with suppress(FairlaneError):
                document = self._engine.document(event.id)
                if document is None or document.token != event.token or document.state in ("ready", "delayed"):
                    return  # it went on meanwhile, and is ready since another moment
                self._spans.waited(_told(event, None), document.ready_ms * 1_000_000, began)
        finally:
            self._due -= 1


def _told(event: Event, outcome: str | None) -> SpanSubject:
    assert event.id is not None
    assert event.customer is not None
    assert event.priority is not None
    return SpanSubject(event.id, event.customer, event.priority, event.attempt, outcome)
