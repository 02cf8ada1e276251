"""Schema versions: which one a file has, and how it is brought to the newest."""

from __future__ import annotations

from pathlib import Path

import apsw

from fairlane.core.errors import StoreUnfit
from fairlane.core.policy import Rules
from fairlane.engine.codec import encode_rules
from fairlane.engine.schema import Schema

from .errors import translate_errors
from .queries import SCHEMA, sql

APPLICATION_ID = 0x4661_6972  # "Fair"


def migrate(connection: apsw.Connection, path: Path, schema: Schema = SCHEMA) -> None:
    """Bring the file to the newest schema; of several processes the first does it and the others change nothing."""
    with translate_errors(path):
        if schema_version(connection, path, schema) >= schema.version:
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            scripts = schema.scripts_after(schema_version(connection, path, schema))
            for script in scripts:
                connection.execute(script)
            if scripts:
                connection.pragma("application_id", APPLICATION_ID)
                connection.pragma("user_version", schema.mark)
            if connection.execute(sql.read_rules_version).fetchone() == (None,):
                rules = Rules()
                connection.execute(sql.add_rules, (rules.version, 0, encode_rules(rules)))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def schema_version(connection: apsw.Connection, path: Path, schema: Schema = SCHEMA) -> int:
    """Return the schema's version, 0 for an empty file; raise StoreUnfit for another program's file or a schema too new."""
    with connection:  # one snapshot: between two reads another process may make a queue of an empty file
        application_id = connection.pragma("application_id")
        is_empty = connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is None
        mark = connection.pragma("user_version")
    if application_id != APPLICATION_ID:
        if not is_empty:
            raise StoreUnfit(f"{path} is an SQLite file, but not a Fairlane queue; give another path")
        return 0
    return schema.refuse_newer(str(path), mark)
