"""What a child process prints: drained at once, and only the end of each document's output is kept.

Laws:
- A child never waits for a full pipe, however much it prints.
- No more than PRINTED_BYTES_MAX are kept of a document.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque

from .child import PRINTED_END

PRINTED_BYTES_MAX = 4096
READ_BYTES = 64 * 1024


class OutputTail:
    """The read end of a child's output."""

    def __init__(self, loop: asyncio.AbstractEventLoop, documents_max: int) -> None:
        self._loop = loop
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._current = bytearray()
        self._finished: deque[bytearray] = deque(maxlen=documents_max)  # of documents whose response is on its way
        loop.add_reader(self._read_end, self._drain)

    def _drain(self) -> None:
        try:
            data = os.read(self._read_end, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._read_end)
        self._current += data
        *finished, self._current = self._current.split(PRINTED_END)
        self._finished.extend(output[-PRINTED_BYTES_MAX:] for output in finished)
        del self._current[:-PRINTED_BYTES_MAX]

    def take(self) -> str:
        """Return the end of the oldest output that was not taken yet."""
        self._drain()
        output = self._finished.popleft() if self._finished else self._current
        return output.decode("utf-8", "replace").strip()

    def close(self) -> None:
        self._loop.remove_reader(self._read_end)
        os.close(self._read_end)
