"""Migrations: check that the server can hold a queue, and create or upgrade its schema, one process at a time."""

from __future__ import annotations

import random

import psycopg
from psycopg import errors

from fairlane.core.errors import StoreBusy, StoreUnfit, Unknown
from fairlane.core.policy import Policy, Rules, Terms, interval_ms_of, weight_of
from fairlane.engine.codec import encode_rules
from fairlane.engine.deadline import Deadline
from fairlane.engine.queries import Queries
from fairlane.engine.schema import Schema

from .errors import connect_error, translate_error
from .pool import Connection, connect
from .queries import DROP_FUNCTIONS, FUNCTIONS, SCHEMA, in_schema, queries
from .url import PostgresUrl

SERVER_OLDEST = 14
WAIT_SECONDS = 60  # for tables that others hold
COUNT_STEP = 1000  # documents of an older version that are counted in one transaction
PAUSE_SECONDS = 1.0  # between tries, in which everybody else goes on


def depths_of(thresholds: tuple[float, ...]) -> list[int]:
    """Convert thresholds to rising depths below zero, in thousandths."""
    return [-round(value * 1000) for value in thresholds]


def terms_columns(terms: Terms) -> tuple[object, ...]:
    """Convert a customer's terms to columns: weight, cap, paused, interval, depths, reset, five limits."""
    return (
        weight_of(terms), terms.cap, terms.paused,
        None if terms.reset_interval is None else interval_ms_of(terms.policy(Policy())),
        None if terms.thresholds is None else depths_of(terms.thresholds),
        terms.reset, *terms.limits,
    )  # fmt: skip


def migrate(url: PostgresUrl, create: bool, schema: Schema = SCHEMA) -> str:
    """Create or upgrade the schema; returns how durable an acknowledgement is on this server."""
    sql = queries(url.schema)
    try:
        connection = connect(url)
    except psycopg.OperationalError as error:
        raise connect_error(error, url) from error
    connection.deadline = Deadline(url.timeout)
    try:
        with connection:
            durability = _check_server(connection, url, sql)
            if (version := _version(connection, url, sql, schema)) < schema.version:
                if version == 0 and not create:
                    raise Unknown(f"there is no queue at {url.display}; submit or check something first, or give another --url")
                connection.deadline = Deadline()  # it may have to wait for another process, or build an index
                _upgrade_between_calls(connection, url, sql, schema)
            if (uncounted := connection.execute(sql.read_uncounted).fetchone()) and uncounted[0]:
                _count_documents(connection, sql)
            return durability
    except psycopg.Error as error:
        raise translate_error(error, url) from error


def _upgrade_between_calls(connection: Connection, url: PostgresUrl, sql: Queries, schema: Schema) -> None:
    """Upgrade in one transaction, which gives up its place at once where it must wait for a table, and tries again.

    Whoever wants a table after a statement that waits for it waits as well: behind a transaction that somebody left open, an
    upgrade that waited would stop every program that uses the queue.
    """
    deadline = Deadline(WAIT_SECONDS)
    while True:
        try:
            with connection.transaction():
                _upgrade(connection, url, sql, schema)
            return
        except errors.LockNotAvailable as error:
            if deadline.is_over:
                raise StoreBusy(
                    f"others held tables of {url.display} for {WAIT_SECONDS} s, so the schema was not upgraded and nothing was "
                    "changed; end the session that is idle in transaction (pg_stat_activity), then run fairlane migrate"
                ) from error
        deadline.sleep(random.uniform(0.5, 1) * PAUSE_SECONDS)


def _count_documents(connection: Connection, sql: Queries) -> None:
    """Count what documents of an older version take, step by step, so that others wait for a short time only."""
    connection.deadline = Deadline()
    is_more = True
    while is_more:
        with connection.transaction():
            row = connection.execute(sql.count_some, (COUNT_STEP,)).fetchone()
        is_more = bool(row and row[0])


def _upgrade(connection: Connection, url: PostgresUrl, sql: Queries, schema: Schema) -> None:
    connection.execute(sql.migration_lock, (url.schema,))
    connection.execute(sql.short_lock_timeout)
    version = _version(connection, url, sql, schema)
    if 0 < version < schema.version:
        connection.execute(in_schema(DROP_FUNCTIONS, url.schema))
    for script in schema.scripts_after(version):
        if version == 0 and not _schema_exists(connection, url, sql):
            connection.execute(sql.create_schema)
        connection.execute(in_schema(script, url.schema))
    if version == 0:
        first = Rules()
        policy = first.policy
        connection.execute(
            sql.first_rules,
            (first.version, encode_rules(first), first.version, interval_ms_of(policy), depths_of(policy.thresholds),
             policy.reset, first.dispatch, first.turns, first.open_turn_every, *first.limits),
        )  # fmt: skip
    if version < schema.version:
        connection.execute(in_schema(FUNCTIONS, url.schema))
        connection.execute(sql.write_schema_version, (schema.mark,))


def _schema_exists(connection: Connection, url: PostgresUrl, sql: Queries) -> bool:
    row = connection.execute(sql.schema_exists, (url.schema, url.schema)).fetchone()
    return bool(row and row[0])


def _version(connection: Connection, url: PostgresUrl, sql: Queries, schema: Schema) -> int:
    """The schema's version; 0 if there is none."""
    row = connection.execute(sql.schema_exists, (url.schema, url.schema)).fetchone()
    if row is None or not row[1]:
        return 0
    row = connection.execute(sql.schema_version).fetchone()
    return schema.refuse_newer(url.display, int(row[0])) if row else 0


def _check_server(connection: Connection, url: PostgresUrl, sql: Queries) -> str:
    """Refuse a server that must not hold a queue; returns how durable an acknowledgement is."""
    row = connection.execute(sql.server).fetchone()
    assert row is not None
    number, version, encoding, is_standby, fsync, commit, pages = row
    refuse_unfit(url, int(number), version, encoding, bool(is_standby))
    return durability_of(fsync, commit, pages)


def refuse_unfit(url: PostgresUrl, number: int, version: str, encoding: str, is_standby: bool) -> None:
    """Refuse a server that is too old, another encoding, and a standby."""
    if number < SERVER_OLDEST * 10_000:
        raise StoreUnfit(
            f"{url.display} runs PostgreSQL {version}; Fairlane needs {SERVER_OLDEST} or newer: upgrade the server"
        )
    if encoding != "UTF8":
        raise StoreUnfit(f"the database of {url.display} is encoded in {encoding}; make one with: createdb --encoding UTF8")
    if is_standby:
        raise StoreUnfit(f"{url.display} is a standby, which can only be read; give the URL of the primary server")


def durability_of(fsync: str, commit: str, pages: str) -> str:
    """Describe how durable an acknowledgement is, from the settings of the engine's connections."""
    settings = f"PostgreSQL, fsync={fsync}, synchronous_commit={commit}"
    if fsync != "on" or pages != "on":
        return (
            f"not durable: a crash of the server's machine may lose or damage everything ({settings}, full_page_writes={pages})"
        )
    if commit == "off":
        return f"not durable: a crash of the server may lose the last moments ({settings}); set synchronous_commit = on"
    standby = {"local": "", "on": ", and on synchronous standbys where there are any"}.get(
        commit, ", and at synchronous standbys"
    )
    return f"durable: acknowledged after the data is on the server's disk{standby} ({settings})"
