"""Connections to the file: WAL, synchronous=FULL, and how long to wait for the write lock."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from fairlane.engine.schema import Schema

from . import errors
from .errors import translate_errors
from .migrate import schema_version
from .queries import SCHEMA

CACHE_KIBIBYTES = 64 * 1024
WAL_PAGES = 4000  # checkpoint after that many, of 4 KiB each


def connect(path: Path, schema: Schema = SCHEMA) -> apsw.Connection:
    """Open a connection on which a commit returns after its data is on disk."""
    with translate_errors(path):
        connection = apsw.Connection(str(path))
        connection.set_busy_handler(_busy_handler())
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # plans do not depend on values, so none is made twice
        schema_version(connection, path, schema)  # refuse another program's file before anything in it is changed
        _switch_to_wal(connection)
        connection.pragma("synchronous", "FULL")
        connection.pragma("cache_size", -CACHE_KIBIBYTES)
        connection.pragma("wal_autocheckpoint", WAL_PAGES)
        connection.pragma("temp_store", "MEMORY")
        return connection


def _busy_handler() -> Callable[[int], bool]:
    """Poll for the write lock at short random intervals: SQLite's own waits grow to 0.1 s, and busy processes would starve."""
    deadline = 0.0

    def wait(attempt: int) -> bool:
        nonlocal deadline
        if attempt == 0:
            deadline = time.monotonic() + errors.BUSY_SECONDS
        time.sleep(random.uniform(0.0002, 0.002))
        return time.monotonic() < deadline

    return wait


def _switch_to_wal(connection: apsw.Connection) -> None:
    """Set the journal mode, with retries: SQLite calls no busy handler for this lock, and many may open a new file at once."""
    deadline = time.monotonic() + errors.BUSY_SECONDS
    while True:
        try:
            connection.pragma("journal_mode", "WAL")
            return
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.001, 0.02))
