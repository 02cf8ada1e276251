"""What a child's standard handles receive as raw bytes: output of the programs that a handler starts, and of crashes.

Laws:
- A child never waits for a full pipe, however much is written.
- Memory is bounded: lines above the limit are dropped and counted, and only their end is kept.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from .output import TAIL_LENGTH_MAX, LineLimit, LineSplitter

READ_BYTES = 64 * 1024
READS_MAX = 16  # at the end of a document; programs that outlive it may write for ever


class RawOutput:
    """The read end of a child's pipe."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_line: Callable[[str], None], on_dropped: Callable[[int], None]
    ) -> None:
        self._loop = loop
        self._on_line = on_line
        self._on_dropped = on_dropped
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._splitter = LineSplitter()
        self._limit = LineLimit()
        self._dropped_end = b""  # the end of what was dropped last
        loop.add_reader(self._read_end, self._drain)

    def _drain(self) -> bool:
        """Pass on what is there; False if nothing is."""
        try:
            data = os.read(self._read_end, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(self._read_end)
            return False
        if not self._limit.has_room():
            self._limit.drop(data.count(b"\n") or 1)
            self._dropped_end = data[-TAIL_LENGTH_MAX:]
            return True
        self._pass(self._splitter.feed(data))
        return True

    def _pass(self, lines: list[str]) -> None:
        for line in lines:
            dropped = self._limit.admit(len(line))
            if dropped:
                self._on_dropped(dropped)
            if dropped is not None:
                self._dropped_end = b""
                self._on_line(line)

    def end_document(self) -> str:
        """Pass on the rest of a document's output; return the end of what was dropped, if nothing passed after that."""
        for _ in range(READS_MAX):
            if not self._drain():
                break
        self._pass(self._splitter.flush())
        if dropped := self._limit.take_dropped():
            self._on_dropped(dropped)
        self._limit.reset()
        end, self._dropped_end = self._dropped_end, b""
        return end.decode("utf-8", "replace")

    def close(self) -> None:
        self._loop.remove_reader(self._read_end)
        os.close(self._read_end)
