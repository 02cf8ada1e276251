"""Cursors of a transfer between stores: which part of a queue is packed, and after which row to continue."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

PARTS = ("queue", "kinds", "customers", "documents", "lanes", "records")


def parse_cursor(cursor: str | None) -> tuple[str, Any]:
    """Return the part that a cursor points into and the key of the last row packed; None points before the first row."""
    if cursor is None:
        return PARTS[0], None
    part, after = json.loads(cursor)
    return part, after


def next_cursor(part: str, keys: Sequence[Any], limit: int) -> str | None:
    """Return the cursor after these rows: in the same part if the page was full, else at the start of the next part."""
    if len(keys) == limit:
        return json.dumps([part, keys[-1]])
    following = PARTS.index(part) + 1
    return json.dumps([PARTS[following], None]) if following < len(PARTS) else None
