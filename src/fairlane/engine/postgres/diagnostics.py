"""Diagnostics for `fairlane doctor`: the server's version, durability, clock and missing indexes."""

from __future__ import annotations

import re
import time

from fairlane.engine.protocol import Finding
from fairlane.engine.queries import Queries

from .pool import CallerTransaction, PostgresPool
from .queries import SCHEMA_VERSIONS
from .url import PostgresUrl

CLOCK_SKEW_MS_MAX = 2000


def diagnose(pool: PostgresPool | CallerTransaction, sql: Queries, url: PostgresUrl, durability: str) -> list[Finding]:
    """Check each thing that can be wrong with a server."""
    ((_, version, *_),) = pool.read(sql.server)
    return [
        Finding("version", "fine", f"PostgreSQL {version}, schema {url.schema} in version {len(SCHEMA_VERSIONS)}"),
        _durability(durability),
        _clock(pool, sql),
        _indexes(pool, sql, url),
    ]


def _durability(durability: str) -> Finding:
    if durability.startswith("durable"):
        return Finding("durability", "fine", durability)
    return Finding(
        "durability", "bad", durability, "set fsync, full_page_writes and synchronous_commit to on in postgresql.conf"
    )


def _clock(pool: PostgresPool | CallerTransaction, sql: Queries) -> Finding:
    before_ms = time.time() * 1000
    ((server_ms,),) = pool.read(sql.server_ms)
    skew_ms = server_ms - (before_ms + time.time() * 1000) / 2
    message = f"the server's; it is {abs(skew_ms):,.0f} ms {'ahead of' if skew_ms > 0 else 'behind'} this machine's"
    if abs(skew_ms) <= CLOCK_SKEW_MS_MAX:
        return Finding("clock", "fine", message)
    return Finding("clock", "warning", message, "only the server's counts, but logs will not agree: let both keep time by NTP")


def _indexes(pool: PostgresPool | CallerTransaction, sql: Queries, url: PostgresUrl) -> Finding:
    expected = set(re.findall(r"CREATE (?:UNIQUE )?INDEX (\w+)", "".join(SCHEMA_VERSIONS)))
    missing = expected - {name for (name,) in pool.read(sql.index_names, (url.schema,))}
    if not missing:
        return Finding("indexes", "fine", f"all {len(expected)} are there")
    advice = f"somebody dropped them: make them again as in schema_1.sql, in schema {url.schema}"
    return Finding("indexes", "bad", f"missing: {', '.join(sorted(missing))}", advice)
