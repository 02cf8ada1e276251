"""Is this queue well? What the store says of itself, what can be seen from outside, and how this machine confines files."""

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
    """Everything that was looked at, fine or not."""
    return [*queue.engine.diagnose(), *_latency(queue), _frozen(queue), _feed(queue), *_sandbox()]


def _latency(queue: Queue) -> list[Finding]:
    def written() -> None:
        queue.engine.put_record(GROUP, KEY, "1")
        queue.engine.put_record(GROUP, KEY, None)

    return [
        _timed("reading", lambda: queue.engine.rules(), 1),
        _timed("writing", written, 2),
    ]


def _timed(name: str, verb: Callable[[], object], calls: int) -> Finding:
    took = []
    for _ in range(TRIES):
        began = time.perf_counter()
        verb()
        took.append((time.perf_counter() - began) / calls)
    middle = statistics.median(took)
    told = f"{middle * 1000:.2f} ms, the slowest of {TRIES} took {max(took) * 1000:.2f} ms"
    if middle <= SLOW_SECONDS:
        return Finding(name, "fine", told)
    return Finding(name, "warning", told, "every document waits for this: use a faster disk, or a store that is nearer")


def _frozen(queue: Queue) -> Finding:
    frozen = queue.rules().frozen
    if frozen is None:
        return Finding("moving", "fine", "the queue takes documents")
    advice = "finish it with fairlane move, or give it up with fairlane move --stop; if it was moved, use the new URL"
    return Finding("moving", "bad", f"the queue takes nothing: it {frozen}", advice)


def _feed(queue: Queue) -> Finding:
    oldest = queue.changes(limit=1)
    if not oldest:
        return Finding("feed", "fine", "empty")
    days = max(0.0, time.time() - oldest[0].at_ms / 1000) / 86_400
    told = f"goes back {days:,.0f} days"
    if days <= FEED_DAYS:
        return Finding("feed", "fine", told)
    return Finding("feed", "warning", told, "it and what has ended stay until you purge them: fairlane purge --older-than 30d")


def _sandbox() -> list[Finding]:
    """What confines the processes that read strangers' files on this machine."""
    layers = sandbox.layers()
    found = [Finding("sandbox", "fine", f"{one.name}: {one.told}") for one in layers if one.is_in_force]
    found += [Finding("sandbox", "fine", f"not in force: {one.name}: {one.told}") for one in layers if not one.is_in_force]
    try:
        sandbox.require()
    except Mistake as error:
        found.append(Finding("sandbox", "bad", str(error), "files cannot be extracted here until then; the queue itself works"))
    return found
