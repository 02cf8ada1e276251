"""The statements of queries.sql by name, and the scripts that create the schema, for a schema of any name."""

from __future__ import annotations

from functools import lru_cache

from fairlane.engine.queries import Queries, read_sql
from fairlane.engine.schema import Schema

_FUNCTIONS = ("check", "limits", "submit", "kinds", "lanes", "claim", "parts", "settle", "admin", "steer", "transfer")


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


# Tables, views and types.
SCHEMA_VERSIONS = tuple(read_sql(__package__, f"schema_{version}.sql") for version in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10))
SCHEMA = Schema(SCHEMA_VERSIONS, oldest=10)  # programs of version 9 know no parts, and call other functions

# Functions are code: every upgrade drops them first, and creates this version's at the end.
DROP_FUNCTIONS = read_sql(__package__, "drop_functions.sql")
_FUNCTION_FILES = (*(f"functions_{part}" for part in _FUNCTIONS), "planner_settings")
FUNCTIONS = "\n".join(read_sql(__package__, f"{name}.sql") for name in _FUNCTION_FILES)
