"""Is this server fit, and is its clock right? What `fairlane doctor` says of a queue on PostgreSQL."""

from __future__ import annotations

import re
import time

from fairlane.engine.protocol import Finding

from .pool import Joined, Sessions
from .queries import SCHEMA_VERSIONS, Queries
from .url import Place

CLOCK_MS_MOST = 2000


def diagnose(sessions: Sessions | Joined, sql: Queries, place: Place, durability: str) -> list[Finding]:
    """One finding for each thing that can be wrong with a server."""
    ((_, version, *_),) = sessions.look(sql.server)
    return [
        Finding("version", "fine", f"PostgreSQL {version}, schema {place.schema} in version {len(SCHEMA_VERSIONS)}"),
        _durability(durability),
        _clock(sessions, sql),
        _indexes(sessions, sql, place),
    ]


def _durability(durability: str) -> Finding:
    if durability.startswith("durable"):
        return Finding("durability", "fine", durability)
    return Finding(
        "durability", "bad", durability, "set fsync, full_page_writes and synchronous_commit to on in postgresql.conf"
    )


def _clock(sessions: Sessions | Joined, sql: Queries) -> Finding:
    asked_ms = time.time() * 1000
    ((server_ms,),) = sessions.look(sql.server_ms)
    apart_ms = server_ms - (asked_ms + time.time() * 1000) / 2
    told = f"the server's; it is {abs(apart_ms):,.0f} ms {'ahead of' if apart_ms > 0 else 'behind'} this machine's"
    if abs(apart_ms) <= CLOCK_MS_MOST:
        return Finding("clock", "fine", told)
    return Finding("clock", "warning", told, "only the server's counts, but logs will not agree: let both keep time by NTP")


def _indexes(sessions: Sessions | Joined, sql: Queries, place: Place) -> Finding:
    wanted = set(re.findall(r"CREATE (?:UNIQUE )?INDEX (\w+)", "".join(SCHEMA_VERSIONS)))
    missing = wanted - {name for (name,) in sessions.look(sql.index_names, (place.schema,))}
    if not missing:
        return Finding("indexes", "fine", f"all {len(wanted)} are there")
    advice = f"somebody dropped them: make them again as in schema_1.sql, in schema {place.schema}"
    return Finding("indexes", "bad", f"missing: {', '.join(sorted(missing))}", advice)
