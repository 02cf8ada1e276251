"""The log of the service: a line of JSON for each request and each thing that went wrong.

Laws:
- Every line is JSON: also what libraries log, warnings, and errors that nobody caught.
- Lines hold ids of documents and customers and the public part of keys; never a payload, a whole key or a signature.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, TextIO

from .problems import encode_json

FLUSH_BYTES = 32 * 1024
FLUSH_SECONDS = 0.5
REFUSED_LINES_A_SECOND = 20  # who sends garbage does not fill the disk


class Log:
    """Writes lines to a stream; those of requests are written several at a time."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._lines: list[str] = []
        self._bytes = 0
        self._written_at = 0.0
        self._mutex = threading.Lock()
        self._refused_second = self._refused_lines = self._unlogged = 0

    def request(self, **fields: Any) -> None:
        """Log a request that has its response."""
        self._add("request", fields)
        self._flush_if_due()

    def refused(self, **fields: Any) -> None:
        """Log what was refused before it was a request; so many lines a second, and then how many were left out."""
        second = int(time.monotonic())
        if second != self._refused_second:
            self._refused_second, self._refused_lines = second, 0
        self._refused_lines += 1
        if self._refused_lines > REFUSED_LINES_A_SECOND:
            self._unlogged += 1
            return
        if self._unlogged:
            fields["unlogged"], self._unlogged = self._unlogged, 0
        self._add("refused", fields)
        self._flush_if_due()

    def _flush_if_due(self) -> None:
        if self._bytes > FLUSH_BYTES or time.monotonic() - self._written_at > FLUSH_SECONDS:
            self.flush()

    def event(self, name: str, **fields: Any) -> None:
        """Log an event, and write it at once."""
        self._add(name, fields)
        self.flush()

    def failed(self, what: str, error: BaseException) -> None:
        """Log an error with where it happened, but not with which values."""
        frames = [f"{frame.name} ({frame.filename.rpartition('fairlane/')[2]}:{frame.lineno})"
                 for frame in traceback.extract_tb(error.__traceback__)[-6:]]  # fmt: skip
        self.event("broken", what=what, error=type(error).__name__, told=str(error)[:500], where=frames)

    def capture(self) -> Callable[[], None]:
        """Log in the same form what Python and libraries would print: log records, warnings, errors that nobody caught.

        Returns a function that ends it."""
        handler, hooks = _ForwardingHandler(self), (sys.excepthook, sys.unraisablehook, threading.excepthook)
        logging.getLogger().addHandler(handler)
        logging.captureWarnings(True)
        sys.excepthook = lambda _, error, __: self.failed("the process", error)
        sys.unraisablehook = lambda args: self.failed("clean-up", args.exc_value or RuntimeError(str(args.err_msg)))
        threading.excepthook = lambda args: self.failed("a thread", args.exc_value or RuntimeError(args.exc_type.__name__))

        def release() -> None:
            logging.getLogger().removeHandler(handler)
            logging.captureWarnings(False)
            sys.excepthook, sys.unraisablehook, threading.excepthook = hooks

        return release

    def flush(self) -> None:
        """Write the lines that are kept."""
        if not self._lines:
            return
        with self._mutex:
            lines, self._lines, self._bytes, self._written_at = self._lines, [], 0, time.monotonic()
        try:
            self._stream.write("".join(lines))
            self._stream.flush()
        except (OSError, ValueError):  # the reader of the log has gone: the service goes on
            pass

    def _add(self, event: str, fields: dict[str, Any]) -> None:
        line = encode_json({"at": round(time.time(), 3), "event": event, **fields}) + "\n"
        with self._mutex:
            self._lines.append(line)
            self._bytes += len(line)


class _ForwardingHandler(logging.Handler):
    """Forwards records of the standard library's loggers."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self._log.failed(record.name, error)
        else:
            self._log.event("warned", by=record.name, told=record.getMessage()[:500])
