"""Migrations: check that the server can hold a queue, and create or upgrade its schema, one process at a time."""

from __future__ import annotations

import psycopg

from fairlane.core.errors import StoreUnfit, Unknown
from fairlane.core.policy import Policy, Rules, Terms, interval_ms_of, weight_of
from fairlane.engine.codec import encode_rules
from fairlane.engine.queries import Queries

from .errors import translate_error
from .pool import Connection, connect
from .queries import FUNCTIONS, SCHEMA_VERSIONS, in_schema, queries
from .url import PostgresUrl

SERVER_OLDEST = 14


def depths_of(thresholds: tuple[float, ...]) -> list[int]:
    """Convert thresholds to rising depths below zero, in thousandths."""
    return [-round(value * 1000) for value in thresholds]


def terms_columns(terms: Terms) -> tuple[object, ...]:
    """Convert a customer's terms to columns: weight, cap, paused, interval, depths, reset."""
    return (
        weight_of(terms), terms.cap, terms.paused,
        None if terms.reset_interval is None else interval_ms_of(terms.policy(Policy())),
        None if terms.thresholds is None else depths_of(terms.thresholds),
        terms.reset,
    )  # fmt: skip


def migrate(url: PostgresUrl, create: bool) -> str:
    """Create or upgrade the schema; returns how durable an acknowledgement is on this server."""
    sql = queries(url.schema)
    connection = connect(url)
    try:
        with connection:
            durability = _check_server(connection, url, sql)
            if _version(connection, url, sql) < len(SCHEMA_VERSIONS):
                if not create:
                    raise Unknown(f"there is no queue at {url.display}; submit or check something first, or give another --url")
                with connection.transaction():
                    _upgrade(connection, url, sql)
            return durability
    except psycopg.Error as error:
        raise translate_error(error, url) from error


def _upgrade(connection: Connection, url: PostgresUrl, sql: Queries) -> None:
    connection.execute(sql.migration_lock, (url.schema,))
    version = _version(connection, url, sql)
    for script in SCHEMA_VERSIONS[version:]:
        if version == 0 and not _schema_exists(connection, url, sql):
            connection.execute(sql.create_schema)
        connection.execute(in_schema(script, url.schema))
    if version == 0:
        first = Rules()
        policy = first.policy
        connection.execute(
            sql.first_rules,
            (first.version, encode_rules(first), first.version, interval_ms_of(policy), depths_of(policy.thresholds),
             policy.reset, first.dispatch, first.open_turn_every),
        )  # fmt: skip
    if version < len(SCHEMA_VERSIONS):
        connection.execute(in_schema(FUNCTIONS, url.schema))
        connection.execute(sql.write_schema_version, (len(SCHEMA_VERSIONS),))


def _schema_exists(connection: Connection, url: PostgresUrl, sql: Queries) -> bool:
    row = connection.execute(sql.schema_exists, (url.schema, url.schema)).fetchone()
    return bool(row and row[0])


def _version(connection: Connection, url: PostgresUrl, sql: Queries) -> int:
    """The schema's version; 0 if there is none."""
    row = connection.execute(sql.schema_exists, (url.schema, url.schema)).fetchone()
    if row is None or not row[1]:
        return 0
    row = connection.execute(sql.schema_version).fetchone()
    version = int(row[0]) if row else 0
    if version > len(SCHEMA_VERSIONS):
        raise StoreUnfit(
            f"{url.display} has schema version {version}, made by a newer Fairlane; this one knows up to "
            f"{len(SCHEMA_VERSIONS)}: upgrade Fairlane here too"
        )
    return version


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
