"""Findings of `fairlane doctor`: the store's own diagnostics, its latency and feed, and this machine's sandbox."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from fairlane.core.errors import Mistake
from fairlane.engine.protocol import Finding

from . import sandbox
from .queue import Queue

TRIES = 7
SLOW_SECONDS = 0.05
FEED_DAYS = 30
GROUP, KEY = "fairlane", "doctor"


def findings(queue: Queue) -> list[Finding]:
    """Examine the queue; return every finding, fine or not."""
    return [*queue.engine.diagnose(), *_latency(queue), _frozen(queue), _feed(queue), *_sandbox()]


def _latency(queue: Queue) -> list[Finding]:
    def write() -> None:
        queue.engine.put_record(GROUP, KEY, "1")
        queue.engine.put_record(GROUP, KEY, None)

    return [_measure("reading", lambda: queue.engine.rules(), 1), _measure("writing", write, 2)]


def _measure(name: str, operation: Callable[[], object], calls: int) -> Finding:
    durations = []
    for _ in range(TRIES):
        began = time.perf_counter()
        operation()
        durations.append((time.perf_counter() - began) / calls)
    median = statistics.median(durations)
    message = f"{median * 1000:.2f} ms, the slowest of {TRIES} took {max(durations) * 1000:.2f} ms"
    if median <= SLOW_SECONDS:
        return Finding(name, "fine", message)
    return Finding(name, "warning", message, "every document waits for this: use a faster disk, or a store that is nearer")


def _frozen(queue: Queue) -> Finding:
    frozen = queue.rules().frozen
    if frozen is None:
        return Finding("moving", "fine", "the queue accepts documents")
    advice = "finish the move with fairlane move, or abandon it with fairlane move --stop; if it was moved, use the new URL"
    return Finding("moving", "bad", f"the queue accepts no documents: it {frozen}", advice)


def _feed(queue: Queue) -> Finding:
    oldest = next(queue.changes(limit=1), None)
    if oldest is None:
        return Finding("feed", "fine", "empty")
    days = max(0.0, time.time() - oldest.at.timestamp()) / 86_400
    message = f"goes back {days:,.0f} days"
    if days <= FEED_DAYS:
        return Finding("feed", "fine", message)
    return Finding("feed", "warning", message, "delete old changes and ended documents: fairlane purge --older-than 30d")


def _sandbox() -> list[Finding]:
    """List the sandbox layers of this machine, those in force first."""
    layers = sorted(sandbox.layers(), key=lambda layer: not layer.is_in_force)
    findings = [
        Finding("sandbox", "fine", f"{'' if layer.is_in_force else 'not in force: '}{layer.name}: {layer.detail}")
        for layer in layers
    ]
    try:
        sandbox.require()
    except Mistake as error:
        advice = "until then files cannot be extracted on this machine; the queue itself works"
        findings.append(Finding("sandbox", "bad", str(error), advice))
    return findings
