"""Output of handlers: how bytes become lines, how many lines of a document pass, and texts of bounded length.

Laws:
- A line is at most LINE_LENGTH_MAX characters long; a longer one becomes several.
- LINES_AT_ONCE lines of a document pass at once, then LINES_A_SECOND; a long line counts as several. What is above that is
  dropped and counted.
"""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Callable
from itertools import takewhile

from fairlane.printable import printable

from .claims import ActiveClaim

LINE_LENGTH_MAX = 4000
LINE_LENGTH_USUAL = 200  # a longer line counts as several
LINES_AT_ONCE = 5000
LINES_A_SECOND = 500
LINES_REFILLED_MIN = 100  # so that a flood gets a few blocks of lines a second, not a line now and then
TAIL_LENGTH_MAX = 8000  # of a document's output, for the reason of a crash
TRACEBACK_LENGTH_MAX = 8000
OUTPUT_LENGTH_MAX = 2000  # that is kept with an attempt


class LineSplitter:
    """Cuts bytes into lines of text."""

    def __init__(self) -> None:
        self._partial = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that are complete now."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > LINE_LENGTH_MAX:
            lines.append(self._partial)
            self._partial = b""
        return [piece for line in lines for piece in _pieces(line)]

    def flush(self) -> list[str]:
        """Return the line that was not complete."""
        line, self._partial = self._partial, b""
        return _pieces(line) if line else []


def _pieces(line: bytes) -> list[str]:
    """Decode a line; of one that was printed over again and again, as progress bars are, keep what a terminal would show."""
    text = line.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]
    return [text[start : start + LINE_LENGTH_MAX] for start in range(0, len(text), LINE_LENGTH_MAX)] or [""]


class LineLimit:
    """How many lines of one document may still pass."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Begin another document."""
        self._left = float(LINES_AT_ONCE)
        self._refilled_at = self._clock()
        self._dropped = 0

    def has_room(self) -> bool:
        """Whether a line would pass now."""
        if self._left < 1:
            now = self._clock()
            refill = min(LINES_AT_ONCE, (now - self._refilled_at) * LINES_A_SECOND)
            if refill >= LINES_REFILLED_MIN:
                self._left, self._refilled_at = refill, now
        return self._left >= 1

    def admit(self, length: int) -> int | None:
        """Let a line of that length pass and return how many were dropped before it; None if it is dropped too."""
        if not self.has_room():
            self._dropped += 1
            return None
        self._left -= 1 + length // LINE_LENGTH_USUAL
        return self.take_dropped()

    def drop(self, lines: int) -> None:
        """Count lines that were dropped without being looked at."""
        self._dropped += lines

    def take_dropped(self) -> int:
        """Return how many lines were dropped since the last call."""
        dropped, self._dropped = self._dropped, 0
        return dropped


def print_unlogged(active: ActiveClaim, line: str) -> None:
    """Print a handler's line with its document, for a program that has not configured logging."""
    with contextlib.suppress(OSError, ValueError):  # closed
        sys.stdout.write(printable(f"{active.claim.customer}  {active.claim.id}  {line}") + "\n")
        sys.stdout.flush()


def add_to_tail(tail: str, line: str) -> str:
    """Return the end of a document's output, with one more line."""
    return f"{tail}{line}\n"[-TAIL_LENGTH_MAX:]


def split_crash(printed: str) -> tuple[str, str | None]:
    """Split what a dead process printed: the handler's output, and the traceback of a crash in native code, if there is one,
    without our own frames."""
    output, is_crash, dump = printed.partition("Fatal Python error: ")
    if not is_crash:
        return output.strip(), None
    frames = takewhile(lambda line: not line.endswith(" in run_handler"), dump.splitlines())
    return output.strip(), "\n".join((is_crash + next(frames, ""), *frames)).rstrip()


def storable_text(text: str) -> str:
    """Make a text that every store accepts: no NUL, no lone surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def format_traceback(error: BaseException) -> str | None:
    """Return the traceback of a handler's exception without our own first frame, of a long one the newest part; None if that
    fails, as it may without memory."""
    try:
        frames = error.__traceback__ and error.__traceback__.tb_next
        text = "".join(traceback.format_exception(type(error), error, frames))
        if len(text) > TRACEBACK_LENGTH_MAX:
            text = "…\n" + text[-TRACEBACK_LENGTH_MAX:].partition("\n")[2]
        return storable_text(text.rstrip())
    except Exception:  # noqa: BLE001 - the exception is the user's own, and may fail at being formatted
        return None
