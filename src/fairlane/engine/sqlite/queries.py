"""The SQL statements by name, and the versions of the schema in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlane.engine.queries import Queries, read_sql
from fairlane.engine.schema import Schema

Execute = Callable[..., Any]  # a connection's execute or executemany; rows come back as plain tuples

sql = Queries(read_sql(__package__, "queries.sql"))
SCHEMA_VERSIONS = tuple(read_sql(__package__, f"schema_{version}.sql") for version in (1, 2, 3, 4, 5))
SCHEMA = Schema(SCHEMA_VERSIONS, oldest=5)  # older programs know no parts
