"""LISTEN/NOTIFY: wake waiting workers as soon as a document may be ready.

A notification is only a hint. It may be lost, and it never passes through a transaction pooler; then the next poll, after
POLL_SECONDS, finds the document. One thread of a process reads notifications for all threads that wait.
"""

from __future__ import annotations

import os
import threading
import time

import psycopg
from psycopg import sql

from fairlane.engine.deadline import CONNECT_SECONDS, Deadline

from .pool import Connection, connect
from .url import PostgresUrl

POLL_SECONDS = 0.2
RETRY_SECONDS = 1.0  # how long to poll without notifications after listening failed


class NotifyListener:
    """Notifications for all threads of this process that wait."""

    def __init__(self, url: PostgresUrl) -> None:
        self._url = url
        self._listen_statement = sql.SQL("LISTEN {}").format(sql.Identifier(f"{url.schema}_wake"))
        self._reader_lock = threading.Lock()  # its holder reads notifications for all
        self._notified = threading.Condition()
        self._count = 0
        self._connection: Connection | None = None
        self._retry_at = 0.0
        self._process = os.getpid()

    def close(self) -> None:
        """Stop listening."""
        with self._reader_lock:
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None

    @property
    def count(self) -> int:
        """The notifications received so far."""
        return self._count

    def start(self) -> bool:
        """Listen if nobody does; return True if it begins just now: what was ready before must be looked for once more."""
        if self._connection is not None and self._process == os.getpid():
            return False
        if not self._reader_lock.acquire(blocking=False):
            return False
        try:
            return self._open() is not None
        finally:
            self._reader_lock.release()

    def wait(self, seconds: float, seen: int) -> None:
        """Wait for a notification after the first `seen`, for POLL_SECONDS or less."""
        seconds = min(seconds, POLL_SECONDS)
        if self._reader_lock.acquire(blocking=False):
            try:
                self._read(seconds)
            finally:
                self._reader_lock.release()
            return
        with self._notified:
            self._notified.wait_for(lambda: self._count != seen, seconds)

    def _read(self, seconds: float) -> None:
        connection = self._open()
        if connection is None:
            time.sleep(seconds)
            return
        try:
            for _ in connection.notifies(timeout=seconds, stop_after=1):
                with self._notified:
                    self._count += 1
                    self._notified.notify_all()
        except psycopg.Error:
            self._disconnect()

    def _open(self) -> Connection | None:
        """Return the listening connection; None while it cannot be opened."""
        if self._process != os.getpid():
            self._connection, self._process = None, os.getpid()  # a forked child must not touch its parent's connection
        if self._connection is None and time.monotonic() >= self._retry_at:
            try:
                self._connection = connect(self._url)
                self._connection.deadline = Deadline(CONNECT_SECONDS)
                self._connection.execute(self._listen_statement)
                self._connection.deadline = Deadline()  # a dead network is noticed by the kernel
            except psycopg.Error:
                self._disconnect()
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._retry_at = time.monotonic() + RETRY_SECONDS
