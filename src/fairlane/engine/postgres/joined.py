"""Joining a transaction that the caller has open, on a connection of psycopg, SQLAlchemy, asyncpg or Django.

Laws:
- Nothing is begun, committed, rolled back, repeated or closed here: the transaction and the connection are the caller's.
- A statement runs only in a transaction that is open, and on the database of the queue.
- A connection of an event loop is used on that loop only, while the verb waits on its thread.
- Of SQLAlchemy, asyncpg and Django nothing is imported: their objects are known by their packages, and used as documented.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from fairlane.core.errors import BadValue
from fairlane.engine.schema import Schema

from .errors import is_connection_lost, lost_transaction_error, translate_error
from .pool import Parameters, PostgresPool, Row, schema_version
from .queries import queries
from .url import PostgresUrl

Loop: TypeAlias = asyncio.AbstractEventLoop
Run: TypeAlias = Callable[[str, Parameters], list[Row]]
RunAsync: TypeAlias = Callable[[str, Parameters], Coroutine[Any, Any, list[Row]]]

EXPECTED = (
    "an open psycopg connection, a connection or session of SQLAlchemy, a connection of asyncpg, or django.db.connection; and "
    "the queue one at postgresql:// on the same database"
)
SQLALCHEMY_DRIVERS = ("psycopg", "psycopg_async", "psycopg2", "asyncpg")
_PLACEHOLDER = re.compile(r"%(?:%|s|\((\w+)\)s)")


class CallerTransaction:
    """The caller's open transaction: the caller commits or rolls back, so no statement is repeated."""

    def __init__(self, pool: PostgresPool | CallerTransaction, transaction: object, loop: Loop | None = None) -> None:
        self.pool: PostgresPool = pool.pool if isinstance(pool, CallerTransaction) else pool
        self.url: PostgresUrl = pool.url
        self.schema: Schema = pool.schema
        self._transaction = transaction
        self._run = _runner(transaction, loop)
        self._is_same_database = False

    def close(self) -> None:
        """Do nothing: the connection belongs to the caller."""

    def schema_version(self) -> int:
        """Return the version of the schema that the store has; refuse one that is too new."""
        return schema_version(self)

    def read(self, statement: str, parameters: Parameters = ()) -> list[Row]:
        """Run a statement that changes nothing."""
        return self.write(statement, parameters)

    def write(self, statement: str, parameters: Parameters = ()) -> list[Row]:
        """Run a statement in the caller's transaction."""
        try:
            if not self._is_same_database:
                self._refuse_other_database()
            return self._run(statement, parameters)
        except Exception as error:
            reported = _reported_error(error)
            if reported is None:
                raise
            translate = lost_transaction_error if is_connection_lost(reported) else translate_error
            raise translate(reported, self.url) from error

    def _refuse_other_database(self) -> None:
        """Refuse another database or server, where the document would be in another queue, or in none."""
        sql = queries(self.url.schema)
        ((*database, address),) = self._run(sql.database, ())
        # The server may have started again since the pool looked.
        if database != self.pool.database() and database != self.pool.database(is_fresh=True):
            raise BadValue(
                "transaction",
                self._transaction,
                f"one on the database of the queue, {self.url.display}; this one is on {database[1]!r} at {address}",
            )
        self._is_same_database = True


def _runner(transaction: object, loop: Loop | None) -> Run:
    """Return what runs a statement in a transaction, or refuse what cannot be joined."""
    packages = {base.__module__.partition(".")[0] for base in type(transaction).__mro__}
    if "sqlalchemy" in packages and hasattr(transaction, "registry") and callable(transaction):
        transaction = transaction()  # a scoped session is one for each thread: the one of this thread is meant
    if isinstance(transaction, psycopg.Connection):
        return _psycopg_runner(transaction)
    if isinstance(transaction, psycopg.AsyncConnection):
        return _on_loop(_async_psycopg_runner(transaction), transaction, loop)
    if "asyncpg" in packages and hasattr(transaction, "is_in_transaction"):
        return _on_loop(_asyncpg_runner(transaction), transaction, loop)
    if "sqlalchemy" in packages and hasattr(transaction, "run_sync"):
        return _on_loop(_async_sqlalchemy_runner(transaction), transaction, loop)
    if "sqlalchemy" in packages and (
        hasattr(transaction, "exec_driver_sql") or callable(getattr(transaction, "connection", 0))
    ):
        return _sqlalchemy_runner(transaction)
    if "django" in packages and hasattr(transaction, "get_autocommit"):
        return _django_runner(transaction, loop)
    raise BadValue("transaction", transaction, EXPECTED)


def _on_loop(run: RunAsync, transaction: object, loop: Loop | None) -> Run:
    """Run statements on the event loop of a connection, from the thread of a verb."""
    if loop is None:
        raise BadValue("transaction", transaction, "one of a synchronous connection; join this one with AsyncQueue.within")
    return lambda statement, parameters: asyncio.run_coroutine_threadsafe(run(statement, parameters), loop).result()


def _refuse_closed(transaction: object, is_open: bool, advice: str) -> None:
    if not is_open:
        raise BadValue("transaction", transaction, f"one that is open; {advice}")


# -- psycopg: a connection that is not in autocommit begins a transaction with its first statement ---------------------------


