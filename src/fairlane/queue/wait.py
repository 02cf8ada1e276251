"""Waiting for a document to end: the pauses between two reads of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

from .validation import to_seconds

PAUSE_MIN_SECONDS, PAUSE_MAX_SECONDS = 0.005, 0.5


def wait_pauses(timeout: float | timedelta | None) -> Iterator[float]:
    """Yield the pauses between reads of a document until the timeout: an eighth of the time waited so far, within limits."""
    seconds_max = None if timeout is None else to_seconds("timeout", timeout)
    began = time.monotonic()
    while True:
        waited = time.monotonic() - began
        pause = min(PAUSE_MAX_SECONDS, max(PAUSE_MIN_SECONDS, waited / 8))
        if seconds_max is not None:
            pause = min(pause, seconds_max - waited)
        if pause <= 0:
            return
        yield pause
