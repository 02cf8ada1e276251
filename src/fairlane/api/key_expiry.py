"""Keys that end soon: who is warned of them, and how long before."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from fairlane.engine import Engine
from fairlane.engine.protocol import Finding

from .auth import Key, list_keys, time_ms

WARNED_MS = 14 * 86_400_000  # before a key ends
DAY_MS = 86_400_000


def ends_soon(key: Key, now_ms: int) -> bool:
    """Whether a key is active, ends within two weeks, and has no successor yet."""
    is_last = key.ended(now_ms) is None and key.replaced_by is None
    return is_last and key.expires_ms is not None and key.expires_ms - now_ms < WARNED_MS


def ending_keys(engine: Engine) -> Iterator[Key]:
    """Yield the keys that end soon."""
    now_ms = time_ms()
    return (key for key in list_keys(engine) if ends_soon(key, now_ms))


def key_findings(engine: Engine) -> list[Finding]:
    """Say for `fairlane doctor` which keys end soon; nothing where there are no keys."""
    now_ms, active, ending = time_ms(), 0, list[Key]()
    for key in list_keys(engine):
        active += key.ended(now_ms) is None
        ending += [key] if ends_soon(key, now_ms) else []
    if not active:
        return []
    if not ending:
        return [Finding("keys", "fine", f"{active:,} active, none ends within two weeks")]
    first = min(ending, key=lambda key: key.expires_ms or 0)
    owner = f"customer {first.customer}" if first.customer is not None else first.role
    when = datetime.fromtimestamp((first.expires_ms or 0) // 1000, UTC).date()
    message = f"{active:,} active, {len(ending):,} of them end within two weeks: first {first.id} ({owner}), on {when}"
    return [Finding("keys", "warning", message, f"rotate them, as in fairlane keys rotate {first.id}")]
