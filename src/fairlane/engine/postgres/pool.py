"""Running statements: on a pool of connections, one statement a transaction, or inside the caller's transaction.

Laws:
- No session state: no prepared statements, no SET, no session locks. So a transaction pooler may stand in between.
- A call that the server rolled back (deadlock, serialization failure) is repeated, a few times, after a short random pause.
- A call whose connection was lost is repeated only if it reads. If it writes, its outcome is unknown and the error says so.
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

from .errors import RETRYABLE, connect_error, is_connection_lost, translate_error
from .url import PostgresUrl

Row = tuple[Any, ...]
Connection = psycopg.Connection[Row]

CONNECTIONS_MAX = 16
REACH_SECONDS = 30.0  # how long a call waits for a server that cannot be reached
CONNECT_SECONDS = 10
ATTEMPTS = 6
PAUSE_SECONDS = 0.02  # doubles with each attempt
KEEP_ALIVE: dict[str, Any] = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}

_inherited: list[object] = []  # pools of a parent process: a forked child must neither use nor close them


def connect(url: PostgresUrl) -> Connection:
    """Open one connection outside the pool."""
    try:
        return psycopg.connect(
            url.conninfo, autocommit=True, prepare_threshold=None, connect_timeout=CONNECT_SECONDS, **KEEP_ALIVE
        )
    except psycopg.OperationalError as error:
        raise connect_error(error, url) from error


def check_alive(connection: Connection) -> None:
    """Refuse an idle connection with something to read: its server is gone. Nothing of a call has been sent on it yet."""
    if select.select([connection.fileno()], [], [], 0)[0]:
        connection.close()
        raise psycopg.OperationalError("the server closed the connection")


class PostgresPool:
    """The connection pool of one process; a forked child opens one of its own."""

    def __init__(self, url: PostgresUrl) -> None:
        self.url = url
        self._opening = threading.Lock()
        self._pool: ConnectionPool[Connection] | None = None
        self._process = os.getpid()
        self._is_closed = False

    def close(self) -> None:
        """Close all connections."""
        with self._opening:
            self._is_closed = True
            if self._pool is not None and self._process == os.getpid():
                self._pool.close()
            self._pool = None

    def _open(self) -> ConnectionPool[Connection]:
        pool = self._pool
        if pool is not None and self._process == os.getpid():
            return pool
        with self._opening:
            if self._is_closed:
                raise StoreError(f"the queue at {self.url.display} was closed; open it again")
            if self._process != os.getpid():
                _inherited.append(self._pool)
                self._pool, self._process = None, os.getpid()
            if self._pool is None:
                self._pool = ConnectionPool(
                    self.url.conninfo,
                    kwargs={
                        "autocommit": True, "prepare_threshold": None, "connect_timeout": CONNECT_SECONDS, **KEEP_ALIVE,
                    },
                    min_size=0, max_size=CONNECTIONS_MAX, check=check_alive, open=True, name=f"fairlane {self.url.display}",
                )  # fmt: skip
            return self._pool

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        pool = self._open()
        connection = pool.getconn(REACH_SECONDS)
        try:
            yield connection
        finally:
            with contextlib.suppress(psycopg.Error):
                pool.putconn(connection)

    def read(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run a statement that changes nothing."""
        return self._run(statement, parameters, is_read=True)

    def write(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run a statement as a transaction of its own, committed when this returns."""
        return self._run(statement, parameters, is_read=False)

    def _run(self, statement: str, parameters: Sequence[object], is_read: bool) -> list[Row]:
        for attempt in range(ATTEMPTS):
            try:
                with self._connection() as connection:
                    return connection.execute(statement, parameters).fetchall()
            except psycopg.Error as error:
                may_repeat = isinstance(error, RETRYABLE) or (is_read and is_connection_lost(error))
                if not may_repeat or attempt == ATTEMPTS - 1:
                    raise translate_error(error, self.url) from error
            time.sleep(random.uniform(0.5, 1) * PAUSE_SECONDS * 2**attempt)
        raise AssertionError  # the last attempt returned or raised


class CallerTransaction:
    """The caller's open transaction: the caller commits or rolls back, so no statement is repeated."""

    def __init__(self, url: PostgresUrl, connection: psycopg.Connection[Any]) -> None:
        self.url = url
        self._connection = connection

    def close(self) -> None:
        """Do nothing: the connection belongs to the caller."""

    def read(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run a statement that changes nothing."""
        return self.write(statement, parameters)

    def write(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
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
            raise translate_error(error, self.url) from error
