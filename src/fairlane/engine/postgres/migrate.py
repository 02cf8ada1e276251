"""Is this server fit to hold a queue, and how is its schema made? One at a time; whoever comes second finds it done."""

from __future__ import annotations

import psycopg

from fairlane.core.errors import StoreUnfit, Unknown
from fairlane.core.policy import Policy, Rules, Terms
from fairlane.engine.codec import encode_rules

from .errors import told_plainly
from .pool import Connection, connect
from .queries import SCHEMA_VERSIONS, Queries, in_schema, queries
from .url import Place

SERVER_OLDEST = 14


def depths_of(thresholds: tuple[float, ...]) -> list[int]:
    """A table's thresholds as rising depths below zero, in thousandths."""
    return [-round(value * 1000) for value in thresholds]


def terms_columns(terms: Terms) -> tuple[object, ...]:
    """A customer's terms as the arithmetic needs them: weight, cap, paused, interval, depths, reset."""
    return (
        terms.weight_thousandths, terms.cap, terms.paused,
        None if terms.reset_interval is None else terms.policy(Policy()).interval_ms,
        None if terms.thresholds is None else depths_of(terms.thresholds),
        terms.reset,
    )  # fmt: skip


def migrate(place: Place, create: bool) -> str:
    """Bring the schema to this version's form; returns what an acknowledgement is worth there."""
    sql = queries(place.schema)
    connection = connect(place)
    try:
        with connection:
            durability = _fitness(connection, place, sql)
            if _version(connection, place, sql) < len(SCHEMA_VERSIONS):
                if not create:
                    raise Unknown(f"there is no queue at {place.name}; submit or check something first, or give another --url")
                with connection.transaction():
                    _bring_forward(connection, place, sql)
            return durability
    except psycopg.Error as error:
        raise told_plainly(error, place) from error


def _bring_forward(connection: Connection, place: Place, sql: Queries) -> None:
    connection.execute(sql.migration_lock, (place.schema,))
    version = _version(connection, place, sql)
    for script in SCHEMA_VERSIONS[version:]:
        if version == 0 and not _is_schema_there(connection, place, sql):
            connection.execute(sql.create_schema)
        connection.execute(in_schema(script, place.schema))
    if version == 0:
        first = Rules()
        policy = first.policy
        connection.execute(
            sql.first_rules,
            (first.version, encode_rules(first), first.version, policy.interval_ms, depths_of(policy.thresholds), policy.reset,
             first.dispatch, first.open_turn_every),
        )  # fmt: skip
    if version < len(SCHEMA_VERSIONS):
        connection.execute(sql.write_schema_version, (len(SCHEMA_VERSIONS),))


def _is_schema_there(connection: Connection, place: Place, sql: Queries) -> bool:
    row = connection.execute(sql.schema_there, (place.schema, place.schema)).fetchone()
    return bool(row and row[0])


def _version(connection: Connection, place: Place, sql: Queries) -> int:
    """The schema's version; 0 if there is none."""
    row = connection.execute(sql.schema_there, (place.schema, place.schema)).fetchone()
    if row is None or not row[1]:
        return 0
    found = connection.execute(sql.schema_version).fetchone()
    version = int(found[0]) if found else 0
    if version > len(SCHEMA_VERSIONS):
        raise StoreUnfit(
            f"{place.name} has schema version {version}, made by a newer Fairlane; this one knows up to "
            f"{len(SCHEMA_VERSIONS)}: upgrade Fairlane here too"
        )
    return version


def _fitness(connection: Connection, place: Place, sql: Queries) -> str:
    """Refuse what must not hold a queue; say what an acknowledgement is worth."""
    row = connection.execute(sql.server).fetchone()
    assert row is not None
    number, version, encoding, is_standby, fsync, commit, pages = row
    refuse_unfit(place, int(number), version, encoding, bool(is_standby))
    return durability_of(fsync, commit, pages)


def refuse_unfit(place: Place, number: int, version: str, encoding: str, is_standby: bool) -> None:
    """Too old, another encoding, or a standby."""
    if number < SERVER_OLDEST * 10_000:
        raise StoreUnfit(f"{place.name} runs PostgreSQL {version}; Fairlane needs {SERVER_OLDEST} or newer: upgrade the server")
    if encoding != "UTF8":
        raise StoreUnfit(f"the database of {place.name} is encoded in {encoding}; make one with: createdb --encoding UTF8")
    if is_standby:
        raise StoreUnfit(f"{place.name} is a standby, which can only be read; give the URL of the primary server")


def durability_of(fsync: str, commit: str, pages: str) -> str:
    """What an acknowledgement is worth, from the settings that the engine's connections have."""
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
