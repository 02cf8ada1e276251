"""Running statements on a pool of connections, one statement a transaction.

Laws:
- No session state: no prepared statements, no SET, no session locks. So a transaction pooler may stand in between.
- A call has one deadline, which covers waiting for a connection, connecting, the statement and every try.
- A call that the server rolled back (deadlock, serialization failure, an upgrade) is repeated, a few times, after a
  short random pause.
- A call whose connection was lost is repeated only if it reads. If it writes, its outcome is unknown and the error says so.
- A call for which there was no connection changed nothing, and the error says so.
"""

from __future__ import annotations

import itertools
import math
import random
import select
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.waiting import Ready, Wait

from fairlane.core.errors import FairlaneError, StoreError, StoreUnfit
from fairlane.engine.connection_pool import ConnectionPool, NotConnected, PoolClosed
from fairlane.engine.deadline import (
    CONNECT_SECONDS,
    KEEPALIVE_COUNT,
    KEEPALIVE_IDLE_SECONDS,
    KEEPALIVE_INTERVAL_SECONDS,
    SILENCE_SECONDS,
    Deadline,
)
from fairlane.engine.schema import Schema

from .errors import connect_error, is_connection_lost, is_rolled_back, silent_error, translate_error
from .queries import SCHEMA, queries
from .url import PostgresUrl

Row = tuple[Any, ...]
T = TypeVar("T")
Parameters = Sequence[object] | Mapping[str, object]

CONNECTIONS_MAX = 16
ATTEMPTS = 6  # of a call that the server rolls back
SCHEMA_SECONDS = 1.0  # how often a program looks whether the schema is still one that it knows
PAUSE_SECONDS = 0.02  # doubles with each attempt
SETTINGS: dict[str, Any] = {  # the URL may set them otherwise
    "connect_timeout": CONNECT_SECONDS,
    "tcp_user_timeout": SILENCE_SECONDS * 1000,
    "keepalives_idle": KEEPALIVE_IDLE_SECONDS,
    "keepalives_interval": KEEPALIVE_INTERVAL_SECONDS,
    "keepalives_count": KEEPALIVE_COUNT,
}


class Statements(Protocol):
    """What runs statements: the pool, or a transaction of the caller."""

    url: PostgresUrl
    schema: Schema

    def close(self) -> None: ...

    def schema_version(self) -> int: ...

    def read(self, statement: str, parameters: Parameters = ()) -> list[Row]: ...

    def write(self, statement: str, parameters: Parameters = ()) -> list[Row]: ...


class Connection(psycopg.Connection[Row]):
    """A connection on which nothing is waited for beyond the deadline of the call."""

    deadline = Deadline()

    def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        """Wait for the server; psycopg's own wait has no end."""
        if math.isinf(self.deadline.seconds):
            return super().wait(gen, *args, **kwargs)
        return _wait_until(self.deadline, gen, self.fileno())


def _wait_until(deadline: Deadline, gen: PQGen[T], fileno: int) -> T:
    """Drive a generator of psycopg, which yields what it waits for, until it returns or the time is over."""
    poller = select.poll()
    try:
        state = next(gen)
        while True:
            poller.register(fileno, (state & Wait.R and select.POLLIN) | (state & Wait.W and select.POLLOUT))
            polled = poller.poll(math.ceil(1000 * deadline.left()))
            if not polled:
                raise errors.ConnectionTimeout("no response within the time of a call")
            ((_, events),) = polled  # an error or a hang-up is both to be read and to be written
            state = gen.send(Ready((events & ~select.POLLOUT and Ready.R) | (events & ~select.POLLIN and Ready.W)))
    except StopIteration as end:
        result: T = end.value
        return result


def connect(url: PostgresUrl) -> Connection:
    """Open a connection."""
    settings = {**SETTINGS, **conninfo_to_dict(url.conninfo)}
    return Connection.connect(autocommit=True, prepare_threshold=None, **settings)


def is_usable(connection: Connection) -> bool:
    """Return whether an idle connection has nothing to read; if it has, its server is gone, and nothing was sent on it yet."""
    if connection.closed:
        return False
    poller = select.poll()
    poller.register(connection.fileno(), select.POLLIN)
    return not poller.poll(0)


