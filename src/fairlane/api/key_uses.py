"""When keys were last used: kept in memory, and written in the background, about once a minute for each key.

Laws:
- A request notes its key and waits for nothing.
- Of several servers the latest use counts: what is written is never earlier than what is there.
- Nothing is written of a key that is gone: a forgotten customer leaves no trace here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fairlane.core.errors import StoreError
from fairlane.engine import Engine

from .auth import GROUP as KEYS
from .auth import time_ms

USES = "key uses"  # the group of records, by the public part of the key
FLUSH_SECONDS = 60.0
AT_ONCE = 50  # keys whose uses are written in one call


class KeyUses:
    """Notes uses of keys, and writes them."""

    def __init__(self, engine: Engine, call: Callable[..., Awaitable[Any]]) -> None:
        self._engine = engine
        self._call = call
        self._used: dict[str, int] = {}

    def note(self, key_id: str) -> None:
        """Note that a key is used now."""
        self._used[key_id] = time_ms()

    async def run(self) -> None:
        """Write uses for ever, from time to time."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Write what was noted so far; what cannot be written now is kept."""
        used, self._used = self._used, {}
        try:
            while used:
                some = [used.popitem() for _ in range(min(AT_ONCE, len(used)))]
                try:
                    await self._call(write_uses, self._engine, some)
                except StoreError:
                    used.update(some)
                    raise
        finally:
            self._used = used | self._used


def write_uses(engine: Engine, uses: Sequence[tuple[str, int]]) -> None:
    """Write when keys were last used, unless a later use is known."""
    for key_id, at_ms in uses:
        if engine.record(KEYS, key_id) is None:
            continue
        while True:
            record = engine.record(USES, key_id)
            if record is not None and int(json.loads(record.value)) >= at_ms:
                break
            if engine.put_record(USES, key_id, str(at_ms), 0 if record is None else record.version) is not None:
                break
        if engine.record(KEYS, key_id) is None:  # its customer was forgotten meanwhile
            engine.put_record(USES, key_id, None)


def last_use(engine: Engine, key_id: str) -> int | None:
    """Read when a key was last used, up to a minute or so ago, in milliseconds; None: never."""
    record = engine.record(USES, key_id)
    return None if record is None else int(json.loads(record.value))
