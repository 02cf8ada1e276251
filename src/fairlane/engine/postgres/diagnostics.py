"""Diagnostics for `fairlane doctor`: the server's version, durability, clock, missing indexes and open transactions."""

from __future__ import annotations

import re
import time

from fairlane.engine.protocol import Finding
from fairlane.engine.queries import Queries

from .pool import Statements
from .queries import SCHEMA_VERSIONS
from .url import PostgresUrl

CLOCK_SKEW_MS_MAX = 2000
OPEN_SECONDS_MAX = 60  # how long a transaction may stay open before it is reported
OPEN_NAMED_MAX = 3


def diagnose(pool: Statements, sql: Queries, url: PostgresUrl, durability: str) -> list[Finding]:
    """Check each thing that can be wrong with a server."""
    ((_, version, *_),) = pool.read(sql.server)
    return [
        Finding("version", "fine", f"PostgreSQL {version}, schema {url.schema} in version {pool.schema_version()}"),
        _durability(durability),
        _clock(pool, sql),
        _indexes(pool, sql, url),
        _open_transactions(pool, sql),
    ]


def _durability(durability: str) -> Finding:
    if durability.startswith("durable"):
        return Finding("durability", "fine", durability)
    return Finding(
        "durability", "bad", durability, "set fsync, full_page_writes and synchronous_commit to on in postgresql.conf"
    )


def _clock(pool: Statements, sql: Queries) -> Finding:
    before_ms = time.time() * 1000
    ((server_ms,),) = pool.read(sql.server_ms)
    skew_ms = server_ms - (before_ms + time.time() * 1000) / 2
    message = f"the server's; it is {abs(skew_ms):,.0f} ms {'ahead of' if skew_ms > 0 else 'behind'} this machine's"
    if abs(skew_ms) <= CLOCK_SKEW_MS_MAX:
        return Finding("clock", "fine", message)
    return Finding("clock", "warning", message, "only the server's counts, but logs will not agree: let both keep time by NTP")


def _indexes(pool: Statements, sql: Queries, url: PostgresUrl) -> Finding:
    schema = "".join(SCHEMA_VERSIONS)
    expected = set(re.findall(r"CREATE (?:UNIQUE )?INDEX (\w+)", schema))
    dropped = re.findall(r"DROP TABLE fairlane\.(\w+)", schema)
    for table, columns in re.findall(r"CREATE TABLE fairlane\.(\w+) \((.*?)\)(?: WITH |;)", schema, re.DOTALL):
        if table in dropped:
            continue
        expected |= {f"{table}_pkey"} if "PRIMARY KEY" in columns else set()  # PostgreSQL names the indexes of keys like this
        expected |= {f"{table}_id_key"} if "NOT NULL UNIQUE" in columns else set()
    for names in re.findall(r"DROP INDEX ([^;]+);", schema):
        expected -= set(re.findall(r"fairlane\.(\w+)", names))
    missing = expected - {name for (name,) in pool.read(sql.index_names, (url.schema,))}
    if not missing:
        return Finding("indexes", "fine", f"all {len(expected)} are there")
    advice = f"somebody dropped them: make them again as in schema_1.sql, in schema {url.schema}"
    return Finding("indexes", "bad", f"missing: {', '.join(sorted(missing))}", advice)


def _open_transactions(pool: Statements, sql: Queries) -> Finding:
    """Name transactions that have been open for long: the server keeps all old row versions of the database for them."""
    rows = pool.read(sql.open_transactions, (OPEN_SECONDS_MAX,))
    if not rows:
        return Finding("open transactions", "fine", f"none is older than {OPEN_SECONDS_MAX} seconds")
    named = [f"{who}, {state}, open for {seconds:,.0f} s" for who, state, seconds in rows[:OPEN_NAMED_MAX]]
    more = f"; and {len(rows) - OPEN_NAMED_MAX} more" if len(rows) > OPEN_NAMED_MAX else ""
    advice = (
        "tables grow until they end: commit there, or end a session with SELECT pg_terminate_backend(PID) and a prepared "
        "transaction with ROLLBACK PREPARED; set idle_in_transaction_session_timeout"
    )
    return Finding("open transactions", "warning", "; ".join(named) + more, advice)
