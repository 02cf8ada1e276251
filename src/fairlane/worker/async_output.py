"""What `async def` handlers print and log in the worker's own process: each line and record with its document.

Laws:
- A context variable names the handler that runs, and so do the tasks and threads that it starts (`asyncio.to_thread`).
- Standard output and error are replaced only while a worker with such handlers runs. What is printed outside of handlers
  goes where it always went.
- Hooks run outside of handlers: what they print is not output of a document.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO, cast

from .claims import ActiveClaim
from .handlers import HandlerEvents
from .log_records import document_fields
from .output import LineLimit, LineSplitter


class HandlerOutput:
    """The output of one handler."""

    def __init__(self, active: ActiveClaim, events: HandlerEvents, loop: asyncio.AbstractEventLoop) -> None:
        self.fields = document_fields(active)
        self._active = active
        self._events = events
        self._loop = loop
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._splitter = LineSplitter()
        self._limit = LineLimit()

    def write(self, text: str) -> None:
        """Pass on the lines that are complete now."""
        with self._lock:
            lines = self._splitter.feed(text.encode("utf-8", "replace"))
        self._pass_on(lines)

    def close(self) -> None:
        """Pass on what is left."""
        with self._lock:
            lines = self._splitter.flush()
        self._pass_on(lines)
        with self._lock:
            dropped = self._limit.take_dropped()
        if dropped:
            self._events.dropped(self._active, dropped)

    def _pass_on(self, lines: list[str]) -> None:
        for line in lines:
            with self._lock:
                dropped = self._limit.admit(len(line))
            if dropped is None:
                continue
            if threading.get_ident() == self._thread:
                self._emit(line, dropped)
            else:
                self._loop.call_soon_threadsafe(self._emit, line, dropped)

    def _emit(self, line: str, dropped: int) -> None:
        with outside_handler():
            if dropped:
                self._events.dropped(self._active, dropped)
            self._events.printed(self._active, line)


_current: ContextVar[HandlerOutput | None] = ContextVar("fairlane_handler", default=None)


@contextmanager
def within_handler(output: HandlerOutput) -> Iterator[None]:
    """Attribute what is printed and logged to a handler."""
    token = _current.set(output)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def outside_handler() -> Iterator[None]:
    """Attribute what is printed and logged to nobody."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


class _Tee:
    """A standard stream whose text goes to the handler that prints it, if one does."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        output = _current.get()
        if output is None:
            return self._stream.write(text)
        output.write(text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_installing = threading.Lock()
_installed = 0
_streams: list[tuple[str, Any, TextIO]] = []  # name in sys, the tee, what it replaced
_factories: list[Any] = []  # ours, and what it replaced


@contextmanager
def attributed_output() -> Iterator[None]:
    """Attribute the output of handlers while this is open; several workers of a process may have it open at once."""
    global _installed
    with _installing:
        _installed += 1
        if _installed == 1:
            _install()
    try:
        yield
    finally:
        with _installing:
            _installed -= 1
            if _installed == 0:
                _uninstall()


def _install() -> None:
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None:
            tee = _Tee(stream)
            _streams.append((name, tee, stream))
            setattr(sys, name, cast(TextIO, tee))
    before = logging.getLogRecordFactory()

    def make_record(*arguments: Any, **options: Any) -> logging.LogRecord:
        record = before(*arguments, **options)
        if (output := _current.get()) is not None:
            vars(record).update(output.fields)
        return record

    _factories.extend((make_record, before))
    logging.setLogRecordFactory(make_record)


def _uninstall() -> None:
    """Put back what was there, unless the program has replaced it meanwhile."""
    for name, tee, stream in _streams:
        if getattr(sys, name) is tee:
            setattr(sys, name, stream)
    _streams.clear()
    ours, before = _factories
    if logging.getLogRecordFactory() is ours:
        logging.setLogRecordFactory(before)
    _factories.clear()