def _is_open(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    return not connection.autocommit or connection.info.transaction_status != TransactionStatus.IDLE


def _psycopg_runner(connection: psycopg.Connection[Any]) -> Run:
    def run(statement: str, parameters: Parameters) -> list[Row]:
        _refuse_closed(connection, _is_open(connection), "this connection is in autocommit: use connection.transaction()")
        with connection.cursor(row_factory=tuple_row) as cursor:
            return cursor.execute(statement, parameters, prepare=False).fetchall()

    return run


def _async_psycopg_runner(connection: psycopg.AsyncConnection[Any]) -> RunAsync:
    async def run(statement: str, parameters: Parameters) -> list[Row]:
        _refuse_closed(connection, _is_open(connection), "this connection is in autocommit: use connection.transaction()")
        async with connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(statement, parameters, prepare=False)
            return await cursor.fetchall()

    return run


# -- asyncpg: always in autocommit, unless a transaction was begun ----------------------------------------------------------


def _asyncpg_runner(connection: Any) -> RunAsync:
    async def run(statement: str, parameters: Parameters) -> list[Row]:
        _refuse_closed(connection, connection.is_in_transaction(), "begin it with: async with connection.transaction()")
        return [tuple(row) for row in await connection.fetch(*_numbered(statement, parameters))]

    return run


def _numbered(statement: str, parameters: Parameters) -> tuple[str, *tuple[object, ...]]:
    """Return a statement with placeholders as $1 and its parameters, for asyncpg."""
    text, names = _number_placeholders(statement)
    if isinstance(parameters, Mapping):
        return text, *(parameters[name] for name in names)
    return text, *parameters


@lru_cache(maxsize=256)
def _number_placeholders(statement: str) -> tuple[str, Sequence[str]]:
    """Replace %s and %(name)s by $1, $2, …; a name has one number. Return the names, in the order of their numbers."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        if found[1] is None or found[1] not in names:
            names.append(found[1] or "")
        return f"${len(names) if found[1] is None else names.index(found[1]) + 1}"

    return _PLACEHOLDER.sub(number, statement), names


# -- SQLAlchemy: a connection or session begins a transaction with its first statement --------------------------------------


def _sqlalchemy_runner(target: Any) -> Run:
    return lambda statement, parameters: _run_on_sqlalchemy(target, statement, parameters)


def _async_sqlalchemy_runner(target: Any) -> RunAsync:
    async def run(statement: str, parameters: Parameters) -> list[Row]:
        rows: list[Row] = await target.run_sync(_run_on_sqlalchemy, statement, parameters)
        return rows

    return run


def _run_on_sqlalchemy(target: Any, statement: str, parameters: Parameters) -> list[Row]:
    """Run a statement on a Connection, or on that of a Session; its driver wants its own kind of placeholders."""
    connection = target if hasattr(target, "exec_driver_sql") else target.connection()
    dialect = connection.dialect
    if dialect.name != "postgresql" or dialect.driver not in SQLALCHEMY_DRIVERS:
        raise BadValue(
            "transaction",
            target,
            "one on the PostgreSQL database of the queue, with the driver psycopg, asyncpg or psycopg2, as in "
            f"postgresql+psycopg://; this one is at {dialect.name}+{dialect.driver}",
        )
    is_open = not connection.connection.dbapi_connection.autocommit
    _refuse_closed(target, is_open, "its isolation level is AUTOCOMMIT: use an engine or connection that has another one")
    if dialect.driver == "asyncpg":
        statement, *values = _numbered(statement, parameters)
        parameters = tuple(values)
    result = connection.exec_driver_sql(statement, parameters if isinstance(parameters, Mapping) else tuple(parameters))
    return [tuple(row) for row in result]


# -- Django: in autocommit, unless an atomic block is open ------------------------------------------------------------------


def _django_runner(connection: Any, loop: Loop | None) -> Run:
    if loop is not None:
        raise BadValue(
            "transaction", connection, "one of an async driver; Django's belongs to a thread: use Queue.within in sync_to_async"
        )

    def run(statement: str, parameters: Parameters) -> list[Row]:
        if connection.vendor != "postgresql":
            raise BadValue(
                "transaction",
                connection,
                f"one on the PostgreSQL database of the queue; Django's database {connection.alias!r} is {connection.vendor}",
            )
        _refuse_closed(connection, not connection.get_autocommit(), "begin it with: with transaction.atomic()")
        with connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return [tuple(row) for row in cursor.fetchall()]

    return run


def _reported_error(error: BaseException) -> psycopg.Error | None:
    """Return the error that psycopg has for what the server reported, whichever driver and framework it came through."""
    reported: psycopg.Error | None = None
    cause: BaseException | None = error
    while cause is not None:
        sqlstate = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if isinstance(cause, psycopg.Error):
            return cause
        if isinstance(sqlstate, str):
            reported = _psycopg_error(sqlstate, str(cause))  # the innermost says it without its wrappings
        elif type(cause).__module__ == "psycopg2" and type(cause).__name__ == "OperationalError":
            reported = psycopg.OperationalError(str(cause))  # without a state: the connection is lost
        cause = cause.__cause__
    return reported


def _psycopg_error(sqlstate: str, message: str) -> psycopg.Error:
    try:
        return errors.lookup(sqlstate)(message)
    except KeyError:  # one of our own
        error = psycopg.DatabaseError(message)
        error.sqlstate = sqlstate
        return error
