"""The statements of queries.sql by name, and the scripts that create the schema, for a schema of any name."""

from __future__ import annotations

from functools import lru_cache

from fairlane.engine.queries import Queries, read_sql

_FUNCTIONS = ("submit", "lanes", "claim", "settle", "admin", "transfer")


def in_schema(text: str, schema: str) -> str:
    """Replace the schema's name `fairlane` in SQL by another one."""
    for pattern, replacement in (
        ("fairlane.", f'"{schema}".'),
        ("IF NOT EXISTS fairlane", f'IF NOT EXISTS "{schema}"'),
        ("'fairlane'::regnamespace", f"'\"{schema}\"'::regnamespace"),
        ("'fairlane_wake'", f"'{schema}_wake'"),
    ):
        text = text.replace(pattern, replacement)
    return text


@lru_cache(maxsize=64)
def queries(schema: str = "fairlane") -> Queries:
    """Return the statements of queries.sql for a schema of that name."""
    return Queries(in_schema(read_sql(__package__, "queries.sql"), schema))


_PARTS = ("schema_1.sql", *(f"functions_{part}.sql" for part in _FUNCTIONS), "planner_settings.sql")

SCHEMA_VERSIONS = ("\n".join(read_sql(__package__, part) for part in _PARTS),)
