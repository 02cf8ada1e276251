"""How are statements run? On connections of a pool that mends itself, one statement a transaction.

Laws:
- No session state: no prepared statements, no SET, no session locks. So a transaction pooler may stand in between.
- A call that the server undid (deadlock, serialization) is run again, a few times, after a short random pause.
- A call whose connection was lost is run again only if it looks and changes nothing. Otherwise its outcome is not known.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg_pool import ConnectionPool

from fairlane.core.errors import BadValue, StoreError

from .errors import AGAIN, is_lost, not_connected, told_plainly
from .url import Place

Row = tuple[Any, ...]
Connection = psycopg.Connection[Row]

CONNECTIONS_MAX = 16
REACH_SECONDS = 30.0  # how long a call waits for a server that is away
CONNECT_SECONDS = 10
ATTEMPTS = 6
PAUSE_SECONDS = 0.02  # doubles with each attempt
KEEP_ALIVE: dict[str, Any] = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}

_left_to_parent: list[object] = []  # handles of a parent process: a forked child may neither use nor close them


def connect(place: Place) -> Connection:
    """A connection of its own, or a plain word why there is none."""
    try:
        return psycopg.connect(
            place.address, autocommit=True, prepare_threshold=None, connect_timeout=CONNECT_SECONDS, **KEEP_ALIVE
        )
    except psycopg.OperationalError as error:
        raise not_connected(error, place) from error


def refuse_dead(connection: Connection) -> None:
    """A connection whose server is gone has something to read; found here, nothing of a call was sent yet."""
    if select.select([connection.fileno()], [], [], 0)[0]:
        connection.close()
        raise psycopg.OperationalError("the server closed the connection")


class Sessions:
    """The pool of one process, and how a statement is run on it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._opening = threading.Lock()
        self._pool: ConnectionPool[Connection] | None = None
        self._process = os.getpid()
        self._is_closed = False

    def close(self) -> None:
        """Let go of all connections."""
        with self._opening:
            self._is_closed = True
            if self._pool is not None and self._process == os.getpid():
                self._pool.close()
            self._pool = None

    def _open(self) -> ConnectionPool[Connection]:
        """The pool; a forked child starts with one of its own."""
        pool = self._pool
        if pool is not None and self._process == os.getpid():
            return pool
        with self._opening:
            if self._is_closed:
                raise StoreError(f"the queue at {self.place.name} was closed; open it again")
            if self._process != os.getpid():
                _left_to_parent.append(self._pool)
                self._pool, self._process = None, os.getpid()
            if self._pool is None:
                self._pool = ConnectionPool(
                    self.place.address,
                    kwargs={
                        "autocommit": True, "prepare_threshold": None, "connect_timeout": CONNECT_SECONDS, **KEEP_ALIVE,
                    },
                    min_size=0, max_size=CONNECTIONS_MAX, timeout=REACH_SECONDS, check=refuse_dead, open=True,
                    name=f"fairlane {self.place.name}",
                )  # fmt: skip
            return self._pool

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        pool = self._open()
        connection = pool.getconn()
        try:
            yield connection
        finally:
            with contextlib.suppress(psycopg.Error):
                pool.putconn(connection)

    def look(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run a statement that changes nothing."""
        return self._run(statement, parameters, is_look=True)

    def change(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run a statement that changes something: it is a transaction of its own, committed when this returns."""
        return self._run(statement, parameters, is_look=False)

    def _run(self, statement: str, parameters: Sequence[object], is_look: bool) -> list[Row]:
        for attempt in range(ATTEMPTS):
            try:
                with self._connection() as connection:
                    return connection.execute(statement, parameters).fetchall()
            except psycopg.Error as error:
                may_repeat = isinstance(error, AGAIN) or (is_look and is_lost(error))
                if not may_repeat or attempt == ATTEMPTS - 1:
                    raise told_plainly(error, self.place) from error
            time.sleep(random.uniform(0.5, 1) * PAUSE_SECONDS * 2**attempt)
        raise AssertionError  # the last attempt returned or raised


class Joined:
    """Statements run inside a caller's open transaction: it commits them or undoes them, so nothing is run again."""

    def __init__(self, place: Place, connection: psycopg.Connection[Any]) -> None:
        self.place = place
        self._connection = connection

    def close(self) -> None:
        """The connection is the caller's."""

    def look(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run a statement that changes nothing."""
        return self.change(statement, parameters)

    def change(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run a statement in the caller's transaction; psycopg begins one if the connection is not in autocommit."""
        if self._connection.autocommit and self._connection.info.transaction_status == TransactionStatus.IDLE:
            raise BadValue(
                "transaction",
                self._connection,
                "one that is open; this connection is in autocommit: use connection.transaction()",
            )
        try:
            with self._connection.cursor(row_factory=tuple_row) as cursor:
                return cursor.execute(statement, parameters, prepare=False).fetchall()
        except psycopg.Error as error:
            raise told_plainly(error, self.place) from error
