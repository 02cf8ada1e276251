"""Lines to standard output, written on a thread: a reader that stalls must not stop the program that prints.

Laws:
- `write` never waits. While CHARACTERS_MAX wait to be written, further lines are dropped and counted, and the count is written
  when there is room again.
- The thread is started when that is safe: a program that has one cannot fork. Lines that come earlier wait.
- The thread writes to the handle itself: a stream's lock, held by a write that never returns, would hang the end of Python.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import TextIO

CHARACTERS_MAX = 4_000_000
CLOSE_SECONDS = 5.0  # that a reader gets for what is left


class LineWriter:
    """Writes lines in order, as fast as they are read."""

    def __init__(self, stream: TextIO, on_error: Callable[[OSError], None], format_dropped: Callable[[int], str]) -> None:
        stream.flush()
        self._handle = stream.fileno()
        self._encoding = stream.encoding or "utf-8"
        self._on_error = on_error
        self._format_dropped = format_dropped
        self._changed = threading.Condition()
        self._lines: deque[str] = deque()
        self._waiting = 0  # characters, of the lines that are being written too
        self._dropped = 0
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start writing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="fairlane-output", daemon=True)
            self._thread.start()

    def write(self, line: str) -> None:
        """Write a line soon, unless too much waits already."""
        with self._changed:
            if self._waiting > CHARACTERS_MAX:
                self._dropped += 1
                return
            if self._dropped:
                self._add(self._format_dropped(self._dropped))
                self._dropped = 0
            self._add(line)
            self._changed.notify()

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._waiting += len(line) + 1

    def close(self) -> None:
        """Write what is left; give up if nobody reads it for CLOSE_SECONDS."""
        self.start()
        with self._changed:
            self._is_closed = True
            if self._dropped:
                self._add(self._format_dropped(self._dropped))
            self._changed.notify()
        waiting = None
        while self._thread is not None and self._thread.is_alive() and waiting != self._waiting:
            waiting = self._waiting
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._is_closed)
                if not self._lines:
                    return
                line = self._lines.popleft()
            try:
                self._write_all(f"{line}\n".encode(self._encoding, "replace"))
            except OSError as error:
                self._on_error(error)
                return
            with self._changed:
                self._waiting -= len(line) + 1

    def _write_all(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._handle, data) :]
