"""When may a document be ready? Hints from the server, so that waiting costs little; without them polling is enough.

A hint is a NOTIFY of whoever made a document ready that nobody was waiting for. It may be lost, and it never comes through a
transaction pooler; then the next look after POLL_SECONDS finds the document. One thread listens for all that wait.
"""

from __future__ import annotations

import os
import threading
import time

import psycopg
from psycopg import sql

from fairlane.core.errors import StoreError

from .pool import Connection, connect
from .url import Place

POLL_SECONDS = 0.2
DEAF_SECONDS = 5.0  # how long to go without hints after listening failed


class Listener:
    """Hints for everybody in this process who waits."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._channel = sql.SQL("LISTEN {}").format(sql.Identifier(f"{place.schema}_wake"))
        self._turn = threading.Lock()  # who holds it listens for all
        self._heard = threading.Condition()
        self._hints = 0
        self._connection: Connection | None = None
        self._deaf_until = 0.0
        self._process = os.getpid()

    def close(self) -> None:
        """Stop listening."""
        with self._turn:
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None

    def listen(self) -> int:
        """Begin to listen, before looking, so that nothing slips between; returns the number of hints so far."""
        if self._turn.acquire(blocking=False):
            try:
                self._open()
            finally:
                self._turn.release()
        return self._hints

    def wait(self, seconds: float, seen: int) -> None:
        """Until there is a hint after `seen`, for POLL_SECONDS or less."""
        seconds = min(seconds, POLL_SECONDS)
        if self._turn.acquire(blocking=False):
            try:
                self._hear(seconds)
            finally:
                self._turn.release()
            return
        with self._heard:
            self._heard.wait_for(lambda: self._hints != seen, seconds)

    def _hear(self, seconds: float) -> None:
        connection = self._open()
        if connection is None:
            time.sleep(seconds)
            return
        try:
            for _ in connection.notifies(timeout=seconds, stop_after=1):
                with self._heard:
                    self._hints += 1
                    self._heard.notify_all()
        except psycopg.Error:
            self._give_up()

    def _open(self) -> Connection | None:
        """The connection that listens, or None while there is none; opened again at times."""
        if self._process != os.getpid():
            self._connection, self._process = None, os.getpid()  # a forked child leaves its parent's alone
        if self._connection is None and time.monotonic() >= self._deaf_until:
            try:
                self._connection = connect(self._place)
                self._connection.execute(self._channel)
            except (psycopg.Error, StoreError):
                self._give_up()
        return self._connection

    def _give_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._deaf_until = time.monotonic() + DEAF_SECONDS
