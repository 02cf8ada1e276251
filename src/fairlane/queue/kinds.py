"""Kinds and their limits: what all workers together may do with documents of a kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from fairlane.core.document import validate_text
from fairlane.core.policy import KindLimit
from fairlane.engine.protocol import Engine, KindRow

from .models import KEEP, Keep, Kind
from .workers import kinds_taken

PAGE_SIZE = 200
KIND_LENGTH_MAX = 100


def read_kind(engine: Engine, kind: str) -> Kind:
    return _kind_from(engine.kind(_name(kind)), engine.now())


def kinds_page(engine: Engine, after: str, limit: int) -> list[Kind]:
    """Read kinds by name, those above `after`: that have or had a limit, that workers take, or of which documents compete."""
    limited = {row.kind: row for row in engine.kinds(after, limit)}
    waiting = {row.kind for row in engine.ready_kinds(after, limit)}
    names = limited.keys() | waiting | {kind for kind in kinds_taken(engine) if kind > after}
    now_ms = engine.now()
    return [_kind_from(limited.get(name) or engine.kind(name), now_ms) for name in sorted(names)[:limit]]


def walk_kinds(engine: Engine) -> Iterator[Kind]:
    """Yield kinds by name, page after page."""
    after = ""
    while page := kinds_page(engine, after, PAGE_SIZE):
        yield from page
        after = page[-1].kind


def limited_kinds(engine: Engine) -> dict[str, Kind]:
    """Return the kinds that have a limit, by name."""
    limited, now_ms, after = dict[str, Kind](), engine.now(), ""
    while page := engine.kinds(after, PAGE_SIZE):
        kinds = (_kind_from(row, now_ms) for row in page)
        limited |= {kind.kind: kind for kind in kinds if (kind.running_max, kind.rate) != (None, None)}
        after = page[-1].kind
    return limited


def change_limit(
    engine: Engine,
    kind: str,
    running_max: int | Keep | None,
    rate: float | Keep | None,
    burst: float | Keep,
) -> Kind:
    """Change the limit of a kind; what is KEEP stays."""
    while True:  # again if another program changed it at the same time
        known = engine.kind(_name(kind))
        limit = KindLimit(
            known.limit.running if running_max is KEEP else running_max,
            known.limit.rate if rate is KEEP else rate,
            known.limit.burst if burst is KEEP else burst,
        )
        if limit == known.limit or engine.limit_kind(kind, limit, known.version) is not None:
            return read_kind(engine, kind)


def _name(kind: str) -> str:
    return validate_text("kind", kind, KIND_LENGTH_MAX)


def _kind_from(row: KindRow, now_ms: int) -> Kind:
    limit = row.limit
    held_by: Literal["kind running", "kind rate"] | None = None
    if row.next_start_ms > now_ms:
        held_by = "kind rate"
    elif limit.running is not None and row.running >= limit.running:
        held_by = "kind running"
    return Kind(row.kind, row.running, limit.running, limit.rate, limit.burst, held_by, row.version)