class PostgresPool:
    """The connections of one process."""

    def __init__(self, url: PostgresUrl, schema: Schema = SCHEMA) -> None:
        self.url = url
        self.schema = schema
        self._schema_checked = time.monotonic()
        self._database: list[object] = []
        self._pool = ConnectionPool(lambda: connect(url), is_usable, Connection.close, CONNECTIONS_MAX)
        self._pool.is_patient = True  # the queue was opened: the server is known to exist

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    def read(self, statement: str, parameters: Parameters = ()) -> list[Row]:
        """Run a statement that changes nothing."""
        return self._run(statement, parameters, is_read=True)

    def write(self, statement: str, parameters: Parameters = ()) -> list[Row]:
        """Run a statement as a transaction of its own, committed when this returns."""
        return self._run(statement, parameters, is_read=False)

    def schema_version(self) -> int:
        """Return the version of the schema that the store has; refuse one that is too new."""
        return schema_version(self)

    def database(self, is_fresh: bool = False) -> list[object]:
        """Return what tells the database from all others: when its server started, and its name."""
        if is_fresh or not self._database:
            sql = queries(self.url.schema)
            ((*self._database, _),) = self.read(sql.database)
        return self._database

    def _run(self, statement: str, parameters: Parameters, is_read: bool) -> list[Row]:
        deadline = Deadline(self.url.timeout)
        for attempt in itertools.count(1):
            connection = self._acquire(deadline)
            try:
                self._refuse_newer(connection)
                rows = connection.execute(statement, parameters).fetchall()
            except StoreUnfit:
                self._pool.release(connection)
                raise
            except psycopg.Error as error:
                is_lost = is_connection_lost(error)
                if is_lost or connection.closed or isinstance(error, errors.ReadOnlySqlTransaction):
                    self._pool.discard(connection)  # the last: the primary is another server now
                else:
                    self._pool.release(connection)
                if deadline.is_over and is_lost and is_read:
                    raise silent_error(self.url) from error
                if not (is_read and is_lost) and (attempt == ATTEMPTS or not is_rolled_back(error)):
                    self._explain_by_schema(error, statement)
                    raise translate_error(error, self.url) from error
            except BaseException:  # a response that comes late must not be read by the next call
                self._pool.discard(connection)
                raise
            else:
                self._pool.release(connection)
                return rows
            deadline.sleep(random.uniform(0.5, 1) * PAUSE_SECONDS * 2 ** min(attempt, ATTEMPTS))
        raise AssertionError  # the loop does not end by itself

    def _refuse_newer(self, connection: Connection) -> None:
        """Refuse a schema that another program has made too new for this one; looked at once a second."""
        if time.monotonic() >= self._schema_checked + SCHEMA_SECONDS:
            row = connection.execute(queries(self.url.schema).schema_version).fetchone()
            self.schema.refuse_newer(self.url.display, int(row[0]) if row else 0)
            self._schema_checked = time.monotonic()

    def _explain_by_schema(self, error: psycopg.Error, statement: str) -> None:
        """Refuse a schema that is too new where a statement does not fit it: a function that is gone, other parameters."""
        if isinstance(error, psycopg.ProgrammingError) and statement != queries(self.url.schema).schema_version:
            try:
                self.schema_version()
            except StoreUnfit:
                raise
            except FairlaneError:
                return  # the first error says more

    def _acquire(self, deadline: Deadline) -> Connection:
        try:
            connection = self._pool.acquire(deadline)
        except PoolClosed:
            raise StoreError(f"the queue at {self.url.display} was closed; open it again") from None
        except NotConnected as error:
            raise connect_error(error.cause, self.url) from error.cause
        connection.deadline = deadline
        return connection


def schema_version(pool: Statements) -> int:
    """Return the version of the schema that the store has; refuse one that is too new."""
    ((mark,),) = pool.read(queries(pool.url.schema).schema_version)
    return pool.schema.refuse_newer(pool.url.display, int(mark))
