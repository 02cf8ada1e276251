"""What is forgotten when it is old."""

from __future__ import annotations

from operator import attrgetter

from fairlane.engine.protocol import Purged

from .state import Kept


def purge(kept: Kept, before_ms: int, limit: int) -> Purged:
    """Old changes go first, then documents that ended; so a document is not gone while its changes can be read."""
    trimmed = _trim_changes(kept, before_ms, limit)
    if trimmed == limit:
        return Purged(0, trimmed)
    ended = [one for one in kept.entries.values() if one.ended_ms is not None and one.ended_ms <= before_ms]
    ended.sort(key=attrgetter("ended_ms", "number"))
    for entry in ended[:limit]:
        kept.erase(entry)
    return Purged(len(ended[:limit]), trimmed)


def _trim_changes(kept: Kept, before_ms: int, limit: int) -> int:
    old: list[int] = []
    for number, change in kept.changes.items():
        if change[0] > before_ms or len(old) == limit:
            break
        old.append(number)
    for number in old:
        del kept.changes[number]
        kept.changes_floor = number
    return len(old)
