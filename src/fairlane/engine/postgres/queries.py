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


SCHEMA_VERSIONS = (read_sql(__package__, "schema_1.sql"), read_sql(__package__, "schema_2.sql"))  # tables, views and types

# Functions are code: every upgrade drops them and creates this version's.
_FUNCTION_FILES = ("drop_functions", *(f"functions_{part}" for part in _FUNCTIONS), "planner_settings")
FUNCTIONS = "\n".join(read_sql(__package__, f"{name}.sql") for name in _FUNCTION_FILES)
