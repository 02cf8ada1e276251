"""What a handler in a child process prints and logs, sent to the worker line by line as it comes.

Laws:
- Every frame to the worker goes through `OutputSender`, under one lock, and names the document that runs.
- What is above the limit of a document is dropped here and counted, and the worker is sent the count. So is what a worker that
  is busy does not read: a handler waits STALL_MS for it, once, and then goes on.
- What cannot be sent goes to the process's own standard handles, a pipe that the worker drains: the output of programs that
  a handler starts and of its forks, of threads after their document, of signal handlers that interrupt a send.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import logging
import os
import select
import socket
import sys
import threading
from typing import Any, TextIO

from fairlane.procs.ipc import encode_frame

from .log_records import encode_record
from .output import LineLimit, LineSplitter

STALL_MS = 1000

_replaced: list[object] = []  # streams of the script: if they were collected, they would close our handles


class OutputSender:
    """The child's end of the connection to the worker."""

    def __init__(self, responses: socket.socket) -> None:
        self._responses = responses
        self._room = select.poll()
        self._room.register(responses, select.POLLOUT)
        self._is_stalled = False  # the worker did not read for STALL_MS
        self._lock = threading.RLock()
        self._is_sending = False  # seen as True only by a signal handler that interrupts a send
        self._pid = os.getpid()
        self._serial: int | None = None  # of the document that runs
        self._limit = LineLimit()
        self.streams: list[TextIO] = []
        self.files: list[LineFile] = []

    def begin(self, serial: int) -> None:
        """Begin a document."""
        with self._lock:
            self._serial = serial
            self._limit.reset()

    def end(self, *values: Any) -> None:
        """Send what is left of a document's output, and its end."""
        for stream in (*self.streams, sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # a handler may have closed or replaced them
                stream.flush()
        for file in self.files:
            file.flush_line()
        with self._lock:
            if dropped := self._limit.take_dropped():
                self._send("dropped", dropped)
            self._send("ended", *values)
            self._serial = None

    def report(self, serial: int, *values: Any) -> None:
        """Send a report of the document that runs; one of an earlier document is left out."""
        with self._lock:
            if serial == self._serial:
                self._send("report", *values)

    def output(self, length: int, word: str, value: Any) -> bool:
        """Send output of the document that runs, within its limit; False if it must go to the standard handles."""
        if os.getpid() != self._pid:
            return False
        with self._lock:
            if self._is_sending or self._serial is None:
                return False
            if not self._has_room():
                self._limit.drop(1)
                return True
            dropped = self._limit.admit(length)
            if dropped:
                self._send("dropped", dropped)
            if dropped is not None:
                self._send(word, value)
        return True

    def _has_room(self) -> bool:
        """Whether the worker reads what it is sent."""
        self._is_stalled = not self._room.poll(0 if self._is_stalled else STALL_MS)
        return not self._is_stalled

    def _send(self, word: str, *values: Any) -> None:
        self._is_sending = True
        try:
            self._responses.sendall(encode_frame([word, self._serial, *values]))
        finally:
            self._is_sending = False


class LineFile(io.FileIO):
    """Standard output or error whose lines are sent."""

    def __init__(self, handle: int, sender: OutputSender) -> None:
        super().__init__(handle, "w", closefd=False)
        self._sender = sender
        self._splitter = LineSplitter()

    def write(self, data: Any) -> int:
        self._send(self._splitter.feed(bytes(data)))
        return len(data)

    def flush_line(self) -> None:
        """Send a line that has no end."""
        self._send(self._splitter.flush())

    def _send(self, lines: list[str]) -> None:
        for line in lines:
            if not self._sender.output(len(line), "printed", line):
                super().write(line.encode() + b"\n")


class _RecordSender(logging.Handler):
    """The only logging handler of a child."""

    def __init__(self, sender: OutputSender) -> None:
        super().__init__()
        self._sender = sender

    def emit(self, record: logging.LogRecord) -> None:
        try:
            fields = encode_record(record)
            if not self._sender.output(len(fields["msg"]), "logged", fields):
                os.write(2, f"{record.levelname} {record.name}: {fields['msg']}\n".encode())
        except Exception:  # noqa: BLE001 - as every handler of the standard library does
            self.handleError(record)


def capture_output(sender: OutputSender, pipe: int) -> None:
    """Give the handler nothing to read, and send everything it prints and logs to the worker."""
    _replaced.extend((sys.stdin, sys.stdout, sys.stderr))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(pipe, 1)
    os.dup2(pipe, 2)
    for handle in (null, pipe):
        if handle > 2:
            os.close(handle)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.stdout, sys.stderr = _text_stream(1, sender), _text_stream(2, sender)
    faulthandler.enable(2)  # a crash in native code leaves a traceback, too
    _capture_logging(sender)


def _text_stream(handle: int, sender: OutputSender) -> io.TextIOWrapper:
    file = LineFile(handle, sender)
    stream = io.TextIOWrapper(io.BufferedWriter(file), encoding="utf-8", errors="replace", line_buffering=True)
    sender.files.append(file)
    sender.streams.append(stream)
    return stream


def _capture_logging(sender: OutputSender) -> None:
    """Send every record that the loggers' levels let pass; what is done with it is for the worker's own handlers."""
    root = logging.getLogger()
    for logger in [root, *logging.root.manager.loggerDict.values()]:
        if isinstance(logger, logging.Logger):
            logger.handlers.clear()
            logger.propagate = True
    root.addHandler(_RecordSender(sender))
